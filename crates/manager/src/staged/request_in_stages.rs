//! The state of a request under the policy `staged`.

use batchmaker_graph::{CellGraph, RequestId, RunIndex};

use crate::decisions::{Decisions, Need};
use crate::staged::waiting::Place;

/// A request, waiting or a member of a batch.
#[derive(Debug, Default)]
pub(super) struct InStages {
    pub(super) place: Place,
    /// The tasks in flight that hold nodes of it.
    pub(super) tasks: u32,
    /// The number of its nodes that are not complete.
    pub(super) nodes: u64,
    /// The workers that were given nodes of it, as bits.
    pub(super) workers: u64,
    /// Which of its runs it needs, where its own data decides that.
    pub(super) decisions: Option<Box<Decisions>>,
    /// The pipeline of its batch.
    pub(super) pipeline: Option<usize>,
}

impl InStages {
    pub(super) fn need(&self, run: RunIndex) -> Need {
        self.decisions.as_ref().map_or(Need::Needed, |decisions| decisions.need(run))
    }

    /// The runs of its graph that it needs, as far as that is known.
    pub(super) fn needed(&self, graph: &CellGraph) -> impl Iterator<Item = RunIndex> {
        let runs = (0..graph.runs().len() as u32).map(RunIndex);
        runs.filter(|&run| self.need(run) != Need::LeftOut)
    }
}

/// The nodes of a request that a task holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) request: RequestId,
    pub(super) run: RunIndex,
    /// The run's first nodes that are complete after the task.
    pub(super) end: u32,
    pub(super) count: u32,
}
