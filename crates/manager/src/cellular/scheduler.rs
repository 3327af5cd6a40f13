//! Algorithm 1 of the BatchMaker paper: which cell type a worker runs next, and how many batches of
//! it.
//!
//! `Schedule` opens a round when at most `lookahead` of a worker's tasks are unfinished; the round's
//! batches are submitted one [`BatchedTask`] at a time, where a task of a roster stands for as many
//! batches as it has steps. "Ready nodes" are those that the asking worker may run (`readiness`).
//! `FormBatchedTask` is in `row_batch` and `roster_batch`.
//!
//! # Rounds that overlap
//! A round is formed as if the worker's unfinished tasks were complete, since they will be when it
//! runs: nodes that depend on them are ready for this worker, and they do not count as running
//! tasks of their types. To all other workers they are in flight, and their subgraphs are pinned.

use std::cmp::Reverse;

use batchmaker_graph::{BatchedTask, CellTypeId, ModelId, WorkerId};

use crate::cellular::roster_batch::RosterBatch;
use crate::cellular::row_batch;
use crate::cellular::subgraph_pool::SubgraphPool;
use crate::cellular::workers::{Round, TimedTask, Worker};
use crate::config::{Config, TaskForm};

/// The workers, and the parameters of Algorithm 1.
#[derive(Debug)]
pub(super) struct Scheduler {
    workers: Vec<Worker>,
    lookahead: usize,
    max_tasks_to_submit: u32,
    /// See [`Config::rounds_of_a_turn`].
    rounds_of_a_turn: u32,
    /// See [`crate::Fairness::patience_ns`].
    patience_ns: Option<u64>,
    /// See [`crate::Fairness::large_patience_ns`].
    large_patience_ns: Option<u64>,
    task_form: TaskForm,
}

/// The lines of Algorithm 1.
impl Scheduler {
    /// `Schedule` (lines 4 to 10): a round of the cell type to run.
    fn schedule(&mut self, pool: &mut SubgraphPool, worker: WorkerId) -> Option<Round> {
        let round = match pool.has_fairness {
            true => self.schedule_fairly(pool, worker)?,
            false => {
                let cell_type =
                    self.schedule_among(pool, worker, None, || pool.queues.cell_types())?;
                Round { cell_type, model: None, tasks: 0 }
            }
        };
        self.workers[worker.index()].begin_round(round.cell_type);
        Some(round)
    }

    /// Lines 5 to 10 for the cell types of `all`, of which those with ready nodes have some of `model`,
    /// if it is given, unless one of them has not had all rounds of its turn.
    #[inline]
    fn schedule_among<I: Iterator<Item = CellTypeId> + Clone>(
        &self,
        pool: &SubgraphPool,
        worker: WorkerId,
        model: Option<ModelId>,
        all: impl Fn() -> I,
    ) -> Option<CellTypeId> {
        let ready = |ct: CellTypeId| pool.readiness().ready_nodes(ct, worker);
        let in_turn = self.worker(worker).unfinished_turn(self.rounds_of_a_turn);
        let goes_on = |&ct: &CellTypeId| {
            pool.queues[ct].is_chain == Some(true) && all().any(|of| of == ct) && ready(ct) > 0
        };
        if let Some(in_turn) = in_turn.filter(goes_on) {
            return Some(in_turn);
        }
        let full =
            all().filter(|&ct| ready(ct) >= u64::from(pool.queues[ct].config.batch_sizes.max));
        let resting = all().filter(|&ct| self.rests_elsewhere(pool, ct, worker) && ready(ct) > 0);
        let any = all().filter(|&ct| ready(ct) > 0);
        with_max_priority(pool, full, worker, model)
            .or_else(|| with_max_priority(pool, resting, worker, model))
            .or_else(|| with_max_priority(pool, any, worker, model))
    }

    /// `Schedule` after the rules of fairness: where models have shares, the cell type has ready nodes
    /// of the model whose turn it is; one that has waited for long goes before line 5.
    #[cold]
    fn schedule_fairly(&self, pool: &mut SubgraphPool, worker: WorkerId) -> Option<Round> {
        let model = match pool.shares {
            Some(_) => Some(pool.choose_model(worker)?),
            None => None,
        };
        let pool = &*pool;
        let is_candidate = |ct: &CellTypeId| match model {
            Some(model) => pool.readiness().has_ready_node_of(*ct, model, worker),
            None => pool.readiness().ready_nodes(*ct, worker) > 0,
        };
        let candidates = || pool.queues.cell_types().filter(&is_candidate);
        let overdue = self.patience_ns(pool).and_then(|ns| most_overdue(pool, candidates(), ns));
        let cell_type = overdue.or_else(|| self.schedule_among(pool, worker, model, candidates))?;
        Some(Round { cell_type, model, tasks: 0 })
    }

