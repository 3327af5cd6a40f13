//! The accesses of four bytes that may race with later ones: those of threads of a launch, and those of whole operations before it.

use super::clock::{Clock, Epoch, Slot};

/// Accesses that a granule holds. Where more threads read the same bytes, one of them is forgotten at random.
const ACCESSES: usize = 6;

const WRITE: u32 = 1 << 31;
const ATOMIC: u32 = 1 << 30;
const SITE_BITS: u32 = 26;

/// An access of some of the four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The place in the code: an offset in the kernel's library, below 64 MiB.
    pub(crate) site: u32,
    /// A bit for each of the four bytes.
    pub(crate) bytes: u32,
    pub(crate) is_write: bool,
    pub(crate) is_atomic: bool,
}

impl Access {
    fn conflicts(self, other: Self) -> bool {
        self.bytes & other.bytes != 0
            && (self.is_write || other.is_write)
            && !(self.is_atomic && other.is_atomic)
    }

    /// Whether each access that conflicts with `other`, an earlier one which this access follows, conflicts with this one too.
    fn stands_for(self, other: Self) -> bool {
        let covers = other.bytes & !self.bytes == 0;
        let is_weaker = other.is_atomic && !self.is_atomic;
        covers
            && (self.is_write || !other.is_write)
            && (self.is_atomic == other.is_atomic || is_weaker)
    }
}

/// An access and its epoch. Zeros are none.
#[derive(Clone, Copy, Default)]
struct Entry {
    epoch: Epoch,
    access: u32,
}

impl Entry {
    fn new(epoch: Epoch, access: Access) -> Self {
        let Access { site, bytes, is_write, is_atomic } = access;
        let kind = if is_write { WRITE } else { 0 } | if is_atomic { ATOMIC } else { 0 };
        Self { epoch, access: kind | bytes << SITE_BITS | site & ((1 << SITE_BITS) - 1) }
    }

    fn access(self) -> Access {
        Access {
            site: self.access & ((1 << SITE_BITS) - 1),
            bytes: self.access >> SITE_BITS & 0b1111,
            is_write: self.access & WRITE != 0,
            is_atomic: self.access & ATOMIC != 0,
        }
    }
}

/// An earlier access that a later one races with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// Of another thread of the launch.
    Thread(Slot, Access),
    /// Of an operation on the GPU that nothing orders before the launch.
    Operation(u32),
}

/// The accesses of four bytes: those of the last operation on them, by thread, and the last operations before it. Zeros are a granule without
/// accesses.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Granule {
    /// The operation whose accesses `entries` has: a launch, or a copy, which has none.
    operation: u32,
    /// The bytes that it has written and read.
    written: u8,
    read: u8,
    /// The bytes that the operations before it have written and read, as far as they are known.
    written_before: u8,
    read_before: u8,
    /// The last operations that did so.
    writer: u32,
    reader: u32,
    entries: [Entry; ACCESSES],
}

impl Granule {
    /// Notes an access of an operation as a whole. Returns an earlier operation that it races with, where `precedes` says which ones come before.
    pub(crate) fn operation(
        &mut self,
        operation: u32,
        (bytes, is_write): (u32, bool),
        mut precedes: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        if self.operation != operation {
            self.end_operation();
            self.operation = operation;
        }
        let bytes = bytes as u8;
        let race = if self.written_before & bytes != 0 && !precedes(self.writer) {
            Some(self.writer)
        } else if is_write && self.read_before & bytes != 0 && !precedes(self.reader) {
            Some(self.reader)
        } else {
            None
        };
        self.written |= if is_write { bytes } else { 0 };
        self.read |= if is_write { 0 } else { bytes };
        race
    }

    /// The accesses of the last operation become those of one before.
    fn end_operation(&mut self) {
        if self.written != 0 {
            (self.writer, self.written_before) =
                (self.operation, self.written | self.written_before);
            self.read_before &= !self.written;
        }
        if self.read & !self.written != 0 {
            (self.reader, self.read_before) = (self.operation, self.read | self.read_before);
        }
        (self.written, self.read) = (0, 0);
        self.entries = Default::default();
    }

    /// Notes an access of a thread, and returns an earlier one of the same launch that it races with.
    pub(super) fn thread(
        &mut self,
        clock: &Clock,
        access: Access,
        random: impl FnOnce() -> u32,
    ) -> Option<Earlier> {
        let (mut race, mut place) = (None, None);
        for (at, entry) in self.entries.iter_mut().enumerate() {
            let other = entry.access();
            if other.bytes == 0 {
                place = place.or(Some(at));
                continue;
            }
            let follows = clock.follows(entry.epoch);
            if !follows && access.conflicts(other) {
                race = Some(Earlier::Thread(entry.epoch.slot(), other));
            }
            if follows && access.stands_for(other) {
                *entry = Entry::default();
                place = place.or(Some(at));
            }
        }
        let place = place.unwrap_or_else(|| self.least_needed(random() as usize % ACCESSES));
        self.entries[place] = Entry::new(clock.epoch(), access);
        race
    }

    /// An access to forget: the first read from a place on, else the one at that place.
    fn least_needed(&self, from: usize) -> usize {
        let mut places = (from..ACCESSES).chain(0..from);
        places.find(|&at| !self.entries[at].access().is_write).unwrap_or(from)
    }

    /// Whether an operation has written some of the bytes.
    pub(super) fn is_written(&self, operation: u32) -> bool {
        self.operation == operation && self.written != 0
    }
}
