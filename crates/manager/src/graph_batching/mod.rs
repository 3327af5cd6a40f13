//! Graph batching (section 7.1 of the paper): what cellular batching is compared with.
//!
//! Requests wait in buckets by length. When a worker is idle, the next bucket in turn yields a
//! batch, up to the batch limit and without waiting for more. The batch is closed: its graphs
//! run level by level, each level padded to one length, and all its requests end together, when
//! the last of its tasks is complete. There is one set of buckets for all workers.
//!
//! With lookahead, the worker's next batch is formed while a few tasks of the one before are
//! unfinished. Batches have nothing in common but the worker's rosters and the table of slots, and a
//! worker runs its tasks in order: the one before is not changed, and ends as it would have.
//!
//! Padding is computed like nodes: chains stay on the roster past their end, and row-wise
//! items run over it (see [`batchmaker_graph::Work`]). Nodes that feed each other (a tree's) are not
//! padded: they run level by level.
//!
//! Under [`ClosedBatches::Merged`] nothing is padded, and graphs wait in one bucket: a batch's graphs
//! are merged node by node.
//!
//! # How a request travels
//! [`Event::Arrive`] puts it into its bucket (`buckets`). When a worker asks for a task and has none
//! left, the first requests of the next bucket become a batch: `levels` or `merged` orders their
//! nodes, `batch_former` cuts these into tasks, and `batch` holds the tasks until they are complete.

mod batch;
mod batch_former;
mod buckets;
mod levels;
mod merged;

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::{BatchedTask, CellGraph, CellTypeId, ModelId, RequestId, TaskId, WorkerId};

use crate::aging::Aging;
use crate::batching::Batching;
use crate::config::{Config, Merging, Padding, StatePlacement};
use crate::counters::BatchCounters;
use crate::discarded::Discarded;
use crate::event::{Event, Failure, Finished, Outcome};
use crate::live_requests::{Arrival, LiveRequest, LiveRequests};
use crate::shares::{Charge, Shares};

use batch::{Batch, Cell, Worker};
use batch_former::BatchFormer;
use buckets::{Bucket, Buckets, Place};
use levels::{length_of, levels, widths};
use merged::merged;

/// Graph batching, padded or merged.
#[derive(Debug)]
pub(crate) struct GraphBatching {
    policy: ClosedBatches,
    state_placement: StatePlacement,
    lookahead: usize,
    now: u64,
    cells: Vec<Cell>,
    workers: Vec<Worker>,
    requests: LiveRequests<Waiting>,
    buckets: Buckets,
    arrivals: u64,
    /// The requests that may be promoted, where requests are.
    aging: Option<Aging>,
    /// The shares of models, where they have any.
    shares: Option<Shares>,
    /// The recent time of a batch of each model, in nanoseconds, where models have shares.
    batch_ns: Vec<u64>,
}

/// The requests of a batch, and how their graphs run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClosedBatches {
    /// Requests of one bucket, padded.
    Padded(Padding),
    /// Requests of one model, merged.
    Merged(Merging),
}

/// The model of a request, and its place among those that wait in a bucket.
#[derive(Debug)]
struct Waiting {
    model: ModelId,
    place: Place,
}

type Request = LiveRequest<Waiting>;

impl GraphBatching {
    pub(crate) fn new(config: &Config, policy: ClosedBatches) -> Self {
        let worker = |_| Worker::new(config.cell_types.len());
        Self {
            policy,
            state_placement: config.state_placement,
            lookahead: config.lookahead as usize,
            now: 0,
            cells: config.cell_types.iter().map(Cell::new).collect(),
            workers: (0..config.workers).map(worker).collect(),
            requests: LiveRequests::default(),
            buckets: Buckets::default(),
            arrivals: 0,
            aging: config.fairness.as_ref().and_then(|rules| rules.aging_ns).map(Aging::new),
            shares: config.fairness.as_ref().and_then(Shares::of),
            batch_ns: Vec::new(),
        }
    }

