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
mod slots;
#[cfg(test)]
mod stage;

use batchmaker_manager::Config;

use crate::ledger::Ledger;
use crate::observation::Observation;

/// A rule that a simulation is held to.
pub(crate) trait Checker {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// Says what is wrong with `seen`, if anything is.
    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String>;
}

/// All of them.
pub(crate) fn all(config: &Config) -> Vec<Box<dyn Checker>> {
    vec![
        Box::new(exactly_once::ExactlyOnce),
        Box::new(predecessors::Predecessors::default()),
        Box::new(pinning::Pinning),
        Box::new(batches::Batches::new(config)),
        Box::new(slots::Slots::new(config.cell_types.len())),
        Box::new(queue_order::QueueOrder::new(config)),
        Box::new(progress::Progress),
        Box::new(answers::Answers),
    ]
}
