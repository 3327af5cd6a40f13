//! Decides which thread goes on, and moves threads from state to state.
//!
//! A thread runs until it stops: at a barrier, a warp instruction, around an atomic operation or a fence, now and then at a load or store.
//! Then one of those that can go on is drawn: the one of the highest priority among a few. Priorities are those of warps, random, and drawn
//! anew from time to time, so that some warps run far ahead of others: uniform choice hardly ever shows what a barrier forgot.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

use super::fiber::{self, Stack};
use super::launch::{Launch, Outcome, Schedule};
use super::random::Random;
use super::threads::{Barrier, Block, Load, Site, State, Thread, position};
use super::warp::{self, Instruction, LANES, Operation};
use crate::abi::Dim3;
use crate::detector::{Access, Detector, Earlier, History, Scope, Slot, ThreadNumber};
use crate::memory::{DevicePointer, Memory, Place, granules};
use crate::report::{Fault, Report};

/// Reports after which a launch ends.
const REPORTS_MAX: usize = 20;

/// Threads among which the one of the highest priority goes on.
const CANDIDATES: usize = 16;

/// The mean number of switches after which a warp gets another priority.
const PRIORITY_SWITCHES: usize = 256;

/// Turns that each thread has on average before a launch all of whose threads spin counts as a deadlock.
const IDLE_TURNS: usize = 4_096;

/// Switches after which a launch counts as endless.
const SWITCHES_MAX: u64 = 1 << 27;

/// The time that a launch whose threads all wait for the host waits for it.
const HOST_WAIT: Duration = Duration::from_secs(10);

thread_local! {
    /// The launch that runs on this thread of the host.
    static CURRENT: Cell<*mut Execution<'static>> = const { Cell::new(ptr::null_mut()) };
}

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

/// A launch that runs.
pub(super) struct Execution<'a> {
    pub(super) memory: &'a Memory,
    pub(super) launch: &'a Launch<'a>,
    pub(super) detector: Detector,
    history: &'a dyn History,
    arguments: *mut *mut c_void,
    pub(super) threads: Vec<Thread>,
    blocks: Vec<Block>,
    /// The slots of threads that are ready or spin.
    runnable: Vec<Slot>,
    /// The priority of each warp.
    priorities: Vec<u32>,
    pub(super) current: Slot,
    /// Where the scheduler's stack was when a thread went on.
    home: *mut u8,
    pub(super) random: Random,
    preemption: f64,
    until_preemption: u64,
    /// The blocks in the order in which they begin, and how many have begun and are over.
    order: Vec<usize>,
    begun: usize,
    over: usize,
    reports: Vec<Report>,
    seen: HashSet<(Fault, u32, u32)>,
    is_stopped: bool,
    /// The turns of threads that spin since another one had its turn, and when they began.
    idle: Option<(usize, Instant)>,
    accesses: u64,
    switches: u64,
}

