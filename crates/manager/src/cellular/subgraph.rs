//! A subgraph: one run of a request's cell graph, with its progress.

use std::collections::VecDeque;
use std::sync::Arc;

use batchmaker_graph::{CellTypeId, Need, RequestId, RunIndex, RunKind, SlotId, TaskId, WorkerId};

/// A position in the table of subgraphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SubgraphIndex(pub(crate) u32);

/// The order of a type's queue: request priority, then arrival, then position in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    /// The wire's priority, with "unset" after every explicit one.
    pub(crate) priority: u32,
    /// Counts arrivals.
    pub(crate) arrival: u64,
    pub(crate) run: RunIndex,
}

/// Where a subgraph stands with its type's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// No node is ready for any worker.
    Blocked,
    /// Some node is ready for some worker: in the queue.
    Waiting,
    /// In the standing batch of a worker.
    Roster(WorkerId),
    /// Ran to its end, or was given up.
    Ended,
}

/// A stay in a roster. Steps count those of the roster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    /// The roster step that ran the subgraph's node `node`.
    pub(crate) join_step: u64,
    /// The first node of the stay.
    pub(crate) node: u32,
    /// The roster step that no longer ran it; `u64::MAX` while it stays.
    pub(crate) leave_step: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SubgraphEdge {
    pub(crate) producer: SubgraphIndex,
    pub(crate) need: Need,
}

#[derive(Debug)]
pub(crate) struct Subgraph {
    pub(crate) request: RequestId,
    pub(crate) run: RunIndex,
    pub(crate) cell_type: CellTypeId,
    pub(crate) kind: RunKind,
    /// Its nodes; of a chain that said stop, those that were submitted.
    pub(crate) length: u32,
    /// Whether it said stop: nothing of it is computed any more.
    pub(crate) is_stopped: bool,
    /// See [`batchmaker_graph::Run::precedence`].
    pub(crate) precedence: Arc<[u32]>,
    pub(crate) key: QueueKey,
    pub(crate) edges: Vec<SubgraphEdge>,
    pub(crate) consumers: Vec<SubgraphIndex>,
    pub(crate) place: Place,
    /// Nodes submitted before the current stay in a roster.
    pub(crate) submitted: u32,
    /// Nodes completed before the oldest of `stays`.
    pub(crate) completed: u32,
    /// Stays in the roster of the worker that it is pinned to, oldest first; empty
    /// when nothing is in flight.
    pub(crate) stays: VecDeque<Stay>,
    /// `pinned` of Algorithm 1, for a subgraph outside a roster. The paper counts the
    /// tasks in flight that hold nodes of the subgraph; tasks of a worker complete
    /// in order, so it is unpinned when the last of them is complete.
    pub(crate) pin: Option<WorkerId>,
    /// The last task that held rows of a row-wise subgraph.
    pub(crate) last_task: TaskId,
    /// The worker that ran it last.
    pub(crate) home: Option<WorkerId>,
    pub(crate) slot: Option<SlotId>,
}

impl Subgraph {
    /// Whether every node has been submitted.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.submitted == self.length
    }
}
