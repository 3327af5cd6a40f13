//! The event loop: the manager and the device, driven through virtual time as the engine
//! drives them through real time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellTypeId, EndOfSequence, RequestId, RunIndex, RunKind, SessionId,
    Sink, SinkTime, TaskId, Work, WorkerId,
};
use batchmaker_manager::{Event, Failure, Finished, Manager, Outcome, Padding, Policy};
use batchmaker_simulated::{Datum, Fate, Hashes, Started, VirtualDevice};

use crate::Sabotage;

use crate::checkers::{self, Checker};
use crate::ledger::{Ledger, Request, Run};
use crate::observation::{Nodes, Observation, Rosters, TaskEnd};
use crate::oracle::{self, States};
use crate::report::Summary;
use crate::rng::Rng;
use crate::scenario::{Arrival, Disturbances, Fault, Limits, Scenario, Target};
use crate::sessions::Sessions;
use crate::trace::Trace;

/// A broken rule: who found it, and what.
pub(crate) struct Broken {
    pub(crate) checker: String,
    pub(crate) what: String,
}

/// Something that is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A position in the scenario's arrivals.
    Arrive(usize),
    /// A position in the scenario's sessions, and one in its chunks.
    Chunk {
        session: usize,
        chunk: usize,
    },
    /// A position in the scenario's sessions.
    EndSession(usize),
    /// A position in the scenario's faults.
    Fault(usize),
    /// A position in the scenario's changes of limits.
    Limits(usize),
    Up(WorkerId),
    /// The device is done with the first steps of the worker's running task, so many in all.
    Advanced {
        worker: WorkerId,
        life: u32,
        task: TaskId,
        steps: u32,
    },
    /// The manager hears of it.
    ToldProgress {
        worker: WorkerId,
        life: u32,
        task: TaskId,
        steps: u32,
    },
    /// The device is done with the worker's running task.
    Ran {
        worker: WorkerId,
        life: u32,
        is_failed: bool,
    },
    /// The manager hears of it.
    Told {
        worker: WorkerId,
        life: u32,
        task: TaskId,
        is_failed: bool,
    },
    /// An idle worker looks for work after all.
    Ask(WorkerId),
    /// Arrivals and faults are over.
    Calm,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    is_down: bool,
    /// How often it was lost.
    life: u32,
    /// When the manager hears of its last completion; they stay in order.
    told_ns: u64,
}

/// What is kept of a request in flight.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    at_ns: u64,
    /// What the rows of its inputs follow from.
    salt: u64,
}

/// Rows of a request that somebody reads as they come: those that a chain writes after each node.
#[derive(Debug)]
struct Streamed {
    run: RunIndex,
    rows: Vec<Datum<u64>>,
}