    /// The patience of now.
    fn patience_ns(&self, pool: &SubgraphPool) -> Option<u64> {
        let of_large = self.large_patience_ns.filter(|_| pool.requests.has_batch_filler());
        self.patience_ns.into_iter().chain(of_large).min()
    }

    /// One turn of the loop of `Batch` (lines 14 to 23), or as many as the same roster serves.
    fn batch(
        &mut self,
        pool: &mut SubgraphPool,
        round: Round,
        worker: WorkerId,
    ) -> Option<BatchedTask> {
        let Round { cell_type, model, tasks } = round;
        for owner in pool.requests.workers() {
            if owner != worker && pool.queues[cell_type].roster(owner).is_idle() {
                pool.dissolve_roster(cell_type, owner);
            }
        }
        let left = self.tasks_to_submit(pool, cell_type) - tasks;
        let state = &mut self.workers[worker.index()];
        let (work, in_flight, rows) = match pool.queues[cell_type].is_chain? {
            true => RosterBatch { pool, cell_type, worker, model }.form(self.task_form, left)?,
            false => row_batch::form(pool, cell_type, worker, model, state.next_task())?,
        };
        let batches = in_flight.batches();
        state.round = Some(Round { cell_type, model, tasks: tasks + batches });
        let id = state.submit(cell_type, in_flight);
        if pool.is_timed {
            let charge = pool.note_batches(cell_type, batches, rows);
            let sequence_rows = std::mem::take(&mut pool.sequence_rows_of_batch);
            state.time(TimedTask { rows, sequence_rows, charge });
        }
        pool.queues[cell_type].running_tasks += 1;
        // What is submitted may have made chains ready that need slots.
        pool.give_slots();
        Some(BatchedTask { id, worker, cell_type, work })
    }

    /// Whether `Batch` forms another batch of a round that has one (lines 14 to 16).
    fn round_goes_on(&self, pool: &SubgraphPool, round: &Round, worker: WorkerId) -> bool {
        let least = pool.queues[round.cell_type].config.batch_sizes.min;
        round.tasks < self.tasks_to_submit(pool, round.cell_type)
            && pool.readiness().ready_nodes(round.cell_type, worker) >= u64::from(least)
    }

    /// `MaxTasksToSubmit`, or more for a request that is alone where the cell type takes the cores of other workers too, or less where its
    /// submission window is smaller.
    fn tasks_to_submit(&self, pool: &SubgraphPool, cell_type: CellTypeId) -> u32 {
        let queue = &pool.queues[cell_type];
        let is_alone = pool.requests.is_for_one_worker() && queue.config.workers_of_a_row > 1;
        let most = match is_alone {
            true => self.max_tasks_to_submit.saturating_mul(Config::ROUNDS_AT_ONCE_ALONE),
            false => self.max_tasks_to_submit,
        };
        most.min(queue.window.steps())
    }

    /// `ct.NumRunningTasks() = 0` (line 7), of tasks on other workers: those of `worker` itself will
    /// be over when its round runs.
    fn rests_elsewhere(&self, pool: &SubgraphPool, ct: CellTypeId, worker: WorkerId) -> bool {
        let own = self.workers[worker.index()].in_flight().iter();
        let own = own.filter(|task| task.cell_type == ct).count();
        pool.queues[ct].running_tasks as usize == own
    }
}

/// The one of `cell_types`, all of which have ready nodes, that has waited longest for a batch, if that
/// is more than `patience_ns`.
fn most_overdue(
    pool: &SubgraphPool,
    cell_types: impl Iterator<Item = CellTypeId>,
    patience_ns: u64,
) -> Option<CellTypeId> {
    let since_ns = |ct: CellTypeId| pool.queues[ct].unserved_since_ns;
    let overdue = cell_types.filter(|&ct| pool.now_ns - since_ns(ct) > patience_ns);
    overdue.min_by_key(|&ct| (since_ns(ct), ct))
}

