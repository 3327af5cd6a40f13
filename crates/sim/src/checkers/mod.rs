//! The rules that must always hold, one idea a file.
//!
//! Each checker gets every [`Observation`](crate::observation::Observation) and may read the
//! [`Ledger`](crate::ledger::Ledger) as it stood before it. It uses nothing but the manager's public
//! API.

mod answers;
mod batches;
mod checker;
mod deadlines;
mod decisions;
mod exactly_once;
#[cfg(test)]
mod harness;
mod in_stages;
mod patience;
mod pinning;
mod predecessors;
mod progress;
mod queue_order;
mod refusals;
mod sessions;
mod shares;
mod slots;
mod waits;

use batchmaker_manager::{Config, Policy};
use batchmaker_simulated::CellCost;

pub(crate) use checker::Checker;
use checker::Ends;

/// The pattern in which requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// At times that are settled beforehand, whatever the workers can bear.
    Any,
    /// From clients that wait for one answer before they send the next request.
    Steady,
}

/// The rules that hold for a manager of `config`, in a simulation with that `load`. `costs` are those of the
/// cell types, where the manager learns exactly how long tasks take.
pub(crate) fn of(config: &Config, costs: Option<&[CellCost]>, load: Load) -> Vec<Box<dyn Checker>> {
    let ends = Ends::under(config.policy);
    let mut checkers: Vec<Box<dyn Checker>> = vec![
        Box::new(exactly_once::ExactlyOnce),
        Box::new(predecessors::Predecessors::default()),
        Box::new(pinning::Pinning),
        Box::new(batches::Batches::new(config)),
        Box::new(slots::Slots::new(config, ends)),
        Box::new(answers::Answers::new(ends)),
        Box::new(deadlines::Deadlines::new(config)),
    ];
    if let Some(in_stages) = in_stages::InStages::of(config) {
        checkers.push(Box::new(in_stages));
    }
    if config.policy == Policy::Cellular || config.policy.is_of_rows() {
        checkers.push(Box::new(decisions::Decisions));
    }
    if config.policy == Policy::Cellular {
        checkers.push(Box::new(sessions::Sessions));
    }
    // Beside models in stages, a worker's turn may be theirs.
    if config.policy == Policy::Cellular && config.staged_models.is_empty() {
        checkers.push(Box::new(queue_order::QueueOrder::new(config)));
        checkers.push(Box::new(progress::Progress::new(config)));
        checkers.push(Box::new(patience::Patience::new(config)));
        checkers.push(Box::new(shares::Shares::new(config)));
        if load == Load::Steady {
            checkers.push(Box::new(waits::Waits::new(config)));
        }
        if let Some(costs) = costs {
            checkers.push(Box::new(refusals::Refusals::new(costs)));
        }
    }
    checkers
}
