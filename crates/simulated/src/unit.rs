//! The unit of one worker: a thread that runs tasks in their order, and the queue in front of it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use batchmaker_device::{Bell, Completion, DeviceError, Read, StatePlace, TaskDone, TaskQueue};
use batchmaker_graph::{BatchedTask, TaskId, TensorData, ValueIndex, WorkerId};

use crate::core::SharedCore;
use crate::faults::Draw;
use crate::memory::Contents;
use crate::misuse::Misuse;
use crate::virtual_device::{Fate, Started};

/// The time that an idle unit waits before it checks whether it is to be lost.
const IDLE: Duration = Duration::from_millis(2);

/// A worker's unit, as its queue sees it.
pub(crate) struct Unit {
    shared: Arc<SharedCore>,
    worker: WorkerId,
    mailbox: Arc<Mailbox>,
    thread: Option<JoinHandle<()>>,
}

/// The commands to the unit, and the completions that come back.
struct Mailbox {
    state: Mutex<Mail>,
    /// Signalled when there is a command for the unit.
    arrived: Condvar,
    bell: Arc<Bell>,
}

#[derive(Default)]
struct Mail {
    commands: VecDeque<Command>,
    completions: Vec<Completion>,
    is_closed: bool,
}

enum Command {
    /// There was no command for a while.
    None,
    Run(BatchedTask),
    Read(Read),
    WriteState(StatePlace, Vec<TensorData>),
}

impl Mailbox {
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, commands: impl IntoIterator<Item = Command>) {
        self.mail().commands.extend(commands);
        self.arrived.notify_one();
    }

    fn report(&self, completion: Completion) {
        self.mail().completions.push(completion);
        self.bell.ring();
    }
}

impl Unit {
    pub(crate) fn start(
        shared: Arc<SharedCore>,
        worker: WorkerId,
        bell: Arc<Bell>,
        draw: Draw,
    ) -> Result<Self, DeviceError> {
        let mailbox = Arc::new(Mailbox { state: Mutex::default(), arrived: Condvar::new(), bell });
        let mut running =
            Running { shared: shared.clone(), worker, mailbox: mailbox.clone(), draw };
        let thread = std::thread::Builder::new()
            .name(format!("unit-{}", worker.0))
            .spawn(move || {
                // A unit that ended without a report would be waited for for ever.
                let ran = catch_unwind(AssertUnwindSafe(|| running.run()));
                if ran.is_err() {
                    running.panicked();
                }
            })
            .map_err(|error| DeviceError::Resources(format!("no thread: {error}")))?;
        Ok(Self { shared, worker, mailbox, thread: Some(thread) })
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.mailbox.mail().is_closed = true;
        self.mailbox.arrived.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The queue of a unit.
pub(crate) struct SimulatedQueue {
    unit: Unit,
    /// Whether the loss of the unit was reported to the worker.
    knows_of_loss: bool,
}

impl SimulatedQueue {
    pub(crate) fn new(unit: Unit) -> Self {
        Self { unit, knows_of_loss: false }
    }
}

impl TaskQueue for SimulatedQueue {
    fn submit(&mut self, round: &mut Vec<BatchedTask>) {
        if self.knows_of_loss {
            let worker = self.unit.worker;
            let misuse = Misuse(format!("{worker} is lost and is given {round:?}"));
            self.unit.shared.core().misused(misuse);
        }
        self.unit.mailbox.send(round.drain(..).map(Command::Run));
    }

    fn read(&mut self, read: Read) {
        self.unit.mailbox.send([Command::Read(read)]);
    }

    fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        self.unit.mailbox.send([Command::WriteState(place, states)]);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        completions.append(&mut self.unit.mailbox.mail().completions);
        let is_loss = |completion: &Completion| matches!(completion, Completion::Lost { .. });
        self.knows_of_loss |= completions[before..].iter().any(is_loss);
    }
}

/// The unit's thread.
struct Running {
    shared: Arc<SharedCore>,
    worker: WorkerId,
    mailbox: Arc<Mailbox>,
    draw: Draw,
}

/// The error of a unit that is lost.
struct Lost;

impl Running {
    fn run(&mut self) {
        while let Some(command) = self.next() {
            let done = match command {
                Command::None => self.lose_if_requested(),
                Command::Run(task) => self.run_task(task),
                Command::Read(read) => {
                    let data = self.values(&read);
                    self.mailbox.report(Completion::Values { read, data });
                    Ok(())
                }
                Command::WriteState(place, states) => {
                    self.shared.core().virtual_device.write_state(self.worker, place, states);
                    Ok(())
                }
            };
            if done.is_err() {
                let reason = format!("the unit of {} was lost", self.worker).into();
                return self.mailbox.report(Completion::Lost { reason });
            }
        }
    }

