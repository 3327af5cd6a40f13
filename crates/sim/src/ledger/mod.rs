//! The books of a simulation: the requests that have arrived (`request`), the sessions (`sessions`),
//! the tasks in flight, and the chains with slots where a device has a bound on them (`slots`).
//!
//! The books are kept from [`Observation`]s alone, so nothing here is taken from the manager's own
//! state. Checkers read them as they stood before the observation that they check.

mod request;
mod sessions;
mod slots;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{CellTypeId, ModelId, RequestId, RunIndex, SessionId, TaskId, WorkerId};
use batchmaker_manager::{CellTypeConfig, Config, Failure, Finished, Outcome, StatePlacement};

use crate::observation::{Nodes, Observation, TaskEnd};

use request::OpenRuns;
pub(crate) use request::{Request, Run};
use sessions::{Kept, Sessions, Settled};
use slots::{BoundedSlots, Owners};

/// The books.
#[derive(Debug)]
pub(crate) struct Ledger {
    placement: StatePlacement,
    pub(crate) requests: BTreeMap<RequestId, Request>,
    pub(crate) sessions: Sessions,
    pub(crate) workers: Vec<Worker>,
    /// Per cell type: runs of requests that started and are not given up, with nodes not submitted
    /// yet, in the order of the type's queue.
    pub(crate) open: Vec<OpenRuns>,
    slots: BoundedSlots,
    cell_types: Vec<CellTypeConfig>,
    /// The largest batch of each cell type.
    pub(crate) batch_max: Vec<u32>,
    /// The number of requests that started.
    starts: u64,
    /// The time of the last event, in nanoseconds.
    pub(crate) now_ns: u64,
    /// The time, in nanoseconds, whether or not the manager knows it.
    pub(crate) clock_ns: u64,
    aging_ns: Option<u64>,
    large_rows: Option<u32>,
    has_shares: bool,
    /// The rows that a request with work at all times would have been served, in units of 2^-32: by model,
    /// where models have shares.
    virtual_times: BTreeMap<ModelId, u128>,
    /// The number of requests that were promoted.
    pub(crate) promoted: u64,
}

/// A worker.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) is_down: bool,
    pub(crate) tasks: VecDeque<Task>,
}

/// A task in flight.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    /// The number of steps that are complete.
    progress: u32,
    /// The runs that it holds nodes of, each once.
    parts: Vec<(RequestId, RunIndex)>,
}

impl Ledger {
    pub(crate) fn new(config: &Config) -> Self {
        let (cell_types, workers) = (config.cell_types.len(), usize::from(config.workers));
        Self {
            placement: config.state_placement,
            requests: BTreeMap::new(),
            sessions: Sessions::default(),
            workers: std::iter::repeat_with(Worker::default).take(workers).collect(),
            open: vec![OpenRuns::new(); cell_types],
            slots: BoundedSlots::new(config),
            cell_types: config.cell_types.clone(),
            batch_max: config.cell_types.iter().map(|cell| cell.batch_sizes.max).collect(),
            starts: 0,
            now_ns: 0,
            clock_ns: 0,
            aging_ns: config.fairness.as_ref().and_then(|fairness| fairness.aging_ns),
            large_rows: config.fairness.as_ref().and_then(|fairness| fairness.large_rows),
            has_shares: config.fairness.as_ref().is_some_and(|fairness| fairness.shares.is_some()),
            virtual_times: BTreeMap::new(),
            promoted: 0,
        }
    }

    /// Whether a single request has started and not ended, and it has cells of which a row takes the cores of several workers. The manager also
    /// asks that it was alone when it arrived, and that its chains follow each other and are not too many.
    pub(crate) fn may_be_for_one_worker(&self) -> bool {
        let mut started = self.requests.values().filter(|request| !request.is_waiting());
        let (Some(request), None) = (started.next(), started.next()) else { return false };
        let mut runs = request.graph.runs().iter();
        runs.any(|run| self.cell_types[run.cell_type.index()].workers_of_a_row > 1)
    }

    /// The run that `nodes` belong to, with its request.
    pub(crate) fn run_of(&self, nodes: &Nodes) -> Option<(&Request, &Run)> {
        let request = self.requests.get(&nodes.request)?;
        Some((request, request.runs.get(nodes.run.index())?))
    }