    fn request(&self, id: RequestId) -> &Request {
        self.requests.get(id).expect("a member of a batch is in flight")
    }

    fn bucket_of(&self, request: &Request) -> Bucket {
        let bucket = match self.policy {
            ClosedBatches::Padded(padding) => padding.bucket(length_of(&request.graph)),
            ClosedBatches::Merged(_) => 0,
        };
        (request.of_policy.model, bucket)
    }

    fn arrive(
        &mut self,
        id: RequestId,
        model: ModelId,
        priority: u32,
        deadline_ns: Option<u64>,
        graph: Arc<CellGraph>,
    ) {
        let priority = if priority == 0 { u32::MAX } else { priority };
        let place = (priority, self.arrivals);
        self.arrivals += 1;
        for run in graph.runs() {
            self.cells[run.cell_type.index()].waiting += 1;
        }
        let of_policy = Waiting { model, place };
        self.requests.insert(self.now, Arrival { id, graph, deadline_ns, of_policy });
        self.buckets.insert(self.bucket_of(self.request(id)), place, id);
        if let Some(shares) = &mut self.shares {
            shares.note_model(model);
        }
        if let Some(aging) = &mut self.aging {
            let is_live = |id| self.requests.get(id).is_some();
            aging.start(self.now, id, self.requests.len(), is_live);
        }
        self.advance(self.now);
    }

    /// Moves the requests that have waited for long before all others of their buckets.
    fn promote_old_requests(&mut self) {
        let now = self.now;
        while let Some(id) = self.aging.as_mut().and_then(|aging| aging.take_old(now)) {
            let Some(request) =
                self.requests.get_mut(id).filter(|known| known.batched_ns.is_none())
            else {
                continue;
            };
            let before = request.of_policy.place;
            // Clients' priorities begin with 1.
            request.of_policy.place.0 = 0;
            let request = self.request(id);
            let (bucket, place) = (self.bucket_of(request), request.of_policy.place);
            self.buckets.remove(bucket, before);
            self.buckets.insert(bucket, place, id);
        }
    }

    /// Gives a request up. A member of a running batch stays in it to the end.
    fn give_up(&mut self, id: RequestId, outcome: Outcome) {
        self.requests.give_up(id, outcome);
        if self.requests.get(id).is_some_and(|request| request.batched_ns.is_none()) {
            self.leave_bucket(id);
            self.requests.finish(self.now, id);
        }
    }

    fn leave_bucket(&mut self, id: RequestId) {
        let request = self.request(id);
        let (bucket, place, graph) =
            (self.bucket_of(request), request.of_policy.place, request.graph.clone());
        self.buckets.remove(bucket, place);
        for run in graph.runs() {
            self.cells[run.cell_type.index()].waiting -= 1;
        }
    }

    /// Forms a batch of the bucket whose turn it is.
    fn form_batch(&mut self, worker: WorkerId) -> Option<Batch> {
        let bucket = match &mut self.shares {
            Some(shares) => self.buckets.next_turn_of(shares.choose(self.buckets.models())?)?,
            None => self.buckets.next_turn()?,
        };
        let members = match self.policy {
            ClosedBatches::Padded(_) => self.within_limits(bucket),
            ClosedBatches::Merged(Merging { graphs }) => {
                self.buckets.requests(bucket).take(graphs as usize).collect()
            }
        };
        for &id in &members {
            self.leave_bucket(id);
            let now = self.now;
            let request = self.requests.get_mut(id).expect("a waiting request is in flight");
            request.batched_ns = Some(now);
        }
        let graphs = members.iter().map(|&id| (id, &*self.request(id).graph));
        let mut batch = match self.policy {
            ClosedBatches::Padded(padding) => {
                let levels = levels(graphs, padding);
                self.former(worker, members).form_levels(&levels)
            }
            ClosedBatches::Merged(_) => {
                let merged = merged(graphs);
                self.former(worker, members).form_merged(&merged)
            }
        };
        batch.charge = self.charge(bucket.0);
        if self.workers[worker.index()].batches.is_empty() {
            self.workers[worker.index()].since_ns = self.now;
        }
        Some(batch)
    }

