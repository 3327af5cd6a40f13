//! Memory of a GPU.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result;

use super::error::GpuError;
use super::stream::Stream;

/// Addresses are multiples of this.
const ALIGNMENT: usize = 256;

/// Memory of a GPU in pieces of a few sizes: what is freed is given out again, and no call of the driver is needed.
///
/// A piece is freed when no work in flight uses it, or only work of the pool's stream, which is the one that uses what is given out next.
pub(crate) struct Pool {
    stream: Arc<Stream>,
    /// Bytes that it takes from the driver at a time; 0: each piece is an allocation of its own, so that a tool that watches accesses
    /// knows its bounds.
    block_bytes: usize,
    /// Whether pieces are filled before they are given out.
    fills: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Free pieces by their bytes.
    free: HashMap<usize, Vec<u64>>,
    /// All that the driver gave.
    blocks: Vec<u64>,
    /// The rest of the last block: address and bytes.
    rest: (u64, usize),
}

/// A piece of a pool, which is freed when this is dropped.
pub(crate) struct Allocation {
    pool: Arc<Pool>,
    at: u64,
    bytes: usize,
}

impl Pool {
    pub(crate) fn new(stream: Arc<Stream>, block_bytes: usize, fills: bool) -> Arc<Self> {
        Arc::new(Self { stream, block_bytes, fills, state: Mutex::default() })
    }

    /// Bytes with any contents.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Allocation, GpuError> {
        let allocation = self.find(bytes)?;
        if self.fills {
            self.stream.fill(allocation.at(), allocation.bytes(), 0xff)?;
        }
        Ok(allocation)
    }

    fn find(self: &Arc<Self>, bytes: usize) -> Result<Allocation, GpuError> {
        let bytes = bytes.max(1);
        if self.block_bytes == 0 {
            let at = self.take_from_driver(bytes)?;
            return Ok(Allocation { pool: self.clone(), at, bytes });
        }
        let bytes = piece_bytes(bytes);
        let mut state = self.state();
        let free = state.free.get_mut(&bytes).and_then(Vec::pop);
        let at = match free {
            Some(at) => at,
            None => self.cut(&mut state, bytes)?,
        };
        drop(state);
        Ok(Allocation { pool: self.clone(), at, bytes })
    }

    /// A new piece.
    fn cut(&self, state: &mut State, bytes: usize) -> Result<u64, GpuError> {
        if bytes > self.block_bytes / 4 {
            let at = self.take_from_driver(bytes)?;
            state.blocks.push(at);
            return Ok(at);
        }
        if state.rest.1 < bytes {
            let at = self.take_from_driver(self.block_bytes)?;
            state.blocks.push(at);
            state.rest = (at, self.block_bytes);
        }
        let (at, left) = state.rest;
        state.rest = (at + bytes as u64, left - bytes);
        Ok(at)
    }

    fn take_from_driver(&self, bytes: usize) -> Result<u64, GpuError> {
        self.stream.gpu().bind()?;
        // SAFETY: the memory is given back once, by this pool.
        Ok(unsafe { result::malloc_sync(bytes) }?)
    }

    fn free(&self, at: u64, bytes: usize) {
        if self.block_bytes > 0 {
            return self.state().free.entry(bytes).or_default().push(at);
        }
        if self.stream.gpu().bind().is_ok() {
            // SAFETY: the memory is freed once, behind the work that uses it.
            let _ = unsafe { result::free_async(at, self.stream.raw()) };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.stream.gpu().bind().is_err() {
            return;
        }
        for at in self.state().blocks.drain(..) {
            // SAFETY: all pieces of the block are free, since each holds the pool.
            let _ = unsafe { result::free_sync(at) };
        }
    }
}

impl Allocation {
    /// The address of its first byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Its bytes, at least as many as were asked for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.pool.free(self.at, self.bytes);
    }
}

/// The bytes of the piece for so many: a power of two, or one of three sizes between it and the next.
fn piece_bytes(bytes: usize) -> usize {
    let quarter = (bytes.next_power_of_two() / 8).max(ALIGNMENT);
    bytes.next_multiple_of(quarter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_not_much_larger_than_asked_for() {
        assert_eq!([1, 256, 257, 4096, 4097].map(piece_bytes), [256, 256, 512, 4096, 5120]);
        for bytes in 2048..100_000 {
            let piece = piece_bytes(bytes);
            assert!(piece >= bytes && piece * 4 <= bytes * 5 + 4 * ALIGNMENT, "{bytes}: {piece}");
            assert_eq!(piece % ALIGNMENT, 0);
        }
    }
}