    /// Waits for a command; none once the queue is gone. Reads may overtake all commands but states to
    /// write.
    fn next(&mut self) -> Option<Command> {
        let mut mail = self.mailbox.mail();
        loop {
            if mail.is_closed {
                return None;
            }
            let is_read = |command: &Command| matches!(command, Command::Read(_));
            let writes = |command: &Command| matches!(command, Command::WriteState(..));
            let first_read = mail.commands.iter().position(is_read);
            if let Some(read) = first_read
                && !mail.commands.iter().take(read).any(writes)
                && self.draw.chance(50)
            {
                return mail.commands.remove(read);
            }
            if let Some(command) = mail.commands.pop_front() {
                return Some(command);
            }
            let waited = self.mailbox.arrived.wait_timeout(mail, IDLE);
            let timeout;
            (mail, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return Some(Command::None);
            }
        }
    }

    fn panicked(&self) {
        let misuse = Misuse(format!("{} was given what made its unit panic", self.worker));
        let reason = self.shared.core().misused(misuse);
        self.shared.core().lose(self.worker);
        self.mailbox.report(Completion::Lost { reason });
    }

    fn lose_if_requested(&self) -> Result<(), Lost> {
        if !self.shared.is_to_be_lost(self.worker) {
            return Ok(());
        }
        self.shared.core().lose(self.worker);
        Err(Lost)
    }

    fn run_task(&mut self, task: BatchedTask) -> Result<(), Lost> {
        let faults = self.shared.faults();
        let id = task.id;
        let is_lost =
            self.shared.is_to_be_lost(self.worker) || self.draw.chance(faults.lost_percent);
        let is_failed = self.draw.chance(faults.failed_percent);
        let failing_batch = self.draw.below(4) as u32;
        let fate = if is_failed { Fate::FailsFrom(failing_batch) } else { Fate::Runs };
        let started = {
            let mut core = self.shared.core();
            let submitted = core.virtual_device.submit(task);
            let started = submitted.and_then(|()| core.virtual_device.start(self.worker, fate));
            started.map_err(|misuse| {
                core.virtual_device.give_up(self.worker);
                core.misused(misuse)
            })
        };
        let Started { batches, failure, .. } = match started {
            Ok(started) => started.expect("the unit runs one task at a time"),
            Err(reason) => {
                self.over(id, Err(reason), Vec::new());
                return Ok(());
            }
        };
        let failed_from = match (&failure, is_failed) {
            (Some(_), _) => Some(0),
            (None, true) => Some(failing_batch),
            (None, false) => None,
        };
        let lost_at = is_lost.then(|| self.draw.below(u64::from(batches)) as u32);
        for batch in 0..batches {
            std::thread::sleep(self.draw.time(faults.batch_max));
            if lost_at == Some(batch) {
                self.shared.core().lose(self.worker);
                return Err(Lost);
            }
            let done = batch + 1;
            let is_right = failed_from.is_none_or(|first| batch < first);
            if done < batches && is_right && self.draw.chance(faults.reported_percent) {
                let ends = self.shared.core().virtual_device.advance(self.worker, done);
                self.mailbox.report(Completion::Steps { task: id, steps: done, ends });
            }
        }
        let (_, ends) = self.shared.core().virtual_device.finish(self.worker);
        let result = match (failure, failed_from.filter(|&first| first < batches)) {
            (Some(reason), _) => Err(reason.into()),
            (None, Some(batch)) => Err(format!("a fault was drawn for batch {batch}").into()),
            (None, None) => Ok(()),
        };
        self.over(id, result, ends);
        Ok(())
    }

    fn over(
        &self,
        task: TaskId,
        result: Result<(), Arc<str>>,
        ends: Vec<batchmaker_graph::EndOfSequence>,
    ) {
        self.mailbox.report(Completion::Task(TaskDone { task, result, ends }));
    }

    fn values(&self, read: &Read) -> Result<Vec<TensorData>, Arc<str>> {
        let mut core = self.shared.core();
        let read = match read {
            Read::Rows { request, values, rows } => {
                let of_value = |&value: &ValueIndex| {
                    let rows = rows.clone().map(|row| row as usize);
                    let row =
                        |row| core.virtual_device.peek(*request, value, row).map(Contents::from);
                    let rows: Vec<_> = rows.map(row).collect::<Result<_, _>>()?;
                    Ok(core.joined(*request, value, rows))
                };
                values.iter().map(of_value).collect::<Result<Vec<_>, Misuse>>()
            }
            Read::Outputs { request } => core.virtual_device.outputs(*request).map(|outputs| {
                let graph = core.requests[request].0.clone();
                let of_value = |(&value, rows)| core.joined(*request, value, rows);
                graph.outputs().iter().zip(outputs).map(of_value).collect()
            }),
            Read::State(place) => core
                .virtual_device
                .read_state(self.worker, *place)
                .map(|states| states.into_iter().collect::<Vec<_>>()),
        };
        let data = read.map_err(|misuse| core.misused(misuse))?;
        let data: Option<Vec<TensorData>> = data.into_iter().collect();
        data.ok_or_else(|| "the values were lost".into())
    }
}
