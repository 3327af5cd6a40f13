//! The accesses of four bytes that may race with later ones: those of threads of a launch, and those of whole operations before it.

use super::clock::{Clock, Epoch, ThreadNumber};
use super::scope::Scope;

/// Accesses that a granule holds. Where more threads read the same bytes, a read that the last one follows is forgotten, or else one at random.
const ACCESSES: usize = 5;

/// Operations before the last one that a granule holds, by what they did.
const PAST: usize = 4;

const WRITE: u8 = 1 << 4;
const SCOPE_BITS: u32 = 5;

/// An access of some of the four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The place in the code: an offset in the kernel's library.
    pub(crate) site: u32,
    /// A bit for each of the four bytes.
    pub(crate) bytes: u8,
    pub(crate) is_write: bool,
    /// The scope of an atomic operation.
    pub(crate) scope: Option<Scope>,
}

impl Access {
    /// Whether two accesses, of threads of the same block or not, must be ordered. Atomic operations on the same bytes need no order if the
    /// scope of each includes the other's thread.
    fn conflicts(self, other: Self, is_same_block: impl Fn() -> bool) -> bool {
        if self.bytes & other.bytes == 0 || !(self.is_write || other.is_write) {
            return false;
        }
        let includes = |scope: Option<Scope>| {
            scope.is_some_and(|scope| scope >= Scope::Gpu || is_same_block())
        };
        let is_strong = self.bytes == other.bytes && includes(self.scope) && includes(other.scope);
        !is_strong
    }

    /// Whether each access that conflicts with `other`, an earlier one which this access follows, conflicts with this one too.
    fn stands_for(self, other: Self, is_same_block: impl Fn() -> bool) -> bool {
        let is_as_weak = match (self.scope, other.scope) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(of_other)) => {
                own == of_other
                    && self.bytes == other.bytes
                    && (own >= Scope::Gpu || is_same_block())
            }
        };
        let covers = other.bytes & !self.bytes == 0;
        covers && (self.is_write || !other.is_write) && is_as_weak
    }
}

/// An access and its epoch. Zeros are none.
#[derive(Clone, Copy, Default)]
struct Entry {
    epoch: Epoch,
    site: u32,
    /// The bytes, whether they are written, and the scope and 1 of an atomic operation.
    kind: u8,
}

impl Entry {
    fn new(epoch: Epoch, access: Access) -> Self {
        let Access { site, bytes, is_write, scope } = access;
        let scope = match scope {
            None => 0,
            Some(Scope::Block) => 1,
            Some(Scope::Gpu) => 2,
            Some(Scope::System) => 3,
        };
        let kind = bytes | if is_write { WRITE } else { 0 } | scope << SCOPE_BITS;
        Self { epoch, site, kind }
    }

    fn access(self) -> Access {
        let scope = match self.kind >> SCOPE_BITS {
            0 => None,
            1 => Some(Scope::Block),
            2 => Some(Scope::Gpu),
            _ => Some(Scope::System),
        };
        let is_write = self.kind & WRITE != 0;
        Access { site: self.site, bytes: self.kind & 0b1111, is_write, scope }
    }
}

/// An earlier access that a later one races with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Earlier {
    /// An access by another thread of the same launch.
    Thread(ThreadNumber, Access),
    /// An access by an earlier launch or copy that nothing orders before this launch.
    Operation(u32),
}

/// An access of some of the four bytes by an operation before the last one.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Past {
    operation: u32,
    bytes: u8,
    kind: Kind,
}

/// What an operation does to bytes. Atomic is what includes all threads of the GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    #[default]
    Read,
    Write,
    AtomicRead,
    AtomicWrite,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Read, Self::Write, Self::AtomicRead, Self::AtomicWrite];

    fn of(is_write: bool, scope: Option<Scope>) -> Self {
        match (is_write, scope.is_some_and(|scope| scope >= Scope::Gpu)) {
            (false, false) => Self::Read,
            (true, false) => Self::Write,
            (false, true) => Self::AtomicRead,
            (true, true) => Self::AtomicWrite,
        }
    }

    fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::AtomicWrite)
    }

    fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicRead | Self::AtomicWrite)
    }

    fn conflicts(self, other: Self) -> bool {
        (self.is_write() || other.is_write()) && !(self.is_atomic() && other.is_atomic())
    }
}

/// The accesses of four bytes: those of the last operation on them, by thread, and what operations before it did. Zeros are a granule without
/// accesses.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Granule {
    /// The operation whose accesses `entries` has: a launch, or a copy, which has none.
    operation: u32,
    /// The bytes that it has accessed, by the kind of access.
    accessed: [u8; 4],
    /// Those that it has read through the read-only cache.
    read_only: u8,
    /// A bit for each of `past` that precedes it.
    follows: u8,
    past: [Past; PAST],
    entries: [Entry; ACCESSES],
}

