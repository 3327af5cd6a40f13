//! Loads, stores and shared memory of the current thread: what is checked of each access.

use std::ffi::c_void;
use std::ptr;

use super::scheduler::Execution;
use super::threads::{Site, State};
use crate::detector::{Access, Earlier, Scope};
use crate::memory::{DevicePointer, Memory, Place, granules};
use crate::report::Fault;

/// What an address is to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// In the GPU's memory, at an offset.
    Memory(usize),
    /// On the thread's own stack, or part of the kernel's library.
    Own,
    /// None of these.
    Nowhere,
}

impl Execution<'_> {
    /// The current thread accesses bytes.
    ///
    /// # Safety
    /// The launch runs on this thread of the host, and nobody has a reference to it.
    pub(super) unsafe fn access(this: *mut Self, at: *mut u8, bytes: usize, access: (bool, Site)) {
        let (is_write, site) = access;
        // SAFETY: the caller's promise, here and below; no reference lives while another thread runs.
        unsafe {
            if (*this).is_own(at) {
                return;
            }
            (*this).accesses += 1;
            (*this).note_load(None);
            (*this).until_preemption -= 1;
            if (*this).until_preemption == 0 {
                (*this).until_preemption = (*this).random.until((*this).preemption);
                Self::stop(this, State::Ready);
            }
            if !(*this).check(at, bytes, (is_write, None), site) {
                Self::abandon(this);
            }
        }
    }

    /// The current thread accesses an address that is no multiple of what it must be one of. Does not return, but for the thread's own memory.
    ///
    /// # Safety
    /// As for `access`.
    pub(super) unsafe fn misaligned(
        this: *mut Self,
        (at, alignment): (*const u8, usize),
        what: &str,
        site: Site,
    ) {
        // SAFETY: the caller's promise; no reference lives while another thread runs.
        unsafe {
            if (*this).is_own(at) {
                return;
            }
            let code = (*this).launch.kernel.site(site);
            let (memory, who) = ((*this).memory.describe(at), (*this).who((*this).current));
            let line = (*this).launch.kernel.line(code);
            (*this).report(Fault::Misaligned, (code, 0), || {
                format!("{what} at {memory} by {who} at {line}, no multiple of {alignment}")
            });
            Self::abandon(this);
        }
    }

    /// Whether an address is on the current thread's stack, or part of the kernel's library.
    pub(super) fn is_own(&self, at: *const u8) -> bool {
        self.reach(at) == Reach::Own
    }

    /// What an address is to the current thread.
    fn reach(&self, at: *const u8) -> Reach {
        match self.memory.offset(at) {
            Some(offset) => Reach::Memory(offset),
            None if self.threads[self.current].stack.has(at) => Reach::Own,
            None if self.launch.kernel.has(at) => Reach::Own,
            None => Reach::Nowhere,
        }
    }

    /// Checks an access by the current thread, in a scope if it is atomic. False if it is out of bounds.
    pub(super) fn check(
        &mut self,
        at: *mut u8,
        bytes: usize,
        (is_write, scope): (bool, Option<Scope>),
        site: Site,
    ) -> bool {
        let code = self.launch.kernel.site(site);
        let kind = if is_write { "write" } else { "read" };
        let within = match self.reach(at) {
            Reach::Memory(offset) => Some(offset).filter(|&of| Memory::is_within(of, bytes)),
            Reach::Own | Reach::Nowhere => None,
        };
        let touched = within.map(|offset| {
            // SAFETY: the bytes lie within the memory, which the launch has for itself.
            (offset, unsafe { self.memory.touch(offset, bytes, is_write) })
        });
        let Some((offset, touched)) = touched.filter(|(_, touched)| touched.is_allocated) else {
            let detail = self.sentence(kind, bytes, at, self.current, code);
            self.report(Fault::OutOfBounds, (code, 0), || detail);
            return false;
        };
        if !touched.is_written && self.is_new(Fault::UninitialisedRead, (code, 0)) {
            let detail = self.sentence(kind, bytes, at, self.current, code);
            self.report(Fault::UninitialisedRead, (code, 0), || detail);
        }
        for (from, mask) in granules(offset, bytes) {
            let access = Access { site: code, bytes: mask, is_write, scope };
            let (random, history) = (&mut self.random, self.history);
            // SAFETY: the offset lies within the memory, whose granules the launch has for itself.
            let granule = unsafe { &mut *self.memory.granule(from) };
            let race =
                self.detector.access(self.current, granule, access, history, || random.bits());
            if self.detector.was_read_only(granule, access)
                && self.is_new(Fault::ReadOnlyWritten, (code, 0))
            {
                let detail = self.sentence(kind, bytes, at, self.current, code);
                self.report(Fault::ReadOnlyWritten, (code, 0), || detail);
            }
            if let Some(earlier) = race {
                self.report_race((at, bytes), access, earlier);
                break;
            }
        }
        true
    }

    /// Reports an access of bytes by the current thread that races with an earlier one.
    fn report_race(&mut self, (at, bytes): (*const u8, usize), access: Access, earlier: Earlier) {
        let place = match earlier {
            Earlier::Operation(operation) => (access.site, operation),
            Earlier::Thread(_, earlier) => (access.site, earlier.site),
        };
        if !self.is_new(Fault::DataRace, place) {
            return;
        }
        let kind = |access: Access| if access.is_write { "write" } else { "read" };
        let now = self.sentence(kind(access), bytes, at, self.current, access.site);
        let before = match earlier {
            Earlier::Operation(operation) => self.history.describe(operation),
            Earlier::Thread(number, earlier) => {
                let (who, line) = (self.who_is(number), self.launch.kernel.line(earlier.site));
                format!("the {} by {who} at {line}", kind(earlier))
            }
        };
        self.report(Fault::DataRace, place, || format!("nothing orders a {now} after {before}"));
    }

    /// The current thread reads bytes through the read-only cache.
    pub(super) fn read_only(&mut self, at: *const u8, bytes: usize, site: Site) {
        let Some(offset) = self.memory.offset(at) else { return };
        if !Memory::is_within(offset, bytes) {
            return;
        }
        let mut is_written = false;
        for (from, mask) in granules(offset, bytes) {
            // SAFETY: the offset lies within the memory, whose granules the launch has for itself.
            let granule = unsafe { &mut *self.memory.granule(from) };
            is_written |= self.detector.read_only(granule, mask);
        }
        if is_written {
            let code = self.launch.kernel.site(site);
            let detail = self.sentence("read", bytes, at, self.current, code);
            self.report(Fault::ReadOnlyWritten, (code, 0), || detail);
        }
    }

    /// The block's variable of shared memory, which it has from the first use on; dynamic memory if the key is null.
    pub(super) fn shared(&mut self, key: *const c_void, bytes: usize, name: &str) -> DevicePointer {
        let place = self.threads[self.current].block;
        let shared = &mut self.blocks[place].shared;
        if let Some(&(_, at, _)) = shared.iter().find(|(of, ..)| *of == key) {
            return at;
        }
        let bytes = if key.is_null() { self.launch.dynamic_shared } else { bytes };
        match self.memory.allocate(bytes, &format!("__shared__ {name}"), Place::Shared) {
            Some(at) => {
                shared.push((key, at, bytes));
                at
            }
            None => ptr::null_mut(),
        }
    }
}
