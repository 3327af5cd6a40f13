//! Memory of this process for rows that kernels write and the host reads.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::staging::Staged;
use crate::gpu::{Gpu, GpuError, Pieces, Pinned, Place, piece_bytes};

/// Bytes that it takes from the driver at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// Pinned memory in pieces: what is freed is given out again.
pub(crate) struct HostPool {
    /// Whether each piece is an allocation of its own, so that a tool that watches accesses knows its bounds.
    is_exact: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pieces: Pieces<HostPlace>,
    blocks: Vec<Arc<Pinned>>,
    /// How often [`HostPool::abandon`] was called.
    generation: u64,
}

/// An offset in the block of that number.
#[derive(Clone, Copy)]
struct HostPlace {
    block: usize,
    offset: usize,
}

impl Place for HostPlace {
    fn behind(self, bytes: usize) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// A piece of a pool, which is freed when this is dropped: no work in flight uses it then.
pub(crate) struct HostAllocation {
    pub(crate) range: Staged,
    /// The pool that it goes back to, with its place and bytes there and the pool's generation.
    returns: Option<(Arc<HostPool>, HostPlace, usize, u64)>,
}

impl HostPool {
    pub(crate) fn new(is_exact: bool) -> Arc<Self> {
        Arc::new(Self { is_exact, state: Mutex::default() })
    }

    /// Memory of `bytes` bytes, all zeros: a quarter of a block at most. The driver gives new blocks in the name of `gpu`.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        gpu: &Arc<Gpu>,
        bytes: usize,
    ) -> Result<HostAllocation, GpuError> {
        if self.is_exact {
            let memory = Arc::new(Pinned::new(gpu, bytes)?);
            return Ok(HostAllocation { range: Staged { memory, offset: 0 }, returns: None });
        }
        let piece = piece_bytes(bytes);
        let mut state = self.state();
        let place = match state.pieces.take(piece, false) {
            Some(place) => place,
            None => {
                // Others wait, and find the rest of it.
                let block = Arc::new(Pinned::new(gpu, BLOCK_BYTES)?);
                let place = HostPlace { block: state.blocks.len(), offset: 0 };
                state.blocks.push(block);
                state.pieces.add(place.behind(piece), BLOCK_BYTES - piece);
                place
            }
        };
        let range = Staged { memory: state.blocks[place.block].clone(), offset: place.offset };
        let returns = Some((self.clone(), place, piece, state.generation));
        drop(state);
        range.memory.clear(range.offset, bytes);
        Ok(HostAllocation { range, returns })
    }

    /// Nobody gets pieces again that are in use: a GPU that is lost might still write to them.
    pub(crate) fn abandon(&self) {
        self.state().generation += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HostAllocation {
    fn drop(&mut self) {
        let Some((pool, place, bytes, generation)) = self.returns.take() else { return };
        pool.state().free(place, bytes, generation);
    }
}

impl State {
    /// Frees a piece that was given out in some generation.
    fn free(&mut self, place: HostPlace, bytes: usize, generation: u64) {
        if generation == self.generation {
            self.pieces.free(place, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_a_lost_gpu_may_write_to_are_not_given_out() {
        let pool = HostPool::new(false);
        let place = |offset| HostPlace { block: 0, offset };
        pool.state().free(place(256), 256, 0);
        pool.abandon();
        pool.state().free(place(512), 256, 0);
        pool.state().free(place(768), 256, 1);
        let take = || pool.state().pieces.take(256, false).map(|place| place.offset);
        assert_eq!([take(), take(), take()], [Some(768), Some(256), None], "512 was in use");
    }
}
