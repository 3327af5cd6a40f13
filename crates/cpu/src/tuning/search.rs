//! The best configuration of a batch: the model ranks all, the first few are run, the fastest is
//! kept (GRNN, section 7.2).

use std::time::Duration;

use super::performance_model::PerformanceModel;
use crate::tuning::configurations::Configuration;
use crate::tuning::trial::Trial;

/// The number of configurations that are run.
pub const CANDIDATES: usize = 5;

/// The most of them that have one strategy and differ in their tilings alone: among these the model is nearly
/// always right within a few percent, while it may be wrong about the strategy.
const OF_A_STRATEGY: usize = 2;

/// The time for which each is run in a turn, and the number of turns.
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

/// The [`CANDIDATES`] to run: the first that are ranked, without too many of one strategy.
pub fn candidates(ranked: &[(Configuration, f64)]) -> Vec<Configuration> {
    let mut chosen: Vec<Configuration> = Vec::new();
    for &(configuration, _) in ranked {
        let of_strategy =
            chosen.iter().filter(|known| known.strategy == configuration.strategy).count();
        if of_strategy < OF_A_STRATEGY {
            chosen.push(configuration);
        }
        if chosen.len() == CANDIDATES {
            break;
        }
    }
    chosen
}

/// The fastest of the [`candidates`], and its nanoseconds a step.
///
/// # Errors
/// If the system gives no threads.
pub fn search(
    model: &PerformanceModel<'_>,
    trial: &mut Trial,
    batch: usize,
    threads: usize,
) -> std::io::Result<(Configuration, f64)> {
    let candidates = candidates(&rank(model, batch, threads));
    let mut measured: Vec<_> = candidates.into_iter().map(|known| (known, f64::MAX)).collect();
    for _ in 0..TURNS {
        for (configuration, least) in &mut measured {
            *least = least.min(trial.step_ns(configuration, batch, TIME)?);
        }
    }
    let fastest = measured.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    Ok(fastest.expect("one thread can always do it all"))
}
