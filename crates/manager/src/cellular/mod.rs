//! Cellular batching: the paper's own policy.
//!
//! # The files, from the bottom up
//! - `subgraph`: one run of a request, with its progress. `request_table` holds all requests and
//!   subgraphs in flight.
//! - `roster`: the standing batch of one worker and cell type, which makes a steady step cost nothing
//!   a node. `queue` holds a cell type's rosters, waiting subgraphs, slots and submission window.
//! - `fair_places`: where small and large requests stand in the queues.
//! - `task_times`: how long a cell type's batches take. `sequence_rows`: how many rows of sequences a batch
//!   may have. `service_time`: the least time of a request.
//! - `readiness`: which nodes a worker may run.
//! - `slot_waiters`: which chain gets a slot next where a device bounds their number. `sessions`: which
//!   chunk runs next, and which slots the session holds between two chunks.
//! - `subgraph_pool`: how subgraphs move between queue, roster and the line for a slot.
//! - `request_processor` puts requests into the pool (`partition`) and ends them. `scheduler` is
//!   Algorithm 1: with `row_batch` and `roster_batch`, it forms batches of the pool's nodes.
//!
//! # How a request travels
//! 1. [`Event::Arrive`]: `request_processor` cuts the request's graph into subgraphs. The pool puts
//!    those with a ready node into the queues of their cell types. A chunk of a session waits in
//!    `sessions` until the chunk before it has ended.
//! 2. A worker asks for a task: `scheduler` chooses the cell type. `roster_batch` lets waiting chains
//!    join the worker's roster and submits steps until a member must leave; `row_batch` lists rows.
//!    Subgraphs that depend on the submitted nodes become ready for this worker.
//! 3. [`Event::Progress`] and [`Event::Complete`]: `request_processor` counts completed nodes.
//!    Subgraphs that depend on them become ready for all workers, and a subgraph with nothing in
//!    flight is unpinned. With its last node it ends, and its slot is free or its session's.
//!    A row-wise node may write a decision: [`Event::Decided`] lets subgraphs that have it as their guard
//!    run, or ends them unrun.
//! 4. When the last subgraph ends, the request is among the finished ones.

mod fair_places;
mod partition;
mod queue;
mod readiness;
mod request_processor;
mod request_table;
mod roster;
mod roster_batch;
mod row_batch;
mod scheduler;
mod sequence_rows;
mod service_time;
mod sessions;
mod slot_waiters;
mod subgraph;
mod subgraph_pool;
mod submission_window;
mod task_times;
mod workers;

use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellTypeId, ModelId, RequestId, RunIndex, SessionId, TaskId, WorkerId,
};

use crate::batching::Batching;
use crate::config::Config;
use crate::counters::BatchCounters;
use crate::discarded::Discarded;
use crate::event::{Event, Failure, Finished, Outcome, Undecided};

use request_processor::RequestProcessor;
use request_table::Arrival;
use scheduler::Scheduler;

/// The request processor and the scheduler of section 4.2 of the paper.
#[derive(Debug)]
pub(crate) struct Cellular {
    processor: RequestProcessor,
    scheduler: Scheduler,
}

impl Cellular {
    pub(crate) fn new(config: &Config) -> Self {
        Self { processor: RequestProcessor::new(config), scheduler: Scheduler::new(config) }
    }

    fn settle(&mut self) {
        self.processor.settle_sessions();
        self.processor.pool.give_slots();
    }

    fn progress(&mut self, worker: WorkerId, task: TaskId, steps_done: u32) {
        let state = self.scheduler.worker_mut(worker);
        let (cell_type, steps) = state.progress(worker, task, steps_done);
        self.processor.steps_completed(cell_type, worker, steps);
    }

    fn complete(&mut self, worker: WorkerId, task: TaskId) {
        let now_ns = self.processor.pool.now_ns;
        let state = self.scheduler.worker_mut(worker);
        let (task, took_ns) = state.complete(worker, task, now_ns);
        if self.processor.pool.is_timed
            && let Some(timed) = state.take_timed(task.id)
        {
            self.processor.pool.note_time(&task, timed, took_ns);
        }
        self.processor.task_completed(worker, task, took_ns);
    }

