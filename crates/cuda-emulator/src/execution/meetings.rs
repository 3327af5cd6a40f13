//! Where threads meet: barriers, warp instructions, fences and atomic operations.

use super::scheduler::Execution;
use super::threads::{Barrier, Load, Site, State};
use super::warp::{self, Instruction, LANES, Operation};
use crate::detector::{Scope, Slot};
use crate::report::Fault;

impl Execution<'_> {
    /// The current thread comes to the barrier of its block.
    ///
    /// # Safety
    /// As for [`access`](Self::access).
    pub(super) unsafe fn sync_threads(this: *mut Self, barrier: Barrier, site: Site) {
        // SAFETY: the caller's promise; the reference ends before another thread runs.
        let execution = unsafe { &mut *this };
        let slot = execution.current;
        execution.note_load(None);
        execution.threads[slot].site = site;
        let place = execution.threads[slot].block;
        let block = &mut execution.blocks[place];
        if let Some((waits_at, other)) = block.barrier
            && waits_at != barrier
        {
            let (code, other) =
                (execution.launch.kernel.site(site), execution.launch.kernel.site(other));
            let (who, line) = (execution.who(slot), execution.launch.kernel.line(code));
            let others = execution.launch.kernel.line(other);
            execution.report(Fault::DivergentBarrier, (code, other), || {
                format!("{who} waits at {line} while others wait at {others}")
            });
        }
        let block = &mut execution.blocks[place];
        block.barrier = Some((barrier, site));
        block.waiting += 1;
        let is_last = block.waiting == block.live;
        execution.threads[slot].state = State::AtBarrier;
        if is_last {
            execution.open_barrier(place);
        }
        // SAFETY: the caller's promise.
        unsafe { Self::stop_in_state(this) };
    }

    /// All threads of a block that are not over have come to its barrier.
    pub(super) fn open_barrier(&mut self, place: usize) {
        let of_block = self.threads.len() / self.blocks.len();
        let slots = place * of_block..(place + 1) * of_block;
        let waiting: Vec<Slot> =
            slots.filter(|&slot| self.threads[slot].state == State::AtBarrier).collect();
        self.detector.meet(&waiting);
        (self.blocks[place].waiting, self.blocks[place].barrier) = (0, None);
        waiting.iter().for_each(|&slot| self.go_on(slot));
    }

    /// A thread that waited can go on.
    pub(super) fn go_on(&mut self, slot: Slot) {
        self.threads[slot].state = State::Ready;
        // The current thread comes to be runnable when it stops.
        if slot != self.current {
            self.runnable.push(slot);
        }
    }

    /// The current thread executes a warp instruction. Returns what it gets.
    ///
    /// # Safety
    /// As for [`access`](Self::access).
    pub(super) unsafe fn warp(this: *mut Self, instruction: Instruction, site: Site) -> u32 {
        // SAFETY: the caller's promise; the reference ends before another thread runs.
        let execution = unsafe { &mut *this };
        let slot = execution.current;
        execution.note_load(None);
        let thread = &mut execution.threads[slot];
        (thread.site, thread.instruction, thread.state) = (site, instruction, State::InWarp);
        let is_named = instruction.mask >> thread.lane & 1 == 1;
        if is_named {
            execution.try_warp(slot);
        } else {
            let code = execution.launch.kernel.site(site);
            let (who, line) = (execution.who(slot), execution.launch.kernel.line(code));
            let mask = instruction.mask;
            execution.report(Fault::WarpMask, (code, 0), || {
                format!("{who} is not in its own mask {mask:#x} at {line}")
            });
        }
        // SAFETY: the caller's promise.
        unsafe {
            Self::stop_in_state(this);
            (&(*this).threads)[slot].result
        }
    }

    /// Completes the instruction that a thread waits in, if all threads of its mask that are not over have come to it.
    pub(super) fn try_warp(&mut self, slot: Slot) {
        let thread = &self.threads[slot];
        let (instruction, warp, block) = (thread.instruction, thread.warp, thread.block);
        let mut instructions = [None; LANES];
        let mut slots = Vec::with_capacity(LANES);
        for lane in (0..LANES).filter(|lane| instruction.mask >> lane & 1 == 1) {
            let other = warp + lane;
            let Some(of) = self.threads.get(other).filter(|of| of.block == block) else { continue };
            match of.state {
                State::Ended => continue,
                State::InWarp
                    if of.instruction.operation == instruction.operation
                        && of.instruction.mask == instruction.mask => {}
                _ => return,
            }
            instructions[lane] = Some(of.instruction);
            slots.push(other);
        }
        if instruction.operation == Operation::Sync {
            self.detector.meet(&slots);
        }
        for &other in &slots {
            let thread = &self.threads[other];
            let result = thread.instruction.result(thread.lane, &instructions);
            self.threads[other].result = result.unwrap_or_else(|lane| {
                let code = self.launch.kernel.site(self.threads[other].site);
                let (who, line) = (self.who(other), self.launch.kernel.line(code));
                self.report(Fault::ShuffleSource, (code, 0), || {
                    format!("{who} reads from lane {lane} at {line}")
                });
                warp::nothing()
            });
            self.go_on(other);
        }
    }

    /// Another thread may go on before or after a fence.
    ///
    /// # Safety
    /// As for [`access`](Self::access).
    pub(super) unsafe fn fence(this: *mut Self, scope: Scope) {
        // SAFETY: the caller's promise; no reference lives while another thread runs.
        unsafe {
            Self::stop(this, State::Ready);
            let slot = (*this).current;
            (*this).detector.fence(slot, scope);
            Self::stop(this, State::Ready);
        }
    }

    /// Other threads may go on before an atomic operation of the current one. If its last one left the value as it was at the same address, the thread
    /// counts as one that waits for a change.
    ///
    /// # Safety
    /// As for [`access`](Self::access).
    pub(super) unsafe fn before_atomic(this: *mut Self, at: *mut u8, site: Site) {
        // SAFETY: the caller's promise; the reference ends before another thread runs.
        let execution = unsafe { &mut *this };
        let thread = &mut execution.threads[execution.current];
        thread.site = site;
        let last = thread.last_load.filter(|last| last.at == at);
        let state = last.map_or(State::Ready, State::Spinning);
        // SAFETY: as above.
        unsafe { Self::stop(this, state) };
    }

    /// The current thread has loaded a value with an atomic operation that left it as it was, or has done something else.
    pub(super) fn note_load(&mut self, load: Option<Load>) {
        self.threads[self.current].last_load = load;
    }

    /// The current thread lets others go on. One that has just loaded a value counts as one that waits for a change of it.
    ///
    /// # Safety
    /// As for [`access`](Self::access).
    pub(super) unsafe fn pause(this: *mut Self) {
        // SAFETY: the caller's promise; the reference ends before another thread runs.
        let last = unsafe { (&(*this).threads)[(*this).current].last_load };
        // SAFETY: as above.
        unsafe { Self::stop(this, last.map_or(State::Ready, State::Spinning)) };
    }
}
