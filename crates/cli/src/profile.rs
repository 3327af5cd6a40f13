//! `batchmaker profile`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use batchmaker_bench::{BatchCurve, InProcess, Service as _, time_against_throughput};
use batchmaker_cpu::Isa;
use batchmaker_engine::{Engine, Pending, Policy};
use batchmaker_graph::{CellType, Precision, Tensor};
use batchmaker_profile::{
    CellProfile, Difference, Hardware, Machine, ModelProfile, Profile, cell_curve, difference,
    precisions_of, table,
};
use batchmaker_server::offline;
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{CellArgs, MachineArgs, OfCell, ProfileArgs};
use crate::models::{self, Loaded};
use crate::profiled::{beside, identity_in_f32};
use crate::start::{Cores, Limits, start};

/// Random requests.
const REQUESTS: usize = 64;

/// Measures, writes the profile and prints it.
pub(crate) fn profile(args: &ProfileArgs) -> anyhow::Result<()> {
    let machine_args = MachineArgs {
        threads_per_worker: args.threads_per_worker,
        isa: args.isa,
        ..MachineArgs::default()
    };
    let cores = Cores::new(&machine_args)?;
    let loaded = load(args, CellArgs::default())?;
    loaded.tell_notes();
    let machine = cores.machine(&loaded.registry);
    let [model] = &loaded.models[..] else {
        bail!("'{}' holds {} models: name one", args.model.display(), loaded.models.len());
    };
    let model_name = model.name.clone();
    let cells: BTreeMap<String, CellType> = model
        .cells
        .iter()
        .map(|cell| (cell.name.clone(), loaded.registry.get(cell.cell_type).clone()))
        .collect();
    let output = args.output.clone().unwrap_or_else(|| beside(&args.model));
    let known = Profile::read(&output).ok();
    // Nobody wants to learn at the end that it cannot be written.
    of_machine(known.clone(), machine.isa).write(&output)?;

    let asked = |cell: &CellType| -> Vec<Precision> {
        let of_cell = precisions_of(cell).iter().copied();
        of_cell.filter(|p| *p == Precision::F32 || args.precision.contains(p)).collect()
    };
    let turns: usize = cells.values().map(|cell| 2 * asked(cell).len()).sum();
    let bar = progress_bar(1 + turns);
    let tell = |what: String| {
        bar.inc(1);
        bar.set_message(what);
    };
    tell("the machine's limits".to_owned());
    let hardware = Hardware::measure(machine.isa, machine.threads_per_worker)?;
    let before = |what| {
        tell(what);
        Ok(())
    };
    let mut of_model = measure_cells(&hardware, &cells, asked, before)?;
    drop(loaded);

    let is_f32 = |cell: &CellType| asked(cell) == [Precision::F32];
    let expected = match cells.values().all(is_f32) {
        true => None,
        false => replies(args, &cores, &machine_args, CellArgs::default())?,
    };
    if expected.is_none() && !cells.values().all(is_f32) {
        eprintln!(
            "note: its requests have no lengths to draw: what precisions change is not measured; give \
             requests with --requests"
        );
    }
    for (name, cell) in cells.iter().filter(|_| expected.is_some()) {
        for precision in asked(cell).into_iter().filter(|&p| p != Precision::F32) {
            tell(format!("the error of {name} in {precision}"));
            let of_cell = OfCell { cell: Some(name.clone()), value: precision };
            let cell_args = CellArgs { precision: vec![of_cell], ..CellArgs::default() };
            let actual = replies(args, &cores, &machine_args, cell_args)?;
            let [expected, actual] =
                [&expected, &actual].map(|replies| replies.as_deref().unwrap_or_default());
            let found = compare(expected, actual);
            let curves = of_model.cells.get_mut(name).map(|cell| &mut cell.curves);
            if let Some(curve) = curves.and_then(|c| c.get_mut(&precision.to_string())) {
                curve.difference = Some(found);
            }
        }
    }
    bar.finish_and_clear();
    for cell in of_model.cells.values_mut() {
        cell.precision = fastest(cell, args.max_error).to_string();
    }
    print!("{}", table(&of_model, args.goal));
    if let Some(path) = &args.plot {
        plot(path, &model_name, &hardware, &cells, &of_model)?;
    }
    keep(&output, known, machine.isa, &model_name, of_model)?;
    let found = beside(&args.model) == output && args.model.exists();
    println!(
        "kept in {}{}",
        output.display(),
        if found { "" } else { "; serve, run and bench take it with --profile" }
    );
    Ok(())
}

/// Measures every cell in the precisions that are asked for, each after `before`, which is told what
/// comes.
pub(crate) fn measure_cells(
    hardware: &Hardware,
    cells: &BTreeMap<String, CellType>,
    asked: impl Fn(&CellType) -> Vec<Precision>,
    mut before: impl FnMut(String) -> anyhow::Result<()>,
) -> anyhow::Result<ModelProfile> {
    let mut profile = ModelProfile { threads: hardware.threads, ..Default::default() };
    for (name, cell) in cells {
        let mut curves = BTreeMap::new();
        for precision in asked(cell) {
            before(format!("{name} in {precision}"))?;
            if let Some(curve) = cell_curve(hardware, cell, precision)? {
                curves.insert(precision.to_string(), curve);
            }
        }
        let (identity, precision) = (identity_in_f32(cell), Precision::F32.to_string());
        profile.cells.insert(name.clone(), CellProfile { identity, precision, curves });
    }
    Ok(profile)
}