    /// Enters an observation. What is impossible is left out, since a checker has reported it.
    pub(crate) fn enter(&mut self, seen: &Observation<'_>) {
        match *seen {
            Observation::Arrived { request, model, priority, deadline_ns, graph, session } => {
                let graph = graph.clone();
                let arrived = Request::new(graph, model, priority, deadline_ns, session);
                self.arrive(request, arrived);
            }
            Observation::SessionEnding { session } => {
                let settled = self.sessions.end(session);
                self.settle(settled);
            }
            Observation::SessionEnded { session } => self.sessions.remove(session),
            Observation::Cancelled { request } => self.give_up(request, Outcome::Cancelled),
            Observation::Submitted { task } => {
                let (worker, task) =
                    (task.worker, Task { id: task.id, progress: 0, parts: Vec::new() });
                self.workers[worker.index()].tasks.push_back(task);
            }
            Observation::Batch { worker, task, nodes, .. } => {
                nodes.iter().for_each(|nodes| self.submit(worker, task, nodes));
                self.serve(nodes);
            }
            Observation::EndOfSequence { chain } => {
                if let Some(request) = self.requests.get_mut(&chain.request) {
                    request.end_sequence(chain, &mut self.open);
                }
            }
            Observation::Decided { request, decision, outcome } => match outcome {
                Ok(is_true) => {
                    if let Some(request) = self.requests.get_mut(&request) {
                        request.decided(decision, *is_true, &mut self.open);
                    }
                }
                Err(reason) => {
                    self.give_up(request, Outcome::Failed(Failure::WorkerLost(reason.clone())));
                }
            },
            Observation::Progressed { worker, task, steps } => {
                self.progress(worker, task, steps);
            }
            Observation::Over { worker, task, end } => self.task_over(worker, task, end),
            Observation::WorkerUp { worker } => self.workers[worker.index()].is_down = false,
            Observation::WorkerDown { worker, reason } => self.lose_worker(worker, reason),
            Observation::Finished { finished } => self.finish(finished),
            Observation::Limits { batch_max } => {
                let limits = self.cell_types.iter().zip(batch_max);
                let limits = limits.map(|(cell, &max)| max.min(cell.rows_max.unwrap_or(max)));
                self.batch_max = limits.collect();
            }
            Observation::Refused { .. }
            | Observation::InStages { .. }
            | Observation::Settled { .. }
            | Observation::Drained => {}
        }
    }

