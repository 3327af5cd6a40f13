//! The best configuration of a batch: the model ranks all, the first few are run, the fastest is
//! kept (GRNN, section 7.2).

use std::time::Duration;

use super::model::PerformanceModel;
use crate::trial::{Configuration, Trial};

/// Configurations that are run.
pub const CANDIDATES: usize = 5;

/// How long each is run, in turns.
const TIME: Duration = Duration::from_micros(700);
const TURNS: usize = 3;

/// All configurations of a batch, those that are predicted to be the fastest first, with the
/// prediction in nanoseconds a step.
pub fn rank(
    model: &PerformanceModel<'_>,
    batch: usize,
    threads: usize,
) -> Vec<(Configuration, f64)> {
    let all = model.shape.configurations(batch, threads);
    let predicted = |configuration| (configuration, model.step_ns(&configuration, batch));
    let mut ranked: Vec<_> = all.into_iter().map(predicted).collect();
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    ranked
}

/// The fastest of the first [`CANDIDATES`], and what it takes a step, in nanoseconds.
///
/// # Errors
/// Where the system gives no threads.
pub fn search(
    model: &PerformanceModel<'_>,
    trial: &mut Trial,
    batch: usize,
    threads: usize,
) -> std::io::Result<(Configuration, f64)> {
    let mut candidates = rank(model, batch, threads);
    candidates.truncate(CANDIDATES);
    let mut measured: Vec<_> = candidates.into_iter().map(|(known, _)| (known, f64::MAX)).collect();
    for _ in 0..TURNS {
        for (configuration, least) in &mut measured {
            *least = least.min(trial.step_ns(configuration, batch, TIME)?);
        }
    }
    let fastest = measured.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    Ok(fastest.expect("one thread can always do it all"))
}
