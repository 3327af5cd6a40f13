//! The queue of one worker: tasks are submitted to its GPU without waiting, and are reported as the GPU signals them.
//!
//! | file | idea |
//! |---|---|
//! | `task.rs` | a task: which form its cell and its work have |
//! | `rosters.rs` | the roster of a cell type, whose rows stay on the GPU |
//! | `rows.rs` | batches whose rows are listed |
//! | `sequences.rs` | cells over whole sequences |
//! | `steps.rs` | the steps of a batch: kernels and programs, one after the other |
//! | `persistent.rs` | the steps of a batch by a kernel that is made for the cell |
//! | `quanta.rs` | tasks of a roster by a launch that takes one after the other |
//! | `ring.rs` | the ring of tasks that such a launch takes |
//! | `projections.rs` | products of x for all steps of a batch, ahead of them |
//! | `programs.rs` | programs that the host runs in the order of the GPU's work |
//! | `listed.rs` | a run of a request as rows and ports of a batch |
//! | `moving.rs`, `states.rs` | values and states, brought to the GPU |
//! | `reads.rs` | reads of values and states, and states that are written |
//! | `submitter.rs` | what all work is submitted with |
//! | `upload.rs` | what a task brings to the GPU |
//! | `completions.rs` | how the host learns of work that is done |
//! | `watcher.rs` | a thread that waits for a GPU while its worker sleeps |

mod completions;
mod listed;
mod moving;
mod persistent;
mod programs;
mod projections;
mod quanta;
mod reads;
mod ring;
mod rosters;
mod rows;
mod sequences;
mod states;
mod steps;
mod submitter;
mod task;
mod upload;
mod watcher;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use batchmaker_device::{Bell, Completion, DeviceError, Read, StatePlace, TaskDone, TaskQueue};
use batchmaker_executor::ExecutorThreads;
use batchmaker_graph::{BatchedTask, TaskId, TensorData};

use crate::gpu::GpuError;
use crate::state::DeviceState;
use completions::{ENDS, KernelFailure, STATUSES};
pub(crate) use persistent::TRIES_MAX;
use programs::ProgramFailure;
use reads::{Coming, ReadError};
use ring::Resumed;
use rosters::Rosters;
use submitter::{Submitter, TaskError};
use upload::Upload;
use watcher::{Behind, Watched, Watcher};

/// The most rows of a batch: all of them may end in one task, and the ring of ends has room for two such tasks.
pub(crate) const ROWS_MAX: u32 = ENDS as u32 / 2;

/// Why a read gives nothing where the GPU is full.
const NO_MEMORY_FOR_VALUES: &str = "the GPU has no memory left for the values";

/// Why a GPU counts as lost whose kernel has given up.
pub(crate) const BLOCKS_WAIT: &str = "the blocks of a kernel waited in vain for one another";

/// The queue of one worker.
pub(crate) struct CudaQueue {
    watcher: Watcher,
    submitter: Submitter,
    rosters: Rosters,
    bell: Arc<Bell>,
    /// Reads that were asked for since the last work: they are submitted together, before other work and when the queue is polled.
    reads: Vec<Read>,
    /// Work in flight, in its order.
    pending: VecDeque<Pending>,
    /// Since when there is work in flight, or when it was counted last.
    busy_since: Option<Instant>,
    /// What is to be reported.
    reported: Vec<Completion>,
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
    Reads(Vec<Asked>),
}

/// A read, and what comes to the host for it; the reason, if there is nothing.
struct Asked {
    read: Read,
    coming: Result<Vec<Coming>, Arc<str>>,
}

impl CudaQueue {
    pub(crate) fn new(
        state: Arc<DeviceState>,
        number: usize,
        threads: Arc<ExecutorThreads>,
        bell: Arc<Bell>,
    ) -> Result<Self, DeviceError> {
        let submitter = Submitter::new(state, number, threads)?;
        submitter.worker.attach(bell.clone());
        Ok(Self {
            watcher: Watcher::start(Watched {
                worker: submitter.worker.clone(),
                counter: submitter.completions.counter(),
                poll_for: submitter.state.poll_for,
                bell: bell.clone(),
            })?,
            submitter,
            rosters: Rosters::default(),
            bell,
            reads: Vec::new(),
            pending: VecDeque::new(),
            busy_since: None,
            reported: Vec::new(),
            knows_of_loss: false,
        })
    }

