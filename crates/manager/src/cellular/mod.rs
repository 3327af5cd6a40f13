//! Cellular batching: the paper's own policy.
//!
//! `scheduler` holds Algorithm 1; `request_processor` tracks which nodes are ready; `roster` is
//! the standing batch that makes a steady step cost nothing a node; `slot_waiters` says which
//! chains get slots where a device has only so many.
//!
//! # Watermarks
//! A node is ready for a worker when what it depends on has *completed*, or has been
//! *submitted to that same worker*, which runs its tasks in order.

mod queue;
mod request_processor;
mod roster;
mod scheduler;
mod sessions;
mod slot_waiters;
mod subgraph;

use std::collections::VecDeque;
use std::sync::Arc;

use batchmaker_graph::{BatchedTask, CellTypeId, RequestId, RunIndex, SessionId, TaskId, WorkerId};

use crate::config::Config;
use crate::event::{Event, Failure, Finished, Outcome};
use crate::manager::Batching;
use crate::tally::Tally;

use queue::Queue;
use request_processor::RequestProcessor;
use sessions::{Arrival, Sessions};
use slot_waiters::SlotWaiters;
use subgraph::SubgraphIndex;

/// See the module's first paragraph.
#[derive(Debug)]
pub(crate) struct Cellular {
    pub(crate) config: Config,
    pub(crate) now: u64,
    pub(crate) queues: Vec<Queue>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) processor: RequestProcessor,
    pub(crate) sessions: Sessions,
    pub(crate) slot_waiters: SlotWaiters,
}

/// A worker as the scheduler sees it.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) is_down: bool,
    pub(crate) last_task: u64,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// The round of Algorithm 1's `Batch` that is being handed out.
    pub(crate) round: Option<Round>,
    /// Since when it has been at its oldest task: when the one before it completed, or, if the
    /// worker had none, when it was handed out.
    pub(crate) since_ns: u64,
}

#[derive(Clone, Copy, Debug)]
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
    /// Steps of the worker's roster, of which the first `done` are complete.
    Steps { steps: u32, done: u32 },
    /// Rows of subgraphs, with the number of nodes that are complete once these are.
    Rows(Vec<(SubgraphIndex, u32)>),
}

impl Cellular {
    pub(crate) fn new(config: Config) -> Self {
        let workers = usize::from(config.workers);
        let submission_window_ns = config.submission_window_ns;
        let queues = config
            .cell_types
            .iter()
            .map(|cell| Queue::new(cell.clone(), workers, submission_window_ns));
        Self {
            now: 0,
            queues: queues.collect(),
            workers: std::iter::repeat_with(Worker::default).take(workers).collect(),
            processor: RequestProcessor::new(workers),
            sessions: Sessions::default(),
            slot_waiters: SlotWaiters::new(config.cell_types.len()),
            config,
        }
    }

