//! `batchmaker profile`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use batchmaker::{CellType, Machine, Precision, Tensor, identity_in_f32, profile_beside};
use batchmaker_bench::{BatchCurve, time_against_throughput};
use batchmaker_device::{BatchSize, Device, DeviceError};

use batchmaker_profile::{
    CellProfile, Difference, GoOn, MeasureError, ModelProfile, ModelStages, Profile, cell_curve,
    difference, in_precision, operator_table, precisions_of, profile_table, takes_sequences,
    times_of,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{MachineArgs, ProfileArgs};
use crate::executor::executor;
use crate::models::only_model;
use crate::stages::Slicer;
use crate::start::print_notes;
use crate::subject::Subject;

/// Measures, writes the profile and prints it.
pub(crate) fn profile(args: &ProfileArgs) -> anyhow::Result<()> {
    let machine_args = MachineArgs {
        threads_per_worker: args.threads_per_worker,
        isa: args.isa,
        device: args.device.clone(),
        ..MachineArgs::default()
    };
    let subject = Subject { args, machine_args };
    let prepared = subject.load(&BTreeMap::new())?;
    print_notes(&prepared);
    let (machine, loaded) = (prepared.machine, &prepared.loaded);
    let model = only_model(&loaded.models, &args.model)?;
    let model_name = model.name.clone();
    let cells: BTreeMap<String, CellType> = model
        .cells
        .iter()
        .map(|cell| (cell.name.clone(), loaded.registry.get(cell.cell_type).clone()))
        .collect();
    drop(prepared);
    // Nobody wants to learn at the end that something cannot be read or written.
    let output = args.output.clone().unwrap_or_else(|| profile_beside(&args.model));
    Profile::check_place(&output)?;
    if let Some(folder) = args.plot.as_ref().and_then(|plot| plot.parent())
        && !folder.is_dir()
        && folder != Path::new("")
    {
        bail!("cannot write the plot: there is no folder '{}'", folder.display());
    }
    let asked = |cell: &CellType| -> Vec<Precision> {
        let of_cell = precisions_of(cell).iter().copied();
        of_cell.filter(|p| *p == Precision::F32 || args.precision.contains(p)).collect()
    };
    let is_f32 = |cell: &CellType| asked(cell) == [Precision::F32];
    let expected = match cells.values().all(is_f32) {
        true => None,
        false => subject.expected()?,
    };

    let turns: usize = cells.values().map(|cell| 2 * asked(cell).len()).sum();
    let bar = progress_bar(turns);
    let tell = |what: String| {
        bar.inc(1);
        bar.set_message(what);
    };
    let device = machine.device_within(usize::MAX, executor(&args.executor)?)?;
    // Under load, no other worker has a core to lend.
    let worker = Machine { workers: 1, ..machine };
    let alone = worker.device_within(usize::MAX, executor(&args.executor)?)?;
    let slicer = Slicer { subject: &subject, device: &*alone, steps: args.steps };
    if args.stages.is_some_and(|count| count > 1) {
        slicer.check()?;
    }
    let measured = Measured { device: &*device, threads: machine.threads_per_worker };
    let mut of_model = measured.cells(&cells, args.steps, asked, tell, &mut || true)?;
    let differs_by = |precisions: &BTreeMap<String, Precision>, expected: &[Vec<Tensor>]| {
        Ok::<_, anyhow::Error>(compare(expected, &subject.replies(precisions)?))
    };
    for (name, cell) in &mut of_model.cells {
        let Some(expected) = &expected else { continue };
        for precision in Precision::ALL.into_iter().filter(|&p| p != Precision::F32) {
            let Some(curve) = cell.curves.get_mut(&precision.to_string()) else { continue };
            tell(format!("the error of {name} in {precision}"));
            let of_cell = [(name.clone(), precision)].into();
            curve.difference = Some(differs_by(&of_cell, expected)?);
        }
    }
    let mut together = None;
    if let Some((expected, max_error)) = expected.as_ref().zip(args.max_error) {
        tell("the error of all precisions together".to_owned());
        let (precisions, difference) =
            choose(&of_model, max_error, |precisions| differs_by(precisions, expected))?;
        for (name, cell) in &mut of_model.cells {
            cell.precision = precisions.get(name).copied().unwrap_or_default().to_string();
        }
        together = difference;
    }
    let found = slicer.stages(args.stages.map(usize::from), |what| {
        bar.inc_length(1);
        tell(what);
    });
    of_model.stages = match found {
        Err(error) if args.stages.is_none() => {
            eprintln!("note: the model is not cut into stages: {error:#}");
            None
        }
        found => found?,
    };
    bar.finish_and_clear();
    print!("{}", profile_table(&of_model, &*device, args.goal));
    if let Some(stages) = &of_model.stages {
        print!("{}", stages.table());
    }
    if let Some(difference) = together {
        println!("in these precisions together: {difference}");
    }
    Profile::keep(&output, &*device, &model_name, of_model.clone())?;
    let found = profile_beside(&args.model) == output && args.model.exists();
    println!(
        "kept in {}{}",
        output.display(),
        if found { "" } else { "; serve, run and bench take it with --profile" }
    );
    if let Some(path) = &args.plot {
        plot(path, &model_name, &*device, &cells, &of_model)?;
        if let Some(stages) = &of_model.stages {
            plot_stages(&figure_of(path, "stages"), &model_name, stages)?;
        }
    }
    if let Some(rows) = args.operators {
        let batch = BatchSize { rows: rows as usize, steps: args.steps };
        let chosen = |(name, cell): (&String, &CellType)| {
            let precision = of_model.cells.get(name).map_or(Precision::F32, CellProfile::precision);
            (name.clone(), in_precision(cell, precision))
        };
        print_operators(&*device, &cells.iter().map(chosen).collect(), batch)?;
    }
    Ok(())
}

/// Prints the times of the operators of all cells that are programs.
fn print_operators(
    device: &dyn Device,
    cells: &BTreeMap<String, CellType>,
    batch: BatchSize,
) -> anyhow::Result<()> {
    for (name, cell) in cells {
        match device.measure_operators(cell, batch) {
            Ok(operators) if operators.is_empty() => {}
            Ok(operators) => print!("{}", operator_table(name, batch, &operators)),
            Err(DeviceError::Cell { reason, .. }) => {
                eprintln!("note: the operators of {name} are not measured: {reason}");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A device to measure cells on.
pub(crate) struct Measured<'a> {
    pub(crate) device: &'a dyn Device,
    /// Threads of a worker.
    pub(crate) threads: usize,
}

impl Measured<'_> {
    /// Measures every cell in the precisions that are asked for. Whole sequences have `steps` steps, or as many as the device knows a cell to
    /// take. `tell` is called with what is measured next, `go_on` before each size of
    /// batch.
    ///
    /// # Errors
    /// The device fails. A precision that it does not take is left out with a note, as is a cell that does not take so many steps.
    pub(crate) fn cells(
        &self,
        cells: &BTreeMap<String, CellType>,
        steps: Option<usize>,
        asked: impl Fn(&CellType) -> Vec<Precision>,
        mut tell: impl FnMut(String),
        go_on: &mut GoOn<'_>,
    ) -> Result<ModelProfile, MeasureError> {
        let mut profile = ModelProfile { threads: self.threads, ..Default::default() };
        for (name, cell) in cells {
            let mut curves = BTreeMap::new();
            for precision in asked(cell) {
                tell(format!("{name} in {precision}"));
                match cell_curve(self.device, cell, precision, steps, go_on) {
                    Ok(curve) => drop(curves.insert(precision.to_string(), curve)),
                    Err(MeasureError::Device(DeviceError::Cell { reason, .. }))
                        if precision != Precision::F32 || takes_sequences(cell) =>
                    {
                        eprintln!("note: {name} is not measured in {precision}: {reason}");
                    }
                    Err(error) => return Err(error),
                }
            }
            let (identity, precision) = (identity_in_f32(cell), Precision::F32.to_string());
            let cell = CellProfile { identity, is_stepped: cell.is_stepped(), precision, curves };
            profile.cells.insert(name.clone(), cell);
        }
        Ok(profile)
    }
}

/// The fastest precisions that keep to the error, each alone and all together; how far replies are
/// from those in f32 with them, where there are several.
fn choose(
    profile: &ModelProfile,
    max_error: f64,
    mut differs_by: impl FnMut(&BTreeMap<String, Precision>) -> anyhow::Result<Difference>,
) -> anyhow::Result<(BTreeMap<String, Precision>, Option<Difference>)> {
    let of_cell = |(name, cell): (&String, &CellProfile)| {
        Some((name.clone(), fastest(cell, max_error, f64::INFINITY)?))
    };
    let mut chosen: BTreeMap<String, Precision> =
        profile.cells.iter().filter_map(of_cell).collect();
    let mut together = None;
    while chosen.len() > 1 {
        let difference = differs_by(&chosen)?;
        together = Some(difference);
        if difference.is_within(max_error) {
            break;
        }
        // The cell that does the most of it alone goes back to what does less.
        let alone = |name: &String| {
            let curve = profile.cells[name].curve(chosen[name]);
            curve.and_then(|curve| curve.difference).map_or(0.0, |found| found.largest)
        };
        let worst = chosen.keys().max_by(|a, b| alone(a).total_cmp(&alone(b)));
        let worst = worst.expect("there are several").clone();
        match fastest(&profile.cells[&worst], max_error, alone(&worst)) {
            Some(precision) => chosen.insert(worst, precision),
            None => chosen.remove(&worst),
        };
    }
    let together = together.filter(|_| chosen.len() > 1);
    Ok((chosen, together))
}

/// The precision with the largest throughput of those that keep to the error and have less than
/// `below`; none where that is f32.
fn fastest(cell: &CellProfile, max_error: f64, below: f64) -> Option<Precision> {
    let within = |precision: &Precision| match cell.curve(*precision) {
        None => false,
        Some(_) if *precision == Precision::F32 => true,
        Some(curve) => curve
            .difference
            .is_some_and(|found| found.is_within(max_error) && found.largest < below),
    };
    let most = |precision: &Precision| {
        let points = cell.curve(*precision).map_or(&[][..], |curve| &curve.points);
        points.iter().map(batchmaker_profile::Point::rows_per_s).fold(0.0, f64::max)
    };
    let all = Precision::ALL.into_iter().filter(within);
    all.max_by(|a, b| most(a).total_cmp(&most(b))).filter(|&precision| precision != Precision::F32)
}

fn compare(expected: &[Vec<Tensor>], actual: &[Vec<Tensor>]) -> Difference {
    difference(expected.iter().flatten().zip(actual.iter().flatten()))
}

/// A figure a cell.
fn plot(
    path: &Path,
    model: &str,
    device: &dyn Device,
    cells: &BTreeMap<String, CellType>,
    profile: &ModelProfile,
) -> anyhow::Result<()> {
    for (name, cell) in cells {
        let of_cell = &profile.cells[name];
        let curves = Precision::ALL.into_iter().filter_map(|precision| {
            let points = &of_cell.curve(precision)?.points;
            let roofs = device.roofs(&in_precision(cell, precision));
            Some(BatchCurve {
                name: precision.to_string(),
                points: points.iter().map(|point| (point.batch, point.us)).collect(),
                rows_per_s_max: roofs.map(|roofs| roofs.rows_per_s_max),
                us_min: roofs.map(|roofs| roofs.ns_min / 1e3),
            })
        });
        let curves: Vec<BatchCurve> = curves.collect();
        if curves.is_empty() {
            continue;
        }
        let threads = profile.threads;
        let title = format!("{model}, {name}: a batch on {threads} threads");
        let path = match cells.len() {
            1 => path.to_owned(),
            _ => figure_of(path, name),
        };
        write_figure(&path, &curves, &title)?;
    }
    Ok(())
}

/// A curve a stage, and one of all together.
fn plot_stages(path: &Path, model: &str, stages: &ModelStages) -> anyhow::Result<()> {
    let pieces = stages.pieces();
    let curve = |name: String, times: &[(u32, u64)]| BatchCurve {
        name,
        points: times.iter().map(|&(batch, ns)| (batch, ns as f64 / 1e3)).collect(),
        rows_per_s_max: None,
        us_min: None,
    };
    let of_stages = pieces.iter().zip(0..);
    let mut curves: Vec<BatchCurve> = of_stages
        .map(|(piece, number): (_, u32)| curve(format!("stage {number}"), &piece.times))
        .collect();
    if pieces.len() > 1 {
        curves.push(curve("all".to_owned(), &times_of(&pieces)));
    }
    write_figure(path, &curves, &format!("{model}: a batch in each stage"))
}

fn write_figure(path: &Path, curves: &[BatchCurve], title: &str) -> anyhow::Result<()> {
    let figure = time_against_throughput(curves, title)?;
    std::fs::write(path, figure).with_context(|| format!("cannot write '{}'", path.display()))
}

/// The figure of a part of what `lstm.svg` is of: `lstm-PART.svg`.
fn figure_of(path: &Path, part: &str) -> PathBuf {
    let stem =
        path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let safe: String = part
        .chars()
        .map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    path.with_file_name(format!("{stem}-{safe}.svg"))
}

fn progress_bar(turns: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed} {wide_bar} {pos} of {len}, {msg}");
    ProgressBar::new(turns as u64).with_style(style.expect("a valid template"))
}

#[cfg(test)]
mod tests {
    use batchmaker_profile::{Curve, Point};

    use super::*;

    /// Faster the less precise, and apart from f32 by so much.
    fn cell(bf16: f64, int8: f64) -> CellProfile {
        let curve = |us: f64, largest: f64| Curve {
            steps: None,
            difference: Some(Difference { largest, mean: largest / 2.0, alike: 1.0 }),
            points: vec![Point::measured(8, us, None)],
        };
        let curves = [("f32", 3.0, 0.0), ("bf16", 2.0, bf16), ("int8", 1.0, int8)];
        CellProfile {
            identity: String::new(),
            is_stepped: true,
            precision: "f32".to_owned(),
            curves: curves.map(|(name, us, largest)| (name.to_owned(), curve(us, largest))).into(),
        }
    }

    #[test]
    fn precisions_keep_to_the_error_together() {
        let cells = [("a".to_owned(), cell(0.01, 0.05)), ("b".to_owned(), cell(0.02, 0.03))];
        let profile = ModelProfile { threads: 1, cells: cells.into(), stages: None };
        let chosen = |max_error: f64| {
            // Errors add up.
            let differs_by = |precisions: &BTreeMap<String, Precision>| {
                let of_cell = |(name, &precision): (&String, &Precision)| {
                    profile.cells[name].curve(precision).unwrap().difference.unwrap().largest
                };
                let largest = precisions.iter().map(of_cell).sum();
                Ok(Difference { largest, mean: 0.0, alike: 1.0 })
            };
            let (precisions, together) = choose(&profile, max_error, differs_by).unwrap();
            let name = |cell: &str| precisions.get(cell).copied().unwrap_or_default();
            ((name("a"), name("b")), together.map(|found| found.largest))
        };
        use Precision::{Bf16, F32, Int8};
        assert_eq!(chosen(0.1), ((Int8, Int8), Some(0.08)));
        assert_eq!(chosen(0.06), ((Bf16, Int8), Some(0.04)));
        assert_eq!(chosen(0.031), ((Bf16, Bf16), Some(0.03)));
        assert_eq!(chosen(0.02), ((Bf16, F32), None), "b went back, and a is within it alone");
        assert_eq!(chosen(0.001), ((F32, F32), None));
    }
}
