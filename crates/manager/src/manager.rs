//! The manager's state and its three doors.

use std::collections::VecDeque;

use batchmaker_graph::{CellTypeId, RequestId, TaskId, WorkerId};

use crate::config::Config;
use crate::event::{Event, Failure, Finished, Outcome};
use crate::queue::Queue;
use crate::request_processor::RequestProcessor;
use crate::subgraph::SubgraphIndex;

/// See the crate's first page for how it is driven.
#[derive(Debug)]
pub struct Manager {
    pub(crate) config: Config,
    pub(crate) now: u64,
    pub(crate) queues: Vec<Queue>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) processor: RequestProcessor,
}

/// A worker as the scheduler sees it.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) is_down: bool,
    pub(crate) last_task: u64,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// The round of Algorithm 1's `Batch` that is being handed out.
    pub(crate) round: Option<Round>,
}

#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) cell_type: CellTypeId,
    /// Batches formed so far: `num_tasks`.
    pub(crate) tasks: u32,
}

#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) id: TaskId,
    pub(crate) cell_type: CellTypeId,
    pub(crate) work: InFlightWork,
}

#[derive(Debug)]
pub(crate) enum InFlightWork {
    /// Steps of the worker's roster.
    Steps(u32),
    /// Rows of subgraphs, with the number of nodes that are complete once these are.
    Rows(Vec<(SubgraphIndex, u32)>),
}

/// Counts of one cell type since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellTypeStatistics {
    /// Batches run or submitted; each step of a roster is one.
    pub tasks: u64,
    /// Nodes in them.
    pub nodes: u64,
    /// Slots that hold a chain's state now.
    pub slots_in_use: usize,
    /// Subgraphs that wait outside a running batch with a ready node.
    pub waiting: usize,
}

impl Manager {
    /// A manager with all its workers up and idle.
    pub fn new(config: Config) -> Self {
        let workers = usize::from(config.workers);
        assert!((1..=64).contains(&workers), "{workers} workers");
        assert!(config.max_tasks_to_submit > 0);
        let queues = config.cell_types.iter().map(|cell| Queue::new(cell.clone(), workers));
        Self {
            now: 0,
            queues: queues.collect(),
            workers: std::iter::repeat_with(Worker::default).take(workers).collect(),
            processor: RequestProcessor::new(workers),
            config,
        }
    }

    /// Takes note of `event`, which happened at `now_ns`. Time never runs backwards.
    pub fn handle(&mut self, now_ns: u64, event: Event) {
        self.now = self.now.max(now_ns);
        match event {
            Event::Arrive { request, model, priority, graph } => {
                self.arrive(request, model, priority, &graph);
            }
            Event::Complete { worker, task } => self.complete(worker, task),
            Event::TaskFailed { worker, task } => self.task_failed(worker, task),
            Event::Cancel { request } => self.abort(request, Outcome::Cancelled),
            Event::WorkerUp { worker } => self.workers[worker.index()].is_down = false,
            Event::WorkerDown { worker } => self.worker_down(worker),
        }
    }

    /// The requests that ended since the last call, in the order in which they did.
    pub fn drain_finished(&mut self) -> std::vec::Drain<'_, Finished> {
        self.processor.finished.drain(..)
    }

    /// The number of requests that have arrived and not finished.
    pub fn requests(&self) -> usize {
        self.processor.live_requests
    }

    /// Whether `worker` has tasks that are not complete.
    pub fn is_busy(&self, worker: WorkerId) -> bool {
        !self.workers[worker.index()].in_flight.is_empty()
    }

    /// Whether a worker that is idle now would be given work.
    pub fn has_work_for(&self, worker: WorkerId) -> bool {
        !self.workers[worker.index()].is_down
            && (0..self.queues.len() as u32)
                .any(|cell_type| self.ready_nodes(CellTypeId(cell_type), worker) > 0)
    }

    /// Counts of `cell_type`.
    pub fn statistics(&self, cell_type: CellTypeId) -> CellTypeStatistics {
        let queue = &self.queues[cell_type.index()];
        CellTypeStatistics {
            tasks: queue.tasks,
            nodes: queue.nodes,
            slots_in_use: queue.slots.in_use(),
            waiting: queue.waiting.len(),
        }
    }

    fn task_failed(&mut self, worker: WorkerId, task: TaskId) {
        for request in self.requests_in_oldest_task(worker) {
            self.abort(request, Outcome::Failed(Failure::Task));
        }
        self.complete(worker, task);
    }

    /// The requests that the oldest task of `worker` holds nodes of.
    fn requests_in_oldest_task(&self, worker: WorkerId) -> Vec<RequestId> {
        let Some(task) = self.workers[worker.index()].in_flight.front() else {
            return Vec::new();
        };
        let subgraphs: Vec<SubgraphIndex> = match &task.work {
            InFlightWork::Rows(rows) => rows.iter().map(|&(subgraph, _)| subgraph).collect(),
            InFlightWork::Steps(steps) => {
                let roster = self.queues[task.cell_type.index()].roster(worker);
                let first = roster.completed_steps;
                let end = first + u64::from(*steps);
                let leaving = roster.leaving.iter().map(|&(_, subgraph)| subgraph);
                let stayed = |&subgraph: &SubgraphIndex| {
                    let mut stays = self.subgraph(subgraph).stays.iter();
                    stays.any(|stay| stay.join_step < end && stay.leave_step > first)
                };
                roster.members.values().copied().chain(leaving).filter(stayed).collect()
            }
        };
        let mut requests: Vec<RequestId> =
            subgraphs.into_iter().map(|subgraph| self.subgraph(subgraph).request).collect();
        requests.sort_unstable();
        requests.dedup();
        requests
    }

    fn complete(&mut self, worker: WorkerId, task: TaskId) {
        let done = self.workers[worker.index()].in_flight.pop_front();
        let done = done.unwrap_or_else(|| panic!("{worker} completed {task} with none in flight"));
        assert_eq!(done.id, task, "{worker} completed a task out of order");
        self.queues[done.cell_type.index()].running_tasks -= 1;
        match done.work {
            InFlightWork::Rows(rows) => {
                for (subgraph, completed) in rows {
                    self.rows_completed(subgraph, completed, task);
                }
            }
            InFlightWork::Steps(steps) => self.steps_completed(done.cell_type, worker, steps),
        }
    }

    fn worker_down(&mut self, worker: WorkerId) {
        let victims = self.processor.lost_with(worker, self.config.state_placement, |subgraph| {
            self.pinned_to(subgraph) == Some(worker)
        });
        let lost = std::mem::take(&mut self.workers[worker.index()].in_flight);
        for task in lost {
            self.queues[task.cell_type.index()].running_tasks -= 1;
        }
        self.workers[worker.index()].is_down = true;
        self.workers[worker.index()].round = None;
        for cell_type in (0..self.queues.len() as u32).map(CellTypeId) {
            self.lose_roster(cell_type, worker);
        }
        for request in victims {
            self.unpin_all(request, worker);
            self.abort(request, Outcome::Failed(Failure::WorkerLost));
        }
    }
}
