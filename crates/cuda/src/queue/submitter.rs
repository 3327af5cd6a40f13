//! What all work for a GPU is submitted with: its stream, memory for copies and registers, and the signal that work is done.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use batchmaker_device::DeviceError;
use batchmaker_executor::ExecutorThreads;

use super::completions::Completions;
use super::programs::ProgramFailure;
use super::ring::{Resumed, Ring};
use super::upload::{Upload, Written};
use crate::gpu::{Allocation, GpuError, Graphs, Launches};
use crate::kernels::rows::{BLOCK, COPY_ROWS, Copy, CopyArguments};
use crate::memory::{Staged, Staging};
use crate::state::DeviceState;
use crate::worker::Worker;

/// The most bytes that are copied together with others, by a kernel. What is larger has a copy of its own, of the driver.
pub(super) const TOGETHER_BYTES: usize = 1 << 16;

/// The most bytes of values that wait for an upload.
const ARRIVING_BYTES: usize = 1 << 20;

/// The same where a copy of the driver's would end a launch that runs task after task.
const IN_QUANTUM_BYTES: usize = 16 << 20;

/// The most bytes of memory beyond what is needed, so that what grows a little does not need new memory each time.
const SPARE_BYTES: usize = 16 << 20;

/// Values of a request that have a place on the GPU and wait for an upload.
struct Arrival {
    to: u64,
    image: Arc<Vec<u8>>,
    /// Bytes of zeros behind the image.
    zeros: usize,
}

/// Why a task does not run.
#[derive(Debug)]
pub(super) enum TaskError {
    /// It has no room, and others go on.
    Memory,
    /// A state or a row that it needs was lost with another GPU.
    Lost,
    /// The GPU does nothing any more.
    Gpu(GpuError),
}

impl From<GpuError> for TaskError {
    fn from(error: GpuError) -> Self {
        if error.is_out_of_memory() { Self::Memory } else { Self::Gpu(error) }
    }
}

/// Submits work to the GPU of one worker.
pub(super) struct Submitter {
    pub(super) state: Arc<DeviceState>,
    pub(super) worker: Arc<Worker>,
    /// Of programs.
    pub(super) threads: Arc<ExecutorThreads>,
    pub(super) completions: Completions,
    /// Of the task that is being submitted.
    pub(super) failure: ProgramFailure,
    /// The rows with a stop in work in flight: each may end.
    pub(super) ends_expected: usize,
    /// Tasks for launches that run one after the other, once there are such.
    pub(super) ring: Option<Ring>,
    /// Tasks whose launch the watcher does not know.
    pub(super) unwatched: Option<Resumed>,
    /// The blocks that have come to a barrier, or will, of all launches for a task so far; wraps around.
    pub(super) arrivals: u32,
    /// The number of the last work.
    pub(super) number: u64,
    /// The number of the last work whose results the host has taken.
    pub(super) collected: u64,
    staging: Staging,
    /// Launches of tasks that come again.
    pub(super) graphs: Graphs,
    /// None, in memory that earlier tasks' launches had.
    pub(super) launches: Launches,
    /// Values of requests that come to the GPU with the next upload, before its own copies.
    arriving: Vec<Arrival>,
    arriving_bytes: usize,
    /// Copies within the GPU, or zeros, that follow these: the first states of chains.
    starting: Vec<(u64, Option<u64>, usize)>,
    /// An empty upload, in memory that earlier ones had.
    spare: Upload,
    /// What a batch uses of an upload. The stream brings the next upload once what uses this one is done.
    buffer: Option<Allocation>,
    /// Registers of a batch, likewise.
    scratch: Option<Allocation>,
}

impl Submitter {
    pub(super) fn new(
        state: Arc<DeviceState>,
        number: usize,
        threads: Arc<ExecutorThreads>,
    ) -> Result<Self, DeviceError> {
        let worker = state.workers[number].clone();
        let completions = Completions::new(&worker);
        let completions = completions.map_err(|error| DeviceError::Resources(error.to_string()))?;
        Ok(Self {
            staging: Staging::new(worker.gpu()),
            graphs: Graphs::new(state.graphs_max),
            launches: Launches::default(),
            arriving: Vec::new(),
            arriving_bytes: 0,
            starting: Vec::new(),
            completions,
            state,
            worker,
            threads,
            failure: ProgramFailure::default(),
            ends_expected: 0,
            ring: None,
            unwatched: None,
            arrivals: 0,
            number: 0,
            collected: 0,
            spare: Upload::default(),
            buffer: None,
            scratch: None,
        })
    }

    /// Memory of the host for the work that is being submitted.
    pub(super) fn stage(&mut self, bytes: usize) -> Result<Staged, GpuError> {
        // What a read brought is there until it is taken.
        self.staging.take(bytes, self.number, self.collected)
    }

    /// Memory of the GPU for the registers of a batch.
    pub(super) fn scratch(&mut self, bytes: usize) -> Result<u64, GpuError> {
        grow(&mut self.scratch, bytes, &self.worker)
    }

