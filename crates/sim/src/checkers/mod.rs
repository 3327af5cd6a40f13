//! The rules that must always hold, one idea a file.
//!
//! Each checker gets every [`Observation`](crate::observation::Observation) and may read the
//! [`Ledger`](crate::ledger::Ledger) as it stood before it. It uses nothing but the manager's public
//! API.

mod answers;
mod batches;
mod checker;
mod exactly_once;
#[cfg(test)]
mod harness;
mod pinning;
mod predecessors;
mod progress;
mod queue_order;
mod sessions;
mod slots;

use batchmaker_manager::{Config, Policy};

pub(crate) use checker::Checker;
use checker::Ends;

/// The rules that hold for a manager of `config`.
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