    /// Whether a status or an end could be written in the place of one that was not taken.
    fn is_full(&self) -> bool {
        let Submitter { number, collected, ends_expected, .. } = self.submitter;
        number - collected >= STATUSES as u64 - 1 || ends_expected > ENDS / 2
    }

    /// Begins work. Waits where the statuses or the ring of ends could overflow.
    fn begin(&mut self) -> Result<(), GpuError> {
        self.submitter.number += 1;
        if self.is_full() {
            self.collect();
        }
        if self.is_full() {
            self.submitter.end_quantum()?;
            self.submitter.worker.stream.synchronize()?;
            self.collect();
        }
        Ok(())
    }

    /// Begins work of the stream.
    fn begin_on_stream(&mut self) -> Result<(), GpuError> {
        self.begin()?;
        self.submitter.end_quantum()
    }

    fn submit_task(&mut self, task: &BatchedTask) -> Result<(), GpuError> {
        self.begin()?;
        self.resume()?;
        self.submitter.failure = ProgramFailure::default();
        let before = self.submitter.ends_expected;
        let refused = match self.submitter.run_task(&mut self.rosters, task) {
            Ok(()) => None,
            Err(TaskError::Memory) => Some("the GPU has no memory left".into()),
            Err(TaskError::Lost) => Some("a state or a row was lost with another GPU".into()),
            Err(TaskError::Gpu(error)) => return Err(error),
        };
        if self.submitter.launch_of_work().is_none() {
            self.submitter.end_quantum()?;
            // A task that does not run may leave values that were to come with its upload: other tasks of their requests may be submitted before
            // anybody knows of the failure.
            self.submitter.bring_arriving()?;
            self.submitter.signal()?;
        }
        let (failure, ends_expected) =
            (self.submitter.failure.clone(), self.submitter.ends_expected - before);
        let kind = PendingKind::Task { id: task.id, refused, failure, ends_expected };
        self.pending.push_back(Pending { number: self.submitter.number, kind });
        Ok(())
    }

    /// Has all that was asked for copied to the host, together.
    fn submit_reads(&mut self) -> Result<(), GpuError> {
        self.begin_on_stream()?;
        let mut together = Upload::default();
        let mut asked = Vec::new();
        for read in std::mem::take(&mut self.reads) {
            let coming = match self.submitter.fetch(&read, &mut together) {
                Ok(coming) => Ok(coming),
                Err(ReadError::Task(TaskError::Gpu(error))) => return Err(error),
                Err(ReadError::Task(TaskError::Memory)) => Err(NO_MEMORY_FOR_VALUES.into()),
                Err(ReadError::Task(TaskError::Lost) | ReadError::Lost) => {
                    Err("the values were lost with a GPU".into())
                }
            };
            asked.push(Asked { read, coming });
        }
        match self.submitter.bring(together) {
            Err(error) if error.is_out_of_memory() => {
                let asked = asked.iter_mut().filter(|of| of.coming.is_ok());
                asked.for_each(|of| of.coming = Err(NO_MEMORY_FOR_VALUES.into()));
                self.submitter.bring_arriving()?;
            }
            brought => drop(brought?),
        }
        // Copies of some of the values may be on their way even where others are lost.
        self.submitter.signal()?;
        let kind = PendingKind::Reads(asked);
        self.pending.push_back(Pending { number: self.submitter.number, kind });
        Ok(())
    }

    /// Submits the reads that wait: those that were asked for one after the other go together.
    fn flush_reads(&mut self) {
        if !self.reads.is_empty() {
            self.unless_lost(|queue| {
                queue.submit_reads()?;
                queue.watch()
            });
        }
    }

    /// Counts the time in which there was work in flight.
    fn note_busy(&mut self) {
        let now = (!self.pending.is_empty()).then(Instant::now);
        if let Some(since) = std::mem::replace(&mut self.busy_since, now) {
            let busy = since.elapsed().as_nanos() as u64;
            self.submitter.worker.busy_ns.fetch_add(busy, Ordering::Relaxed);
        }
    }

    /// Has the watcher ring when all work so far is done: it may end long before what is submitted next.
    fn watch(&mut self) -> Result<(), GpuError> {
        self.note_busy();
        if let Some(Resumed { tasks, end }) = self.submitter.unwatched.take() {
            tasks.for_each(|number| self.watcher.watch(number, Behind::Launch(end.clone())));
        }
        let number = self.submitter.number;
        let behind = match self.submitter.launch_of_work() {
            Some(launch) => Behind::Launch(launch),
            None => Behind::Work(self.submitter.worker.stream.record()?),
        };
        self.watcher.watch(number, behind);
        Ok(())
    }

