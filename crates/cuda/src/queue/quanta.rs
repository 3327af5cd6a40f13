//! Launches that run task after task of a roster: while one runs, a task is a record in the ring, and nothing is submitted to the stream.
//!
//! A task has the number of its work. Other work of the stream ends the launch first, by a task without steps that has the number of that work. A launch
//! may have ended before it came to all tasks, with its quantum or because it saw none for a while; then another launch begins where it ended.

use std::sync::Arc;

use bytemuck::{Zeroable, bytes_of};

use super::persistent::TRIES_MAX;
use super::ring::{Launch, Resumed, Ring, Running};
use super::steps::TypedCell;
use super::submitter::Submitter;
use super::upload::{Upload, Written};
use crate::cells::{CudaCellBody, OfQuantum, Step};
use crate::config::Quantum;
use crate::gpu::{Event, GpuError};
use crate::kernels::batch::{Batch, Operand};
use crate::kernels::persistent::PersistentArguments;
use crate::kernels::quantum::{IS_STUCK, QuantumArguments, Task};
use crate::memory::Slots;

/// A task of a roster.
pub(super) struct OfRoster {
    /// The addresses of its rows and ports.
    pub(super) rows: u64,
    pub(super) ports: u64,
    /// The address of what blocks leave to one another.
    pub(super) between: u64,
    /// The rows that there is memory for, and those of the task.
    pub(super) rows_max: usize,
    pub(super) rows_now: usize,
    pub(super) time: u32,
    pub(super) steps: u32,
}

/// The tasks that a launch begins with.
#[derive(Clone, Copy)]
enum First {
    /// This task.
    Known(Task),
    /// Those that the launch before leaves: from the number `from` on at the earliest, and up to the task without steps of the number `until`.
    Left { from: u64, until: u64 },
}

/// [`First::Left`]'s `until` where that task is yet to come.
const YET_TO_COME: u64 = u64::MAX;

/// The bounds of a launch that runs the tasks which another has left, until it comes to the task without steps.
const UNTIL_THE_END: Quantum = Quantum { steps_max: i32::MAX as u32, looks_max: TRIES_MAX };

impl Submitter {
    /// Whether a launch takes tasks, as far as the host knows.
    pub(super) fn is_in_quantum(&self) -> bool {
        self.running().is_some()
    }

    /// Whether blocks of a launch have waited for one another in vain.
    pub(super) fn is_stuck(&self) -> bool {
        self.ring.as_ref().is_some_and(|ring| ring.next() == IS_STUCK)
    }

    /// The end of the launch that takes the work which is being submitted, if a launch takes it.
    pub(super) fn launch_of_work(&self) -> Option<Arc<Event>> {
        let ring = self.ring.as_ref().filter(|ring| ring.last == self.number)?;
        ring.running.as_ref().map(|running| running.end.clone())
    }

    fn running(&self) -> Option<&Running> {
        self.ring.as_ref()?.running.as_ref()
    }

    /// Has a launch run a task, after the copies of an upload: the launch that takes tasks, if it is one of this roster.
    pub(super) fn push(
        &mut self,
        typed: TypedCell<'_>,
        (step, quantum): (&Step, &OfQuantum),
        slots: &Slots,
        task: OfRoster,
        mut upload: Upload,
    ) -> Result<(), GpuError> {
        if self.ring.is_none() {
            self.ring = Some(Ring::new(&self.worker)?);
        }
        let arguments = self.arguments(typed, step, slots, &task);
        let is_of_roster = |Running { launch, .. }: &Running| {
            std::ptr::eq(launch.cell.as_ptr(), Arc::as_ptr(typed.cell))
                && bytes_of(&launch.arguments) == bytes_of(&arguments)
        };
        if !self.running().is_some_and(is_of_roster) {
            self.end_quantum()?;
        }
        // The end of another launch may have taken the number.
        if self.ring.as_ref().is_some_and(|ring| ring.last == self.number) {
            self.number += 1;
        }
        let Written { copies, from_host, within, .. } = self.write(&mut upload)?;
        let pushed = Task {
            copies,
            from_host: from_host as u32,
            within: within as u32,
            count: task.rows_now as i32,
            time: task.time,
            steps: task.steps as i32,
            padding: 0,
            number: self.number,
        };
        self.ring.as_mut().expect("there is one").push(&pushed);
        if !self.is_in_quantum() {
            let resident = quantum.on_gpu(self.worker.number).blocks();
            let grid = quantum.kernel.grid(task.rows_max, resident);
            let launch = Launch { cell: Arc::downgrade(typed.cell), grid, arguments };
            let running = self.launch(launch, First::Known(pushed), self.state.quantum)?;
            self.running_is(running);
        }
        self.note_brought(upload);
        Ok(())
    }