/// What is known, if it is of this machine.
fn of_machine(known: Option<Profile>, isa: Isa) -> Profile {
    let here = Machine::here(isa);
    known.filter(|known| known.machine == here).unwrap_or_else(|| Profile::new(here))
}

/// Writes a model's profile to a file, beside those of other models there.
pub(crate) fn keep(
    file: &Path,
    known: Option<Profile>,
    isa: Isa,
    model: &str,
    of_model: ModelProfile,
) -> anyhow::Result<()> {
    let mut profile = of_machine(known, isa);
    profile.models.insert(model.to_owned(), of_model);
    Ok(profile.write(file)?)
}

fn load(args: &ProfileArgs, cells: CellArgs) -> anyhow::Result<Loaded> {
    models::load_plainly(std::slice::from_ref(&args.model), &cells)
}

/// The tensors of the replies to the requests that errors are measured on, in precisions; none where
/// requests have to be drawn and cannot be.
fn replies(
    args: &ProfileArgs,
    cores: &Cores,
    machine_args: &MachineArgs,
    cells: CellArgs,
) -> anyhow::Result<Option<Vec<Vec<Tensor>>>> {
    let loaded = load(args, cells)?;
    let machine = cores.machine(&loaded.registry);
    let model = loaded.models[0].name.clone();
    let limits = Limits::of_own(usize::MAX);
    let engine = start(loaded, machine, machine_args, Policy::Cellular, limits)?;
    let pending = match &args.requests {
        Some(path) => given(&engine, &model, path)?,
        None => match InProcess::new(&engine, &model, args.seed) {
            Ok(service) => random(&engine, &model, service, args)?,
            Err(_) => return Ok(None),
        },
    };
    let tensors = |pending: Pending| -> anyhow::Result<Vec<Tensor>> {
        let tensors = pending.wait()?.outputs;
        Ok(tensors.into_iter().map(|output| output.tensor).collect())
    };
    pending.into_iter().map(tensors).collect::<anyhow::Result<_>>().map(Some)
}

fn given(engine: &Engine, model: &str, path: &Path) -> anyhow::Result<Vec<Pending>> {
    let failed = || format!("cannot read '{}'", path.display());
    let file = BufReader::new(File::open(path).with_context(failed)?);
    let mut all = Vec::new();
    for (number, line) in (1..).zip(file.split(b'\n')) {
        let line = line.with_context(failed)?;
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            continue;
        }
        let (_, pending) = offline::submit(engine, model, line)
            .with_context(|| format!("line {number} of '{}'", path.display()))?;
        all.push(pending);
    }
    if all.is_empty() {
        bail!("'{}' holds no requests", path.display());
    }
    Ok(all)
}

fn random(
    engine: &Engine,
    model: &str,
    mut service: InProcess<'_>,
    args: &ProfileArgs,
) -> anyhow::Result<Vec<Pending>> {
    let shapes = args.workload.shapes(service.arity(), REQUESTS, args.seed)?;
    let submit = |(index, shape)| Ok(engine.submit(model, service.prepare(index, shape))?);
    shapes.iter().enumerate().map(submit).collect()
}

fn compare(expected: &[Vec<Tensor>], actual: &[Vec<Tensor>]) -> Difference {
    difference(expected.iter().flatten().zip(actual.iter().flatten()))
}

/// The precision with the largest throughput of those within the error.
fn fastest(cell: &CellProfile, max_error: Option<f64>) -> Precision {
    let Some(max_error) = max_error else { return Precision::F32 };
    let within = |precision: &Precision| match cell.curve(*precision) {
        None => false,
        Some(_) if *precision == Precision::F32 => true,
        Some(curve) => {
            curve.difference.is_some_and(|found| found.largest <= max_error && found.alike == 1.0)
        }
    };
    let most = |precision: &Precision| {
        let points = cell.curve(*precision).map_or(&[][..], |curve| &curve.points);
        points.iter().map(batchmaker_profile::Point::rows_per_s).fold(0.0, f64::max)
    };
    let all = Precision::ALL.into_iter().filter(within);
    all.max_by(|a, b| most(a).total_cmp(&most(b))).unwrap_or_default()
}

/// A figure a cell.
fn plot(
    path: &Path,
    model: &str,
    hardware: &Hardware,
    cells: &BTreeMap<String, CellType>,
    profile: &ModelProfile,
) -> anyhow::Result<()> {
    for (name, cell) in cells {
        let of_cell = &profile.cells[name];
        let curves = Precision::ALL.into_iter().filter_map(|precision| {
            let points = &of_cell.curve(precision)?.points;
            let roofs = hardware.roofs(cell, precision);
            Some(BatchCurve {
                name: precision.to_string(),
                points: points.iter().map(|point| (point.batch, point.us)).collect(),
                rows_per_s_max: roofs.map(|(rows_per_s, _)| rows_per_s),
                us_min: roofs.map(|(_, us)| us),
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
            _ => of_cell_path(path, name),
        };
        let figure = time_against_throughput(&curves, &title)?;
        std::fs::write(&path, figure)
            .with_context(|| format!("cannot write '{}'", path.display()))?;
    }
    Ok(())
}

/// `lstm.svg` of a cell: `lstm-CELL.svg`.
fn of_cell_path(path: &Path, cell: &str) -> PathBuf {
    let stem =
        path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let safe: String = cell
        .chars()
        .map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    path.with_file_name(format!("{stem}-{safe}.svg"))
}

fn progress_bar(turns: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed} {wide_bar} {pos} of {len}, {msg}");
    ProgressBar::new(turns as u64).with_style(style.expect("a valid template"))
}
