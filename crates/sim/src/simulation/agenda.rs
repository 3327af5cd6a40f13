//! The agenda: the happenings to come, in the order of virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use batchmaker_graph::{DecisionIndex, RequestId, TaskId, WorkerId};

use crate::scenario::Scenario;

/// Something that is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimulationEvent {
    /// A request arrives: a position in the scenario's arrivals.
    Arrive(usize),
    /// A client sends a request: a position in the scenario's clients, and one in its requests.
    Send { client: usize, request: usize },
    /// A chunk arrives: a position in the scenario's sessions, and one in its chunks.
    Chunk { session: usize, chunk: usize },
    /// A client ends its session: a position in the scenario's sessions.
    EndSession(usize),
    /// A fault happens: a position in the scenario's faults.
    Fault(usize),
    /// The limits change: a position in the scenario's changes of limits.
    Limits(usize),
    /// A lost worker is back.
    Up(WorkerId),
    /// The device has run `steps` steps in all of the worker's running task.
    Advanced { worker: WorkerId, life: u32, task: TaskId, steps: u32 },
    /// The manager learns of these steps.
    ReportSteps { worker: WorkerId, life: u32, task: TaskId, steps: u32 },
    /// The device has run the worker's running task.
    Ran { worker: WorkerId, life: u32, is_failed: bool },
    /// The manager learns of the end of the task.
    ReportTask { worker: WorkerId, life: u32, task: TaskId, is_failed: bool },
    /// A decision of a request was read.
    Decide { request: RequestId, decision: DecisionIndex },
    /// A deadline may be reached.
    Deadline,
    /// An idle worker asks for work after all.
    Ask(WorkerId),
    /// Arrivals and faults are over.
    Calm,
}

/// The happenings to come: the earliest first and, of those at one time, the first to be entered.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    happenings: BinaryHeap<Reverse<(u64, u64, SimulationEvent)>>,
    entered: u64,
}

impl Agenda {
    /// The happenings that `scenario` settles beforehand.
    pub(super) fn of(scenario: &Scenario) -> Self {
        let mut agenda = Self::default();
        for (position, arrival) in scenario.arrivals.iter().enumerate() {
            agenda.enter(arrival.time_ns, SimulationEvent::Arrive(position));
        }
        for (client, requests) in scenario.clients.iter().enumerate() {
            let send = SimulationEvent::Send { client, request: 0 };
            agenda.enter(requests[0].time_ns, send);
        }
        for (session, plan) in scenario.sessions.iter().enumerate() {
            for (position, chunk) in plan.chunks.iter().enumerate() {
                agenda.enter(chunk.time_ns, SimulationEvent::Chunk { session, chunk: position });
            }
            if let Some(time_ns) = plan.ends_ns {
                agenda.enter(time_ns, SimulationEvent::EndSession(session));
            }
        }
        for (position, &(time_ns, _)) in scenario.faults.iter().enumerate() {
            agenda.enter(time_ns, SimulationEvent::Fault(position));
        }
        for (position, &(time_ns, _)) in scenario.limits.iter().enumerate() {
            agenda.enter(time_ns, SimulationEvent::Limits(position));
        }
        agenda.enter(scenario.calm_ns, SimulationEvent::Calm);
        agenda
    }

    /// Enters what happens at `time_ns`.
    pub(super) fn enter(&mut self, time_ns: u64, happening: SimulationEvent) {
        self.entered += 1;
        self.happenings.push(Reverse((time_ns, self.entered, happening)));
    }

    /// Takes out what happens next, with its time in nanoseconds.
    pub(super) fn next(&mut self) -> Option<(u64, SimulationEvent)> {
        let Reverse((time_ns, _, happening)) = self.happenings.pop()?;
        Some((time_ns, happening))
    }

    pub(super) fn len(&self) -> usize {
        self.happenings.len()
    }
}
