//! Memory of a GPU.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result;

use super::error::GpuError;
use super::pieces::{Pieces, Place, piece_bytes};
use super::stream::Stream;

/// Memory of a GPU in pieces of a few sizes: what is freed is given out again, and no call of the driver is needed.
///
/// A piece is freed when no work in flight uses it, or only work of the pool's stream, which is the one that uses what is given out next. Tasks that are in a ring are no work of the
/// stream until a launch takes them: who frees memory that they use ends that launch before.
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
    pieces: Pieces<u64>,
    /// All that the driver gave.
    blocks: Vec<u64>,
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

    /// Whether the stream fills memory before it is used.
    pub(crate) fn fills(&self) -> bool {
        self.fills
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
        let cut = self.state().pieces.take(bytes, self.is_large(bytes));
        let at = match cut {
            Some(at) => at,
            None => self.grow(bytes).or_else(|error| {
                if !error.is_out_of_memory() || !self.give_back()? {
                    return Err(error);
                }
                self.grow(bytes)
            })?,
        };
        Ok(Allocation { pool: self.clone(), at, bytes })
    }

    /// Whether a piece is an allocation of its own.
    fn is_large(&self, bytes: usize) -> bool {
        bytes > self.block_bytes / 4
    }

    /// A piece of new memory. Nobody waits for the lock while the driver is at work.
    fn grow(&self, bytes: usize) -> Result<u64, GpuError> {
        let is_large = self.is_large(bytes);
        let block_bytes = if is_large { bytes } else { self.block_bytes };
        let at = self.take_from_driver(block_bytes)?;
        let mut state = self.state();
        state.blocks.push(at);
        // Another thread may have brought a block meanwhile.
        state.pieces.add(at.behind(bytes), block_bytes - bytes);
        Ok(at)
    }

    /// Gives free pieces that are allocations of their own back to the driver. Whether there were any.
    fn give_back(&self) -> Result<bool, GpuError> {
        let mut state = self.state();
        let given = state.pieces.drain(|bytes| self.is_large(bytes));
        state.blocks.retain(|block| !given.contains(block));
        drop(state);
        if given.is_empty() {
            return Ok(false);
        }
        self.stream.synchronize()?;
        for &at in &given {
            // SAFETY: the piece is free, and the work that used it is done.
            unsafe { result::free_sync(at) }?;
        }
        Ok(true)
    }

    fn take_from_driver(&self, bytes: usize) -> Result<u64, GpuError> {
        self.stream.gpu().bind()?;
        // SAFETY: the memory is given back once, by this pool.
        Ok(unsafe { result::malloc_sync(bytes) }?)
    }

    fn free(&self, at: u64, bytes: usize) {
        if self.block_bytes > 0 {
            return self.state().pieces.free(at, bytes);
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
