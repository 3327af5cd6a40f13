//! The accesses of four bytes that may race with later ones.

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

/// The accesses of four bytes in a launch. Zeros are a granule without accesses.
#[derive(Default)]
pub(crate) struct Granule {
    launch: u32,
    written: u32,
    entries: [Entry; ACCESSES],
}

impl Granule {
    /// Notes an access, and returns an earlier one of the same launch that it races with.
    pub(super) fn access(
        &mut self,
        launch: u32,
        clock: &Clock,
        access: Access,
        random: impl FnOnce() -> u32,
    ) -> Option<(Slot, Access)> {
        if self.launch != launch {
            *self = Self { launch, ..Self::default() };
        }
        self.written |= u32::from(access.is_write);
        let (mut race, mut place) = (None, None);
        for (at, entry) in self.entries.iter_mut().enumerate() {
            let other = entry.access();
            if other.bytes == 0 {
                place = place.or(Some(at));
                continue;
            }
            let follows = clock.follows(entry.epoch);
            if !follows && access.conflicts(other) {
                race = Some((entry.epoch.slot(), other));
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

    /// Whether a launch has written some of the bytes.
    pub(super) fn is_written(&self, launch: u32) -> bool {
        self.launch == launch && self.written != 0
    }
}