    fn task_failed(&mut self, worker: WorkerId, task: TaskId, reason: &Arc<str>) {
        for request in self.requests_in_oldest_task(worker) {
            self.abort(request, Outcome::Failed(Failure::Task(reason.clone())));
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
            InFlightWork::Steps { steps, done } => {
                let roster = self.queues[task.cell_type.index()].roster(worker);
                let first = roster.completed_steps;
                let end = first + u64::from(steps - done);
                let leaving = roster.leaving.iter().map(|&(_, subgraph)| subgraph);
                let stayed = |&subgraph: &SubgraphIndex| {
                    let subgraph = self.subgraph(subgraph);
                    let mut stays = subgraph.stays.iter();
                    !subgraph.is_stopped
                        && stays.any(|stay| stay.join_step < end && stay.leave_step > first)
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

    fn progress(&mut self, worker: WorkerId, id: TaskId, steps_done: u32) {
        let task = self.workers[worker.index()].in_flight.front_mut();
        let task = task
            .unwrap_or_else(|| panic!("{worker} reported progress of {id} with none in flight"));
        assert_eq!(task.id, id, "{worker} reported progress of a task out of order");
        let InFlightWork::Steps { steps, done } = &mut task.work else {
            panic!("{worker} reported progress of {id}, which has no steps");
        };
        let known = std::mem::replace(done, steps_done);
        assert!(
            known < steps_done && steps_done < *steps,
            "{worker} went from {known} to {steps_done} of {steps} steps of {id}"
        );
        let cell_type = task.cell_type;
        self.steps_completed(cell_type, worker, steps_done - known);
    }

    fn complete(&mut self, worker: WorkerId, task: TaskId) {
        let done = self.workers[worker.index()].in_flight.pop_front();
        let done = done.unwrap_or_else(|| panic!("{worker} completed {task} with none in flight"));
        assert_eq!(done.id, task, "{worker} completed a task out of order");
        let since_ns = &mut self.workers[worker.index()].since_ns;
        let took_ns = self.now.saturating_sub(std::mem::replace(since_ns, self.now));
        let queue = &mut self.queues[done.cell_type.index()];
        queue.running_tasks -= 1;
        match done.work {
            InFlightWork::Rows(rows) => {
                for (subgraph, completed) in rows {
                    self.rows_completed(subgraph, completed, task);
                }
            }
            InFlightWork::Steps { steps, done: known } => {
                queue.note_time(took_ns, steps);
                queue.rosters[worker.index()].tasks_in_flight -= 1;
                self.steps_completed(done.cell_type, worker, steps - known);
            }
        }
    }

    fn worker_down(&mut self, worker: WorkerId, reason: &Arc<str>) {
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
            self.abort(request, Outcome::Failed(Failure::WorkerLost(reason.clone())));
        }
        self.lose_sessions(worker);
    }
}

impl Batching for Cellular {
    fn handle(&mut self, now: u64, event: Event) {
        self.now = now;
        match event {
            Event::Arrive { request, model, priority, graph, session } => {
                self.admit(Arrival { request, model, priority, graph, session, at_ns: now });
            }
            Event::EndSession { session } => self.end_session(session),
            Event::Progress { worker, task, steps } => self.progress(worker, task, steps),
            Event::Complete { worker, task } => self.complete(worker, task),
            Event::EndOfSequence { chain } => self.stopped(chain),
            Event::TaskFailed { worker, task, reason } => self.task_failed(worker, task, &reason),
            Event::Cancel { request } => {
                if !self.cancel_waiting(request) {
                    self.abort(request, Outcome::Cancelled);
                }
            }
            Event::Limits { batch_max, submission_window_ns } => {
                for (queue, max) in self.queues.iter_mut().zip(batch_max) {
                    queue.set_limits(queue.config.sizes_with_max(max), submission_window_ns);
                }
            }
            Event::WorkerUp { worker } => self.workers[worker.index()].is_down = false,
            Event::WorkerDown { worker, reason } => self.worker_down(worker, &reason),
        }
        self.settle_sessions();
        self.give_slots();
    }

    fn next_task(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        self.next_of_round(worker)
    }

    fn finished(&mut self) -> &mut Vec<Finished> {
        &mut self.processor.finished
    }

    fn requests(&self) -> usize {
        self.processor.live_requests + self.waiting_chunks()
    }

    fn completed_nodes(&self, request: RequestId, run: RunIndex) -> u32 {
        match self.processor.subgraph_of(request, run) {
            Some(subgraph) => self.completed(subgraph),
            None => 0,
        }
    }

    fn take_ended_sessions(&mut self) -> Vec<SessionId> {
        std::mem::take(&mut self.sessions.ended)
    }

    fn is_busy(&self, worker: WorkerId) -> bool {
        !self.workers[worker.index()].in_flight.is_empty()
    }

    fn has_work_for(&self, worker: WorkerId) -> bool {
        let state = &self.workers[worker.index()];
        let goes_on = |round: &Round| self.round_goes_on(round, worker);
        !state.is_down
            && (state.round.as_ref().is_some_and(goes_on)
                || (self.may_open_round(worker) && self.has_ready_nodes(worker)))
    }

    fn tally(&self, cell_type: CellTypeId) -> &Tally {
        &self.queues[cell_type.index()].tally
    }

    fn slots_in_use(&self, cell_type: CellTypeId) -> usize {
        self.queues[cell_type.index()].slots.in_use()
    }

    fn waiting(&self, cell_type: CellTypeId) -> usize {
        self.queues[cell_type.index()].waiting.len()
    }
}
