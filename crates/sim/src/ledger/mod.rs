//! The books of a simulation: what has arrived, what is in flight where, what is given up.
//!
//! Which chains have slots where there are only so many follows from the rules alone (`slots`).
//!
//! Kept from [`Observation`]s alone, so nothing here is taken from the manager's own state.
//! Checkers read it as it stood before the observation that they are told of.

mod sessions;
mod slots;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, EndOfSequence, RequestId, RunIndex, SessionId, SlotId, TaskId, WorkerId,
};
use batchmaker_manager::{Config, Failure, Outcome, StatePlacement};

use crate::observation::{Nodes, Observation, TaskEnd};
use sessions::{Kept, Session};
use slots::Bounds;

/// See the module's first paragraph.
#[derive(Debug)]
pub(crate) struct Ledger {
    placement: StatePlacement,
    pub(crate) requests: BTreeMap<RequestId, Request>,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    pub(crate) workers: Vec<Worker>,
    /// Per cell type: runs of requests that started and are not given up, with nodes not submitted
    /// yet, in the order of the type's queue.
    pub(crate) open: Vec<BTreeMap<Place, RequestId>>,
    pub(crate) bounds: Bounds,
    starts: u64,
}

/// A run's place in the order of its type's queue: explicit priorities first, then the order in
/// which requests start: on arrival, or when the chunk before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    rank: u32,
    start: u64,
    pub(crate) run: RunIndex,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) graph: Arc<CellGraph>,
    /// Of which it is a chunk.
    pub(crate) session: Option<SessionId>,
    rank: u32,
    /// How many started before it; none while it waits for an earlier chunk.
    start: Option<u64>,
    pub(crate) runs: Vec<Run>,
    /// How it must end, if no longer with success.
    pub(crate) given_up: Option<Outcome>,
    /// Runs with nodes that are not complete.
    pub(crate) unfinished: usize,
    /// Runs with nodes in flight.
    pub(crate) in_flight: usize,
    /// A bit for each worker that was given nodes, or holds the state that the chunk before left.
    workers: u64,
}

#[derive(Debug)]
pub(crate) struct Run {
    /// How many nodes it has; of a chain that said stop, those that were submitted.
    pub(crate) length: u32,
    /// Whether it said stop: what else happens to its tasks is nothing to it.
    is_stopped: bool,
    /// Whether it is a chain that needs one of so many slots, and has none yet.
    pub(crate) lacks_slot: bool,
    pub(crate) submitted: u32,
    pub(crate) completed: u32,
    /// Nodes in flight, first ones first.
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) slot: Option<SlotId>,
}

/// Nodes of a run in one task: those up to `end`, after those of the flight before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) worker: WorkerId,
    task: TaskId,
    end: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) is_down: bool,
    pub(crate) tasks: VecDeque<Task>,
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    /// Steps that are complete.
    progress: u32,
    /// Each run of which it holds nodes, once.
    parts: Vec<(RequestId, RunIndex)>,
}

impl Run {
    fn new(length: u32) -> Self {
        let flights = VecDeque::new();
        Self {
            length,
            is_stopped: false,
            lacks_slot: false,
            submitted: 0,
            completed: 0,
            flights,
            slot: None,
        }
    }

    /// Whether `worker` can rely on `node`: it is complete, or in flight there.
    pub(crate) fn has_run_for(&self, node: u32, worker: WorkerId) -> bool {
        let flight = || self.flights.iter().find(|flight| node < flight.end);
        node < self.completed || flight().is_some_and(|flight| flight.worker == worker)
    }

    /// The nodes that `worker` can rely on.
    fn progress_for(&self, worker: WorkerId) -> u32 {
        let is_here = self.flights.front().is_some_and(|flight| flight.worker == worker);
        if is_here { self.submitted } else { self.completed }
    }
}

