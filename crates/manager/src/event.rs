//! The events that the manager handles, and how it reports requests that ended.

use std::sync::Arc;

#[expect(unused_imports, reason = "for the documentation")]
use batchmaker_graph::Chunk;
use batchmaker_graph::{
    CellGraph, Decision, DecisionIndex, EndOfSequence, ModelId, RequestId, SessionId, TaskId,
    WorkerId,
};

#[expect(unused_imports, reason = "for the documentation")]
use crate::config::{CellTypeConfig, Config};

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request was admitted. Its id's position must not be in use.
    Arrive {
        /// The request's id until it finishes.
        request: RequestId,
        /// The model it is for.
        model: ModelId,
        /// 1 is served first, then 2, …; 0, the default, comes after all of them. Priorities above
        /// 65,534 count as that.
        priority: u32,
        /// The time, on the clock of [`crate::Manager::handle`] in nanoseconds, at which nobody waits
        /// for the request any more: it ends with [`Outcome::TimedOut`], as if it were cancelled then.
        deadline_ns: Option<u64>,
        /// The cells to compute.
        graph: Arc<CellGraph>,
        /// The session that the request is a chunk of; none for a whole sequence. A session begins with
        /// a [`Chunk::First`]. A chunk runs when those that arrived before it have ended. No chunk has
        /// more chains of a cell type than [`CellTypeConfig::slots_max`].
        session: Option<SessionId>,
    },
    /// No chunk of the session comes any more: it ends after those that arrived.
    EndSession {
        /// A session that began and has not been ended.
        session: SessionId,
    },
    /// A worker ran its oldest unfinished task.
    Complete {
        /// The worker.
        worker: WorkerId,
        /// The task.
        task: TaskId,
    },
    /// The first steps of a worker's oldest unfinished task, one of a roster, are complete. What
    /// depends on them may run elsewhere, and [`crate::Manager::completed_nodes`] counts them. If the
    /// task fails after that, so do those only that have nodes in its other steps. Closed batches,
    /// which end as a whole, take no notice.
    Progress {
        /// The worker.
        worker: WorkerId,
        /// The task.
        task: TaskId,
        /// The number of its steps that are complete in all: more than were reported before, and fewer
        /// than it has, since the last one comes with [`Event::Complete`].
        steps: u32,
    },
    /// An open chain reached its end of sequence, in steps that are about to be reported as complete.
    /// Ignored if its request has finished.
    EndOfSequence {
        /// The chain, and how many nodes it ran.
        chain: EndOfSequence,
    },
    /// A decision of a request fell: the row that [`Undecided`] names was read. Runs whose guards it fails are left out. Ignored
    /// if the request has finished.
    Decided {
        /// The request.
        request: RequestId,
        /// Which of its decisions.
        decision: DecisionIndex,
        /// The truth value, or the reason why the row could not be read: the request fails.
        outcome: Result<bool, Arc<str>>,
    },
    /// A worker could not run its oldest unfinished task; the requests in it fail.
    TaskFailed {
        /// The worker.
        worker: WorkerId,
        /// The task.
        task: TaskId,
        /// The reason, in words for whoever sent these requests.
        reason: Arc<str>,
    },
    /// Nobody waits for the request any more. Ignored if it has finished.
    Cancel {
        /// The request.
        request: RequestId,
    },
    /// New limits hold for batches that are formed from now on, since cells were profiled
    /// meanwhile. A standing batch that is over the limit loses its last members, which wait again.
    Limits {
        /// `Bsizes.Max()` of each cell type, by id; at least 1. A larger `Bsizes.Min()` comes down
        /// to it, and it comes down to [`CellTypeConfig::rows_max`].
        batch_max: Vec<u32>,
        /// See [`Config::submission_window_ns`].
        submission_window_ns: Option<u64>,
    },
    /// A worker is back, with nothing in flight and empty rosters.
    WorkerUp {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker is lost with everything it had in flight. It gets no task until it is back.
    WorkerDown {
        /// The worker.
        worker: WorkerId,
        /// The reason, in words for whoever sent the requests that are lost with it.
        reason: Arc<str>,
    },
}

/// A decision whose row is written: whoever drives the manager reads it, and reports [`Event::Decided`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The request.
    pub request: RequestId,
    /// Which of its decisions.
    pub index: DecisionIndex,
    /// The row to read.
    pub decision: Decision,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A task that held some of its nodes failed, for the reason that [`Event::TaskFailed`] gave.
    Task(Arc<str>),
    /// The worker that held its state or ran its nodes was lost, for the reason that
    /// [`Event::WorkerDown`] gave.
    WorkerLost(Arc<str>),
    /// It is a chunk of a session that lost an earlier chunk or its state.
    SessionLost,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every node ran.
    Succeeded,
    /// It was cancelled first.
    Cancelled,
    /// Its deadline was reached first.
    TimedOut,
    /// It was refused when it arrived: even alone it could not have met its deadline, by the least
    /// time that steps of its cells have taken so far.
    Unmeetable,
    /// It cannot be completed.
    Failed(Failure),
}

/// A request that ended. No task in flight holds any of its nodes, and its slots are free, or its
/// session's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The request.
    pub request: RequestId,
    /// The outcome.
    pub outcome: Outcome,
    /// The time from arrival to the first task that held one of its nodes, in nanoseconds.
    pub queue_ns: u64,
    /// The time from arrival to the end, in nanoseconds.
    pub total_ns: u64,
}