    /// Charges a batch to `model`, by the time that its batches took of late.
    fn charge(&mut self, model: ModelId) -> Charge {
        let Some(shares) = &mut self.shares else { return Charge::default() };
        let estimate_ns = self.batch_ns.get(model.index()).copied().unwrap_or(0);
        shares.charge(estimate_ns, &[(model, 1)])
    }

    /// Corrects the charge of a batch that is over.
    fn correct_charge(&mut self, worker: WorkerId, batch: &mut Batch) {
        let now = self.now;
        let since_ns = std::mem::replace(&mut self.workers[worker.index()].since_ns, now);
        let model = batch.members.first().map(|&member| self.request(member).of_policy.model);
        if let (Some(shares), Some(model)) = (&mut self.shares, model) {
            let took_ns = now - since_ns;
            shares.correct(std::mem::take(&mut batch.charge), took_ns);
            if self.batch_ns.len() <= model.index() {
                self.batch_ns.resize(model.index() + 1, took_ns);
            }
            let recent_ns = &mut self.batch_ns[model.index()];
            *recent_ns = (3 * *recent_ns + took_ns) / 4;
        }
    }

    fn former(&mut self, worker: WorkerId, members: Vec<RequestId>) -> BatchFormer<'_> {
        BatchFormer {
            batch: Batch { members, ..Batch::default() },
            cells: &mut self.cells,
            state: &mut self.workers[worker.index()],
            worker,
        }
    }

    /// The first requests of a bucket, up to where their chains would outgrow a cell's batch limit at
    /// some level, and one at least.
    fn within_limits(&self, bucket: Bucket) -> Vec<RequestId> {
        let mut taken = BTreeMap::new();
        let mut members = Vec::new();
        for id in self.buckets.requests(bucket) {
            let widths = widths(&self.request(id).graph);
            let fits = widths.iter().all(|(key, &width)| {
                let limit = self.cells[key.1.index()].limit;
                taken.get(key).copied().unwrap_or(0) + width <= limit
            });
            if !fits && !members.is_empty() {
                break;
            }
            for (key, width) in widths {
                *taken.entry(key).or_insert(0) += width;
            }
            members.push(id);
        }
        members
    }

    fn task_over(&mut self, worker: WorkerId, task: TaskId, failure: Option<Failure>) {
        let batch = self.workers[worker.index()].batches.front_mut();
        let done = batch.and_then(|batch| batch.in_flight.pop_front());
        let (id, holders) =
            done.unwrap_or_else(|| panic!("{worker} completed {task} with none in flight"));
        assert_eq!(id, task, "{worker} completed a task out of order");
        if let Some(failure) = failure {
            self.fail(&holders, &failure);
        }
        let batches = &mut self.workers[worker.index()].batches;
        if let Some(mut batch) = batches.pop_front_if(|batch| batch.is_over()) {
            self.correct_charge(worker, &mut batch);
            self.end_batch(batch);
        }
    }

    fn fail(&mut self, requests: &[RequestId], failure: &Failure) {
        for &id in requests {
            self.requests.give_up(id, Outcome::Failed(failure.clone()));
        }
    }

    fn end_batch(&mut self, batch: Batch) {
        for (cell_type, slot) in batch.slots {
            self.cells[cell_type.index()].slots.release(slot);
        }
        batch.members.into_iter().for_each(|member| self.requests.finish(self.now, member));
    }

    fn worker_down(&mut self, worker: WorkerId, reason: Arc<str>) {
        let state = &mut self.workers[worker.index()];
        state.is_down = true;
        state.on_roster.iter_mut().for_each(Vec::clear);
        let lost = Failure::WorkerLost(reason);
        for batch in std::mem::take(&mut state.batches) {
            match self.state_placement {
                StatePlacement::PerWorker => self.fail(&batch.members, &lost),
                StatePlacement::Shared => {
                    let queued = batch.tasks.iter().map(|(_, holders)| holders);
                    let in_flight = batch.in_flight.iter().map(|(_, holders)| holders);
                    queued.chain(in_flight).for_each(|holders| self.fail(holders, &lost));
                }
            }
            self.end_batch(batch);
        }
    }
}

