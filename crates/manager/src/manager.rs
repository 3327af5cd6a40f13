//! The manager's public API, which is the same for all policies.

use batchmaker_graph::{
    BatchedTask, CellTypeId, ModelId, RequestId, RunIndex, SessionId, WorkerId,
};

use crate::batch_in_stages::BatchInStages;
use crate::batching::Batching;
use crate::cellular::Cellular;
use crate::config::{Config, Policy, StagedModel};
use crate::discarded::Discarded;
use crate::event::{Event, Finished, Undecided};
use crate::graph_batching::{ClosedBatches, GraphBatching};
use crate::policy_per_model::PolicyPerModel;
use crate::staged::Staged;
use crate::stages::Stages;

/// Forms batches of the requests in flight. The crate's documentation says how it is driven.
#[derive(Debug)]
pub struct Manager {
    now: u64,
    batching: Box<dyn Batching>,
}

/// Counts of one cell type since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellTypeStatistics {
    /// Batches submitted; each step of a roster is one.
    pub tasks: u64,
    /// Nodes in them.
    pub nodes: u64,
    /// Rows in them that are no nodes.
    pub padding: u64,
    /// Nodes in them of chains past their end of sequence.
    pub past_end_of_sequence: u64,
    /// The number of slots that hold a chain's state now.
    pub slots_in_use: usize,
    /// The number of subgraphs that wait outside a running batch with a ready node.
    pub waiting: usize,
}

impl Manager {
    /// A manager with all its workers up and idle.
    ///
    /// # Panics
    /// If the configuration makes no sense: no worker or more than 64, batches or rounds of nothing, no
    /// slot at all, bounded slots under another policy than the cellular one, a cell type without a stage, no buffer pair or batches of nothing under that of
    /// stages.
    pub fn new(config: Config) -> Self {
        let workers = config.workers;
        for cell in &config.cell_types {
            assert!(cell.slots_max != Some(0), "a cell type without a slot for its chains");
            // Under the other two, a cell may wait for a slot, or none has states.
            let is_closed = matches!(config.policy, Policy::Padded(_) | Policy::Merged(_));
            assert!(
                !is_closed || cell.slots_max.is_none(),
                "bounded slots need the policy 'cellular': a batch of '{}' takes all at once",
                config.policy
            );
        }
        assert!((1..=64).contains(&workers), "{workers} workers");
        assert!(config.max_tasks_to_submit > 0);
        let batching: Box<dyn Batching> = match config.policy {
            Policy::Cellular => Box::new(Cellular::new(&config)),
            Policy::Padded(padding) => {
                Box::new(GraphBatching::new(&config, ClosedBatches::Padded(padding)))
            }
            Policy::Merged(merging) => {
                Box::new(GraphBatching::new(&config, ClosedBatches::Merged(merging)))
            }
            Policy::Staged(options) => {
                Box::new(Staged::new(&config, options.staging(), &config.stages))
            }
            Policy::Delayed(delay) => {
                let whole = Stages::whole(config.cell_types.len());
                Box::new(Staged::new(&config, delay.staging(), &whole))
            }
        };
        let staged = |of: &StagedModel| -> (ModelId, Box<dyn Batching>) {
            (of.model, Box::new(Staged::new(&config, of.staging, &of.stages)))
        };
        let batching: Box<dyn Batching> = match &config.staged_models[..] {
            [] => batching,
            models => {
                let staged = models.iter().map(staged).collect();
                Box::new(PolicyPerModel::new(&config, batching, staged))
            }
        };
        Self { now: 0, batching }
    }

    /// Takes note of `event`, which happened at `now_ns`, after the deadlines that are reached by then.
    /// Time never runs backwards.
    pub fn handle(&mut self, now_ns: u64, event: Event) {
        self.now = self.now.max(now_ns);
        self.batching.handle(self.now, event);
    }

    /// Takes note that it is `now_ns`: gives up the requests whose deadlines are reached, and waits for others no
    /// longer than [`crate::Staging::window_ns`]. Every event does so as well; this is for when [`next_deadline`](Self::next_deadline) has come without any.
    pub fn advance(&mut self, now_ns: u64) {
        self.now = self.now.max(now_ns);
        self.batching.advance(self.now);
    }

