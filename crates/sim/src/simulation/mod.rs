//! The event loop: the manager and the device, driven through virtual time as the engine
//! drives them through real time.
//!
//! `agenda` holds what is to happen. A happening reaches the manager through `observed`, which checks
//! and traces all that the manager does; the device's completions reach it late, through `reports`.
//! `clients` gives requests their ids, `streams` reads rows as they come, and `reply` compares answers
//! with those that requests have alone.

mod agenda;
mod broken;
mod clients;
mod observed;
mod reply;
mod reports;
mod streams;

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, Decision, DecisionIndex, RequestId, SessionId, TaskId, Work, WorkerId,
};
use batchmaker_manager::{Event, Failure, Finished, Outcome, Policy, Undecided};
use batchmaker_simulated::{Fate, Hashes, Started, VirtualDevice, is_true};

use crate::arrival::Arrival;
use crate::ledger::Request;
use crate::observation::{Observation, TaskEnd};
use crate::oracle::{self, States};
use crate::report::Summary;
use crate::rng::Rng;
use crate::sabotage::Sabotage;
use crate::scenario::{Disturbances, Fault, Limits, Scenario, Target};
use crate::sessions::Sessions;
use crate::trace::Trace;

use agenda::{Agenda, SimulationEvent};
pub(crate) use broken::Broken;
use broken::broken;
use clients::{Admitted, Clients};
use observed::ObservedManager;
use reports::Reports;
use streams::Streams;

/// A run of one scenario.
pub(crate) struct Simulation<'a> {
    scenario: Scenario,
    observed: ObservedManager<'a>,
    device: VirtualDevice<Hashes>,
    now_ns: u64,
    agenda: Agenda,
    disturbances: Disturbances,
    clients: Clients,
    /// The requests in flight of clients that send one after the other: the client, and which of its
    /// requests it is.
    sent: BTreeMap<RequestId, (usize, usize)>,
    sessions: Sessions,
    reports: Reports,
    streams: Streams,
    sabotage: Sabotage,
    /// When the manager asked to be woken last.
    wakes_ns: Option<u64>,
    rng: Rng,
    progress_rng: Rng,
    summary: Summary,
}

impl<'a> Simulation<'a> {
    pub(crate) fn new(scenario: Scenario, sabotage: Sabotage, trace: &'a mut Trace<'a>) -> Self {
        let config = &scenario.manager;
        Self {
            observed: {
                let (costs, load) = (scenario.exact_costs(), scenario.load());
                ObservedManager::new(config, sabotage, costs, load, trace)
            },
            device: VirtualDevice::new(scenario.device.clone(), Hashes),
            now_ns: 0,
            agenda: Agenda::of(&scenario),
            disturbances: scenario.disturbances,
            clients: Clients::default(),
            sent: BTreeMap::new(),
            sessions: Sessions::new(scenario.sessions.len()),
            reports: Reports::new(usize::from(config.workers)),
            streams: Streams::default(),
            sabotage,
            wakes_ns: None,
            rng: scenario.rng.clone(),
            progress_rng: scenario.progress_rng.clone(),
            summary: Summary { seeds: 1, ..Summary::default() },
            scenario,
        }
    }

    /// Plays the scenario to its end: with faults, then without until all is drained.
    pub(crate) fn run(mut self) -> Result<Summary, Broken> {
        let mut steps_left: Option<u64> = None;
        while let Some((time_ns, happening)) = self.agenda.next() {
            self.now_ns = time_ns;
            self.observed.trace.now(time_ns);
            self.observed.ledger.clock_ns = time_ns;
            self.summary.steps += 1;
            self.happen(happening)?;
            if happening == SimulationEvent::Calm {
                let agenda = self.agenda.len() as u64;
                steps_left = Some(self.observed.steps_to_drain() + 2 * agenda);
            } else if let Some(steps) = &mut steps_left {
                *steps = steps.checked_sub(1).ok_or_else(|| broken("drain", "too many steps"))?;
            }
        }
        self.observed.observe(&Observation::Drained)?;
        self.summary.copies = self.device.copies();
        self.summary.promoted = self.observed.ledger.promoted;
        self.summary.slot_waits = self.observed.ledger.slot_waits() as u64;
        self.summary.trace_hash = self.observed.trace.hash();
        Ok(self.summary)
    }