impl Request {
    /// Whether nothing of it is left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.in_flight == 0 && (self.unfinished == 0 || self.given_up.is_some())
    }

    /// Whether it waits for an earlier chunk of its session.
    pub(crate) fn is_waiting(&self) -> bool {
        self.start.is_none()
    }

    /// Whether it needs the slot of its chain still.
    pub(crate) fn holds(&self, run: RunIndex) -> bool {
        let run = self.run(run);
        let is_complete = run.completed == run.length;
        !is_complete && (self.given_up.is_none() || !run.flights.is_empty())
    }

    pub(crate) fn run(&self, run: RunIndex) -> &Run {
        &self.runs[run.index()]
    }

    /// The nodes of `run` that `worker` may be given now.
    pub(crate) fn ready(&self, run: RunIndex, worker: WorkerId) -> u32 {
        if self.run(run).lacks_slot { 0 } else { self.ready_but_for_slot(run, worker) }
    }

    /// The same if it had a slot.
    fn ready_but_for_slot(&self, run: RunIndex, worker: WorkerId) -> u32 {
        let (progress, shape) = (self.run(run), &self.graph.runs()[run.index()]);
        if progress.flights.iter().any(|flight| flight.worker != worker) {
            return 0;
        }
        let watermark = |edge: &batchmaker_graph::Edge| {
            let producer = self.run(edge.producer);
            let made = producer.progress_for(worker);
            edge.need.available(made, producer.length, shape.length)
        };
        let available = shape.edges.iter().map(watermark).min().unwrap_or(shape.length);
        let reach = shape.reach(progress.submitted);
        available.min(reach).min(progress.length).saturating_sub(progress.submitted)
    }

    /// The places of its runs; none while it waits.
    fn places(&self) -> impl Iterator<Item = Place> {
        let (rank, runs) = (self.rank, self.runs.len() as u32);
        let places =
            move |start| (0..runs).map(move |run| Place { rank, start, run: RunIndex(run) });
        self.start.into_iter().flat_map(places)
    }

    fn close(&self, run: RunIndex, open: &mut [BTreeMap<Place, RequestId>]) {
        let cell_type = self.graph.runs()[run.index()].cell_type;
        if let Some(place) = self.places().nth(run.index()) {
            open[cell_type.index()].remove(&place);
        }
    }
}

impl Ledger {
    pub(crate) fn new(config: &Config) -> Self {
        let (cell_types, workers) = (config.cell_types.len(), usize::from(config.workers));
        Self {
            placement: config.state_placement,
            requests: BTreeMap::new(),
            sessions: BTreeMap::new(),
            workers: std::iter::repeat_with(Worker::default).take(workers).collect(),
            open: vec![BTreeMap::new(); cell_types],
            bounds: Bounds::new(config),
            starts: 0,
        }
    }

    /// The chain or rows that `nodes` are of.
    pub(crate) fn run_of(&self, nodes: &Nodes) -> Option<(&Request, &Run)> {
        let request = self.requests.get(&nodes.request)?;
        Some((request, request.runs.get(nodes.run.index())?))
    }

    /// Enters an observation. What cannot be is left out; checkers speak up about it.
    pub(crate) fn enter(&mut self, seen: &Observation<'_>) {
        match *seen {
            Observation::Arrived { request, priority, graph, session } => {
                self.arrive(request, priority, graph, session);
            }
            Observation::SessionEnding { session } => self.end_session(session),
            Observation::SessionEnded { session } => {
                self.sessions.remove(&session);
            }
            Observation::Cancelled { request } => self.give_up(request, Outcome::Cancelled),
            Observation::Submitted { task } => {
                let (worker, task) =
                    (task.worker, Task { id: task.id, progress: 0, parts: Vec::new() });
                self.workers[worker.index()].tasks.push_back(task);
            }
            Observation::Batch { worker, task, nodes, .. } => {
                nodes.iter().for_each(|nodes| self.submit(worker, task, nodes));
            }
            Observation::EndOfSequence { chain } => self.stop(chain),
            Observation::Progressed { worker, task, steps } => {
                self.progress(worker, task, steps);
            }
            Observation::Over { worker, task, end } => self.over(worker, task, end),
            Observation::WorkerUp { worker } => self.workers[worker.index()].is_down = false,
            Observation::WorkerDown { worker, reason } => self.lose(worker, reason),
            Observation::Finished { finished } => {
                let id = finished.request;
                self.give_up(id, finished.outcome.clone());
                let session = self.requests.remove(&id).and_then(|request| request.session);
                let session = session.filter(|session| {
                    self.sessions.get(session).is_some_and(|session| session.current == Some(id))
                });
                if let Some(session) = session {
                    self.chunk_ended(session, &finished.outcome);
                }
            }
            Observation::Limits { .. }
            | Observation::Refused { .. }
            | Observation::Settled { .. }
            | Observation::Drained => {}
        }
    }

    fn arrive(
        &mut self,
        id: RequestId,
        priority: u32,
        graph: &Arc<CellGraph>,
        session: Option<SessionId>,
    ) {
        let request = Request {
            graph: graph.clone(),
            session,
            rank: if priority == 0 { u32::MAX } else { priority },
            start: None,
            runs: graph.runs().iter().map(|run| Run::new(run.length)).collect(),
            given_up: None,
            unfinished: graph.runs().len(),
            in_flight: 0,
            workers: 0,
        };
        self.requests.insert(id, request);
        match session {
            Some(session) => self.line_up(session, id),
            None => self.start(id, &BTreeMap::new()),
        }
    }

