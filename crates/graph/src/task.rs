//! Batched tasks: what the manager asks of a device (section 4.2 of the BatchMaker paper).

use crate::{CellTypeId, RequestId, RunIndex, SlotId, TaskId, WorkerId};

/// Work for one worker on cells of one type. Tasks of a worker run in the order
/// of their ids and complete in that order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchedTask {
    /// The task's number on its worker.
    pub id: TaskId,
    /// The worker that runs it.
    pub worker: WorkerId,
    /// The type of all its cells.
    pub cell_type: CellTypeId,
    /// The nodes.
    pub work: Work,
}

/// The memories in which workers keep states and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePlacement {
    /// All workers share one memory; what a lost worker computed before remains.
    Shared,
    /// Each worker has its own: state moves when a subgraph moves, and is lost with its
    /// worker.
    PerWorker,
}

/// The two forms of a batched task.
///
/// Nodes past the end of their run are **padding**: the device computes them like others, and what
/// comes out goes nowhere. A policy that pads sequences to one length has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Explicit: every item is listed. One batch.
    Rows(Vec<Item>),
    /// Changes to the standing list of chains (the *roster*) that the device keeps
    /// for this worker and cell type, then `steps` batches that each run one step of
    /// every chain on the list. Leaves come before joins.
    Roster {
        /// Slots that leave the list.
        leaves: Vec<SlotId>,
        /// Chains that join the list.
        joins: Vec<Join>,
        /// The number of steps to run, at least 1.
        steps: u32,
    },
}

/// Nodes of one run: `count` rows of a row-wise run, or one step of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// The request of the nodes.
    pub request: RequestId,
    /// The run of the request.
    pub run: RunIndex,
    /// The first node.
    pub first: u32,
    /// The number of nodes; 1 for a chain.
    pub count: u32,
    /// The slot of a chain's state; none for a row-wise run.
    pub slot: Option<SlotId>,
    /// The worker whose memory holds the chain's state, where that is another one.
    pub moved_from: Option<WorkerId>,
}

/// A chain that enters a roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Join {
    /// The request of the chain.
    pub request: RequestId,
    /// The run of the request.
    pub run: RunIndex,
    /// The slot of its state. At step 0 the device sets the state to the initial one.
    pub slot: SlotId,
    /// The step it runs first; rises by one every step.
    pub step: u32,
    /// The worker whose memory holds the chain's state, where that is another one.
    pub moved_from: Option<WorkerId>,
}

/// A chain reached its end of sequence: the output of its last node met its [`Stop`](crate::Stop).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfSequence {
    /// The request of the chain.
    pub request: RequestId,
    /// The run of the request.
    pub run: RunIndex,
    /// The number of nodes that it ran, the one that met the condition included.
    pub nodes: u32,
}
