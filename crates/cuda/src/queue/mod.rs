//! The queue of one worker: tasks are submitted to its GPU without waiting, and are reported as the GPU signals them.
//!
//! | file | idea |
//! |---|---|
//! | `task.rs` | a task: its rows are listed and brought to the GPU, and its batches run |
//! | `rosters.rs` | the roster of a cell type, whose rows stay on the GPU |
//! | `steps.rs` | the steps of a batch: kernels and programs, one after the other |
//! | `programs.rs` | programs that the host runs in the order of the GPU's work |
//! | `sequences.rs` | cells over whole sequences |
//! | `moving.rs` | rows that other GPUs hold |
//! | `reads.rs` | reads of values and states, and states that are written |
//! | `upload.rs` | what a task brings to the GPU |
//! | `completions.rs` | how the host learns of work that is done |
//! | `watcher.rs` | a thread that waits for a GPU while its worker sleeps |

mod completions;
mod moving;
mod programs;
mod reads;
mod rosters;
mod sequences;
mod steps;
mod task;
mod upload;
mod watcher;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use batchmaker_device::{Bell, Completion, DeviceError, Read, StatePlace, TaskDone, TaskQueue};
use batchmaker_executor::ExecutorThreads;
use batchmaker_graph::{BatchedTask, CellTypeId, TaskId, TensorData};

use crate::gpu::{Allocation, GpuError};
use crate::kernels::batch::{NO_OUTPUT, Row};
use crate::memory::{Staged, Staging};
use crate::state::DeviceState;
use crate::worker::Worker;
use completions::{Completions, ENDS, STATUSES};
use programs::ProgramFailure;
use reads::{Coming, ReadError};
use rosters::Roster;
use task::TaskError;
use watcher::Watcher;

/// The queue of one worker.
pub(crate) struct CudaQueue {
    // Dropped first: it waits for the GPU.
    watcher: Watcher,
    state: Arc<DeviceState>,
    worker: Arc<Worker>,
    bell: Arc<Bell>,
    threads: Arc<ExecutorThreads>,
    staging: Staging,
    completions: Completions,
    rosters: HashMap<CellTypeId, Roster>,
    /// What a task uploads. The GPU is done with it when the next task's copy comes.
    buffer: Option<Allocation>,
    /// Registers of a batch, likewise.
    scratch: Option<Allocation>,
    /// Work in flight, in its order.
    pending: VecDeque<Pending>,
    /// What is to be reported.
    reported: Vec<Completion>,
    /// The number of the last work.
    number: u64,
    /// The rows with a stop in work in flight: each may end.
    ends_expected: usize,
    /// Of the task that is being submitted.
    failure: ProgramFailure,
    /// Whether the loss of the worker was reported.
    knows_of_loss: bool,
}

/// Work in flight.
struct Pending {
    number: u64,
    kind: PendingKind,
}

enum PendingKind {
    Task {
        id: TaskId,
        /// Why it did not run.
        refused: Option<Arc<str>>,
        failure: ProgramFailure,
        ends_expected: usize,
    },
    Read {
        read: Read,
        coming: Vec<Coming>,
    },
}

impl CudaQueue {
    pub(crate) fn new(
        state: Arc<DeviceState>,
        number: usize,
        threads: Arc<ExecutorThreads>,
        bell: Arc<Bell>,
    ) -> Result<Self, DeviceError> {
        let worker = state.workers[number].clone();
        let completions = Completions::new(&worker);
        let completions = completions.map_err(|error| DeviceError::Resources(error.to_string()))?;
        Ok(Self {
            watcher: Watcher::start(worker.clone(), bell.clone())?,
            staging: Staging::new(worker.gpu()),
            completions,
            state,
            worker,
            bell,
            threads,
            rosters: HashMap::new(),
            buffer: None,
            scratch: None,
            pending: VecDeque::new(),
            reported: Vec::new(),
            number: 0,
            ends_expected: 0,
            failure: ProgramFailure::default(),
            knows_of_loss: false,
        })
    }

    /// Memory of the host for the work that is being submitted.
    fn stage(&mut self, bytes: usize) -> Result<Staged, GpuError> {
        self.staging.take(bytes, self.number, self.completions.done())
    }

    /// Memory for what a task uploads.
    fn buffer(&mut self, bytes: usize) -> Result<u64, GpuError> {
        grow(&mut self.buffer, bytes, &self.worker)
    }

    /// Memory for the registers of a batch.
    fn scratch(&mut self, bytes: usize) -> Result<u64, GpuError> {
        grow(&mut self.scratch, bytes, &self.worker)
    }

