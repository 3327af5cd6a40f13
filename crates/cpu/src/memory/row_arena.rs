//! Rows of floats in memory that grows and never moves.

use std::sync::{Mutex, PoisonError};

use super::raw_lines::{LINE, RawLines};

/// The most rows of a chunk.
const CHUNK_ROWS: usize = 64;

/// The most bytes of a chunk of several rows.
const CHUNK_BYTES: usize = 1 << 20;

/// Rows of one length, all of which begin with a cache line. At first they are zeros.
pub(crate) struct RowArena {
    /// Floats from one row to the next.
    stride: usize,
    chunk_rows: usize,
    chunks: Mutex<Vec<RawLines>>,
}

impl RowArena {
    /// An arena for rows of `row_len` floats.
    pub(crate) fn new(row_len: usize) -> Self {
        let stride = row_len.next_multiple_of(LINE);
        let chunk_rows = CHUNK_BYTES / (stride * size_of::<f32>()).max(1);
        Self { stride, chunk_rows: chunk_rows.clamp(1, CHUNK_ROWS), chunks: Mutex::default() }
    }

    /// The address of row `index`, which is allocated if it was not. The address is valid as long as the
    /// arena.
    pub(crate) fn row(&self, index: usize) -> *mut f32 {
        let (chunk, within) = (index / self.chunk_rows, index % self.chunk_rows);
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        while chunks.len() <= chunk {
            chunks.push(RawLines::zeros(self.chunk_rows * self.stride));
        }
        chunks[chunk].first().wrapping_add(within * self.stride)
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