    fn happen(&mut self, happening: SimulationEvent) -> Result<(), Broken> {
        match happening {
            SimulationEvent::Arrive(position) => {
                self.arrive(self.scenario.arrivals[position].clone(), None)?;
            }
            SimulationEvent::Send { client, request } => {
                let arrival = self.scenario.clients[client][request].clone();
                let id = self.arrive(arrival, None)?;
                self.sent.insert(id, (client, request));
            }
            SimulationEvent::Chunk { session, chunk } => self.arrive_in(session, chunk)?,
            SimulationEvent::EndSession(session) => self.end_session(session)?,
            SimulationEvent::Fault(position) => match self.scenario.faults[position].1 {
                Fault::Cancel(target) => self.cancel(target)?,
                Fault::Down { worker, for_ns } => self.down(worker, for_ns)?,
            },
            SimulationEvent::Limits(position) => {
                let (_, Limits { batch_max, submission_window_ns }) =
                    self.scenario.limits[position].clone();
                self.summary.limits += 1;
                let event = Event::Limits { batch_max: batch_max.clone(), submission_window_ns };
                self.handle(event, &Observation::Limits { batch_max: &batch_max })?;
            }
            SimulationEvent::Up(worker) => self.up(worker)?,
            SimulationEvent::Advanced { worker, life, task, steps } => {
                if self.reports.life(worker) == life {
                    self.advanced(worker, task, steps);
                }
                return Ok(());
            }
            SimulationEvent::ReportSteps { worker, life, task, steps } => {
                if self.reports.life(worker) != life {
                    return Ok(());
                }
                self.report_steps(worker, task, steps)?;
            }
            SimulationEvent::Ran { worker, life, is_failed } => {
                if self.reports.life(worker) != life {
                    return Ok(());
                }
                return self.ran(worker, is_failed);
            }
            SimulationEvent::ReportTask { worker, life, task, is_failed } => {
                if self.reports.life(worker) != life {
                    return Ok(());
                }
                self.report_task(worker, task, is_failed)?;
            }
            SimulationEvent::Deadline if self.sabotage == Sabotage::LateDeadlines => {}
            SimulationEvent::Deadline => {
                self.observed.advance(self.now_ns);
                self.collect()?;
                self.observed.ledger.give_slots();
            }
            SimulationEvent::Decide { request, decision } => self.decide(request, decision)?,
            SimulationEvent::Ask(_) => {}
            SimulationEvent::Calm => self.calm()?,
        }
        self.ask_all(happening)?;
        self.stream()?;
        self.read_decisions();
        self.wake_later();
        self.observed.settled()
    }
}

