//! Observations of the manager, and the nodes of each batch of a task.

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellTypeId, DecisionIndex, EndOfSequence, Join, ModelId, RequestId,
    RunIndex, SessionId, SlotId, TaskId, Work, WorkerId,
};
use batchmaker_manager::{BatchInStages, CellTypeStatistics, Finished};

/// An event that the manager handled, or something that it returned, in the order of time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Observation<'a> {
    Arrived {
        request: RequestId,
        model: ModelId,
        priority: u32,
        deadline_ns: Option<u64>,
        graph: &'a Arc<CellGraph>,
        /// The session that it is a chunk of.
        session: Option<SessionId>,
    },
    /// No chunk of the session comes any more.
    SessionEnding {
        session: SessionId,
    },
    /// The manager reported the session's end.
    SessionEnded {
        session: SessionId,
    },
    Cancelled {
        request: RequestId,
    },
    /// Followed by the task's batches.
    Submitted {
        task: &'a BatchedTask,
    },
    /// Nodes that run together, after those of the worker's batches before.
    Batch {
        worker: WorkerId,
        task: TaskId,
        cell_type: CellTypeId,
        nodes: &'a [Nodes],
    },
    /// A worker asked and got no task.
    Refused {
        worker: WorkerId,
    },
    /// The first `steps` steps of a worker's oldest task are complete.
    Progressed {
        worker: WorkerId,
        task: TaskId,
        steps: u32,
    },
    Over {
        worker: WorkerId,
        task: TaskId,
        end: TaskEnd<'a>,
    },
    /// An open chain ends here, whatever its bound.
    EndOfSequence {
        chain: EndOfSequence,
    },
    /// A decision of a request fell, or could not be read.
    Decided {
        request: RequestId,
        decision: DecisionIndex,
        outcome: &'a Result<bool, Arc<str>>,
    },
    /// New limits hold from now on: `Bsizes.Max()` of each cell type.
    Limits {
        batch_max: &'a [u32],
    },
    WorkerUp {
        worker: WorkerId,
    },
    WorkerDown {
        worker: WorkerId,
        reason: &'a Arc<str>,
    },
    Finished {
        finished: &'a Finished,
    },
    /// The batches in stages, after a task that the manager submitted, and before [`Self::Settled`].
    InStages {
        batches: &'a [BatchInStages],
    },
    /// The manager knows all that happened so far, and was asked for all that it has.
    Settled {
        requests: usize,
        deadline_ns: Option<u64>,
        statistics: &'a [CellTypeStatistics],
    },
    /// Nothing more comes.
    Drained,
}

/// The end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskEnd<'a> {
    Complete,
    Failed { reason: &'a Arc<str> },
}

/// Consecutive nodes of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub(crate) request: RequestId,
    pub(crate) run: RunIndex,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) slot: Option<SlotId>,
}

/// The standing lists of all workers, followed from the tasks alone.
#[derive(Debug, Default)]
pub(crate) struct Rosters(BTreeMap<(WorkerId, CellTypeId), Vec<Join>>);

impl Rosters {
    /// The batches of `task`, in order.
    pub(crate) fn batches(&mut self, task: &BatchedTask) -> Result<Vec<Vec<Nodes>>, String> {
        let (leaves, joins, steps) = match &task.work {
            Work::Rows(items) => {
                let nodes = items.iter().map(|item| Nodes {
                    request: item.request,
                    run: item.run,
                    first: item.first,
                    count: item.count,
                    slot: item.slot,
                });
                return Ok(vec![nodes.collect()]);
            }
            Work::Roster { leaves, joins, steps } => (leaves, joins, *steps),
        };
        let roster = self.0.entry((task.worker, task.cell_type)).or_default();
        for &slot in leaves {
            let position = roster.iter().position(|member| member.slot == slot);
            let position =
                position.ok_or_else(|| format!("{slot:?} leaves a roster it is not on"))?;
            roster.remove(position);
        }
        for &join in joins {
            if roster.iter().any(|member| member.slot.index == join.slot.index) {
                return Err(format!("{join:?} joins a roster that has its slot"));
            }
            roster.push(join);
        }
        let step = |ahead: u32| {
            let nodes = roster.iter().map(move |member| Nodes {
                request: member.request,
                run: member.run,
                first: member.step + ahead,
                count: 1,
                slot: Some(member.slot),
            });
            nodes.collect()
        };
        let batches = (0..steps).map(step).collect();
        roster.iter_mut().for_each(|member| member.step += steps);
        Ok(batches)
    }

    /// A lost worker comes back with empty rosters.
    pub(crate) fn lose(&mut self, worker: WorkerId) {
        self.0.retain(|&(owner, _), _| owner != worker);
    }
}