/// A run of one scenario.
pub(crate) struct Simulation<'a> {
    scenario: Scenario,
    manager: Manager,
    device: VirtualDevice<Hashes>,
    ledger: Ledger,
    checkers: Vec<Box<dyn Checker>>,
    rosters: Rosters,
    workers: Vec<Worker>,
    now_ns: u64,
    /// Soonest first; of those at one time, the first to be entered.
    agenda: BinaryHeap<Reverse<(u64, u64, Happening)>>,
    entered: u64,
    disturbances: Disturbances,
    admitted: BTreeMap<RequestId, Admitted>,
    /// Positions that a request has left, under the generation that comes next.
    free: Vec<RequestId>,
    positions: u32,
    sessions: Sessions,
    finished: Vec<RequestId>,
    /// What said stop in steps that the manager has not been told of: by worker, life, task, and steps
    /// of the task; none of those up to its end.
    stops: BTreeMap<(WorkerId, u32, TaskId, Option<u32>), Vec<EndOfSequence>>,
    streamed: BTreeMap<RequestId, Streamed>,
    /// Chains that said stop, with the nodes that they ran.
    stopped: BTreeMap<(RequestId, RunIndex), u32>,
    sabotage: Sabotage,
    rng: Rng,
    progress_rng: Rng,
    summary: Summary,
    trace: &'a mut Trace<'a>,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(scenario: Scenario, sabotage: Sabotage, trace: &'a mut Trace<'a>) -> Self {
        let config = &scenario.manager;
        let workers = usize::from(config.workers);
        let mut simulation = Self {
            manager: Manager::new(config.clone()),
            device: VirtualDevice::new(scenario.device.clone(), Hashes),
            ledger: Ledger::new(config),
            checkers: checkers::of(config),
            rosters: Rosters::default(),
            workers: vec![Worker::default(); workers],
            now_ns: 0,
            agenda: BinaryHeap::new(),
            entered: 0,
            disturbances: scenario.disturbances,
            admitted: BTreeMap::new(),
            free: Vec::new(),
            positions: 0,
            sessions: Sessions::new(scenario.sessions.len()),
            finished: Vec::new(),
            stops: BTreeMap::new(),
            streamed: BTreeMap::new(),
            stopped: BTreeMap::new(),
            sabotage,
            rng: scenario.rng.clone(),
            progress_rng: scenario.progress_rng.clone(),
            summary: Summary { seeds: 1, ..Summary::default() },
            trace,
            scenario,
        };
        for position in 0..simulation.scenario.arrivals.len() {
            let time_ns = simulation.scenario.arrivals[position].time_ns;
            simulation.enter(time_ns, Happening::Arrive(position));
        }
        for session in 0..simulation.scenario.sessions.len() {
            for chunk in 0..simulation.scenario.sessions[session].chunks.len() {
                let time_ns = simulation.scenario.sessions[session].chunks[chunk].time_ns;
                simulation.enter(time_ns, Happening::Chunk { session, chunk });
            }
            if let Some(time_ns) = simulation.scenario.sessions[session].ends_ns {
                simulation.enter(time_ns, Happening::EndSession(session));
            }
        }
        for position in 0..simulation.scenario.faults.len() {
            let time_ns = simulation.scenario.faults[position].0;
            simulation.enter(time_ns, Happening::Fault(position));
        }
        for position in 0..simulation.scenario.limits.len() {
            let time_ns = simulation.scenario.limits[position].0;
            simulation.enter(time_ns, Happening::Limits(position));
        }
        simulation.enter(simulation.scenario.calm_ns, Happening::Calm);
        simulation
    }

    /// Plays the scenario to its end: with faults, then without until all is drained.
    pub(crate) fn run(mut self) -> Result<Summary, Broken> {
        let mut steps_left: Option<u64> = None;
        while let Some(Reverse((time_ns, _, happening))) = self.agenda.pop() {
            self.now_ns = time_ns;
            self.trace.now(time_ns);
            self.summary.steps += 1;
            self.happen(happening)?;
            if happening == Happening::Calm {
                steps_left = Some(self.steps_to_drain());
            } else if let Some(steps) = &mut steps_left {
                *steps = steps.checked_sub(1).ok_or_else(|| broken("drain", "too many steps"))?;
            }
        }
        self.observe(&Observation::Drained)?;
        self.summary.copies = self.device.copies();
        self.summary.slot_waits = self.ledger.slot_waits() as u64;
        self.summary.trace_hash = self.trace.hash();
        Ok(self.summary)
    }

    /// The most steps that the rest of the work can take: each batch runs a row at least, padding
    /// included, and each task, and each step of one, is run once and told once.
    fn steps_to_drain(&self) -> u64 {
        let padded = |graph: &CellGraph| match self.scenario.manager.policy {
            Policy::Cellular | Policy::Merged(_) => 0,
            Policy::Padded(Padding { width, .. }) => {
                let longest = graph.runs().iter().map(|run| run.length).max().unwrap_or(0);
                longest.next_multiple_of(width)
            }
        };
        let runs = self.ledger.requests.values().flat_map(|request| {
            let padded = padded(&request.graph);
            let left = move |run: &Run| run.length.max(padded).saturating_sub(run.completed);
            request.runs.iter().map(move |run| u64::from(left(run)))
        });
        let in_flight: usize = self.ledger.workers.iter().map(|worker| worker.tasks.len()).sum();
        4 * runs.sum::<u64>() + 2 * (in_flight + self.agenda.len()) as u64
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Broken> {
        match happening {
            Happening::Arrive(position) => {
                self.arrive(self.scenario.arrivals[position].clone(), None)?;
            }
            Happening::Chunk { session, chunk } => self.arrive_in(session, chunk)?,
            Happening::EndSession(session) => self.end_session(session)?,
            Happening::Fault(position) => match self.scenario.faults[position].1 {
                Fault::Cancel(target) => self.cancel(target)?,
                Fault::Down { worker, for_ns } => self.down(worker, for_ns)?,
            },
            Happening::Limits(position) => {
                let (_, Limits { batch_max, submission_window_ns }) =
                    self.scenario.limits[position].clone();
                self.summary.limits += 1;
                let event = Event::Limits { batch_max: batch_max.clone(), submission_window_ns };
                self.tell(event, &Observation::Limits { batch_max: &batch_max })?;
            }
            Happening::Up(worker) => self.up(worker)?,
            Happening::Advanced { worker, life, task, steps } => {
                if self.workers[worker.index()].life == life {
                    self.advanced(worker, task, steps);
                }
                return Ok(());
            }
            Happening::ToldProgress { worker, life, task, steps } => {
                if self.workers[worker.index()].life != life {
                    return Ok(());
                }
                self.told_progress(worker, task, steps)?;
            }
            Happening::Ran { worker, life, is_failed } => {
                if self.workers[worker.index()].life != life {
                    return Ok(());
                }
                return self.ran(worker, is_failed);
            }
            Happening::Told { worker, life, task, is_failed } => {
                if self.workers[worker.index()].life != life {
                    return Ok(());
                }
                self.told(worker, task, is_failed)?;
            }
            Happening::Ask(_) => {}
            Happening::Calm => self.calm()?,
        }
        self.ask_all(happening)?;
        self.stream()?;
        self.settle()
    }

    /// A chunk comes, unless its session was told to end.
    fn arrive_in(&mut self, session: usize, chunk: usize) -> Result<(), Broken> {
        let id = if chunk == 0 {
            self.summary.sessions += 1;
            self.sessions.begin(session, &mut self.rng)
        } else if let Some(id) = self.sessions.going_on(session) {
            id
        } else {
            return Ok(());
        };
        self.summary.chunks += 1;
        self.arrive(self.scenario.sessions[session].chunks[chunk].clone(), Some(id))
    }

    fn end_session(&mut self, session: usize) -> Result<(), Broken> {
        let Some(session) = self.sessions.end(session) else { return Ok(()) };
        self.tell(Event::EndSession { session }, &Observation::SessionEnding { session })
    }

    fn arrive(&mut self, arrival: Arrival, session: Option<SessionId>) -> Result<(), Broken> {
        let request = match self.free.len() {
            0 => {
                self.positions += 1;
                RequestId { index: self.positions - 1, generation: 0 }
            }
            free => self.free.swap_remove(self.rng.index(free)),
        };
        let salt = self.rng.next();
        self.admitted.insert(request, Admitted { at_ns: self.now_ns, salt });
        let (graph, priority) = (arrival.graph, arrival.priority);
        self.device.admit(request, graph.clone(), oracle::inputs(&graph, salt));
        self.summary.requests += 1;
        if session.is_none() {
            self.listen_to(request, &graph);
        }
        let (model, graph_) = (arrival.model, graph.clone());
        let event = Event::Arrive { request, model, priority, graph: graph_, session };
        self.tell(event, &Observation::Arrived { request, priority, graph: &graph, session })?;
        // It may have ended at once, with its session.
        let arrived = self.ledger.requests.get(&request);
        let is_waiting = arrived.is_some_and(Request::is_waiting);
        self.summary.waiting_chunks += u64::from(is_waiting);
        Ok(())
    }

    fn cancel(&mut self, target: Target) -> Result<(), Broken> {
        let is_named = |request: &Request| match target {
            Target::InFlight => true,
            Target::RunningPiece => request.session.is_some() && !request.is_waiting(),
            Target::WaitingPiece => request.is_waiting(),
            Target::Finished | Target::Unknown => false,
        };
        let in_flight = self.ledger.requests.iter().filter(|(_, request)| is_named(request));
        let in_flight: Vec<RequestId> = in_flight.map(|(&id, _)| id).collect();
        let request = match target {
            Target::Finished if !self.finished.is_empty() => *self.rng.pick(&self.finished),
            _ if !in_flight.is_empty() => *self.rng.pick(&in_flight),
            _ => RequestId { index: self.positions + 7, generation: 0 },
        };
        self.summary.cancellations += 1;
        self.tell(Event::Cancel { request }, &Observation::Cancelled { request })
    }

    fn down(&mut self, worker: WorkerId, for_ns: u64) -> Result<(), Broken> {
        if self.workers[worker.index()].is_down {
            return Ok(());
        }
        let state = &mut self.workers[worker.index()];
        state.is_down = true;
        state.life += 1;
        let life = state.life;
        self.summary.lost_workers += 1;
        self.device.lose(worker);
        self.rosters.lose(worker);
        self.enter(self.now_ns + for_ns, Happening::Up(worker));
        if self.sabotage == Sabotage::UntoldLoss {
            return Ok(());
        }
        let reason: Arc<str> = format!("life {life} of {worker}").into();
        let event = Event::WorkerDown { worker, reason: reason.clone() };
        self.tell(event, &Observation::WorkerDown { worker, reason: &reason })
    }

    fn up(&mut self, worker: WorkerId) -> Result<(), Broken> {
        if !self.workers[worker.index()].is_down {
            return Ok(());
        }
        self.workers[worker.index()].is_down = false;
        self.device.restore(worker);
        self.tell(Event::WorkerUp { worker }, &Observation::WorkerUp { worker })
    }

    fn calm(&mut self) -> Result<(), Broken> {
        self.disturbances = Disturbances {
            failed_tasks_percent: 0,
            slow_tasks_percent: 0,
            told_late_ns_max: 0,
            asks_late_percent: 0,
        };
        (0..self.workers.len() as u32).try_for_each(|worker| self.up(WorkerId(worker)))?;
        (0..self.scenario.sessions.len()).try_for_each(|session| self.end_session(session))
    }

    /// The device is done with steps of a task; the manager hears of it later.
    fn advanced(&mut self, worker: WorkerId, task: TaskId, steps: u32) {
        let stops = self.device.advance(worker, steps);
        let life = self.workers[worker.index()].life;
        self.stops.insert((worker, life, task, Some(steps)), stops);
        let late_ns = self.progress_rng.within(0..=self.disturbances.told_late_ns_max);
        let state = &mut self.workers[worker.index()];
        state.told_ns = state.told_ns.max(self.now_ns + late_ns);
        let told = Happening::ToldProgress { worker, life, task, steps };
        self.enter(self.workers[worker.index()].told_ns, told);
    }

    fn told_progress(&mut self, worker: WorkerId, task: TaskId, steps: u32) -> Result<(), Broken> {
        self.told_stops(worker, task, Some(steps))?;
        self.summary.progress += 1;
        let event = Event::Progress { worker, task, steps };
        match self.scenario.manager.policy {
            Policy::Cellular => self.tell(event, &Observation::Progressed { worker, task, steps }),
            // Closed batches take no notice.
            _ => {
                self.manager.handle(self.now_ns, event);
                Ok(())
            }
        }
    }

    /// The device is done with a task; the next one starts, the manager hears of it later.
    fn ran(&mut self, worker: WorkerId, is_failed: bool) -> Result<(), Broken> {
        let (task, stops) = self.device.finish(worker);
        // A failed task says nothing but that.
        let stops = if is_failed { Vec::new() } else { stops };
        self.stops.insert((worker, self.workers[worker.index()].life, task, None), stops);
        let late_ns = self.rng.within(0..=self.disturbances.told_late_ns_max);
        let state = &mut self.workers[worker.index()];
        state.told_ns = state.told_ns.max(self.now_ns + late_ns);
        let told = Happening::Told { worker, life: state.life, task, is_failed };
        self.enter(self.workers[worker.index()].told_ns, told);
        self.start(worker)
    }

    fn told_stops(
        &mut self,
        worker: WorkerId,
        task: TaskId,
        steps: Option<u32>,
    ) -> Result<(), Broken> {
        let life = self.workers[worker.index()].life;
        for chain in self.stops.remove(&(worker, life, task, steps)).into_iter().flatten() {
            self.summary.stops += 1;
            self.stopped.insert((chain.request, chain.run), chain.nodes);
            // Graph batching runs a batch to its end.
            match self.scenario.manager.policy {
                Policy::Cellular => {
                    self.tell(
                        Event::EndOfSequence { chain },
                        &Observation::EndOfSequence { chain },
                    )?;
                }
                _ => self.manager.handle(self.now_ns, Event::EndOfSequence { chain }),
            }
        }
        Ok(())
    }

    fn told(&mut self, worker: WorkerId, task: TaskId, is_failed: bool) -> Result<(), Broken> {
        self.told_stops(worker, task, None)?;
        if !is_failed {
            let end = TaskEnd::Complete;
            let seen = Observation::Over { worker, task, end };
            return self.tell(Event::Complete { worker, task }, &seen);
        }
        self.summary.failed_tasks += 1;
        let reason: Arc<str> = format!("{task} of {worker}").into();
        let event = Event::TaskFailed { worker, task, reason: reason.clone() };
        let end = TaskEnd::Failed { reason: &reason };
        self.tell(event, &Observation::Over { worker, task, end })
    }

    /// Lets the workers ask for work, starting from any of them.
    fn ask_all(&mut self, after: Happening) -> Result<(), Broken> {
        let workers = self.workers.len();
        let first = self.rng.index(workers);
        for position in 0..workers {
            let worker = WorkerId(((first + position) % workers) as u32);
            let must_ask = after == Happening::Ask(worker);
            let is_late = self.rng.chance(self.disturbances.asks_late_percent);
            if is_late && !must_ask && !self.manager.is_busy(worker) {
                let later_ns = self.now_ns + self.rng.within(0..=100_000);
                // Only where nothing else would make it ask.
                if self.manager.has_work_for(worker) {
                    self.enter(later_ns, Happening::Ask(worker));
                }
                continue;
            }
            self.ask(worker)?;
        }
        Ok(())
    }

    fn ask(&mut self, worker: WorkerId) -> Result<(), Broken> {
        // What is unfinished now is of earlier rounds.
        let unfinished = self.ledger.workers[worker.index()].tasks.len();
        loop {
            let is_promised = self.manager.has_work_for(worker);
            let task = self.manager.next_task(worker);
            if is_promised != task.is_some() {
                let what = format!("has_work_for({worker}) is {is_promised}, next_task disagrees");
                return Err(broken("promises", what));
            }
            let Some(task) = task else { break };
            self.submit(&task)?;
            self.summary.overlapping += u64::from(unfinished > 0);
            let task = self.sabotaged(task);
            self.device.submit(task).map_err(|misuse| broken("device", misuse))?;
        }
        self.observe(&Observation::Refused { worker })?;
        self.start(worker)
    }

    /// The task as the device gets it.
    fn sabotaged(&self, mut task: BatchedTask) -> BatchedTask {
        if self.sabotage == Sabotage::UncopiedStates {
            match &mut task.work {
                Work::Rows(items) => items.iter_mut().for_each(|item| item.moved_from = None),
                Work::Roster { joins, .. } => {
                    joins.iter_mut().for_each(|join| join.moved_from = None);
                }
            }
        }
        task
    }

    fn submit(&mut self, task: &BatchedTask) -> Result<(), Broken> {
        self.trace.note("task", task);
        self.observe(&Observation::Submitted { task })?;
        let mut batches = self.rosters.batches(task).map_err(|what| broken("rosters", what))?;
        if self.scenario.manager.policy != Policy::Cellular {
            self.summary.padding += self.take_padding(&mut batches);
        }
        self.summary.tasks += 1;
        self.summary.batches += batches.len() as u64;
        for nodes in &batches {
            self.summary.nodes += nodes.iter().map(|part| u64::from(part.count)).sum::<u64>();
            let BatchedTask { worker, id: task, cell_type, .. } = *task;
            self.observe(&Observation::Batch { worker, task, cell_type, nodes })?;
        }
        self.ledger.give_slots();
        Ok(())
    }

    /// Takes out what is past the end of its run; tells how many rows that was.
    fn take_padding(&self, batches: &mut [Vec<Nodes>]) -> u64 {
        let mut padding = 0;
        for part in batches.iter_mut().flatten() {
            let request = self.ledger.requests.get(&part.request);
            let run = request.map(|request| &request.graph.runs()[part.run.index()]);
            let left = run.map_or(part.count, |run| run.length.saturating_sub(part.first));
            padding += u64::from(part.count - left.min(part.count));
            part.count = left.min(part.count);
        }
        batches.iter_mut().for_each(|batch| batch.retain(|part| part.count > 0));
        padding
    }

    fn start(&mut self, worker: WorkerId) -> Result<(), Broken> {
        let Disturbances { failed_tasks_percent, slow_tasks_percent, .. } = self.disturbances;
        let is_failed = self.rng.chance(failed_tasks_percent);
        let slowness =
            if self.rng.chance(slow_tasks_percent) { self.rng.within(2..=50) } else { 1 };
        let good = if is_failed { self.progress_rng.within(0..=7) as u32 } else { u32::MAX };
        let fate = if is_failed { Fate::FailsFrom(good) } else { Fate::Runs };
        let started = self.device.start(worker, fate);
        if let Some(started) = started.map_err(|misuse| broken("device", misuse))? {
            let life = self.workers[worker.index()].life;
            if self.progress_rng.chance(self.scenario.progress_percent) {
                let Started { task, batches, cost_ns, .. } = started;
                for steps in 1..batches.min(good.saturating_add(1)) {
                    if self.progress_rng.chance(60) {
                        let after_ns = cost_ns * slowness * u64::from(steps) / u64::from(batches);
                        let advanced = Happening::Advanced { worker, life, task, steps };
                        self.enter(self.now_ns + after_ns, advanced);
                    }
                }
            }
            let ran = Happening::Ran { worker, life, is_failed };
            self.enter(self.now_ns + started.cost_ns * slowness, ran);
        }
        Ok(())
    }

    /// Lets somebody read rows of the request as they come, maybe: those that its last chain writes.
    fn listen_to(&mut self, request: RequestId, graph: &CellGraph) {
        let is_listening = self.progress_rng.chance(self.scenario.streamed_percent);
        let writes = |run: &batchmaker_graph::Run| every_sink(run).is_some();
        let last = graph.runs().iter().rposition(|run| run.kind == RunKind::Chain && writes(run));
        if let (true, Some(run), Policy::Cellular) =
            (is_listening, last, self.scenario.manager.policy)
        {
            let run = RunIndex(run as u32);
            self.streamed.insert(request, Streamed { run, rows: Vec::new() });
        }
    }

    /// Reads the rows that are new, of all whose rows are read as they come.
    fn stream(&mut self) -> Result<(), Broken> {
        for (&id, Streamed { run, rows }) in &mut self.streamed {
            let request = &self.ledger.requests[&id];
            let completed = self.manager.completed_nodes(id, *run);
            let known = request.run(*run).completed;
            let expected = if request.given_up.is_none() { known } else { 0 };
            if completed != expected {
                let what = format!("{id:?} {run} has {completed} nodes complete, not {expected}");
                return Err(broken("streaming", what));
            }
            let completed = completed + u32::from(self.sabotage == Sabotage::EarlyRows);
            let shape = &request.graph.runs()[run.index()];
            // The node that says stop writes nothing.
            let stopped = self.stopped.get(&(id, *run)).map(|nodes| nodes - 1);
            let written = completed.min(stopped.unwrap_or(shape.length)).min(shape.length);
            let sink = every_sink(shape).expect("a streamed chain has one");
            for node in rows.len() as u32..written {
                let row = self.device.peek(id, sink.rows.value, sink.rows.row(node));
                rows.push(row.map_err(|misuse| broken("device", misuse))?);
                self.summary.streamed_rows += 1;
            }
        }
        Ok(())
    }

    /// Takes the requests that ended, and the sessions.
    fn collect(&mut self) -> Result<(), Broken> {
        let finished: Vec<Finished> = self.manager.drain_finished().collect();
        for finished in finished {
            self.trace.note("finished", &finished);
            let id = finished.request;
            let request = self.ledger.requests.get(&id);
            let request = request.map(|request| (request.graph.clone(), request.session));
            self.observe(&Observation::Finished { finished: &finished })?;
            let (graph, session) = request.expect("observed");
            let Admitted { at_ns, salt } = self.admitted.remove(&id).expect("it was admitted");
            if finished.total_ns != self.now_ns - at_ns {
                let what = format!("{finished:?}, but it came at {at_ns}");
                return Err(broken("times", what));
            }
            let values = self.device.retire(id).map_err(|misuse| broken("device", misuse))?;
            match &finished.outcome {
                Outcome::Succeeded => {
                    self.summary.succeeded += 1;
                    let inputs = oracle::inputs(&graph, salt);
                    let before = session.map_or_else(States::new, |id| self.sessions.states(id));
                    let (expected, states) = oracle::outputs(&graph, &inputs, &before);
                    compare(id, &values, &expected)?;
                    if let Some(streamed) = self.streamed.get(&id) {
                        compare_streamed(id, &graph, streamed, &expected)?;
                    }
                    if let Some(session) = session {
                        self.summary.succeeded_chunks += 1;
                        self.sessions.leave(session, states);
                    }
                }
                Outcome::Cancelled => self.summary.cancelled += 1,
                Outcome::Failed(failure) => {
                    self.summary.failed += 1;
                    self.summary.lost_chunks += u64::from(*failure == Failure::SessionLost);
                }
            }
            if let Some(session) = session.filter(|_| finished.outcome != Outcome::Succeeded) {
                self.end_broken(session);
            }
            self.streamed.remove(&id);
            self.finished.push(id);
            self.free.push(RequestId { generation: id.generation + 1, ..id });
        }
        for session in self.manager.take_ended_sessions() {
            self.trace.note("ended", &session);
            self.observe(&Observation::SessionEnded { session })?;
            self.sessions.ended(session);
        }
        Ok(())
    }

    /// A chunk did not succeed: nobody goes on from there, but chunks may be on their way.
    fn end_broken(&mut self, session: SessionId) {
        let position = self.sessions.position(session);
        if self.sessions.going_on(position).is_some() {
            let later_ns = self.scenario.sessions[position].ends_after_break_ns;
            self.enter(self.now_ns + later_ns, Happening::EndSession(position));
        }
    }

    fn settle(&mut self) -> Result<(), Broken> {
        let cell_types = (0..self.scenario.manager.cell_types.len() as u32).map(CellTypeId);
        let statistics: Vec<_> = cell_types.map(|ct| self.manager.statistics(ct)).collect();
        let requests = self.manager.requests();
        self.observe(&Observation::Settled { requests, statistics: &statistics })
    }

    fn tell(&mut self, event: Event, seen: &Observation<'_>) -> Result<(), Broken> {
        match &event {
            // The graph is long, and follows from the seed.
            Event::Arrive { request, model, priority, graph, session } => {
                let runs = graph.runs().len();
                self.trace.note("arrive", &(request, model, priority, runs, session));
            }
            event => self.trace.note("event", event),
        }
        self.manager.handle(self.now_ns, event);
        self.observe(seen)?;
        self.collect()?;
        self.ledger.give_slots();
        Ok(())
    }

    fn observe(&mut self, seen: &Observation<'_>) -> Result<(), Broken> {
        for checker in &mut self.checkers {
            let checked = checker.check(&self.ledger, seen);
            checked.map_err(|what| broken(checker.name(), what))?;
        }
        self.ledger.enter(seen);
        Ok(())
    }

    fn enter(&mut self, time_ns: u64, happening: Happening) {
        self.entered += 1;
        self.agenda.push(Reverse((time_ns, self.entered, happening)));
    }
}