    /// The request takes its place in the queues, with what the chunk before it left.
    fn start(&mut self, id: RequestId, kept: &BTreeMap<RunIndex, Kept>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.start = Some(self.starts);
        self.starts += 1;
        for (run, shape) in request.runs.iter_mut().zip(request.graph.runs()) {
            run.lacks_slot = self.bounds.is_bounded(shape);
        }
        for (run_index, kept) in kept {
            request.workers |= 1 << kept.home.0;
            if let Some(run) = request.runs.get_mut(run_index.index()) {
                run.slot = Some(kept.slot);
                run.lacks_slot = false;
            }
            self.bounds.keep(kept.cell_type, (id, *run_index));
        }
        for (run, place) in request.graph.runs().iter().zip(request.places()) {
            self.open[run.cell_type.index()].insert(place, id);
        }
    }

    fn submit(&mut self, worker: WorkerId, task: TaskId, nodes: &Nodes) {
        let Some(request) = self.requests.get_mut(&nodes.request) else { return };
        let Some(run) = request.runs.get_mut(nodes.run.index()) else { return };
        request.workers |= 1 << worker.0;
        run.submitted += nodes.count;
        run.slot = run.slot.or(nodes.slot);
        let end = run.submitted;
        request.in_flight += usize::from(run.flights.is_empty());
        match run.flights.back_mut() {
            Some(flight) if flight.task == task && flight.worker == worker => flight.end = end,
            _ => {
                run.flights.push_back(Flight { worker, task, end });
                let tasks = &mut self.workers[worker.index()].tasks;
                if let Some(task) = tasks.back_mut() {
                    task.parts.push((nodes.request, nodes.run));
                }
            }
        }
        if end >= request.graph.runs()[nodes.run.index()].length {
            request.close(nodes.run, &mut self.open);
        }
    }

    /// The chain is as long as what was submitted of it.
    fn stop(&mut self, chain: EndOfSequence) {
        let Some(request) = self.requests.get_mut(&chain.request) else { return };
        let run = &mut request.runs[chain.run.index()];
        run.length = run.submitted;
        run.is_stopped = true;
        request.close(chain.run, &mut self.open);
    }

    /// So many steps of the worker's oldest task are complete in all.
    fn progress(&mut self, worker: WorkerId, id: TaskId, steps: u32) {
        let Some(task) = self.workers[worker.index()].tasks.front_mut() else { return };
        assert_eq!(task.id, id, "the simulator tells of tasks in their order");
        let more = steps - std::mem::replace(&mut task.progress, steps);
        for (id, run) in &task.parts {
            if let Some(request) = self.requests.get_mut(id) {
                request.runs[run.index()].completed += more;
            }
        }
    }

    fn over(&mut self, worker: WorkerId, id: TaskId, end: TaskEnd<'_>) {
        let Some(task) = self.workers[worker.index()].tasks.pop_front() else { return };
        assert_eq!(task.id, id, "the simulator tells of tasks in their order");
        for (id, run_index) in task.parts {
            let is_stopped = |request: &Request| request.run(run_index).is_stopped;
            if let TaskEnd::Failed { reason } = end
                && !self.requests.get(&id).is_some_and(is_stopped)
            {
                self.give_up(id, Outcome::Failed(Failure::Task(reason.clone())));
            }
            let Some(request) = self.requests.get_mut(&id) else { continue };
            let run = &mut request.runs[run_index.index()];
            if let Some(flight) = run.flights.pop_front() {
                run.completed = flight.end;
            }
            let is_complete = run.completed == run.length;
            request.in_flight -= usize::from(run.flights.is_empty());
            request.unfinished -= usize::from(is_complete);
            let slot = run.slot.filter(|_| is_complete && request.given_up.is_none());
            let session = request.session.and_then(|session| self.sessions.get_mut(&session));
            if let (Some(slot), Some(session)) = (slot, session) {
                let cell_type = request.graph.runs()[run_index.index()].cell_type;
                session.kept.insert(run_index, Kept { cell_type, slot, home: worker });
            }
        }
    }

    fn lose(&mut self, worker: WorkerId, reason: &Arc<str>) {
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
            let Some(request) = self.requests.get_mut(&id) else { continue };
            for run in &mut request.runs {
                let had_flights = !run.flights.is_empty();
                run.flights.retain(|flight| flight.worker != worker);
                request.in_flight -= usize::from(had_flights && run.flights.is_empty());
            }
        }
        self.lose_kept(worker);
    }

    /// The first reason stands.
    fn give_up(&mut self, id: RequestId, outcome: Outcome) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        if request.given_up.is_some() {
            return;
        }
        request.given_up = Some(outcome);
        for (run, place) in request.graph.runs().iter().zip(request.places()) {
            self.open[run.cell_type.index()].remove(&place);
        }
        // Of a chunk that runs, the session hears when it is over.
        let session = request.session.filter(|_| request.is_waiting());
        if let Some(session) = session {
            self.cut_session(session, id);
        }
    }
}