    /// Counts the rows of a batch that may end.
    fn expect_ends<'a>(&mut self, rows: impl Iterator<Item = &'a Row>) {
        self.ends_expected += rows.filter(|row| row.stop_output != NO_OUTPUT).count();
    }

    /// Begins work. Waits where the statuses or the ring of ends could overflow.
    fn begin(&mut self) -> Result<(), GpuError> {
        let is_full = self.number - self.completions.done() >= STATUSES as u64 - 1;
        if is_full || self.ends_expected > ENDS / 2 {
            self.worker.stream.synchronize()?;
            self.collect();
        }
        self.number += 1;
        Ok(())
    }

    fn submit_task(&mut self, task: &BatchedTask) -> Result<(), GpuError> {
        self.begin()?;
        self.failure = ProgramFailure::default();
        let before = self.ends_expected;
        let refused = match self.run_task(task) {
            Ok(()) => None,
            Err(TaskError::Memory) => Some("the GPU has no memory left".into()),
            Err(TaskError::Gpu(error)) => return Err(error),
        };
        self.completions.signal(self.number)?;
        let (failure, ends_expected) = (self.failure.clone(), self.ends_expected - before);
        let kind = PendingKind::Task { id: task.id, refused, failure, ends_expected };
        self.pending.push_back(Pending { number: self.number, kind });
        Ok(())
    }

    fn submit_read(&mut self, read: Read) -> Result<(), GpuError> {
        self.begin()?;
        let coming = match self.fetch(&read) {
            Ok(coming) => coming,
            Err(ReadError::Task(TaskError::Gpu(error))) => return Err(error),
            Err(ReadError::Task(TaskError::Memory)) => {
                return self.answer(read, "the GPU has no memory left for the values");
            }
            Err(ReadError::Lost) => return self.answer(read, "the values were lost with a GPU"),
        };
        self.completions.signal(self.number)?;
        let kind = PendingKind::Read { read, coming };
        self.pending.push_back(Pending { number: self.number, kind });
        Ok(())
    }

    /// Answers a read for which there is nothing.
    fn answer(&mut self, read: Read, reason: &str) -> Result<(), GpuError> {
        self.completions.signal(self.number)?;
        self.reported.push(Completion::Values { read, data: Err(reason.into()) });
        self.bell.ring();
        Ok(())
    }

    /// Has the watcher ring when all work so far is done.
    fn watch(&self) -> Result<(), GpuError> {
        self.watcher.watch(self.worker.stream.record()?);
        Ok(())
    }

    /// Does some work, unless the worker is lost; an error is its loss.
    fn unless_lost(&mut self, work: impl FnOnce(&mut Self) -> Result<(), GpuError>) {
        if self.worker.lost().is_some() {
            return self.bell.ring();
        }
        if let Err(error) = work(self) {
            self.worker.lose(&error.to_string());
            self.bell.ring();
        }
    }

    /// Takes what is done from the list of work in flight.
    fn collect(&mut self) {
        let done = self.completions.done();
        while self.pending.front().is_some_and(|front| front.number <= done) {
            let Some(Pending { number, kind }) = self.pending.pop_front() else { return };
            let (has_failed, ends) = self.completions.take(number);
            self.reported.push(match kind {
                PendingKind::Task { id: task, refused, failure, ends_expected } => {
                    self.ends_expected -= ends_expected;
                    let unknown = || "a cell looked up an id that its table does not have".into();
                    let of_lookup = has_failed.then(unknown);
                    let failure = refused.or_else(|| failure.get()).or(of_lookup);
                    let result = failure.map_or(Ok(()), Err);
                    Completion::Task(TaskDone { task, result, ends })
                }
                PendingKind::Read { read, coming } => {
                    let data = Ok(coming.iter().map(Coming::take).collect());
                    Completion::Values { read, data }
                }
            });
        }
    }
}

/// Memory of at least so many bytes: the one there is, or new memory of twice as many.
fn grow(memory: &mut Option<Allocation>, bytes: usize, worker: &Worker) -> Result<u64, GpuError> {
    if let Some(memory) = memory.as_ref().filter(|memory| memory.bytes() >= bytes) {
        return Ok(memory.at());
    }
    let new = worker.pool.allocate(2 * bytes)?;
    Ok(memory.insert(new).at())
}

impl TaskQueue for CudaQueue {
    fn submit(&mut self, round: &mut Vec<BatchedTask>) {
        let tasks = std::mem::take(round);
        self.unless_lost(|queue| {
            tasks.iter().try_for_each(|task| queue.submit_task(task))?;
            queue.watch()
        });
    }

    fn read(&mut self, read: Read) {
        self.unless_lost(|queue| {
            queue.submit_read(read)?;
            queue.watch()
        });
    }

    fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        self.unless_lost(|queue| {
            queue.begin()?;
            let written = queue.write_states(place, &states);
            queue.completions.signal(queue.number)?;
            match written {
                Ok(()) => Ok(()),
                Err(TaskError::Gpu(error)) => Err(error),
                // Nothing reports it: the state is that of a session that goes on without.
                Err(TaskError::Memory) => Ok(()),
            }
        });
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if self.knows_of_loss {
            return;
        }
        self.collect();
        completions.append(&mut self.reported);
        if let Some(reason) = self.worker.lost() {
            self.knows_of_loss = true;
            self.pending.clear();
            completions.push(Completion::Lost { reason });
        }
    }
}