/// Arrivals and faults.
impl Simulation<'_> {
    /// Wakes the manager when it asks for that, as it lets requests wait for others. Deadlines are in the agenda from the arrival on.
    fn wake_later(&mut self) {
        let has_stages = self.scenario.manager.has_stages();
        let next_ns = self.observed.manager.next_deadline().filter(|_| has_stages);
        if let Some(next_ns) = next_ns.filter(|_| next_ns != self.wakes_ns) {
            self.agenda.enter(next_ns, SimulationEvent::Deadline);
            self.wakes_ns = Some(next_ns);
        }
    }

    /// A chunk arrives, unless its session is ending.
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
        self.arrive(self.scenario.sessions[session].chunks[chunk].clone(), Some(id))?;
        Ok(())
    }

    fn end_session(&mut self, session: usize) -> Result<(), Broken> {
        let Some(session) = self.sessions.end(session) else { return Ok(()) };
        self.handle(Event::EndSession { session }, &Observation::SessionEnding { session })
    }

    fn arrive(
        &mut self,
        arrival: Arrival,
        session: Option<SessionId>,
    ) -> Result<RequestId, Broken> {
        let (request, salt) = self.clients.admit(self.now_ns, &mut self.rng);
        let Arrival { model, priority, allowed_ns, graph, .. } = arrival;
        let deadline_ns = allowed_ns.map(|allowed_ns| self.now_ns + allowed_ns);
        self.device.admit(request, graph.clone(), oracle::inputs(&graph, salt));
        self.summary.requests += 1;
        if session.is_none() {
            let is_streamed = self.progress_rng.chance(self.scenario.streamed_percent);
            if is_streamed && self.scenario.manager.policy == Policy::Cellular {
                self.streams.begin(request, &graph);
            }
        }
        let seen =
            Observation::Arrived { request, model, priority, deadline_ns, graph: &graph, session };
        if let Some(deadline_ns) = deadline_ns {
            self.agenda.enter(deadline_ns, SimulationEvent::Deadline);
        }
        let graph = graph.clone();
        let event = Event::Arrive { request, model, priority, deadline_ns, graph, session };
        self.handle(event, &seen)?;
        // It may have ended at once, with its session.
        let arrived = self.observed.ledger.requests.get(&request);
        let is_waiting = arrived.is_some_and(Request::is_waiting);
        self.summary.waiting_chunks += u64::from(is_waiting);
        Ok(request)
    }

    fn cancel(&mut self, target: Target) -> Result<(), Broken> {
        let request = self.clients.named(target, &self.observed.ledger, &mut self.rng);
        self.summary.cancellations += 1;
        self.handle(Event::Cancel { request }, &Observation::Cancelled { request })
    }

    fn down(&mut self, worker: WorkerId, for_ns: u64) -> Result<(), Broken> {
        if self.reports.is_down(worker) {
            return Ok(());
        }
        let life = self.reports.lose(worker);
        self.summary.lost_workers += 1;
        self.device.lose(worker);
        self.observed.lose_rosters(worker);
        self.agenda.enter(self.now_ns + for_ns, SimulationEvent::Up(worker));
        if self.sabotage == Sabotage::UnreportedLoss {
            return Ok(());
        }
        let reason: Arc<str> = format!("life {life} of {worker}").into();
        let event = Event::WorkerDown { worker, reason: reason.clone() };
        self.handle(event, &Observation::WorkerDown { worker, reason: &reason })
    }

    fn up(&mut self, worker: WorkerId) -> Result<(), Broken> {
        if !self.reports.is_down(worker) {
            return Ok(());
        }
        self.reports.restore(worker);
        self.device.restore(worker);
        self.handle(Event::WorkerUp { worker }, &Observation::WorkerUp { worker })
    }

    fn calm(&mut self) -> Result<(), Broken> {
        self.disturbances = Disturbances::NONE;
        (0..self.reports.workers() as u32).try_for_each(|worker| self.up(WorkerId(worker)))?;
        (0..self.scenario.sessions.len()).try_for_each(|session| self.end_session(session))
    }
}

/// Completions.
impl Simulation<'_> {
    /// The device ran steps of a task; the manager learns of it later.
    fn advanced(&mut self, worker: WorkerId, task: TaskId, steps: u32) {
        let ends = self.device.advance(worker, steps);
        let late_ns = self.progress_rng.within(0..=self.disturbances.reports_late_ns_max);
        let time_ns = self.now_ns + late_ns;
        let arrives_ns = self.reports.send(worker, task, Some(steps), ends, time_ns);
        let life = self.reports.life(worker);
        self.agenda.enter(arrives_ns, SimulationEvent::ReportSteps { worker, life, task, steps });
    }

    fn report_steps(&mut self, worker: WorkerId, task: TaskId, steps: u32) -> Result<(), Broken> {
        self.report_ends(worker, task, Some(steps))?;
        self.summary.progress += 1;
        let event = Event::Progress { worker, task, steps };
        self.handle_if_cellular(event, &Observation::Progressed { worker, task, steps })
    }

    /// The device ran a task; the next one starts, the manager learns of it later.
    fn ran(&mut self, worker: WorkerId, is_failed: bool) -> Result<(), Broken> {
        let (task, ends) = self.device.finish(worker);
        // A failed task reports nothing but its failure.
        let ends = if is_failed { Vec::new() } else { ends };
        let late_ns = self.rng.within(0..=self.disturbances.reports_late_ns_max);
        let arrives_ns = self.reports.send(worker, task, None, ends, self.now_ns + late_ns);
        let life = self.reports.life(worker);
        self.agenda
            .enter(arrives_ns, SimulationEvent::ReportTask { worker, life, task, is_failed });
        self.start(worker)
    }

    fn report_task(
        &mut self,
        worker: WorkerId,
        task: TaskId,
        is_failed: bool,
    ) -> Result<(), Broken> {
        self.report_ends(worker, task, None)?;
        if !is_failed {
            let end = TaskEnd::Complete;
            let seen = Observation::Over { worker, task, end };
            return self.handle(Event::Complete { worker, task }, &seen);
        }
        self.summary.failed_tasks += 1;
        let reason: Arc<str> = format!("{task} of {worker}").into();
        let event = Event::TaskFailed { worker, task, reason: reason.clone() };
        let end = TaskEnd::Failed { reason: &reason };
        self.handle(event, &Observation::Over { worker, task, end })
    }

    /// Reports the chains that reached their end of sequence in steps of a task.
    fn report_ends(
        &mut self,
        worker: WorkerId,
        task: TaskId,
        steps: Option<u32>,
    ) -> Result<(), Broken> {
        for chain in self.reports.take_ends(worker, task, steps) {
            self.summary.ends_of_sequence += 1;
            self.streams.end_of_sequence(chain);
            let seen = Observation::EndOfSequence { chain };
            self.handle_if_cellular(Event::EndOfSequence { chain }, &seen)?;
        }
        Ok(())
    }
}