impl Batching for GraphBatching {
    fn handle(&mut self, now: u64, event: Event) {
        self.advance(now);
        match event {
            Event::Arrive { request, model, priority, deadline_ns, graph, session } => {
                assert!(session.is_none(), "a closed batch has no chunk of a session");
                self.arrive(request, model, priority, deadline_ns, graph);
            }
            Event::EndSession { session } => unreachable!("{session:?} never began"),
            // A batch ends as a whole.
            Event::Progress { .. } | Event::EndOfSequence { .. } | Event::Decided { .. } => {}
            Event::Complete { worker, task } => self.task_over(worker, task, None),
            Event::TaskFailed { worker, task, reason } => {
                self.task_over(worker, task, Some(Failure::Task(reason)));
            }
            Event::Cancel { request } => self.give_up(request, Outcome::Cancelled),
            // For batches that begin from now on.
            Event::Limits { batch_max, .. } => {
                for (cell, max) in self.cells.iter_mut().zip(batch_max) {
                    cell.limit = cell.config.sizes_with_max(max).max;
                }
            }
            Event::WorkerUp { worker } => self.workers[worker.index()].is_down = false,
            Event::WorkerDown { worker, reason } => self.worker_down(worker, reason),
        }
    }

    fn advance(&mut self, now: u64) {
        self.now = now;
        while let Some(request) = self.requests.take_overdue(now) {
            self.give_up(request, Outcome::TimedOut);
        }
        self.promote_old_requests();
    }

    fn next_task(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        let state = &self.workers[worker.index()];
        if state.is_down {
            return None;
        }
        if state.is_submitted() {
            if state.unfinished() > self.lookahead {
                return None;
            }
            let batch = self.form_batch(worker)?;
            self.workers[worker.index()].batches.push_back(batch);
        }
        self.next_of_round(worker)
    }

    fn next_of_round(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        let batch = self.workers[worker.index()].batches.back_mut()?;
        let (task, holders) = batch.tasks.pop_front()?;
        batch.in_flight.push_back((task.id, holders));
        Some(task)
    }

    fn has_rest_of_round(&self, worker: WorkerId) -> bool {
        let state = &self.workers[worker.index()];
        !state.is_down && !state.is_submitted()
    }

    fn finished(&mut self) -> &mut Vec<Finished> {
        &mut self.requests.finished
    }

    fn take_discarded(&mut self) -> Discarded {
        std::mem::take(&mut self.requests.discarded)
    }

    fn requests(&self) -> usize {
        self.requests.len()
    }

    fn is_busy(&self, worker: WorkerId) -> bool {
        self.workers[worker.index()].unfinished() > 0
    }

    fn has_work_for(&self, worker: WorkerId) -> bool {
        let state = &self.workers[worker.index()];
        let may_begin = state.unfinished() <= self.lookahead && !self.buckets.is_empty();
        self.has_rest_of_round(worker) || (!state.is_down && may_begin)
    }

    fn next_deadline(&self) -> Option<u64> {
        self.requests.next_deadline()
    }

    fn counters(&self, cell_type: CellTypeId) -> BatchCounters {
        self.cells[cell_type.index()].counters.clone()
    }

    fn worker_ns(&self, model: ModelId) -> Option<u64> {
        Some(self.shares.as_ref()?.worker_ns(model))
    }

    fn slots_in_use(&self, cell_type: CellTypeId) -> usize {
        self.cells[cell_type.index()].slots.in_use()
    }

    fn waiting(&self, cell_type: CellTypeId) -> usize {
        self.cells[cell_type.index()].waiting
    }
}