    /// Has the GPU run the tasks that a launch has left.
    fn resume(&mut self) -> Result<(), GpuError> {
        if let Some(Resumed { tasks, end }) = self.submitter.resume()? {
            tasks.for_each(|number| self.watcher.watch(number, Behind::Launch(end.clone())));
        }
        Ok(())
    }

    /// Does some work, unless the worker is lost; an error is its loss.
    fn unless_lost(&mut self, work: impl FnOnce(&mut Self) -> Result<(), GpuError>) {
        if self.submitter.worker.lost().is_some() {
            return self.bell.ring();
        }
        if let Err(error) = work(self) {
            self.submitter.worker.lose(&error.to_string());
        }
    }

    /// Takes what is done from the list of work in flight.
    fn collect(&mut self) {
        let done = self.submitter.completions.done();
        // What followed a launch that is stuck may be done, tasks of the launch are not.
        if self.submitter.is_stuck() {
            return self.submitter.worker.lose(BLOCKS_WAIT);
        }
        while self.pending.front().is_some_and(|front| front.number <= done) {
            let Some(Pending { number, kind }) = self.pending.pop_front() else { return };
            self.submitter.collected = number;
            let (kernel_failure, ends) = self.submitter.completions.take(number);
            if matches!(kernel_failure, Some(KernelFailure::Stuck)) {
                return self.submitter.worker.lose(BLOCKS_WAIT);
            }
            match kind {
                PendingKind::Task { id: task, refused, failure, ends_expected } => {
                    self.submitter.ends_expected -= ends_expected;
                    let unknown = || "a cell looked up an id that its table does not have".into();
                    let of_lookup = kernel_failure.is_some().then(unknown);
                    let failure = refused.or_else(|| failure.get()).or(of_lookup);
                    let result = failure.map_or(Ok(()), Err);
                    let done = TaskDone { task, result, ends };
                    self.reported.push(Completion::Task(done));
                }
                PendingKind::Reads(asked) => {
                    let values = |Asked { read, coming }| {
                        let data = coming.map(|coming| coming.iter().map(Coming::take).collect());
                        Completion::Values { read, data }
                    };
                    self.reported.extend(asked.into_iter().map(values));
                }
            }
        }
        if self.pending.is_empty() {
            self.submitter.collected = done;
        }
    }
}

impl Drop for CudaQueue {
    /// Waits until the GPU has done all work: it uses this queue's memory.
    fn drop(&mut self) {
        self.submitter.number += 1;
        // Errors are those of a GPU that is lost, which uses nothing any more.
        let _ = self.submitter.end_quantum();
        let _ = self.submitter.worker.stream.synchronize();
    }
}

impl TaskQueue for CudaQueue {
    fn submit(&mut self, round: &mut Vec<BatchedTask>) {
        self.flush_reads();
        let tasks = std::mem::take(round);
        self.unless_lost(|queue| {
            tasks.iter().try_for_each(|task| {
                queue.submit_task(task)?;
                queue.watch()
            })
        });
    }

    fn read(&mut self, read: Read) {
        match self.submitter.read_on_host(&read) {
            Some(data) => self.reported.push(Completion::Values { read, data: Ok(data) }),
            None => self.reads.push(read),
        }
    }

    fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        self.flush_reads();
        self.unless_lost(|queue| {
            queue.begin_on_stream()?;
            let written = queue.submitter.write_states(place, &states);
            queue.submitter.signal()?;
            queue.watch()?;
            match written {
                Ok(()) => Ok(()),
                Err(TaskError::Gpu(error)) => Err(error),
                // Nothing reports it: the engine writes no states yet.
                Err(TaskError::Memory | TaskError::Lost) => Ok(()),
            }
        });
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if self.knows_of_loss {
            return;
        }
        self.flush_reads();
        self.collect();
        if !self.pending.is_empty() {
            self.unless_lost(Self::resume);
        }
        if !self.reported.is_empty() {
            self.note_busy();
        }
        completions.append(&mut self.reported);
        if let Some(reason) = self.submitter.worker.lost() {
            self.knows_of_loss = true;
            self.pending.clear();
            self.reads.clear();
            completions.push(Completion::Lost { reason });
        }
    }
}