    fn arrive(&mut self, id: RequestId, arrived: Request) {
        let (session, deadline_ns) = (arrived.session, arrived.deadline_ns);
        self.requests.insert(id, arrived);
        match session.map(|session| self.sessions.line_up(session, id)) {
            None => self.start(id, &BTreeMap::new()),
            Some(Some(settled)) => self.settle(settled),
            Some(None) => self.give_up(id, Outcome::Failed(Failure::SessionLost)),
        }
        if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= self.now_ns) {
            self.give_up(id, Outcome::TimedOut);
        }
    }

    /// Enters that it is `now_ns`: requests whose deadlines are reached are given up, and those that
    /// started long ago are promoted.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        (self.now_ns, self.clock_ns) = (now_ns, now_ns);
        while let Some((deadline_ns, id)) = self.first_deadline()
            && deadline_ns <= now_ns
        {
            self.give_up(id, Outcome::TimedOut);
        }
        if let Some(before_ns) = self.aging_ns.and_then(|aging_ns| now_ns.checked_sub(aging_ns)) {
            for (&id, request) in &mut self.requests {
                self.promoted +=
                    u64::from(request.promote(id, (before_ns, now_ns), &mut self.open));
            }
        }
    }

    /// The earliest deadline of a request that is not given up, and the request.
    pub(crate) fn first_deadline(&self) -> Option<(u64, RequestId)> {
        let open = self.requests.iter().filter(|(_, request)| request.given_up.is_none());
        open.filter_map(|(&id, request)| Some((request.deadline_ns?, id))).min()
    }

    /// Starts a request: it takes its place in the queues, with the slots that the chunk before it
    /// left.
    fn start(&mut self, id: RequestId, kept: &BTreeMap<RunIndex, Kept>) {
        let Some(request) = self.requests.get(&id) else { return };
        let clock = self.clock_of(request);
        let tag = (self.start_clock(clock) >> 24) as u64;
        let tag = if self.large_rows.is_some() { tag } else { 0 };
        let Some(request) = self.requests.get_mut(&id) else { return };
        let start = (self.starts, self.now_ns);
        request.start(id, start, (tag, self.large_rows), &self.batch_max, &mut self.open);
        self.starts += 1;
        for (run, shape) in request.runs.iter_mut().zip(request.graph.runs()) {
            run.lacks_slot = self.slots.is_bounded(shape);
        }
        for (run_index, kept) in kept {
            request.workers |= 1 << kept.home.0;
            if let Some(run) = request.runs.get_mut(run_index.index()) {
                run.slot = Some(kept.slot);
                run.lacks_slot = false;
            }
            self.slots.keep(kept.cell_type, (id, *run_index));
        }
    }

    /// The number of requests with a `clock` that started and have not ended.
    fn live_requests(&self, clock: ModelId) -> usize {
        let is_live = |request: &&Request| !request.is_waiting() && self.clock_of(request) == clock;
        self.requests.values().filter(is_live).count()
    }

    /// The model whose virtual time a request has: its own, where models have shares.
    fn clock_of(&self, request: &Request) -> ModelId {
        if self.has_shares { request.model } else { ModelId(0) }
    }

    /// The virtual time of a request that is about to start. A model without requests is not behind those
    /// that have some.
    fn start_clock(&mut self, clock: ModelId) -> u128 {
        let others = self.virtual_times.iter().filter(|(other, _)| self.live_requests(**other) > 0);
        let earliest = others.map(|(_, &time)| time).min().unwrap_or(0);
        let is_first = self.live_requests(clock) == 0;
        let own = self.virtual_times.entry(clock).or_insert(0);
        if is_first {
            *own = earliest.max(*own);
        }
        *own
    }

    /// Enters that the nodes of a batch are served.
    fn serve(&mut self, nodes: &[Nodes]) {
        let mut rows = BTreeMap::new();
        for part in nodes {
            if let Some(request) = self.requests.get(&part.request) {
                *rows.entry(self.clock_of(request)).or_insert(0) += u128::from(part.count);
            }
        }
        for (clock, rows) in rows {
            let live = self.live_requests(clock).max(1) as u128;
            *self.virtual_times.entry(clock).or_insert(0) += ((rows << 32) / live).max(1);
        }
    }

    fn submit(&mut self, worker: WorkerId, task: TaskId, nodes: &Nodes) {
        let Some(request) = self.requests.get_mut(&nodes.request) else { return };
        let is_first = request.submit(worker, task, nodes, &mut self.open);
        let task = self.workers[worker.index()].tasks.back_mut();
        if let Some(task) = task.filter(|_| is_first) {
            task.parts.push((nodes.request, nodes.run));
        }
    }

    /// Enters that `steps` steps in all of the worker's oldest task are complete.
    fn progress(&mut self, worker: WorkerId, id: TaskId, steps: u32) {
        let Some(task) = self.workers[worker.index()].tasks.front_mut() else { return };
        assert_eq!(task.id, id, "the simulator reports tasks in their order");
        let more = steps - std::mem::replace(&mut task.progress, steps);
        for (id, run) in &task.parts {
            if let Some(request) = self.requests.get_mut(id) {
                request.runs[run.index()].completed += more;
            }
        }
    }

    fn task_over(&mut self, worker: WorkerId, id: TaskId, end: TaskEnd<'_>) {
        let Some(task) = self.workers[worker.index()].tasks.pop_front() else { return };
        assert_eq!(task.id, id, "the simulator reports tasks in their order");
        for (id, run) in task.parts {
            let has_ended = |request: &Request| request.run(run).reached_end_of_sequence;
            if let TaskEnd::Failed { reason } = end
                && !self.requests.get(&id).is_some_and(has_ended)
            {
                self.give_up(id, Outcome::Failed(Failure::Task(reason.clone())));
            }
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let is_complete = request.task_over(run);
            let slot = request.run(run).slot;
            let slot = slot.filter(|_| is_complete && request.given_up.is_none());
            if let (Some(slot), Some(session)) = (slot, request.session) {
                let cell_type = request.graph.runs()[run.index()].cell_type;
                self.sessions.keep(session, run, Kept { cell_type, slot, home: worker });
            }
        }
    }

    fn lose_worker(&mut self, worker: WorkerId, reason: &Arc<str>) {
        let lost = std::mem::take(&mut self.workers[worker.index()].tasks);
        self.workers[worker.index()].is_down = true;
        let mut victims: BTreeSet<RequestId> =
            lost.iter().flat_map(|task| &task.parts).map(|&(request, _)| request).collect();
        if self.placement == StatePlacement::PerWorker {
            let was_there = |request: &Request| request.workers & (1 << worker.0) != 0;
            let requests = self.requests.iter().filter(|(_, request)| was_there(request));
            victims.extend(requests.map(|(&id, _)| id));
        }
        for id in victims {
            self.give_up(id, Outcome::Failed(Failure::WorkerLost(reason.clone())));
            if let Some(request) = self.requests.get_mut(&id) {
                request.lose_flights(worker);
            }
        }
        if self.placement == StatePlacement::PerWorker {
            self.sessions.lose(worker).into_iter().for_each(|settled| self.settle(settled));
        }
    }

    /// Enters that a request is answered.
    fn finish(&mut self, finished: &Finished) {
        let id = finished.request;
        self.give_up(id, finished.outcome.clone());
        let session = self.requests.remove(&id).and_then(|request| request.session);
        let session = session.filter(|&session| self.sessions.current(session) == Some(id));
        if let Some(session) = session {
            let succeeded = finished.outcome == Outcome::Succeeded;
            let settled = self.sessions.chunk_ended(session, succeeded);
            self.settle(settled);
        }
    }

    /// Gives a request up. If it is a chunk that waits, those after it are lost; if it is one that
    /// runs, its session is settled when it is answered.
    fn give_up(&mut self, id: RequestId, outcome: Outcome) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if !request.give_up(outcome, &mut self.open) {
            return;
        }
        if let Some(session) = request.session.filter(|_| request.is_waiting()) {
            let settled = self.sessions.cut(session, id);
            self.settle(settled);
        }
    }

    /// Enters what follows from a change of a session. The chunks that are lost were taken out of it.
    fn settle(&mut self, settled: Settled) {
        for chunk in settled.lost {
            if let Some(request) = self.requests.get_mut(&chunk) {
                request.give_up(Outcome::Failed(Failure::SessionLost), &mut self.open);
            }
        }
        if let Some((chunk, kept)) = settled.started {
            self.start(chunk, &kept);
        }
    }
}