    /// Brings the first bytes of a request's values, behind which are zeros: small ones with those of others, at the next upload. The place counts as
    /// written from now on: what waits for an upload comes even if the task that it came for does not run.
    pub(super) fn arrive(
        &mut self,
        to: u64,
        image: Arc<Vec<u8>>,
        zeros: usize,
    ) -> Result<(), GpuError> {
        let arrival = Arrival { to, image, zeros };
        let bytes = arrival.image.len();
        let (together, arriving) = match self.is_in_quantum() {
            true => (IN_QUANTUM_BYTES, IN_QUANTUM_BYTES),
            false => (TOGETHER_BYTES, ARRIVING_BYTES),
        };
        if bytes.max(zeros) > together {
            return self.bring_alone(&arrival);
        }
        if self.arriving_bytes + bytes > arriving {
            self.bring_arriving()?;
        }
        self.arriving_bytes += bytes;
        self.arriving.push(arrival);
        Ok(())
    }

    /// Has the GPU copy bytes, or write zeros where `from` is none, once all values are there that wait for an upload; it does so even if the task does
    /// not run that wants it.
    pub(super) fn start(&mut self, to: u64, from: Option<u64>, bytes: usize) {
        self.starting.push((to, from, bytes));
    }

    /// Brings what waits for an upload, if anything does.
    pub(super) fn bring_arriving(&mut self) -> Result<(), GpuError> {
        if self.arriving.is_empty() && self.starting.is_empty() {
            return Ok(());
        }
        let upload = self.upload();
        self.bring(upload).map(drop)
    }

    fn bring_alone(&mut self, arrival: &Arrival) -> Result<(), GpuError> {
        self.end_quantum()?;
        let Arrival { to, image, zeros } = arrival;
        if !image.is_empty() {
            let staged = self.stage(image.len())?;
            let (from, offset) = staged.range();
            from.write(offset, image);
            self.worker.stream.upload(*to, staged.range(), image.len())?;
        }
        self.worker.stream.clear(to + image.len() as u64, *zeros)
    }

    /// An empty upload.
    pub(super) fn upload(&mut self) -> Upload {
        std::mem::take(&mut self.spare)
    }

    /// Has the GPU make the copies of an upload, with those of what waits for one. Returns the address of the first record that the batch uses.
    pub(super) fn bring(&mut self, mut upload: Upload) -> Result<u64, GpuError> {
        self.end_quantum()?;
        let Written { copies, from_host, within, kept } = self.write(&mut upload)?;
        for (first, count) in [(0, from_host), (from_host, within)] {
            if count > 0 {
                let copies = copies + (first * size_of::<Copy>()) as u64;
                let arguments = CopyArguments { copies };
                self.worker.stream.launch(COPY_ROWS, [count as u32, 1, 1], BLOCK, &arguments)?;
            }
        }
        self.note_brought(upload);
        Ok(kept)
    }

    /// Writes an upload to memory of the host, with what waits for one.
    pub(super) fn write(&mut self, upload: &mut Upload) -> Result<Written, GpuError> {
        for Arrival { to, image, zeros } in &self.arriving {
            upload.bring(*to, image);
            upload.clear(to + image.len() as u64, *zeros);
        }
        for &(to, from, bytes) in &self.starting {
            match from {
                Some(from) => upload.copy(to, from, bytes),
                None => upload.clear(to, bytes),
            }
        }
        let bytes = upload.bytes();
        if bytes == 0 {
            return Ok(Written::default());
        }
        let kept = grow(&mut self.buffer, upload.kept_bytes(), &self.worker)?;
        let staged = self.stage(bytes)?;
        self.worker.stream.copied().r#in.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(upload.write(&staged, kept))
    }

    /// Notes that an upload was submitted: what an error leaves undone before is done again.
    pub(super) fn note_brought(&mut self, upload: Upload) {
        self.arriving.clear();
        self.arriving_bytes = 0;
        self.starting.clear();
        self.spare = upload.emptied();
    }

    /// Memory of the GPU for what is submitted from now on.
    pub(super) fn allocate(&mut self, bytes: usize) -> Result<Allocation, GpuError> {
        if self.worker.pool.fills() {
            self.end_quantum()?;
        }
        self.worker.pool.allocate(bytes)
    }

    /// Has the GPU signal that the work that is being submitted is done.
    pub(super) fn signal(&self) -> Result<(), GpuError> {
        self.completions.signal(self.number)
    }
}

/// Memory of at least so many bytes: the one there is, or new memory of more.
fn grow(memory: &mut Option<Allocation>, bytes: usize, worker: &Worker) -> Result<u64, GpuError> {
    if bytes == 0 {
        return Ok(0);
    }
    if let Some(memory) = memory.as_ref().filter(|memory| memory.bytes() >= bytes) {
        return Ok(memory.at());
    }
    let new = worker.pool.allocate(bytes + bytes.min(SPARE_BYTES))?;
    Ok(memory.insert(new).at())
}
