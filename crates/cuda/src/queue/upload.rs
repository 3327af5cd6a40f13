//! What a task brings to the GPU: rows, ports and other records, in one copy.

use bytemuck::{Pod, Zeroable, cast_slice};

use crate::kernels::rows::Copy;

/// Records begin at multiples of this number of bytes.
pub(super) const ALIGNMENT: usize = 16;

/// Bytes that a block of the GPU copies at most.
const COPY_BYTES: usize = 1 << 14;

/// Records for the GPU, and copies that it makes before the batch runs.
#[derive(Default)]
pub(super) struct Upload {
    bytes: Vec<u8>,
    copies: Vec<Copy>,
}

impl Upload {
    /// Adds records, and returns the offset of the first.
    pub(super) fn add<T: Pod>(&mut self, records: &[T]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let offset = self.bytes.len();
        self.bytes.extend(cast_slice::<T, u8>(records));
        offset as u64
    }

    /// Has the GPU copy bytes, or write zeros where `from` is none.
    pub(super) fn copy(&mut self, to: u64, from: Option<u64>, bytes: usize) {
        self.copy_parts(to, from.unwrap_or(0), bytes, Copy { is_uploaded: 0, ..Copy::zeroed() });
    }

    /// Has the GPU copy records that were added at an offset.
    pub(super) fn copy_records(&mut self, to: u64, offset: u64, bytes: usize) {
        self.copy_parts(to, offset, bytes, Copy { is_uploaded: 1, ..Copy::zeroed() });
    }

    /// Copies of any number of bytes, a block for each part.
    fn copy_parts(&mut self, to: u64, from: u64, bytes: usize, of: Copy) {
        let is_zeros = from == 0 && of.is_uploaded == 0;
        for at in (0..bytes).step_by(COPY_BYTES) {
            let bytes = (bytes - at).min(COPY_BYTES) as u32;
            let from = if is_zeros { 0 } else { from + at as u64 };
            self.copies.push(Copy { to: to + at as u64, from, bytes, ..of });
        }
    }

    /// The records, the copies last.
    pub(super) fn finish(mut self) -> Finished {
        let copies = std::mem::take(&mut self.copies);
        let copies_at = if copies.is_empty() { 0 } else { self.add(&copies) };
        Finished { bytes: self.bytes, copies_at, copies: copies.len() }
    }
}

/// Records for the GPU, and where the copies are among them.
pub(super) struct Finished {
    pub(super) bytes: Vec<u8>,
    /// The offset of the copies.
    pub(super) copies_at: u64,
    /// The number of copies.
    pub(super) copies: usize,
}
