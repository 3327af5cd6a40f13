//! What must always hold, one idea a file.
//!
//! Each checker is told every [`Observation`] and may read the [`Ledger`] as it stood
//! before it; all that it says comes from the manager's public doors.

mod answers;
mod batches;
mod exactly_once;
mod pinning;
mod predecessors;
mod progress;
mod queue_order;
mod sessions;
mod slots;
#[cfg(test)]
mod stage;

use batchmaker_manager::{Config, Policy};

use crate::ledger::Ledger;
use crate::observation::Observation;

/// A rule that a simulation is held to.
pub(crate) trait Checker {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Says what is wrong with `seen`, if anything is.
    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String>;
}

/// When a request ends, and its slots are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Once nothing of it is left to wait for.
    Alone,
    /// With the batch that it is a member of.
    WithItsBatch,
}

impl Ends {
    fn under(policy: Policy) -> Self {
        match policy {
            Policy::Cellular => Self::Alone,
            Policy::Padded(_) | Policy::Merged(_) => Self::WithItsBatch,
        }
    }
}

/// Those that `config` is to be held to.
pub(crate) fn of(config: &Config) -> Vec<Box<dyn Checker>> {
    let ends = Ends::under(config.policy);
    let mut checkers: Vec<Box<dyn Checker>> = vec![
        Box::new(exactly_once::ExactlyOnce),
        Box::new(predecessors::Predecessors::default()),
        Box::new(pinning::Pinning),
        Box::new(batches::Batches::new(config)),
        Box::new(slots::Slots::new(config, ends)),
        Box::new(answers::Answers::new(ends)),
    ];
    if config.policy == Policy::Cellular {
        checkers.push(Box::new(queue_order::QueueOrder::new(config)));
        checkers.push(Box::new(progress::Progress::new(config)));
        checkers.push(Box::new(sessions::Sessions));
    }
    checkers
}
