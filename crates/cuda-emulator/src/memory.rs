//! The memory of an emulated GPU: its allocations, which bytes were written, and room for what the detector remembers of each access.
//!
//! Addresses are those of this process, so that kernels access the bytes themselves. Beside each byte lies its state, and beside four bytes
//! a [`Granule`](crate::detector::Granule). Allocations lie 256 bytes apart, and memory that was freed is used again as late as possible.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::detector::{Granule, History};

/// The address of an allocation.
pub type DevicePointer = *mut u8;

/// Bytes that the addresses of a memory span.
const SPAN: usize = 1 << 30;

/// Bytes between allocations that belong to none.
const GAP: usize = 256;

/// Freed allocations of a size that are not used again yet.
const KEPT_FREE: usize = 8;

/// Bytes that a granule covers.
pub(crate) const GRANULE_BYTES: usize = 4;

/// The bytes of new and of freed memory.
const NEW: u8 = 0xfd;
const FREED: u8 = 0xdd;

/// The states of a byte.
const NO_ALLOCATION: u8 = 0;
const ALLOCATED: u8 = 1;
const WRITTEN: u8 = 2;

/// Where memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the GPU.
    Device,
    /// In the host's memory, where the GPU accesses it too.
    Host,
    /// In a block.
    Shared,
}

struct Allocation {
    bytes: usize,
    name: String,
    place: Place,
}

#[derive(Default)]
struct Allocations {
    /// By their offset.
    live: BTreeMap<usize, Allocation>,
    /// The offsets that were freed, by the bytes that they span; the oldest is used first.
    free: HashMap<usize, VecDeque<usize>>,
    end: usize,
    used: usize,
}

/// The memory of a GPU.
pub struct Memory {
    bytes: Mapping<u8>,
    states: Mapping<u8>,
    granules: Mapping<Granule>,
    allocations: Mutex<Allocations>,
    bytes_max: usize,
}

