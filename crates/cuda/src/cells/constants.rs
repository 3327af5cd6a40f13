//! The weights of a cell, and where they are on each GPU.

use std::sync::Arc;

use bytemuck::Pod;

use crate::gpu::{Allocation, GpuError, Pinned};
use crate::worker::Worker;

/// Bytes that are copied to a GPU at a time.
const COPIED_BYTES: usize = 16 << 20;

/// Places of constants are multiples of this number of bytes.
const ALIGNMENT: usize = 256;

/// The constants of a cell, one after the other. A place is the offset of the first byte of one.
#[derive(Default)]
pub(super) struct Packing(Vec<u8>);

impl Packing {
    /// Adds numbers, and returns their place.
    pub(super) fn add<T: Pod>(&mut self, numbers: &[T]) -> u64 {
        let place = self.0.len().next_multiple_of(ALIGNMENT);
        self.0.resize(place, 0);
        self.0.extend(bytemuck::cast_slice::<T, u8>(numbers));
        place as u64
    }
}

/// The constants of a cell on all GPUs.
pub(crate) struct Constants {
    /// By worker; none for a cell without constants.
    on_gpus: Vec<Option<Allocation>>,
}

impl Constants {
    /// Copies constants to the GPU of each worker, behind its work in flight, and waits until they are there.
    pub(super) fn copy(packing: &Packing, workers: &[Arc<Worker>]) -> Result<Self, GpuError> {
        let Packing(bytes) = packing;
        let copy = |worker: &Arc<Worker>| {
            if bytes.is_empty() {
                return Ok(None);
            }
            let allocation = worker.pool.allocate(bytes.len())?;
            let from = Pinned::new(worker.stream.gpu(), bytes.len().min(COPIED_BYTES))?;
            for (at, part) in (0..).step_by(COPIED_BYTES).zip(bytes.chunks(COPIED_BYTES)) {
                from.write(0, part);
                worker.stream.upload(allocation.at() + at, (&from, 0), part.len())?;
                worker.stream.synchronize()?;
            }
            Ok(Some(allocation))
        };
        Ok(Self { on_gpus: workers.iter().map(copy).collect::<Result<_, GpuError>>()? })
    }

    /// The address of place 0 on a worker's GPU.
    pub(crate) fn on(&self, worker: usize) -> u64 {
        self.on_gpus[worker].as_ref().map_or(0, Allocation::at)
    }
}
