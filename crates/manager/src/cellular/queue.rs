//! The queues of the cell types: waiting subgraphs in order, rosters, slots, counters.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use batchmaker_graph::{CellTypeId, ModelId, RunKind, WorkerId};

use crate::cellular::roster::Roster;
use crate::cellular::sequence_rows::SequenceRows;
use crate::cellular::subgraph::{QueueKey, SubgraphIndex};
use crate::cellular::submission_window::SubmissionWindow;
use crate::cellular::task_times::TaskTimes;
use crate::config::{BatchSizes, CellTypeConfig, Config};
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
    /// The same by model, where models have shares and several use the cell type; else empty.
    waiting_of_models: Vec<BTreeMap<QueueKey, SubgraphIndex>>,
    /// For each worker, the number of nodes of `waiting` that it may run.
    waiting_nodes: Vec<u64>,
    /// The same by model, `[model, worker]`, as in `waiting_of_models`.
    waiting_nodes_of_models: Vec<u64>,
    /// When a batch of the type was last formed or, if that is later, when it last came to have
    /// ready nodes. Kept where cell types are chosen by it.
    pub(super) unserved_since_ns: u64,
    has_patience: bool,
    /// The rosters by worker.
    rosters: Vec<Roster>,
    /// Tasks submitted and not complete, on all workers.
    pub(super) running_tasks: u32,
    pub(super) slots: SlotTable,
    pub(super) counters: BatchCounters,
    pub(super) window: SubmissionWindow,
    pub(super) times: TaskTimes,
    pub(super) sequence_rows: SequenceRows,
}

impl Queue {
    fn new(config: CellTypeConfig, manager: &Config) -> Self {
        let slots = SlotTable::with_max(config.slots_max);
        let sizes = config.sizes_with_max(config.batch_sizes.max);
        let workers = usize::from(manager.workers);
        let fairness = manager.fairness.as_ref();
        let has_shares = fairness.is_some_and(|fairness| fairness.shares.is_some());
        let models = match config.priorities.len() {
            models @ 2.. if has_shares => models,
            _ => 0,
        };
        let roster = |worker| Roster::new(WorkerId(worker), models);
        let mut queue = Self {
            config,
            is_chain: None,
            waiting: BTreeMap::new(),
            waiting_of_models: vec![BTreeMap::new(); models],
            waiting_nodes: vec![0; workers],
            waiting_nodes_of_models: vec![0; models * workers],
            unserved_since_ns: 0,
            has_patience: fairness.is_some_and(|fairness| {
                fairness.patience_ns.or(fairness.large_patience_ns).is_some()
            }),
            rosters: (0..workers as u32).map(roster).collect(),
            running_tasks: 0,
            slots,
            counters: BatchCounters::default(),
            window: SubmissionWindow::new(
                manager.submission_window_ns,
                fairness.and_then(|fairness| fairness.round_ns),
            ),
            times: TaskTimes::default(),
            sequence_rows: SequenceRows::new(fairness.and_then(|fairness| fairness.round_ns)),
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

    /// Those of the model at `model_position`.
    pub(super) fn waiting_of(&self, model_position: usize) -> &BTreeMap<QueueKey, SubgraphIndex> {
        &self.waiting_of_models[model_position]
    }

    /// The number of nodes of waiting subgraphs that `worker` may run.
    #[inline]
    pub(super) fn waiting_nodes(&self, worker: WorkerId) -> u64 {
        self.waiting_nodes[worker.index()]
    }

    /// Notes that `ready` nodes of a waiting subgraph are ready for `worker`, where `before` were. The
    /// subgraph is of the model at `model_position`.
    pub(super) fn count_ready(
        &mut self,
        worker: WorkerId,
        model_position: u32,
        before: u32,
        ready: u32,
    ) {
        let nodes = &mut self.waiting_nodes[worker.index()];
        *nodes = *nodes + u64::from(ready) - u64::from(before);
        if !self.waiting_nodes_of_models.is_empty() {
            let workers = self.waiting_nodes.len();
            let position = model_position as usize * workers + worker.index();
            let nodes = &mut self.waiting_nodes_of_models[position];
            *nodes = *nodes + u64::from(ready) - u64::from(before);
        }
    }

    /// The models that use the cell type, as far as it knows.
    pub(super) fn models(&self) -> impl Iterator<Item = ModelId> + '_ {
        self.config.priorities.iter().map(|rank| rank.model)
    }

    /// Whether the ready nodes of each model are counted.
    pub(super) fn tells_models_apart(&self) -> bool {
        !self.waiting_nodes_of_models.is_empty()
    }

    /// The position of `model` among those that use the cell type, which is `cell_type`.
    ///
    /// # Panics
    /// If the cell type does not list the model.
    pub(super) fn position_of(&self, cell_type: CellTypeId, model: ModelId) -> u32 {
        let position = self.models().position(|known| known == model);
        position.unwrap_or_else(|| panic!("{cell_type} has no priority for {model}")) as u32
    }

    /// The number of nodes of waiting subgraphs that `worker` may run, of the model at
    /// `model_position`.
    pub(super) fn waiting_nodes_of(&self, model_position: usize, worker: WorkerId) -> u64 {
        let workers = self.waiting_nodes.len();
        self.waiting_nodes_of_models[model_position * workers + worker.index()]
    }

    /// Puts a subgraph of the model at `model_position` into the queue, which has a ready node from
    /// `now_ns` on.
    pub(super) fn push(
        &mut self,
        key: QueueKey,
        model_position: u32,
        subgraph: SubgraphIndex,
        now_ns: u64,
    ) {
        if self.has_patience && !self.has_ready_nodes() {
            self.unserved_since_ns = now_ns;
        }
        self.waiting.insert(key, subgraph);
        if let Some(of_model) = self.waiting_of_models.get_mut(model_position as usize) {
            of_model.insert(key, subgraph);
        }
    }

    /// Whether any node is ready for any worker.
    fn has_ready_nodes(&self) -> bool {
        let mut rosters = self.rosters.iter();
        !self.waiting.is_empty() || rosters.any(|roster| !roster.members().is_empty())
    }

    /// Takes a subgraph of the model at `model_position` out of the queue.
    pub(super) fn remove(&mut self, key: QueueKey, model_position: u32) {
        self.waiting.remove(&key);
        if let Some(of_model) = self.waiting_of_models.get_mut(model_position as usize) {
            of_model.remove(&key);
        }
    }

    /// Moves a waiting subgraph of the model at `model_position` from `before` to `key`.
    pub(super) fn change_key(&mut self, before: QueueKey, key: QueueKey, model_position: u32) {
        if let Some(subgraph) = self.waiting.remove(&before) {
            self.waiting.insert(key, subgraph);
            if let Some(of_model) = self.waiting_of_models.get_mut(model_position as usize) {
                of_model.remove(&before);
                of_model.insert(key, subgraph);
            }
        }
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
    /// Empty queues for the cell types of a manager.
    pub(super) fn new(config: &Config) -> Self {
        let queue = |cell_type: &CellTypeConfig| Queue::new(cell_type.clone(), config);
        Self(config.cell_types.iter().map(queue).collect())
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
