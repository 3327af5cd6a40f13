//! Rows of floats in memory that grows and never moves.

use std::sync::{Mutex, PoisonError};

/// Rows are allocated in chunks of so many, or as many as this is bytes, but one at least.
const CHUNK_ROWS: usize = 64;
const CHUNK_BYTES: usize = 1 << 20;

/// Floats of a cache line, the unit of alignment.
pub(crate) const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "memory, accessed through pointers")] [f32; LINE]);

/// Rows of one length, all of which begin with a cache line. At first they are zeros.
pub(crate) struct RowArena {
    /// Lines of a row.
    row_lines: usize,
    chunk_rows: usize,
    chunks: Mutex<Vec<Chunk>>,
}

/// One allocation of some rows, owned through its pointer so that no reference to the
/// whole of it is formed while threads write parts.
struct Chunk {
    first: *mut Line,
    lines: usize,
}

// SAFETY: a chunk owns its memory, and hands out places in it only.
unsafe impl Send for Chunk {}

impl Drop for Chunk {
    fn drop(&mut self) {
        let memory = std::ptr::slice_from_raw_parts_mut(self.first, self.lines);
        // SAFETY: made from a box of that length in `row`.
        drop(unsafe { Box::from_raw(memory) });
    }
}

impl RowArena {
    /// For rows of `row_len` floats.
    pub(crate) fn new(row_len: usize) -> Self {
        let row_lines = row_len.div_ceil(LINE);
        let chunk_rows = CHUNK_BYTES / (row_lines * size_of::<Line>()).max(1);
        Self { row_lines, chunk_rows: chunk_rows.clamp(1, CHUNK_ROWS), chunks: Mutex::default() }
    }

    /// The place of row `index`; allocated if there was none. It is valid as long as the arena.
    pub(crate) fn row(&self, index: usize) -> *mut f32 {
        let (chunk, within) = (index / self.chunk_rows, index % self.chunk_rows);
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        while chunks.len() <= chunk {
            let lines = self.chunk_rows * self.row_lines;
            let memory = vec![Line([0.0; LINE]); lines].into_boxed_slice();
            chunks.push(Chunk { first: Box::into_raw(memory).cast(), lines });
        }
        // SAFETY: `within` is a row of the chunk.
        unsafe { chunks[chunk].first.add(within * self.row_lines).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_where_they_are_and_apart() {
        let arena = RowArena::new(17);
        let early = arena.row(3);
        let late = arena.row(1000);
        assert_eq!(arena.row(3), early);
        assert_eq!(arena.row(4) as usize - early as usize, 128);
        assert_ne!(late, early);
        assert_eq!(early as usize % 64, 0);
    }
}