    fn task_failed(&mut self, worker: WorkerId, task: TaskId, reason: Arc<str>) {
        if let Some(oldest) = self.scheduler.worker(worker).in_flight().front() {
            self.processor.fail_task(worker, oldest, Failure::Task(reason));
        }
        self.complete(worker, task);
    }

    fn worker_down(&mut self, worker: WorkerId, reason: Arc<str>) {
        let in_flight = self.scheduler.worker_mut(worker).lose();
        self.processor.lose_worker(worker, in_flight.into_iter(), Failure::WorkerLost(reason));
    }
}

impl Batching for Cellular {
    fn handle(&mut self, now_ns: u64, event: Event) {
        self.processor.advance(now_ns);
        match event {
            Event::Arrive { request, model, priority, deadline_ns, graph, session } => {
                let at_ns = now_ns;
                let arrival =
                    Arrival { request, model, priority, deadline_ns, graph, session, at_ns };
                self.processor.admit(arrival);
            }
            Event::EndSession { session } => self.processor.end_session(session),
            Event::Progress { worker, task, steps } => self.progress(worker, task, steps),
            Event::Complete { worker, task } => self.complete(worker, task),
            Event::EndOfSequence { chain } => self.processor.end_of_sequence(chain),
            Event::Decided { request, decision, outcome } => {
                self.processor.decided(request, decision, outcome);
            }
            Event::TaskFailed { worker, task, reason } => self.task_failed(worker, task, reason),
            Event::Cancel { request } => {
                self.processor.give_up(request, &Outcome::Cancelled);
            }
            Event::Limits { batch_max, submission_window_ns } => {
                for (queue, max) in self.processor.pool.queues.iter_mut().zip(batch_max) {
                    queue.set_limits(max, submission_window_ns);
                }
            }
            Event::WorkerUp { worker } => self.scheduler.worker_mut(worker).is_down = false,
            Event::WorkerDown { worker, reason } => self.worker_down(worker, reason),
        }
        self.settle();
    }

    fn advance(&mut self, now_ns: u64) {
        self.processor.advance(now_ns);
        self.settle();
    }

    fn next_task(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        self.scheduler.next_task(&mut self.processor.pool, worker)
    }

    fn next_of_round(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        self.scheduler.next_of_round(&mut self.processor.pool, worker)
    }

    fn has_rest_of_round(&self, worker: WorkerId) -> bool {
        self.scheduler.has_rest_of_round(&self.processor.pool, worker)
    }

    fn finished(&mut self) -> &mut Vec<Finished> {
        &mut self.processor.finished
    }

    fn take_discarded(&mut self) -> Discarded {
        std::mem::take(&mut self.processor.pool.requests.discarded)
    }

    fn requests(&self) -> usize {
        self.processor.requests()
    }

    fn completed_nodes(&self, request: RequestId, run: RunIndex) -> u32 {
        self.processor.completed_nodes(request, run)
    }

    fn take_undecided(&mut self) -> Vec<Undecided> {
        std::mem::take(&mut self.processor.undecided)
    }

    fn take_ended_sessions(&mut self) -> Vec<SessionId> {
        self.processor.take_ended_sessions()
    }

    fn is_busy(&self, worker: WorkerId) -> bool {
        !self.scheduler.worker(worker).in_flight().is_empty()
    }

    fn has_work_for(&self, worker: WorkerId) -> bool {
        self.scheduler.has_work_for(&self.processor.pool, worker)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.processor.next_deadline()
    }

    fn counters(&self, cell_type: CellTypeId) -> BatchCounters {
        self.processor.pool.queues[cell_type].counters.clone()
    }

    fn worker_ns(&self, model: ModelId) -> Option<u64> {
        Some(self.processor.pool.shares.as_ref()?.worker_ns(model))
    }

    fn slots_in_use(&self, cell_type: CellTypeId) -> usize {
        self.processor.pool.queues[cell_type].slots.in_use()
    }

    fn waiting(&self, cell_type: CellTypeId) -> usize {
        self.processor.pool.queues[cell_type].waiting().len()
    }
}
