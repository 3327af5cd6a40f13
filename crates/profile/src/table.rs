//! Profiles for people.

use std::fmt::Write as _;

use batchmaker_device::Device;
use batchmaker_graph::{Precision, StatePlacement};

use crate::curve::{Curve, Point};
use crate::file::{CellProfile, ModelProfile};
use crate::goal::Goal;

/// A table a cell: times and throughputs over size of batch in each precision, how the device ran
/// them, how far replies are from those in f32, and the limits that a goal leads to.
pub fn profile_table(profile: &ModelProfile, device: &dyn Device, goal: Goal) -> String {
    let mut text = String::new();
    let capabilities = device.capabilities();
    let worker = match (capabilities.placement, profile.threads) {
        (StatePlacement::PerWorker, _) => format!("on {}", capabilities.processor),
        (StatePlacement::Shared, 1) => "a worker of 1 thread".to_owned(),
        (StatePlacement::Shared, threads) => format!("a worker of {threads} threads"),
    };
    for (name, cell) in &profile.cells {
        let _ = writeln!(text, "{name}, {worker}");
        if curves_of(cell).next().is_none() {
            text.push_str("  was not measured\n");
            continue;
        }
        let curves = || curves_of(cell);
        let steps = curves().find_map(|(_, curve)| curve.steps);
        let (one, many) = if steps.is_some() { ("seqs", "seqs/s") } else { ("rows", "rows/s") };
        if let Some(steps) = steps {
            let _ = writeln!(text, "  whole sequences, here of {steps} steps");
        }
        let _ = write!(text, "  {one:>6}");
        for (precision, _) in curves() {
            let _ = write!(text, "  {:>12} {many:>12}", format!("{precision} us"));
        }
        let is_planned =
            curves().any(|(_, curve)| curve.points.iter().any(|point| point.plan().is_some()));
        text.push_str(if is_planned { "  how (f32)\n" } else { "\n" });
        let mut sizes: Vec<u32> =
            curves().flat_map(|(_, curve)| &curve.points).map(|point| point.batch).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let _ = write!(text, "  {size:>6}");
            for (_, curve) in curves() {
                match curve.points.iter().find(|point| point.batch == size) {
                    Some(point) => {
                        let _ = write!(text, "  {:>12.1} {:>12.0}", point.us, point.rows_per_s());
                    }
                    None => {
                        let _ = write!(text, "  {:>12} {:>12}", "-", "-");
                    }
                }
            }
            let f32s = cell.curve(Precision::F32);
            let of_size = f32s.and_then(|curve| curve.points.iter().find(|p| p.batch == size));
            let plan = of_size.and_then(Point::plan);
            if let Some(Ok(how)) = plan.map(|plan| device.describe(&plan)) {
                let _ = write!(text, "  {how}");
            }
            text.push('\n');
        }
        for (precision, curve) in curves() {
            if let Some(difference) = curve.difference {
                let _ = writeln!(text, "  {precision}: {difference}");
            }
        }
        let stepped = profile.stepped_cells();
        let choice = cell.curve(cell.precision()).and_then(|curve| goal.choose(curve, stepped));
        if let Some(choice) = choice {
            let window = match choice.submission_window {
                Some(window) => format!(", {:.1} ms submitted ahead", window.as_secs_f64() * 1e3),
                None => String::new(),
            };
            let unmet =
                if choice.is_met { "" } else { " (no batch is fast enough: as for latency)" };
            let _ = writeln!(
                text,
                "  for {goal}{unmet}: {}, batches up to {}{window}",
                cell.precision, choice.max_batch_size
            );
        }
    }
    text
}

/// The curves of a cell, the most precise first.
fn curves_of(cell: &CellProfile) -> impl Iterator<Item = (Precision, &Curve)> {
    Precision::ALL.into_iter().filter_map(|precision| Some((precision, cell.curve(precision)?)))
}