impl Memory {
    /// A memory of at most `bytes_max` bytes in all allocations, 1 GiB at most.
    ///
    /// # Panics
    /// If this machine does not give addresses for 34 GiB.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes: Mapping::new(SPAN),
            states: Mapping::new(SPAN),
            granules: Mapping::new(SPAN / GRANULE_BYTES),
            allocations: Mutex::default(),
            bytes_max,
        }
    }

    fn allocations(&self) -> MutexGuard<'_, Allocations> {
        self.allocations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates bytes, which count as not written; none if the memory is full. `name` is what reports call them.
    pub fn allocate(&self, bytes: usize, name: &str, place: Place) -> Option<DevicePointer> {
        if bytes >= SPAN {
            return None;
        }
        let mut all = self.allocations();
        let span = bytes.next_multiple_of(GAP) + GAP;
        let is_counted = place == Place::Device;
        if is_counted && all.used + bytes > self.bytes_max {
            return None;
        }
        let is_full = all.end + span > SPAN;
        let end = all.end;
        let again = all.free.get_mut(&span).filter(|free| is_full || free.len() > KEPT_FREE);
        let offset = match again.and_then(VecDeque::pop_front) {
            Some(offset) => offset,
            None if is_full => return None,
            None => {
                let offset = all.end.max(GAP);
                all.end = offset + span;
                offset
            }
        };
        all.used += if is_counted { bytes } else { 0 };
        all.live.insert(offset, Allocation { bytes, name: name.to_owned(), place });
        self.fill(offset, bytes, NEW, ALLOCATED);
        if offset < end {
            self.granules.clear(offset / GRANULE_BYTES, bytes.div_ceil(GRANULE_BYTES));
        }
        // SAFETY: the offset is within the mapping.
        Some(unsafe { self.bytes.first.add(offset) })
    }

    /// Frees an allocation; false if there is none at this address.
    pub fn free(&self, at: DevicePointer) -> bool {
        let mut all = self.allocations();
        let Some(offset) = self.offset(at) else { return false };
        let Some(freed) = all.live.remove(&offset) else { return false };
        all.used -= if freed.place == Place::Device { freed.bytes } else { 0 };
        self.fill(offset, freed.bytes, FREED, NO_ALLOCATION);
        all.free.entry(freed.bytes.next_multiple_of(GAP) + GAP).or_default().push_back(offset);
        true
    }

    /// Sets bytes and their state.
    fn fill(&self, offset: usize, bytes: usize, byte: u8, state: u8) {
        // SAFETY: the caller has the offset and length of an allocation, which lies within both mappings.
        unsafe {
            self.bytes.first.add(offset).write_bytes(byte, bytes);
            self.states.first.add(offset).write_bytes(state, bytes);
        }
    }

    /// Bytes of all allocations on the GPU.
    pub fn used(&self) -> usize {
        self.allocations().used
    }

    /// Whether all of `bytes` bytes from `at` on belong to one allocation.
    pub fn is_allocated(&self, at: *const u8, bytes: usize) -> bool {
        let all = self.allocations();
        let of = |offset: usize| all.live.range(..=offset).next_back();
        let found = self.offset(at).and_then(|offset| Some((offset, of(offset)?)));
        found.is_some_and(|(offset, (first, of))| offset + bytes <= first + of.bytes)
    }

    /// Marks bytes as written.
    ///
    /// # Panics
    /// If they belong to no allocation.
    pub fn mark_written(&self, at: *const u8, bytes: usize) {
        assert!(self.is_allocated(at, bytes), "{bytes} bytes at {at:?} are not allocated");
        let offset = self.offset(at).expect("what is allocated lies within the memory");
        // SAFETY: the bytes belong to an allocation.
        unsafe { self.states.first.add(offset).write_bytes(WRITTEN, bytes) };
    }

    /// Allocates a copy of `data`, written.
    pub fn upload<T: Copy>(&self, data: &[T], name: &str) -> Option<DevicePointer> {
        let bytes = size_of_val(data);
        let at = self.allocate(bytes, name, Place::Device)?;
        // SAFETY: the allocation has so many bytes.
        unsafe { at.copy_from_nonoverlapping(data.as_ptr().cast(), bytes) };
        self.mark_written(at, bytes);
        Some(at)
    }

    /// A copy of `count` elements at `at`.
    ///
    /// # Safety
    /// No kernel writes them, and any bytes are a value of the type.
    ///
    /// # Panics
    /// If they belong to no allocation.
    pub unsafe fn download<T: Copy>(&self, at: DevicePointer, count: usize) -> Vec<T> {
        assert!(self.is_allocated(at, count * size_of::<T>()), "{count} elements at {at:?}");
        let mut data: Vec<T> = Vec::with_capacity(count);
        // SAFETY: the bytes belong to an allocation, and the caller vouches for them.
        unsafe {
            data.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(at, count * size_of::<T>());
            data.set_len(count);
        }
        data
    }

    /// Notes that an operation which is no launch, a copy say, reads or writes bytes. Returns an operation that it races with, if there is one; a
    /// write makes the bytes written.
    ///
    /// # Safety
    /// No launch runs on the memory meanwhile, and nobody else accesses the bytes.
    ///
    /// # Panics
    /// If the bytes belong to no allocation.
    pub unsafe fn operate(
        &self,
        (operation, history): (u32, &dyn History),
        at: *const u8,
        bytes: usize,
        is_write: bool,
    ) -> Option<u32> {
        assert!(self.is_allocated(at, bytes), "{bytes} bytes at {at:?} are not allocated");
        let first = self.offset(at).expect("what is allocated lies within the memory");
        if is_write {
            self.mark_written(at, bytes);
        }
        let mut race = None;
        for (offset, mask) in granules(first, bytes) {
            // SAFETY: the offset belongs to an allocation, and the caller promises that nobody else accesses its granule.
            let granule = unsafe { &mut *self.granule(offset) };
            let precedes = |operation| history.precedes(operation);
            let found = granule.operation(operation, (mask, is_write, None), precedes);
            race = race.or(found);
        }
        race
    }

    /// The offset of an address of this memory.
    pub(crate) fn offset(&self, at: *const u8) -> Option<usize> {
        let offset = (at as usize).wrapping_sub(self.bytes.first as usize);
        (offset < SPAN).then_some(offset)
    }

    /// Where the allocation at an address lies.
    pub(crate) fn place(&self, at: *const u8) -> Option<Place> {
        let offset = self.offset(at)?;
        self.allocations().live.range(..=offset).next_back().map(|(_, of)| of.place)
    }

    /// An address in words: its allocation and the bytes from its start.
    pub(crate) fn describe(&self, at: *const u8) -> String {
        let all = self.allocations();
        let offset = self.offset(at).unwrap_or_default();
        match all.live.range(..=offset).next_back() {
            Some((first, of)) => {
                format!("`{}` ({} bytes) + {}", of.name, of.bytes, offset - first)
            }
            None => "no allocation".to_owned(),
        }
    }

    /// Notes an access of bytes from an offset on. Returns whether all of them are allocated, and were written; a write makes them so.
    ///
    /// # Safety
    /// The bytes lie within the memory, and no other thread of the host accesses their states.
    pub(crate) unsafe fn touch(&self, offset: usize, bytes: usize, is_write: bool) -> Touched {
        let (mut is_allocated, mut is_written) = (true, true);
        for at in offset..offset + bytes {
            // SAFETY: the caller's promise.
            let state = unsafe { &mut *self.states.first.add(at) };
            is_allocated &= *state != NO_ALLOCATION;
            is_written &= *state == WRITTEN;
            // What is out of bounds stays so; an uninitialised byte is reported once.
            if *state == ALLOCATED {
                *state = WRITTEN;
            }
        }
        Touched { is_allocated, is_written: is_written || is_write }
    }

    /// The granule of an offset.
    ///
    /// # Safety
    /// The offset lies within the memory.
    pub(crate) unsafe fn granule(&self, offset: usize) -> *mut Granule {
        // SAFETY: the caller's promise.
        unsafe { self.granules.first.add(offset / GRANULE_BYTES) }
    }

    /// Whether an access of `bytes` bytes lies within the memory, if it begins there.
    pub(crate) fn is_within(offset: usize, bytes: usize) -> bool {
        offset + bytes <= SPAN
    }
}

