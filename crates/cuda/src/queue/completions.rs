//! How the host learns of work that is done: a counter in memory that both access (section 5 of the BatchMaker paper), with a status for each
//! work and a ring of ends of sequences.

use std::sync::Arc;

use batchmaker_graph::{EndOfSequence, RequestId, RunIndex};

use crate::gpu::{Allocation, GpuError, Pinned};
use crate::kernels::batch::Batch;
use crate::kernels::persistent::STUCK;
use crate::kernels::rows::{End, FinishArguments, SIGNAL, SignalArguments, Status};
use crate::worker::Worker;

/// The most work in flight: each has a place for its status.
pub(super) const STATUSES: usize = 1024;

/// The places of the ring of ends.
pub(super) const ENDS: usize = 8192;

const STATUSES_AT: usize = 64;
const ENDS_AT: usize = STATUSES_AT + STATUSES * size_of::<Status>();

/// What kernels report that could not go on.
pub(super) enum KernelFailure {
    /// A lookup met an id that its table does not have.
    Lookup,
    /// Blocks of a kernel have waited in vain for one another.
    Stuck,
}

/// What is done, as the GPU tells it.
pub(super) struct Completions {
    worker: Arc<Worker>,
    /// The counter, the statuses and the ends.
    memory: Arc<Pinned>,
    /// On the GPU: what has failed, the number of ends so far, and the blocks that came to a barrier.
    words: Allocation,
    /// Ends that were read.
    ends_read: u32,
}

impl Completions {
    pub(super) fn new(worker: &Arc<Worker>) -> Result<Self, GpuError> {
        let memory = Arc::new(Pinned::new(worker.gpu(), ENDS_AT + ENDS * size_of::<End>())?);
        let words = worker.pool.allocate(12)?;
        worker.stream.clear(words.at(), 12)?;
        Ok(Self { worker: worker.clone(), memory, words, ends_read: 0 })
    }

    /// The address of the word that becomes 1 where a lookup fails, and [`STUCK`] where blocks wait in vain.
    pub(super) fn failed(&self) -> u64 {
        self.words.at()
    }

    /// The address of the word that counts blocks that come to a barrier.
    pub(super) fn arrived(&self) -> u64 {
        self.words.at() + 8
    }

    /// The argument of the kernel that ends a step of `batch`, whose operands of outputs are at an address.
    pub(super) fn finish(&self, batch: Batch, outputs: u64, inputs: usize) -> FinishArguments {
        FinishArguments {
            batch,
            outputs,
            ended: batch.ended,
            ends: self.memory.device_address(ENDS_AT),
            end_count: self.words.at() + 4,
            ends_max: ENDS as u32,
            inputs: inputs as u32,
        }
    }

    /// Has the GPU signal that all work up to this number is done.
    pub(super) fn signal(&self, number: u64) -> Result<(), GpuError> {
        let arguments = SignalArguments {
            counter: self.memory.device_address(0),
            status: self.memory.device_address(Self::status_at(number)),
            failed: self.words.at(),
            end_count: self.words.at() + 4,
            number,
        };
        self.worker.stream.launch(SIGNAL, [1, 1, 1], [1, 1, 1], &arguments)
    }

    /// The address of the counter, that of the statuses of [`STATUSES`] numbers, and that of the number of ends so far.
    pub(super) fn addresses(&self) -> [u64; 3] {
        let of_host = [0, STATUSES_AT].map(|offset| self.memory.device_address(offset));
        [of_host[0], of_host[1], self.words.at() + 4]
    }

    /// The memory that begins with the counter.
    pub(super) fn counter(&self) -> Arc<Pinned> {
        self.memory.clone()
    }

    /// The number of the last work that is done.
    pub(super) fn done(&self) -> u64 {
        self.memory.load()
    }

    /// What has failed in work that is done, and the chains that it ended.
    pub(super) fn take(&mut self, number: u64) -> (Option<KernelFailure>, Vec<EndOfSequence>) {
        let bytes = self.memory.read(Self::status_at(number), size_of::<Status>());
        let Status { failed, end_count } = bytemuck::pod_read_unaligned(bytes);
        let mut ends = Vec::new();
        while self.ends_read != end_count {
            let at = ENDS_AT + self.ends_read as usize % ENDS * size_of::<End>();
            let bytes = self.memory.read(at, size_of::<End>());
            let End { request: [index, generation], run, nodes } =
                bytemuck::pod_read_unaligned(bytes);
            let request = RequestId { index, generation };
            ends.push(EndOfSequence { request, run: RunIndex(run), nodes });
            self.ends_read = self.ends_read.wrapping_add(1);
        }
        let failure = match failed {
            0 => None,
            STUCK => Some(KernelFailure::Stuck),
            _ => Some(KernelFailure::Lookup),
        };
        (failure, ends)
    }

    fn status_at(number: u64) -> usize {
        STATUSES_AT + number as usize % STATUSES * size_of::<Status>()
    }
}