    /// The next task for `worker`: of the round that it is being given or, while at most
    /// [`Config::lookahead`] of its tasks are unfinished, of a new one. None when neither may be, or
    /// nothing is ready for it.
    pub fn next_task(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        self.batching.next_task(worker)
    }

    /// The requests that ended since the last call, in the order in which they did.
    pub fn drain_finished(&mut self) -> std::vec::Drain<'_, Finished> {
        self.batching.finished().drain(..)
    }

    /// The decisions whose rows were written since the last call. Their requests may wait for what [`Event::Decided`] says of them.
    pub fn take_undecided(&mut self) -> Vec<Undecided> {
        self.batching.take_undecided()
    }

    /// The sessions that ended since the last call, each after the last of its chunks. The positions of
    /// their ids are free.
    pub fn take_ended_sessions(&mut self) -> Vec<SessionId> {
        self.batching.take_ended_sessions()
    }

    /// Takes the graphs and tables that are to be freed. A manager behind a lock is left before they are
    /// dropped, so that nobody waits for that.
    pub fn take_discarded(&mut self) -> Discarded {
        self.batching.take_discarded()
    }

    /// The number of requests that have arrived and not finished.
    pub fn requests(&self) -> usize {
        self.batching.requests()
    }

    /// The number of nodes of a chain of a request in flight that are complete, from the first on: those
    /// past its end of sequence included. 0 for a request that is given up, and under policies of
    /// closed batches, which complete as a whole.
    pub fn completed_nodes(&self, request: RequestId, run: RunIndex) -> u32 {
        self.batching.completed_nodes(request, run)
    }

    /// Whether `worker` has tasks that are not complete.
    pub fn is_busy(&self, worker: WorkerId) -> bool {
        self.batching.is_busy(worker)
    }

    /// Whether [`next_task`](Self::next_task), called now, would give `worker` a task: never while
    /// more than [`Config::lookahead`] of its tasks are unfinished, but for the rest of a round. What
    /// makes it true is an event, a task given to another worker, or the time of [`next_deadline`](Self::next_deadline). It takes time for each cell
    /// type and worker, not for each request.
    pub fn has_work_for(&self, worker: WorkerId) -> bool {
        self.batching.has_work_for(worker)
    }

    /// The earliest deadline of a request in flight, or the end of its wait for others if that is earlier, on the
    /// clock of [`handle`](Self::handle), in nanoseconds. A worker without work sleeps until then at most, and calls
    /// [`advance`](Self::advance).
    pub fn next_deadline(&self) -> Option<u64> {
        self.batching.next_deadline()
    }

    /// The counters of `cell_type`.
    pub fn statistics(&self, cell_type: CellTypeId) -> CellTypeStatistics {
        let counters = self.batching.counters(cell_type);
        CellTypeStatistics {
            tasks: counters.batches,
            nodes: counters.nodes,
            padding: counters.padding,
            past_end_of_sequence: counters.past_end_of_sequence,
            slots_in_use: self.batching.slots_in_use(cell_type),
            waiting: self.batching.waiting(cell_type),
        }
    }

    /// The batches in flight of a manager whose policy is [`Policy::Staged`] or [`Policy::Delayed`], for whoever checks it. Empty under other
    /// policies, and for models that run in stages beside others.
    pub fn batches_in_stages(&self) -> Vec<BatchInStages> {
        self.batching.batches_in_stages()
    }

    /// The time that workers spent on tasks of `model`, in nanoseconds; none where models have no shares, but for a model that runs
    /// in stages beside others.
    pub fn worker_ns(&self, model: ModelId) -> Option<u64> {
        self.batching.worker_ns(model)
    }

    /// The number of batches of each size in rows, from 0 on, that `cell_type` had. Padding counts as
    /// rows.
    pub fn batches_by_size(&self, cell_type: CellTypeId) -> Vec<u64> {
        self.batching.counters(cell_type).by_size
    }
}
