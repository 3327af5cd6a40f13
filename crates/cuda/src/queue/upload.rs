//! What a task brings to the GPU: records, and copies that a kernel makes before the batch runs. The kernel reads records where the host has written
//! them, so that no copy of the driver's is needed.

use bytemuck::{Pod, cast_slice};

use crate::kernels::rows::Copy;
use crate::memory::Staged;

/// Records begin at multiples of this number of bytes.
const ALIGNMENT: usize = 16;

/// Bytes that a block of the GPU copies at most. Reads of the host's memory take microseconds: more blocks have more of them under way.
const COPY_BYTES: usize = 1 << 12;

/// Records for the GPU, and copies that it makes before the batch runs.
#[derive(Default)]
pub(super) struct Upload {
    /// Records that the batch uses.
    kept: Vec<u8>,
    /// Records that copies bring to their places.
    records: Vec<u8>,
    /// Copies of records, and zeros.
    from_host: Vec<(u64, Source, usize)>,
    /// Copies within the GPU: what they read may be what other copies have brought.
    within: Vec<(u64, Source, usize)>,
    /// All copies, as the kernel takes them, once they are written.
    copies: Vec<Copy>,
}

#[derive(Clone, Copy)]
enum Source {
    Zeros,
    /// The offset of a record.
    Record(usize),
    /// An address of the GPU.
    Gpu(u64),
}

/// An upload in memory of the host; by default one that is empty.
#[derive(Default)]
pub(super) struct Written {
    /// The address of the copies of records and zeros, behind which are those within the GPU.
    pub(super) copies: u64,
    pub(super) from_host: usize,
    pub(super) within: usize,
    /// The address of the first record that the batch uses.
    pub(super) kept: u64,
}

impl Upload {
    /// Adds records that the batch uses, and returns the offset of the first from the address that these have on the GPU.
    pub(super) fn keep<T: Pod>(&mut self, records: &[T]) -> u64 {
        append(&mut self.kept, cast_slice(records)) as u64
    }

    /// Has the GPU copy records to an address.
    pub(super) fn bring<T: Pod>(&mut self, to: u64, records: &[T]) {
        let bytes = cast_slice(records);
        let record = append(&mut self.records, bytes);
        self.from_host.push((to, Source::Record(record), bytes.len()));
    }

    /// Has the GPU write zeros.
    pub(super) fn clear(&mut self, to: u64, bytes: usize) {
        self.from_host.push((to, Source::Zeros, bytes));
    }

    /// Has the GPU copy bytes that it has, or that are to be brought.
    pub(super) fn copy(&mut self, to: u64, from: u64, bytes: usize) {
        self.within.push((to, Source::Gpu(from), bytes));
    }

    /// The bytes of the records that the batch uses.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// The bytes of it in memory of the host.
    pub(super) fn bytes(&self) -> usize {
        let of_kept = self.kept.len().div_ceil(COPY_BYTES);
        let all = self.from_host.iter().chain(&self.within);
        let parts: usize = all.map(|(.., bytes)| bytes.div_ceil(COPY_BYTES)).sum();
        self.records_at()
            + self.records.len().next_multiple_of(ALIGNMENT)
            + (of_kept + parts) * size_of::<Copy>()
    }

    /// Writes it to memory of the host, of [`Self::bytes`] bytes. The records that the batch uses get an address on the GPU.
    pub(super) fn write(&mut self, to: &Staged, kept_at: u64) -> Written {
        let (memory, offset) = to.range();
        let at = to.device_address();
        let records_at = self.records_at();
        memory.write(offset, &self.kept);
        memory.write(offset + records_at, &self.records);
        let copies = &mut self.copies;
        push_parts(copies, kept_at, at, self.kept.len());
        let mut push_all = |all: &[(u64, Source, usize)]| {
            for &(to, source, bytes) in all {
                let from = match source {
                    Source::Zeros => 0,
                    Source::Record(offset) => at + (records_at + offset) as u64,
                    Source::Gpu(from) => from,
                };
                push_parts(copies, to, from, bytes);
            }
            copies.len()
        };
        let from_host = push_all(&self.from_host);
        let within = push_all(&self.within) - from_host;
        let copies_at = records_at + self.records.len().next_multiple_of(ALIGNMENT);
        memory.write(offset + copies_at, cast_slice(copies));
        Written { copies: at + copies_at as u64, from_host, within, kept: kept_at }
    }

    /// One without records and copies, in the memory of this one.
    pub(super) fn emptied(mut self) -> Self {
        self.kept.clear();
        self.records.clear();
        self.from_host.clear();
        self.within.clear();
        self.copies.clear();
        self
    }

    fn records_at(&self) -> usize {
        self.kept.len().next_multiple_of(ALIGNMENT)
    }
}

/// Appends a record at the next multiple of [`ALIGNMENT`], and returns its offset.
fn append(to: &mut Vec<u8>, record: &[u8]) -> usize {
    let offset = to.len().next_multiple_of(ALIGNMENT);
    to.resize(offset, 0);
    to.extend(record);
    offset
}

/// A copy of any number of bytes, or of zeros where `from` is 0, a block for each part.
fn push_parts(copies: &mut Vec<Copy>, to: u64, from: u64, bytes: usize) {
    for at in (0..bytes).step_by(COPY_BYTES) {
        let bytes = (bytes - at).min(COPY_BYTES) as u64;
        let from = if from == 0 { 0 } else { from + at as u64 };
        copies.push(Copy { to: to + at as u64, from, bytes });
    }
}