impl<'a> Execution<'a> {
    pub(super) fn new(
        memory: &'a Memory,
        launch: &'a Launch<'a>,
        resident: usize,
        arguments: *mut *mut c_void,
        (operation, history): (u32, &'a dyn History),
        schedule: Schedule,
    ) -> Self {
        let of_block = launch.block.iter().map(|&of| of as usize).product::<usize>();
        let blocks = launch.grid.iter().map(|&of| of as usize).product::<usize>();
        let mut random = Random::new(schedule.seed);
        let mut order: Vec<usize> = (0..blocks).collect();
        (1..blocks).for_each(|at| order.swap(at, random.below(at + 1)));
        let slots = resident * of_block;
        let thread = |slot: Slot| Thread {
            stack: Stack::take(),
            place: ptr::null_mut(),
            state: State::Ended,
            position: position(slot % of_block, launch.block),
            block: slot / of_block,
            lane: slot % of_block % LANES,
            warp: slot - slot % of_block % LANES,
            site: ptr::null(),
            instruction: Instruction::default(),
            result: 0,
            last_load: None,
        };
        let block = || Block {
            index: Dim3::default(),
            live: 0,
            waiting: 0,
            barrier: None,
            shared: Vec::new(),
        };
        let until_preemption = random.until(schedule.preemption);
        Self {
            memory,
            launch,
            detector: Detector::new(operation, [blocks, of_block], slots),
            history,
            arguments,
            threads: (0..slots).map(thread).collect(),
            blocks: (0..resident).map(|_| block()).collect(),
            runnable: Vec::new(),
            priorities: (0..slots).map(|_| random.bits()).collect(),
            current: 0,
            home: ptr::null_mut(),
            random,
            preemption: schedule.preemption,
            until_preemption,
            order,
            begun: 0,
            over: 0,
            reports: Vec::new(),
            seen: HashSet::new(),
            is_stopped: false,
            idle: None,
            accesses: 0,
            switches: 0,
        }
    }

    /// Runs the launch.
    ///
    /// # Safety
    /// As for [`run`](super::run).
    pub(super) unsafe fn run(&mut self) {
        let this: *mut Self = self;
        assert!(CURRENT.get().is_null(), "a launch within a launch");
        CURRENT.set(this.cast());
        // SAFETY: threads and this loop access the launch in turns, through this pointer alone. Each fiber that the loop switches to was prepared
        // or has stopped by a switch.
        unsafe {
            (0..(*this).blocks.len()).for_each(|place| (*this).begin_block(place));
            while (*this).over < (*this).order.len() && !(*this).is_stopped {
                let Some(slot) = (*this).next() else {
                    let waiting = (*this).waiting();
                    let fault = match (*this).has_other_masks() {
                        true => Fault::WarpMask,
                        false => Fault::Deadlock,
                    };
                    (*this).report(fault, (0, 0), || waiting);
                    break;
                };
                (*this).current = slot;
                (*this).switches += 1;
                let to = (&(*this).threads)[slot].place;
                fiber::switch(&raw mut (*this).home, to);
                (*this).stopped_running(slot);
            }
        }
        CURRENT.set(ptr::null_mut());
    }

    /// What the launch did. Frees what its blocks still have.
    pub(super) fn outcome(mut self) -> Outcome {
        (0..self.blocks.len()).for_each(|place| self.free_shared(place));
        self.threads.drain(..).for_each(|thread| thread.stack.give());
        Outcome { reports: self.reports, accesses: self.accesses, switches: self.switches }
    }

    // Blocks and threads.

    /// The next block begins in a place.
    fn begin_block(&mut self, place: usize) {
        let number = self.order[self.begun];
        self.begun += 1;
        let of_block = self.threads.len() / self.blocks.len();
        let slots = place * of_block..(place + 1) * of_block;
        let index = position(number, self.launch.grid);
        self.blocks[place] =
            Block { index, live: of_block, waiting: 0, barrier: None, shared: Vec::new() };
        self.detector.begin(slots.clone(), number);
        for slot in slots {
            let thread = &mut self.threads[slot];
            thread.place = thread.stack.prepare(run_thread);
            (thread.state, thread.last_load) = (State::Ready, None);
            self.runnable.push(slot);
        }
    }

    /// A thread stopped running, and is in some state.
    fn stopped_running(&mut self, slot: Slot) {
        let place = self.threads[slot].block;
        match self.threads[slot].state {
            State::Ready | State::Spinning(_) => self.runnable.push(slot),
            State::Ended if self.blocks[place].live == 0 => {
                self.free_shared(place);
                self.over += 1;
                if self.begun < self.order.len() {
                    self.begin_block(place);
                }
            }
            State::AtBarrier | State::InWarp | State::Ended => {}
        }
        if self.switches > SWITCHES_MAX {
            self.report(Fault::Limit, (0, 0), || "the launch does not end".to_owned());
        }
    }

    fn free_shared(&mut self, place: usize) {
        for (_, at, bytes) in self.blocks[place].shared.drain(..) {
            self.detector.forget(at as usize..at as usize + bytes);
            self.memory.free(at);
        }
    }

    /// The current thread is over: others may have waited for it alone.
    fn end_thread(&mut self) {
        let slot = self.current;
        self.threads[slot].state = State::Ended;
        let place = self.threads[slot].block;
        let block = &mut self.blocks[place];
        block.live -= 1;
        if block.live > 0 && block.waiting == block.live {
            self.open_barrier(place);
        }
        let warp = self.threads[slot].warp;
        for other in warp..(warp + LANES).min(self.threads.len()) {
            let is_of_warp = self.threads[other].warp == warp;
            if is_of_warp && self.threads[other].state == State::InWarp {
                self.try_warp(other);
            }
        }
    }

    // Which thread goes on.

    /// A thread that can go on, which leaves `runnable`; none if all wait for each other.
    fn next(&mut self) -> Option<Slot> {
        if self.runnable.is_empty() {
            return None;
        }
        if self.random.below(PRIORITY_SWITCHES) == 0 {
            let slot = self.random.below(self.threads.len());
            self.priorities[self.threads[slot].warp] = self.random.bits();
        }
        let mut best = self.random.below(self.runnable.len());
        for _ in 1..CANDIDATES.min(self.runnable.len()) {
            let other = self.random.below(self.runnable.len());
            if self.rank(self.runnable[other]) > self.rank(self.runnable[best]) {
                best = other;
            }
        }
        if self.can_go_on(self.runnable[best]) {
            self.idle = None;
        } else {
            best = self.find_runnable()?;
        }
        let slot = self.runnable.swap_remove(best);
        self.threads[slot].state = State::Ready;
        Some(slot)
    }

    fn rank(&self, slot: Slot) -> (bool, u32) {
        (self.can_go_on(slot), self.priorities[self.threads[slot].warp])
    }

    /// Whether a thread is ready, or the value that it waits for has changed.
    fn can_go_on(&self, slot: Slot) -> bool {
        match self.threads[slot].state {
            State::Spinning(load) => {
                // SAFETY: the thread has loaded the value from there, and waits for another one.
                let value = unsafe { value_at(load.at, load.bytes) };
                value != load.value
            }
            _ => true,
        }
    }

    /// The place in `runnable` of a thread that can go on. If there is none, that of one that spins: the value that it loads again may be the one that it
    /// waits for. None if all have spun for long; if some of them wait for the host, for very long.
    fn find_runnable(&mut self) -> Option<usize> {
        let from = self.random.below(self.runnable.len());
        let mut places = (from..self.runnable.len()).chain(0..from);
        if let Some(at) = places.find(|&at| self.can_go_on(self.runnable[at])) {
            self.idle = None;
            return Some(at);
        }
        let (turns, since) = self.idle.get_or_insert_with(|| (0, Instant::now()));
        *turns += 1;
        if *turns > IDLE_TURNS * self.runnable.len() {
            let since = *since;
            let waits_for_host = |&slot: &Slot| match self.threads[slot].state {
                State::Spinning(load) => self.memory.place(load.at) == Some(Place::Host),
                _ => false,
            };
            if !self.runnable.iter().any(waits_for_host) || since.elapsed() > HOST_WAIT {
                return None;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        Some(from)
    }

    /// Whether two threads wait for each other in the same warp instruction with different masks.
    fn has_other_masks(&self) -> bool {
        let waits = |thread: &&Thread| thread.state == State::InWarp;
        let is_other = |one: &Thread, other: &Thread| {
            let (own, of_other) = (one.instruction, other.instruction);
            one.warp == other.warp
                && own.operation == of_other.operation
                && own.mask != of_other.mask
                && own.mask >> other.lane & 1 == 1
        };
        let waiting: Vec<&Thread> = self.threads.iter().filter(waits).collect();
        waiting.iter().any(|one| waiting.iter().any(|other| is_other(one, other)))
    }

    /// Where threads wait, in words.
    fn waiting(&self) -> String {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for thread in &self.threads {
            let place = match thread.state {
                State::Ended => continue,
                State::Ready => "run".to_owned(),
                State::Spinning(load) => {
                    let value = self.memory.describe(load.at);
                    format!("wait for a change of {value} at {}", self.line(thread.site))
                }
                State::AtBarrier => format!("wait at the barrier of {}", self.line(thread.site)),
                State::InWarp => {
                    let Instruction { operation, mask, .. } = thread.instruction;
                    format!("are in {operation:?} of {mask:#x} at {}", self.line(thread.site))
                }
            };
            *places.entry(place).or_default() += 1;
        }
        let not_begun = self.order.len() - self.begun;
        let mut words: Vec<String> =
            places.iter().map(|(place, count)| format!("{count} threads {place}")).collect();
        if not_begun > 0 {
            words.push(format!("{not_begun} blocks have not begun, as others are resident"));
        }
        words.join("; ")
    }

    // What threads do.

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
    fn open_barrier(&mut self, place: usize) {
        let of_block = self.threads.len() / self.blocks.len();
        let slots = place * of_block..(place + 1) * of_block;
        let waiting: Vec<Slot> =
            slots.filter(|&slot| self.threads[slot].state == State::AtBarrier).collect();
        self.detector.meet(&waiting);
        (self.blocks[place].waiting, self.blocks[place].barrier) = (0, None);
        waiting.iter().for_each(|&slot| self.go_on(slot));
    }

    /// A thread that waited can go on.
    fn go_on(&mut self, slot: Slot) {
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
    fn try_warp(&mut self, slot: Slot) {
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

    // Stopping.

    /// Other threads run until it is the current one's turn, in this state.
    ///
    /// # Safety
    /// As for [`access`](Self::access).
    pub(super) unsafe fn stop(this: *mut Self, state: State) {
        // SAFETY: the caller's promise.
        unsafe {
            let slot = (*this).current;
            (&mut (*this).threads)[slot].state = state;
            Self::stop_in_state(this);
        }
    }

    /// As [`stop`](Self::stop), in the state that the thread has. Does not return if the launch was stopped.
    unsafe fn stop_in_state(this: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe {
            let slot = (*this).current;
            let place = &raw mut (&mut (*this).threads)[slot].place;
            fiber::switch(place, (*this).home);
        }
    }

    /// The current thread never goes on.
    ///
    /// # Safety
    /// As for [`access`](Self::access).
    pub(super) unsafe fn abandon(this: *mut Self) -> ! {
        loop {
            // SAFETY: the caller's promise.
            unsafe { Self::stop(this, State::Ended) };
        }
    }

    // Reports.

    /// Whether a fault at these places was not reported yet.
    fn is_new(&self, fault: Fault, (site, other): (u32, u32)) -> bool {
        !self.seen.contains(&(fault, site, other))
    }

    /// Keeps a report, unless there is one of the same fault and places.
    pub(super) fn report(
        &mut self,
        fault: Fault,
        (site, other): (u32, u32),
        detail: impl FnOnce() -> String,
    ) {
        if self.seen.insert((fault, site, other)) {
            let kernel = self.launch.kernel.name.clone();
            self.reports.push(Report { fault, kernel, detail: detail() });
        }
        self.is_stopped |= fault.is_fatal() || self.reports.len() >= REPORTS_MAX;
    }

    /// An access in words.
    fn sentence(&self, kind: &str, bytes: usize, at: *const u8, slot: Slot, code: u32) -> String {
        let (memory, who) = (self.memory.describe(at), self.who(slot));
        format!("{kind} of {bytes} bytes of {memory} by {who} at {}", self.launch.kernel.line(code))
    }

    /// A thread in words.
    fn who(&self, slot: Slot) -> String {
        self.who_is(self.detector.number(slot))
    }

    /// A thread of the launch in words, which may be over.
    fn who_is(&self, number: ThreadNumber) -> String {
        let of_block = self.threads.len() / self.blocks.len();
        let Dim3 { x, y, z } = position(number % of_block, self.launch.block);
        let of = position(number / of_block, self.launch.grid);
        format!("thread ({x}, {y}, {z}) of block ({}, {}, {})", of.x, of.y, of.z)
    }

    fn line(&self, site: Site) -> String {
        if site.is_null() {
            return "its start".to_owned();
        }
        self.launch.kernel.line(self.launch.kernel.site(site))
    }

    /// The index of the current thread's block.
    pub(super) fn block_index(&self) -> Dim3 {
        self.blocks[self.threads[self.current].block].index
    }
}

/// The launch that runs on this thread of the host.
pub(super) fn current() -> *mut Execution<'static> {
    CURRENT.get()
}

/// The value of some bytes.
///
/// # Safety
/// The bytes are allocated, and 1, 2, 4 or 8.
pub(super) unsafe fn value_at(at: *const u8, bytes: usize) -> u64 {
    // SAFETY: the caller's promise. Memory of the host may change meanwhile, so the value is read at once.
    unsafe {
        match bytes {
            1 => u64::from(at.read_volatile()),
            2 => u64::from(at.cast::<u16>().read_volatile()),
            4 => u64::from(at.cast::<u32>().read_volatile()),
            _ => at.cast::<u64>().read_volatile(),
        }
    }
}

/// The code of a fiber: a thread of the launch from its start to its end.
extern "C" fn run_thread() -> ! {
    let this = current();
    // SAFETY: the scheduler has switched to this fiber, so the launch runs and nobody has a reference to it.
    unsafe {
        let (kernel, arguments) = ((*this).launch.kernel, (*this).arguments);
        kernel.call(arguments);
        (*this).end_thread();
        Execution::abandon(this)
    }
}