/// Decisions.
impl Simulation<'_> {
    /// Has the decisions read that the manager asks for.
    fn read_decisions(&mut self) {
        for Undecided { request, index: decision, .. } in self.observed.manager.take_undecided() {
            let late_ns = self.rng.within(0..=self.disturbances.reports_late_ns_max);
            let decide = SimulationEvent::Decide { request, decision };
            self.agenda.enter(self.now_ns + late_ns, decide);
        }
    }

    /// Reports a decision of a request, unless it has ended.
    fn decide(&mut self, request: RequestId, decision: DecisionIndex) -> Result<(), Broken> {
        let Some(known) = self.observed.ledger.requests.get(&request) else { return Ok(()) };
        let Decision { value, row, .. } = known.graph.decisions()[decision.index()];
        let row = self.device.peek(request, value, row as usize);
        let row = row.map_err(|misuse| broken("device", misuse))?;
        self.summary.decisions += 1;
        let outcome = row.map(is_true).ok_or_else(|| Arc::from("the row that decides is lost"));
        let seen = Observation::Decided { request, decision, outcome: &outcome };
        self.handle(Event::Decided { request, decision, outcome: outcome.clone() }, &seen)
    }
}

/// Work.
impl Simulation<'_> {
    /// Lets the workers ask for work, starting from any of them.
    fn ask_all(&mut self, after: SimulationEvent) -> Result<(), Broken> {
        let workers = self.reports.workers();
        let first = self.rng.index(workers);
        for position in 0..workers {
            let worker = WorkerId(((first + position) % workers) as u32);
            let must_ask = after == SimulationEvent::Ask(worker);
            let is_late = self.rng.chance(self.disturbances.asks_late_percent);
            if is_late && !must_ask && !self.observed.manager.is_busy(worker) {
                let later_ns = self.now_ns + self.rng.within(0..=100_000);
                // Only where nothing else would make it ask.
                if self.observed.manager.has_work_for(worker) {
                    self.agenda.enter(later_ns, SimulationEvent::Ask(worker));
                }
                continue;
            }
            self.ask(worker)?;
        }
        Ok(())
    }

    fn ask(&mut self, worker: WorkerId) -> Result<(), Broken> {
        // Tasks that are unfinished now belong to earlier rounds.
        let unfinished = self.observed.ledger.workers[worker.index()].tasks.len();
        while let Some(task) = self.observed.next_task(worker)? {
            self.observed.submitted(&task, &mut self.summary)?;
            self.summary.overlapping += u64::from(unfinished > 0);
            let task = self.sabotaged(task);
            self.device.submit(task).map_err(|misuse| broken("device", misuse))?;
        }
        self.observed.observe(&Observation::Refused { worker })?;
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

    fn start(&mut self, worker: WorkerId) -> Result<(), Broken> {
        let Disturbances { failed_tasks_percent, slow_tasks_percent, .. } = self.disturbances;
        let is_failed = self.rng.chance(failed_tasks_percent);
        let slowness =
            if self.rng.chance(slow_tasks_percent) { self.rng.within(2..=50) } else { 1 };
        let good = if is_failed { self.progress_rng.within(0..=7) as u32 } else { u32::MAX };
        let fate = if is_failed { Fate::FailsFrom(good) } else { Fate::Runs };
        let started = self.device.start(worker, fate);
        if let Some(started) = started.map_err(|misuse| broken("device", misuse))? {
            let life = self.reports.life(worker);
            if self.progress_rng.chance(self.scenario.progress_percent) {
                let Started { task, batches, cost_ns, .. } = started;
                for steps in 1..batches.min(good.saturating_add(1)) {
                    if self.progress_rng.chance(60) {
                        let after_ns = cost_ns * slowness * u64::from(steps) / u64::from(batches);
                        let advanced = SimulationEvent::Advanced { worker, life, task, steps };
                        self.agenda.enter(self.now_ns + after_ns, advanced);
                    }
                }
            }
            let ran = SimulationEvent::Ran { worker, life, is_failed };
            self.agenda.enter(self.now_ns + started.cost_ns * slowness, ran);
        }
        Ok(())
    }
}