/// The granules of bytes from an offset on: an offset in each, and a bit for each of its bytes that is meant.
pub(crate) fn granules(first: usize, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    let end = first + bytes;
    let starts = (first / GRANULE_BYTES..end.div_ceil(GRANULE_BYTES)).map(|at| at * GRANULE_BYTES);
    let cover = move |start: usize| {
        let (from, to) = (start.max(first), (start + GRANULE_BYTES).min(end));
        (from, ((1u8 << (to - from)) - 1) << (from - start))
    };
    starts.map(cover).filter(|&(_, mask)| mask != 0)
}

/// What an access found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) is_allocated: bool,
    /// Whether a read found only bytes that were written.
    pub(crate) is_written: bool,
}

/// Zeros that take memory once they are accessed.
struct Mapping<T> {
    first: *mut T,
    bytes: usize,
}

impl<T> Mapping<T> {
    fn new(count: usize) -> Self {
        let bytes = count * size_of::<T>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at a place of the system's choice touches no memory of ours.
        let first = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        assert_ne!(first, libc::MAP_FAILED, "no addresses for {bytes} bytes");
        Self { first: first.cast(), bytes }
    }
}

impl<T> Mapping<T> {
    /// Makes elements zeros. Whole pages take no memory then.
    fn clear(&self, first: usize, count: usize) {
        const PAGE: usize = 4096;
        // SAFETY: the caller has elements of the mapping, which nobody accesses meanwhile; zeros are a value of them.
        unsafe {
            let (from, to) =
                (self.first.add(first).cast::<u8>(), self.first.add(first + count).cast::<u8>());
            let pages = from.add(from.align_offset(PAGE))..to.sub(to as usize % PAGE);
            if pages.start < pages.end {
                let bytes = pages.end.offset_from_unsigned(pages.start);
                libc::madvise(pages.start.cast(), bytes, libc::MADV_DONTNEED);
                from.write_bytes(0, pages.start.offset_from_unsigned(from));
                pages.end.write_bytes(0, to.offset_from_unsigned(pages.end));
            } else {
                from.write_bytes(0, to.offset_from_unsigned(from));
            }
        }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has its addresses any more.
        unsafe { libc::munmap(self.first.cast(), self.bytes) };
    }
}

// SAFETY: the mapping belongs to its owner; accesses are unsafe.
unsafe impl<T> Send for Mapping<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Mapping<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_have_bounds_and_end() {
        let memory = Memory::new(1000);
        let at = memory.allocate(100, "a", Place::Device).unwrap();
        assert!(memory.is_allocated(at, 100) && !memory.is_allocated(at, 101));
        assert_eq!(memory.allocate(901, "b", Place::Device), None, "the memory is full");
        assert_eq!(memory.describe(at.wrapping_add(104)), "`a` (100 bytes) + 104");
        assert!(memory.free(at) && !memory.free(at));
        assert!(!memory.is_allocated(at, 1));
        assert_eq!(memory.used(), 0);
        let again = memory.allocate(100, "c", Place::Device).unwrap();
        assert_ne!(again, at, "freed memory is used again late");
    }

    #[test]
    fn granules_cover_the_bytes() {
        let of = |first, bytes| granules(first, bytes).collect::<Vec<_>>();
        assert_eq!(of(8, 4), [(8, 0b1111)]);
        assert_eq!(of(10, 1), [(10, 0b0100)]);
        assert_eq!(of(6, 7), [(6, 0b1100), (8, 0b1111), (12, 0b0001)]);
        assert_eq!(of(6, 0), []);
    }

    #[test]
    fn a_read_of_what_nobody_wrote_is_seen_once() {
        let memory = Memory::new(1000);
        let at = memory.allocate(8, "a", Place::Device).unwrap();
        let offset = memory.offset(at).unwrap();
        // SAFETY: the bytes are allocated, and the test alone accesses them.
        let touch = |from: usize, bytes, is_write| unsafe {
            let touched = memory.touch(offset + from, bytes, is_write);
            (touched.is_allocated, touched.is_written)
        };
        assert_eq!(touch(0, 4, true), (true, true));
        assert_eq!(touch(2, 4, false), (true, false));
        assert_eq!(touch(2, 4, false), (true, true));
        assert_eq!(touch(6, 4, false), (false, false));
    }
}
