//! The interface of checkers, and what differs between the policies.

use batchmaker_manager::Policy;

use crate::ledger::Ledger;
use crate::observation::Observation;

/// A rule that a simulation must keep.
pub(crate) trait Checker {
    /// The checker's name in reports.
    fn name(&self) -> &'static str;

    /// Checks `seen` against the rule, with `ledger` as it stood before.
    ///
    /// # Errors
    /// The reason why `seen` breaks the rule.
    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String>;
}

/// When a request ends, and its slots are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// As soon as its own nodes are complete.
    Alone,
    /// With the batch that it is a member of.
    WithItsBatch,
}

impl Ends {
    /// When requests end under `policy`.
    pub(super) fn under(policy: Policy) -> Self {
        match policy {
            Policy::Cellular | Policy::Staged(_) | Policy::Delayed(_) => Self::Alone,
            Policy::Padded(_) | Policy::Merged(_) => Self::WithItsBatch,
        }
    }
}
