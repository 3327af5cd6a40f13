//! Closed batches in progress: the state of each worker and of each cell type.

use std::collections::VecDeque;

use batchmaker_graph::{BatchedTask, CellTypeId, RequestId, SlotId, TaskId, Work, WorkerId};

use crate::config::CellTypeConfig;
use crate::counters::BatchCounters;
use crate::shares::Charge;
use crate::slot_table::SlotTable;

/// A cell type.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) config: CellTypeConfig,
    /// The most rows of a batch.
    pub(super) limit: u32,
    pub(super) slots: SlotTable,
    pub(super) counters: BatchCounters,
    /// The number of runs of waiting requests.
    pub(super) waiting: usize,
}

impl Cell {
    pub(super) fn new(config: &CellTypeConfig) -> Self {
        Self {
            limit: config.sizes_with_max(config.batch_sizes.max).max,
            config: config.clone(),
            slots: SlotTable::default(),
            counters: BatchCounters::default(),
            waiting: 0,
        }
    }
}

/// A worker with its batches.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) is_down: bool,
    last_task: u64,
    /// The batches that are not over, oldest first. All tasks of all but the last are submitted.
    pub(super) batches: VecDeque<Batch>,
    /// Per cell type, the chains on the device's roster, which leave with the next task.
    pub(super) on_roster: Vec<Vec<SlotId>>,
    /// When the worker began its oldest batch, in nanoseconds: when the one before was over or, if it
    /// had none, when it was formed.
    pub(super) since_ns: u64,
}

impl Worker {
    pub(super) fn new(cell_types: usize) -> Self {
        Self { on_roster: vec![Vec::new(); cell_types], ..Self::default() }
    }

    /// Whether every task of its batches is submitted.
    pub(super) fn is_submitted(&self) -> bool {
        self.batches.back().is_none_or(|batch| batch.tasks.is_empty())
    }

    /// The number of tasks that are submitted and not complete.
    pub(super) fn unfinished(&self) -> usize {
        self.batches.iter().map(|batch| batch.in_flight.len()).sum()
    }

    /// Numbers the next task of `worker`, which is this one.
    pub(super) fn task(
        &mut self,
        worker: WorkerId,
        cell_type: CellTypeId,
        work: Work,
    ) -> BatchedTask {
        self.last_task += 1;
        BatchedTask { id: TaskId(self.last_task), worker, cell_type, work }
    }
}

/// A batch from its start to its end.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) members: Vec<RequestId>,
    /// What the model of its members is charged for it.
    pub(super) charge: Charge,
    /// The slots of its chains, which are free when it ends.
    pub(super) slots: Vec<(CellTypeId, SlotId)>,
    /// The tasks that are not submitted yet, each with the requests whose nodes it holds.
    pub(super) tasks: VecDeque<(BatchedTask, Vec<RequestId>)>,
    /// The tasks that are submitted and not complete, each with the requests whose nodes it holds.
    pub(super) in_flight: VecDeque<(TaskId, Vec<RequestId>)>,
}

impl Batch {
    /// Whether all its tasks are complete.
    pub(super) fn is_over(&self) -> bool {
        self.tasks.is_empty() && self.in_flight.is_empty()
    }
}
