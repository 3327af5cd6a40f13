//! What all work for a GPU is submitted with: its stream, memory for copies and registers, and the signal that work is done.

use std::sync::Arc;

use batchmaker_device::DeviceError;
use batchmaker_executor::ExecutorThreads;

use super::completions::Completions;
use super::programs::ProgramFailure;
use super::upload::{ALIGNMENT, Upload};
use crate::gpu::{Allocation, GpuError};
use crate::kernels::rows::{BLOCK, COPY_ROWS, CopyArguments};
use crate::memory::{Staged, Staging};
use crate::state::DeviceState;
use crate::worker::Worker;

/// The most bytes that are copied together with others, by a kernel. What is larger has a copy of its own, of the driver.
pub(super) const TOGETHER_BYTES: usize = 1 << 16;

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
    /// The number of the last work.
    pub(super) number: u64,
    /// The number of the last work whose results the host has taken.
    pub(super) collected: u64,
    staging: Staging,
    /// Values of requests that come to the GPU with the next upload, and before its own copies.
    pub(super) arriving: Upload,
    /// What a task uploads. The stream brings the next upload once what uses this one is done.
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
            arriving: Upload::default(),
            completions,
            state,
            worker,
            threads,
            failure: ProgramFailure::default(),
            ends_expected: 0,
            number: 0,
            collected: 0,
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

    /// Brings records to the GPU and has it make their copies, after those of values that wait for an upload. Returns the address of the first
    /// record.
    pub(super) fn bring(&mut self, upload: Upload) -> Result<u64, GpuError> {
        let parts = [std::mem::take(&mut self.arriving), upload].map(Upload::finish);
        let first = parts[0].bytes.len().next_multiple_of(ALIGNMENT);
        let bytes = first + parts[1].bytes.len();
        if bytes == 0 {
            return Ok(0);
        }
        let at = grow(&mut self.buffer, bytes, &self.worker)?;
        let staged = self.stage(bytes)?;
        let (to, offset) = staged.range();
        for (part, place) in parts.iter().zip([0, first]) {
            to.write(offset + place, &part.bytes);
        }
        self.worker.stream.upload(at, staged.range(), bytes)?;
        for (part, place) in parts.iter().zip([at, at + first as u64]) {
            if part.copies > 0 {
                let arguments = CopyArguments { copies: place + part.copies_at, uploaded: place };
                let grid = [part.copies as u32, 1, 1];
                self.worker.stream.launch(COPY_ROWS, grid, BLOCK, &arguments)?;
            }
        }
        Ok(at + first as u64)
    }

    /// Brings the values of requests that wait for an upload, if there are any.
    pub(super) fn bring_arriving(&mut self) -> Result<(), GpuError> {
        self.bring(Upload::default()).map(drop)
    }

    /// Has the GPU signal that the work that is being submitted is done.
    pub(super) fn signal(&self) -> Result<(), GpuError> {
        self.completions.signal(self.number)
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