/// What a run writes after every node.
fn every_sink(run: &batchmaker_graph::Run) -> Option<&Sink> {
    run.sinks.iter().find(|sink| sink.time == SinkTime::Every)
}

/// Rows that were read as they came are those of the reply, if it has them.
fn compare_streamed(
    id: RequestId,
    graph: &CellGraph,
    streamed: &Streamed,
    expected: &[Vec<Datum<u64>>],
) -> Result<(), Broken> {
    let sink = every_sink(&graph.runs()[streamed.run.index()]).expect("it was streamed");
    let output = graph.outputs().iter().position(|&output| output == sink.rows.value);
    let Some(output) = output.map(|output| &expected[output]) else { return Ok(()) };
    for (node, row) in (0..).zip(&streamed.rows) {
        let expected = output[sink.rows.row(node)];
        if *row != expected {
            let what = format!("{id:?} node {node} as it came: {row:x?}, alone {expected:x?}");
            return Err(broken("streaming", what));
        }
    }
    Ok(())
}

fn broken(checker: &str, what: impl ToString) -> Broken {
    Broken { checker: checker.to_owned(), what: what.to_string() }
}

/// The values of a request that succeeded are those that it has alone.
fn compare(
    id: RequestId,
    values: &[Vec<Datum<u64>>],
    expected: &[Vec<Datum<u64>>],
) -> Result<(), Broken> {
    for (output, (values, expected)) in values.iter().zip(expected).enumerate() {
        let wrong = values.iter().zip(expected).position(|(value, expected)| value != expected);
        if let Some(row) = wrong {
            let (value, expected) = (values[row], expected[row]);
            let what = format!("{id:?} output {output} row {row}: {value:x?}, alone {expected:x?}");
            return Err(broken("values", what));
        }
    }
    Ok(())
}
