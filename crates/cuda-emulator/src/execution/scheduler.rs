//! Decides which thread goes on, and moves threads from state to state.
//!
//! A thread runs until it stops: at a barrier, a warp instruction, around an atomic operation or a fence, now and then at a load or store.
//! Then one of those that can go on is drawn: the one of the highest priority among a few. Priorities are those of warps, random, and drawn
//! anew from time to time, so that some warps run far ahead of others: uniform choice hardly ever shows what a barrier forgot.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::c_void;
use std::ptr;
use std::time::{Duration, Instant};

use super::fiber::{self, Stack};
use super::launch::{Launch, Outcome, Schedule};
use super::observer::Observer;
use super::random::Random;
use super::threads::{Block, State, Thread, position};
use super::warp::{Instruction, LANES};
use crate::abi::Dim3;
use crate::detector::{Detector, History, Slot};
use crate::memory::{Memory, Place};
use crate::report::{Fault, Report};

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

/// A launch that runs.
pub(super) struct Execution<'a> {
    pub(super) memory: &'a Memory,
    pub(super) observer: &'a dyn Observer,
    pub(super) launch: &'a Launch<'a>,
    pub(super) detector: Detector,
    pub(super) history: &'a dyn History,
    pub(super) arguments: *mut *mut c_void,
    pub(super) threads: Vec<Thread>,
    pub(super) blocks: Vec<Block>,
    /// The slots of threads that are ready or spin.
    pub(super) runnable: Vec<Slot>,
    /// The priority of each warp.
    pub(super) priorities: Vec<u32>,
    pub(super) current: Slot,
    /// Where the scheduler's stack was when a thread went on.
    pub(super) home: *mut u8,
    pub(super) random: Random,
    pub(super) preemption: f64,
    pub(super) until_preemption: u64,
    /// The blocks in the order in which they begin, and how many have begun and are over.
    pub(super) order: Vec<usize>,
    pub(super) begun: usize,
    pub(super) over: usize,
    pub(super) reports: Vec<Report>,
    pub(super) seen: HashSet<(Fault, u32, u32)>,
    pub(super) is_stopped: bool,
    /// The turns of threads that spin since another one had its turn, and when they began.
    pub(super) idle: Option<(usize, Instant)>,
    pub(super) accesses: u64,
    pub(super) switches: u64,
    /// Whether a thread published to the host.
    pub(super) publishes_to_host: bool,
}

impl<'a> Execution<'a> {
    pub(super) fn new(
        (memory, observer): (&'a Memory, &'a dyn Observer),
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
            observer,
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
            publishes_to_host: false,
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
            while (*this).goes_on() {
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

    /// Whether blocks are left to run, and nothing has stopped the launch.
    fn goes_on(&self) -> bool {
        self.over < self.order.len() && !self.is_stopped && !self.observer.is_lost()
    }

    /// What the launch did. Frees what its blocks still have.
    pub(super) fn outcome(mut self) -> Outcome {
        (0..self.blocks.len()).for_each(|place| self.free_shared(place));
        self.threads.drain(..).for_each(|thread| thread.stack.give());
        let Self { reports, accesses, switches, publishes_to_host, .. } = self;
        Outcome { reports, accesses, switches, publishes_to_host }
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
    pub(super) fn can_go_on(&self, slot: Slot) -> bool {
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
    pub(super) unsafe fn stop_in_state(this: *mut Self) {
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