/// Answers.
impl Simulation<'_> {
    /// Passes an event to the manager, which the checkers see as `seen`, and collects the answers.
    fn handle(&mut self, event: Event, seen: &Observation<'_>) -> Result<(), Broken> {
        self.observed.handle(self.now_ns, event, seen)?;
        self.collect()?;
        self.observed.ledger.give_slots();
        Ok(())
    }

    /// Does the same with an event that only the cellular policy takes notice of.
    fn handle_if_cellular(&mut self, event: Event, seen: &Observation<'_>) -> Result<(), Broken> {
        if self.scenario.manager.policy == Policy::Cellular {
            return self.handle(event, seen);
        }
        self.observed.manager.handle(self.now_ns, event);
        Ok(())
    }

    /// Reads the rows that are new, of all requests whose rows are read as they come.
    fn stream(&mut self) -> Result<(), Broken> {
        let ObservedManager { manager, ledger, .. } = &self.observed;
        let early = u32::from(self.sabotage == Sabotage::EarlyRows);
        self.summary.streamed_rows += self.streams.read(manager, ledger, &self.device, early)?;
        Ok(())
    }

    /// Takes the requests and the sessions that ended.
    fn collect(&mut self) -> Result<(), Broken> {
        let finished: Vec<Finished> = self.observed.manager.drain_finished().collect();
        for finished in &finished {
            self.observed.trace.note("finished", finished);
            self.check_answer(finished)?;
            self.streams.end(finished.request);
            self.send_next(finished.request);
            self.clients.free(finished.request);
        }
        for session in self.observed.manager.take_ended_sessions() {
            self.observed.trace.note("ended", &session);
            self.observed.observe(&Observation::SessionEnded { session })?;
            self.sessions.ended(session);
        }
        Ok(())
    }

    /// Lets the client of a request that ended send its next one.
    fn send_next(&mut self, ended: RequestId) {
        let Some((client, request)) = self.sent.remove(&ended) else { return };
        let request = request + 1;
        if request < self.scenario.clients[client].len() {
            self.agenda.enter(self.now_ns, SimulationEvent::Send { client, request });
        }
    }

    /// Checks a request that ended: its time and, if it succeeded, its values.
    fn check_answer(&mut self, finished: &Finished) -> Result<(), Broken> {
        let id = finished.request;
        let request = self.observed.ledger.requests.get(&id);
        let request = request.map(|request| (request.graph.clone(), request.session));
        self.observed.observe(&Observation::Finished { finished })?;
        let (graph, session) = request.expect("observed");
        let Admitted { at_ns, salt } = self.clients.answer(id);
        if finished.total_ns != self.now_ns - at_ns {
            let what = format!("{finished:?}, but it came at {at_ns}");
            return Err(broken("times", what));
        }
        let values = self.device.retire(id).map_err(|misuse| broken("device", misuse))?;
        match &finished.outcome {
            Outcome::Succeeded => {
                self.summary.succeeded += 1;
                let before = session.map_or_else(States::new, |id| self.sessions.states(id));
                let (expected, states) = reply::expected(&graph, salt, &before);
                reply::compare(id, &graph, &values, &expected)?;
                self.streams.compare(id, &graph, &expected)?;
                if let Some(session) = session {
                    self.summary.succeeded_chunks += 1;
                    self.sessions.leave(session, states);
                }
            }
            Outcome::Cancelled => self.summary.cancelled += 1,
            Outcome::TimedOut => self.summary.timed_out += 1,
            Outcome::Unmeetable => self.summary.unmeetable += 1,
            Outcome::Failed(failure) => {
                self.summary.failed += 1;
                self.summary.lost_chunks += u64::from(*failure == Failure::SessionLost);
            }
        }
        if let Some(session) = session.filter(|_| finished.outcome != Outcome::Succeeded) {
            self.end_broken(session);
        }
        Ok(())
    }

    /// Ends a session of which a chunk did not succeed, though more chunks may be on their way.
    fn end_broken(&mut self, session: SessionId) {
        let position = self.sessions.position(session);
        if self.sessions.going_on(position).is_some() {
            let later_ns = self.scenario.sessions[position].ends_after_break_ns;
            self.agenda.enter(self.now_ns + later_ns, SimulationEvent::EndSession(position));
        }
    }
}