    /// The argument of launches for a roster, without what differs from launch to launch ([`Launch::arguments`]).
    fn arguments(
        &self,
        typed: TypedCell<'_>,
        step: &Step,
        slots: &Slots,
        task: &OfRoster,
    ) -> QuantumArguments {
        let of = typed.stepwise;
        let constants = typed.cell.constants.on(self.worker.number);
        let states = of.states.len();
        let base = |state: usize| slots.base(of.state_places[state.min(states - 1)]);
        let state = |state: usize| Operand::state(base(state), of.half_bytes);
        let next_state = |state: usize| Operand::next_state(base(state), of.half_bytes);
        let [w, r, b] = step.weights[0].map(|place| constants + place);
        let of_state = step.weights.get(1).map(|of| of.map(|place| constants + place));
        let [w_of_state, r_of_state, b_of_state] = of_state.unwrap_or_default();
        let of_ring = self.ring.as_ref().expect("there is one").arguments();
        let [done, statuses, end_count] = self.completions.addresses();
        QuantumArguments {
            of: PersistentArguments {
                batch: Batch {
                    rows: task.rows,
                    ports: task.ports,
                    ended: 0,
                    now: 0,
                    count: 0,
                    time: 0,
                },
                h: state(0),
                c: state(1),
                next_h: next_state(0),
                next_c: next_state(1),
                r,
                r_of_state,
                b,
                between: task.between,
                peepholes: step.peepholes.map_or(0, |place| constants + place),
                failed: self.completions.failed(),
                tries_max: TRIES_MAX,
                inputs: of.inputs as u32,
                ..PersistentArguments::zeroed()
            },
            x: Operand::port(0),
            lookup: self.lookup(step.table, constants),
            w,
            w_of_state,
            b_of_state,
            done,
            statuses,
            end_count,
            input: step.packed.input_size() as i32,
            ..of_ring
        }
    }

    /// Launches the kernel that runs the tasks from `first` on, within the bounds of `quantum`.
    fn launch(
        &mut self,
        launch: Launch,
        first: First,
        quantum: Quantum,
    ) -> Result<Running, GpuError> {
        let Quantum { steps_max, looks_max } = quantum;
        let cell = launch.cell.upgrade().expect("no cell is released whose tasks are to run");
        let CudaCellBody::Stepwise(of) = &cell.body else {
            unreachable!("a cell over whole sequences has no chains")
        };
        let (_, quantum) = of.quantum().expect("a launch is of a cell with such a kernel");
        let (first, until) = match first {
            First::Known(task) => (task, 0),
            First::Left { from, until } => (Task { number: from, ..Task::zeroed() }, until),
        };
        let ring = self.ring.as_mut().expect("a launch takes its tasks from one");
        let [words, next_words] = ring.words_of_launch();
        let stream = &self.worker.stream;
        let mut arguments = QuantumArguments {
            words,
            next_words,
            first,
            until,
            steps_max: steps_max as i32,
            looks_max,
            ..launch.arguments
        };
        arguments.of.arrived = words;
        let shape = [launch.grid, quantum.kernel.persistent().block()];
        stream.launch_resident(quantum.on_gpu(self.worker.number), shape, &arguments)?;
        ring.note_launch();
        Ok(Running { launch, first: first.number, end: Arc::new(stream.record()?) })
    }

    /// Launches the kernel again where a launch has ended and left tasks.
    pub(super) fn resume(&mut self) -> Result<Option<Resumed>, GpuError> {
        let Some(ring) = &mut self.ring else { return Ok(None) };
        let next = ring.next();
        let tasks = next..ring.last + 1;
        let ended = ring.running.take_if(|running| next > running.first);
        let Some(Running { launch, .. }) = ended.filter(|_| !tasks.is_empty()) else {
            return Ok(None);
        };
        let first = First::Left { from: next, until: YET_TO_COME };
        let running = self.launch(launch, first, self.state.quantum)?;
        let end = running.end.clone();
        self.running_is(running);
        Ok(Some(Resumed { tasks, end }))
    }

    /// Ends the launch that takes tasks, if one does: the stream is to do other work, behind all of them.
    pub(super) fn end_quantum(&mut self) -> Result<(), GpuError> {
        let Some(ring) = &mut self.ring else { return Ok(()) };
        let Some(Running { launch, first, .. }) = ring.running.take() else { return Ok(()) };
        let last = ring.last;
        if ring.next() > last {
            return Ok(());
        }
        ring.push(&Task { number: self.number, ..Task::zeroed() });
        let done = self.completions.done();
        if done >= last {
            return Ok(());
        }
        // It may have ended before it came to all of them.
        let left = First::Left { from: first, until: self.number };
        match self.launch(launch, left, UNTIL_THE_END) {
            Ok(Running { end, .. }) => {
                self.unwatched = Some(Resumed { tasks: done + 1..last + 1, end });
                Ok(())
            }
            Err(error) => {
                // Nothing else runs these tasks.
                self.worker.lose(&error.to_string());
                Err(error)
            }
        }
    }

    fn running_is(&mut self, running: Running) {
        if let Some(ring) = &mut self.ring {
            ring.running = Some(running);
        }
    }
}