impl Granule {
    /// Notes an access of an operation as a whole, in a scope if it is atomic. Returns an earlier operation that it races with, where `precedes` says
    /// which ones come before.
    pub(crate) fn operation(
        &mut self,
        operation: u32,
        (bytes, is_write, scope): (u8, bool, Option<Scope>),
        precedes: impl FnMut(u32) -> bool,
    ) -> Option<u32> {
        self.begin(operation, precedes);
        let kind = Kind::of(is_write, scope);
        self.accessed[kind as usize] |= bytes;
        let races = |(at, past): &(usize, &Past)| {
            past.bytes & bytes != 0 && past.kind.conflicts(kind) && self.follows >> at & 1 == 0
        };
        self.past.iter().enumerate().find(races).map(|(_, past)| past.operation)
    }

    /// An operation accesses the bytes: the accesses of the one before become past.
    fn begin(&mut self, operation: u32, mut precedes: impl FnMut(u32) -> bool) {
        if self.operation == operation {
            return;
        }
        for kind in Kind::ALL {
            let bytes = self.accessed[kind as usize];
            if bytes != 0 {
                self.add_past(Past { operation: self.operation, bytes, kind });
            }
        }
        (self.operation, self.accessed, self.read_only) = (operation, [0; 4], 0);
        self.entries = Default::default();
        let followed = |of: &(usize, &Past)| of.1.bytes != 0 && precedes(of.1.operation);
        let followed = self.past.iter().enumerate().filter(followed);
        self.follows = followed.fold(0, |all, (at, _)| all | 1 << at);
    }

    /// Keeps what the last operation did, in place of what it stands for, or else of what is oldest.
    fn add_past(&mut self, new: Past) {
        let stands_for = |(at, old): &(usize, &Past)| {
            let is_followed = old.bytes == 0 || self.follows >> at & 1 == 1;
            is_followed
                && old.bytes & !new.bytes == 0
                && (new.kind == Kind::Write || new.kind == old.kind)
        };
        let place = self.past.iter().enumerate().find(stands_for).map(|(at, _)| at);
        let oldest = || {
            let order = |(at, past): &(usize, &Past)| (past.operation, *at);
            self.past.iter().enumerate().min_by_key(order).map_or(0, |(at, _)| at)
        };
        let place = place.unwrap_or_else(oldest);
        self.past[place] = new;
        // It is the last operation's own.
        self.follows &= !(1 << place);
    }

    /// Notes an access of a thread, and returns an earlier one of the same launch that it races with.
    pub(super) fn thread(
        &mut self,
        (clock, of_block): (&Clock, usize),
        access: Access,
        random: impl FnOnce() -> u32,
    ) -> Option<Earlier> {
        let own = clock.thread();
        if !access.is_write && access.scope.is_none() && self.written() == 0 {
            // Most accesses: reads of what the launch does not write.
            let is_own = |of: &Entry| {
                of.epoch.thread as usize == own && of.access().bytes & !access.bytes == 0
            };
            let place = self.entries.iter().position(|of| of.kind == 0 || is_own(of));
            let place = place.unwrap_or_else(|| self.least_needed(clock, random));
            self.entries[place] = Entry::new(clock.epoch(), access);
            return None;
        }
        let (mut race, mut place) = (None, None);
        for (at, entry) in self.entries.iter_mut().enumerate() {
            let other = entry.access();
            if other.bytes == 0 {
                place = place.or(Some(at));
                continue;
            }
            let thread = entry.epoch.thread as ThreadNumber;
            let are_reads = !access.is_write && !other.is_write;
            if are_reads && thread != own {
                // They need no order.
                continue;
            }
            // What is known of a thread's own accesses is quickly said.
            let follows = thread == own || clock.follows(entry.epoch);
            let is_same_block = || thread / of_block == own / of_block;
            if follows && access.stands_for(other, is_same_block) {
                *entry = Entry::default();
                place = place.or(Some(at));
            } else if !follows && access.conflicts(other, is_same_block) {
                race = Some(Earlier::Thread(thread, other));
            }
        }
        let place = place.unwrap_or_else(|| self.least_needed(clock, random));
        self.entries[place] = Entry::new(clock.epoch(), access);
        race
    }

    /// An access to forget: a read that the thread follows, else a read at random, else any.
    fn least_needed(&self, clock: &Clock, random: impl FnOnce() -> u32) -> usize {
        let is_read = |at: &usize| !self.entries[*at].access().is_write;
        let is_followed = |at: &usize| is_read(at) && clock.follows(self.entries[*at].epoch);
        if let Some(followed) = (0..ACCESSES).find(is_followed) {
            return followed;
        }
        let from = random() as usize % ACCESSES;
        (from..ACCESSES).chain(0..from).find(is_read).unwrap_or(from)
    }

    /// Notes a read through the read-only cache. Returns whether the operation has written some of the bytes.
    pub(super) fn read_only(&mut self, operation: u32, bytes: u8) -> bool {
        if self.operation != operation {
            // The read itself follows, and notes the operation.
            return false;
        }
        self.read_only |= bytes;
        self.written() & bytes != 0
    }

    /// The bytes that the last operation has written.
    fn written(&self) -> u8 {
        self.accessed[Kind::Write as usize] | self.accessed[Kind::AtomicWrite as usize]
    }

    /// Whether the operation has read some of the bytes through the read-only cache.
    pub(super) fn was_read_only(&self, bytes: u8) -> bool {
        self.read_only & bytes != 0
    }
}