/// `GetCellTypeWithMaxPriority`: the model of the oldest ready node decides, or `model` if it is given,
/// then the priority within that model.
fn with_max_priority(
    pool: &SubgraphPool,
    cell_types: impl Iterator<Item = CellTypeId> + Clone,
    worker: WorkerId,
    model: Option<ModelId>,
) -> Option<CellTypeId> {
    let mut others = cell_types.clone();
    let first = others.next()?;
    if others.next().is_none() {
        return Some(first);
    }
    let readiness = pool.readiness();
    let model = match model {
        Some(model) => model,
        None => {
            let oldest = cell_types.clone().filter_map(|ct| readiness.oldest_ready(ct, worker));
            readiness.model_of(oldest.min()?.1)
        }
    };
    let priority = |ct: CellTypeId| {
        let ranks = &pool.queues[ct].config.priorities;
        ranks.iter().find(|rank| rank.model == model).map(|rank| rank.priority)
    };
    // Of equals the first wins, hence the reversed order.
    let ranked = cell_types.filter_map(|ct| Some((priority(ct)?, Reverse(ct))));
    ranked.max().map(|(_, Reverse(ct))| ct)
}

/// The rounds of each worker.
impl Scheduler {
    /// A scheduler with all workers up and idle.
    pub(super) fn new(config: &Config) -> Self {
        let fairness = config.fairness.as_ref();
        Self {
            workers: (0..config.workers).map(|_| Worker::default()).collect(),
            lookahead: config.lookahead as usize,
            max_tasks_to_submit: config.max_tasks_to_submit,
            rounds_of_a_turn: config.rounds_of_a_turn,
            patience_ns: fairness.and_then(|fairness| fairness.patience_ns),
            large_patience_ns: fairness.and_then(|fairness| fairness.large_patience_ns),
            task_form: config.task_form,
        }
    }

    pub(super) fn worker(&self, worker: WorkerId) -> &Worker {
        &self.workers[worker.index()]
    }

    pub(super) fn worker_mut(&mut self, worker: WorkerId) -> &mut Worker {
        &mut self.workers[worker.index()]
    }

    /// The next task of the worker's round, or of a new round where it may open one; none where it
    /// may not, or when nothing is ready for it.
    pub(super) fn next_task(
        &mut self,
        pool: &mut SubgraphPool,
        worker: WorkerId,
    ) -> Option<BatchedTask> {
        let state = &mut self.workers[worker.index()];
        if state.is_down {
            return None;
        }
        state.note_request(pool.now_ns);
        let round = match self.take_round(pool, worker) {
            Some(round) => round,
            None if self.may_open_round(pool, worker) => self.schedule(pool, worker)?,
            None => return None,
        };
        self.batch(pool, round, worker)
    }

    /// The next task of the worker's round; none where that is over.
    pub(super) fn next_of_round(
        &mut self,
        pool: &mut SubgraphPool,
        worker: WorkerId,
    ) -> Option<BatchedTask> {
        let round = self.take_round(pool, worker)?;
        self.workers[worker.index()].note_request(pool.now_ns);
        self.batch(pool, round, worker)
    }

    /// Takes the worker's round, if there is more of it.
    fn take_round(&mut self, pool: &SubgraphPool, worker: WorkerId) -> Option<Round> {
        let state = &mut self.workers[worker.index()];
        let round = state.round.take().filter(|_| !state.is_down)?;
        self.round_goes_on(pool, &round, worker).then_some(round)
    }

    /// Whether [`next_task`](Self::next_task), called now, would give `worker` a task.
    pub(super) fn has_work_for(&self, pool: &SubgraphPool, worker: WorkerId) -> bool {
        let is_ready = |ct: CellTypeId| pool.readiness().ready_nodes(ct, worker) > 0;
        let may_begin =
            || self.may_open_round(pool, worker) && pool.queues.cell_types().any(is_ready);
        self.has_rest_of_round(pool, worker) || (!self.worker(worker).is_down && may_begin())
    }

    /// Whether [`next_of_round`](Self::next_of_round), called now, would give `worker` a task.
    pub(super) fn has_rest_of_round(&self, pool: &SubgraphPool, worker: WorkerId) -> bool {
        let state = self.worker(worker);
        let goes_on = |round: &Round| self.round_goes_on(pool, round, worker);
        !state.is_down && state.round.as_ref().is_some_and(goes_on)
    }

    /// Whether so few of the worker's tasks are unfinished that it may be given another round, and it does not lend its cores.
    fn may_open_round(&self, pool: &SubgraphPool, worker: WorkerId) -> bool {
        self.worker(worker).in_flight().len() <= self.lookahead && !self.lends_cores(pool, worker)
    }

    /// Whether the one request that there is should have this worker's cores too, where it runs now.
    fn lends_cores(&self, pool: &SubgraphPool, worker: WorkerId) -> bool {
        let others = || pool.requests.workers().filter(|&other| other != worker);
        pool.requests.is_for_one_worker()
            && others().any(|other| !self.worker(other).in_flight().is_empty())
    }
}
