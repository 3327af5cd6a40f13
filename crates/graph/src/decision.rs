//! Decisions: which runs a request needs, where its own data says so while it runs.
//!
//! A network with early exits, or one that skips layers, computes a truth value and goes on by it. The row that holds the
//! value is a *decision* of the request, and the runs of one branch have it as their *guard*. Once the row is written and
//! read, the runs whose guards it fails are left out: they count as complete, and what depends on them may run. Their rows
//! are undefined then, so whoever reads them must not use what he reads (`Where` of the same truth value takes the other
//! branch's).
//!
//! A guard permits: a policy that runs the run all the same gets the same reply.

use crate::ids::{DecisionIndex, RunIndex, ValueIndex};

/// A truth value of a request that says which of its runs are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The value that holds it, whose rows are one BOOL each.
    pub value: ValueIndex,
    /// Its row there.
    pub row: u32,
    /// The run that writes the row.
    pub run: RunIndex,
    /// The number of that run's first nodes after which the row is written.
    pub nodes: u32,
}

/// An output of which some rows are another value's, by a truth value for each row: what is computed up to an early exit, and what is
/// computed without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The output.
    pub output: ValueIndex,
    /// The value, of one BOOL a row, that is true where the row is the other's.
    pub condition: ValueIndex,
    /// The other value, of as many rows of as many elements.
    pub other: ValueIndex,
}

/// The condition for a run to be needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The decision.
    pub decision: DecisionIndex,
    /// The truth value for which the run is needed. If the run that was to decide is itself left out, the run is not needed.
    pub when: bool,
}
