//! The queues of the cell types: waiting subgraphs in order, rosters, slots, counters.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use batchmaker_graph::{CellTypeId, RunKind, WorkerId};

use crate::cellular::roster::Roster;
use crate::cellular::subgraph::{QueueKey, SubgraphIndex};
use crate::cellular::submission_window::SubmissionWindow;
use crate::config::{BatchSizes, CellTypeConfig};
use crate::counters::BatchCounters;
use crate::slot_table::SlotTable;

/// The queue of one cell type.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) config: CellTypeConfig,
    /// Whether its runs are chains; known from the first run on.
    pub(super) is_chain: Option<bool>,
    /// Subgraphs outside rosters with a ready node for some worker.
    waiting: BTreeMap<QueueKey, SubgraphIndex>,
    /// For each worker, the number of nodes of `waiting` that it may run.
    waiting_nodes: Vec<u64>,
    /// The rosters by worker.
    rosters: Vec<Roster>,
    /// Tasks submitted and not complete, on all workers.
    pub(super) running_tasks: u32,
    pub(super) slots: SlotTable,
    pub(super) counters: BatchCounters,
    pub(super) window: SubmissionWindow,
}

impl Queue {
    fn new(config: CellTypeConfig, workers: usize, submission_window_ns: Option<u64>) -> Self {
        let slots = SlotTable::with_max(config.slots_max);
        let sizes = config.sizes_with_max(config.batch_sizes.max);
        let mut queue = Self {
            config,
            is_chain: None,
            waiting: BTreeMap::new(),
            waiting_nodes: vec![0; workers],
            rosters: (0..workers as u32).map(|worker| Roster::new(WorkerId(worker))).collect(),
            running_tasks: 0,
            slots,
            counters: BatchCounters::default(),
            window: SubmissionWindow::new(submission_window_ns),
        };
        queue.set_batch_sizes(sizes);
        queue
    }

    /// Sets the sizes of the batches that are formed from now on.
    fn set_batch_sizes(&mut self, sizes: BatchSizes) {
        assert!(0 < sizes.min && sizes.min <= sizes.max, "{sizes:?}");
        self.config.batch_sizes = sizes;
    }

    /// Sets the limits of the batches that are formed from now on.
    pub(super) fn set_limits(&mut self, batch_max: u32, submission_window_ns: Option<u64>) {
        self.set_batch_sizes(self.config.sizes_with_max(batch_max));
        self.window.set_bound(submission_window_ns);
    }

    /// Notes a run of the type that arrived.
    ///
    /// # Panics
    /// If it is a chain and others of `cell_type`, which is the queue's own, are not, or the reverse.
    pub(super) fn note_run(&mut self, cell_type: CellTypeId, kind: RunKind, is_open: bool) {
        let is_chain = kind == RunKind::Chain;
        let known = *self.is_chain.get_or_insert(is_chain);
        assert_eq!(known, is_chain, "{cell_type} is used both as a chain and row by row");
        self.window.note_run(is_open);
    }

    /// Whether the number of slots for the states of the type's chains is bounded.
    pub(super) fn has_bounded_slots(&self) -> bool {
        self.slots.max().is_some()
    }

    /// The subgraphs outside rosters with a ready node for some worker.
    pub(super) fn waiting(&self) -> &BTreeMap<QueueKey, SubgraphIndex> {
        &self.waiting
    }

    /// The number of nodes of waiting subgraphs that `worker` may run.
    #[inline]
    pub(super) fn waiting_nodes(&self, worker: WorkerId) -> u64 {
        self.waiting_nodes[worker.index()]
    }

    /// Notes that `ready` nodes of a waiting subgraph are ready for `worker`, where `before` were.
    pub(super) fn count_ready(&mut self, worker: WorkerId, before: u32, ready: u32) {
        let nodes = &mut self.waiting_nodes[worker.index()];
        *nodes = *nodes + u64::from(ready) - u64::from(before);
    }

    /// Puts a subgraph into the queue.
    pub(super) fn push(&mut self, key: QueueKey, subgraph: SubgraphIndex) {
        self.waiting.insert(key, subgraph);
    }

    /// Takes a subgraph out of the queue.
    pub(super) fn remove(&mut self, key: QueueKey) {
        self.waiting.remove(&key);
    }

    /// The rosters, by worker.
    pub(super) fn rosters(&self) -> &[Roster] {
        &self.rosters
    }

    #[inline]
    pub(super) fn roster(&self, worker: WorkerId) -> &Roster {
        &self.rosters[worker.index()]
    }

    #[inline]
    pub(super) fn roster_mut(&mut self, worker: WorkerId) -> &mut Roster {
        &mut self.rosters[worker.index()]
    }
}

/// The queues of all cell types, by id.
#[derive(Debug)]
pub(super) struct Queues(Vec<Queue>);

impl Queues {
    /// Empty queues for the cell types of `configs` and the number of `workers`.
    pub(super) fn new(
        configs: &[CellTypeConfig],
        workers: usize,
        submission_window_ns: Option<u64>,
    ) -> Self {
        let queue =
            |config: &CellTypeConfig| Queue::new(config.clone(), workers, submission_window_ns);
        Self(configs.iter().map(queue).collect())
    }

    /// All cell types, in order.
    pub(super) fn cell_types(&self) -> impl Iterator<Item = CellTypeId> + Clone + use<> {
        (0..self.0.len() as u32).map(CellTypeId)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Queue> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Queue> {
        self.0.iter_mut()
    }
}

impl Index<CellTypeId> for Queues {
    type Output = Queue;

    #[inline]
    fn index(&self, cell_type: CellTypeId) -> &Queue {
        &self.0[cell_type.index()]
    }
}

impl IndexMut<CellTypeId> for Queues {
    #[inline]
    fn index_mut(&mut self, cell_type: CellTypeId) -> &mut Queue {
        &mut self.0[cell_type.index()]
    }
}
