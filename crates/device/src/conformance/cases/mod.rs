//! The cases, a file for each rule.

mod admission;
mod chains;
mod computed_ids;
mod ends;
mod failures;
mod lifetimes;
mod losses;
mod mixed;
mod moved;
mod plans;
mod precisions;
mod rounds;
mod row_wise;
mod sequence_level;
mod sessions;
mod states;
mod streams;
mod trees;
mod working_bytes;

use crate::conformance::case::Case;

/// All cases of the suite, in the order in which they run.
pub fn cases() -> Vec<Case> {
    [
        chains::cases(),
        mixed::cases(),
        trees::cases(),
        row_wise::cases(),
        sequence_level::cases(),
        ends::cases(),
        sessions::cases(),
        states::cases(),
        moved::cases(),
        streams::cases(),
        rounds::cases(),
        failures::cases(),
        computed_ids::cases(),
        losses::cases(),
        lifetimes::cases(),
        admission::cases(),
        working_bytes::cases(),
        plans::cases(),
        precisions::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