/// Slots.
impl Ledger {
    /// The number of slots of a type with a bound that are in use; none for a type without.
    pub(crate) fn slots_in_use(&self, cell_type: CellTypeId) -> Option<usize> {
        self.slots.in_use(self.owners(), cell_type)
    }

    /// Whether the slot of the session's chain still belongs to the session.
    pub(crate) fn session_holds(&self, id: SessionId, run: RunIndex) -> bool {
        let current = self.sessions.current(id).and_then(|chunk| self.requests.get(&chunk));
        self.sessions.keeps(id, run) || current.is_some_and(|chunk| chunk.holds(run))
    }

    /// The chains that were ready and had to wait for a slot.
    pub(crate) fn slot_waits(&self) -> usize {
        self.slots.waits()
    }

    /// Gives slots to the chains that have one once the manager knows all that happened.
    pub(crate) fn give_slots(&mut self) {
        if self.slots.is_unbounded() {
            return;
        }
        self.slots.release(&self.requests);
        let mut waiting = self.slots.waiting(&self.requests, &self.open, self.workers.len());
        while let Some(place) = self.slots.first_served(self.owners(), &waiting) {
            let id = waiting[&place];
            let request = self.requests.get_mut(&id).expect("it is open");
            let is_whole = request.session.is_none();
            let runs = 0..request.runs.len() as u32;
            for run in runs.map(RunIndex).filter(|&run| !is_whole || run == place.run) {
                if std::mem::take(&mut request.runs[run.index()].lacks_slot) {
                    self.slots.give((id, run));
                }
            }
            let requests = &self.requests;
            waiting.retain(|place, id| requests[id].run(place.run).lacks_slot);
        }
        self.slots.note_waits(&waiting);
    }

    fn owners(&self) -> Owners<'_> {
        Owners { requests: &self.requests, sessions: &self.sessions }
    }
}
