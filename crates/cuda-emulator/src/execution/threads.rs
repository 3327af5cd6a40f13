//! The threads and blocks of a launch that are resident.

use std::ffi::{c_char, c_void};

use super::fiber::Stack;
use super::warp::Instruction;
use crate::abi::Dim3;
use crate::detector::Slot;
use crate::memory::DevicePointer;

/// A place in the code of a kernel's library: a return address.
pub(super) type Site = *const c_void;

/// A barrier of the source: its file and line.
pub(super) type Barrier = (*const c_char, u32);

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It goes on when it is its turn.
    Ready,
    /// It loads the same value again and again, with atomic operations.
    Spinning(Load),
    /// It waits at a barrier of its block.
    AtBarrier,
    /// It waits for the others of its warp instruction.
    InWarp,
    /// It is over, or was stopped.
    Ended,
}

/// A value that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) at: *mut u8,
    pub(super) bytes: usize,
    pub(super) value: u64,
}

/// A thread of a block.
pub(super) struct Thread {
    pub(super) stack: Stack,
    /// Where its stack was when it stopped.
    pub(super) place: *mut u8,
    pub(super) state: State,
    pub(super) position: Dim3,
    /// The place of its block among those that are resident.
    pub(super) block: usize,
    /// Its place in its warp.
    pub(super) lane: usize,
    /// The slot of the first thread of its warp.
    pub(super) warp: Slot,
    /// Where it waits.
    pub(super) site: Site,
    /// The instruction that it waits in, and what it returns.
    pub(super) instruction: Instruction,
    pub(super) result: u32,
    /// What it has just loaded with an atomic operation that left it as it was, if it has done nothing else since.
    pub(super) last_load: Option<Load>,
}

/// A block.
pub(super) struct Block {
    pub(super) index: Dim3,
    /// Its threads that are not over.
    pub(super) live: usize,
    /// Its threads that wait at a barrier.
    pub(super) waiting: usize,
    /// The barrier that they wait at, and where it is.
    pub(super) barrier: Option<(Barrier, Site)>,
    /// Its shared memory: the address of a variable's key, null for dynamic memory, where it lies, and its bytes.
    pub(super) shared: Vec<(*const c_void, DevicePointer, usize)>,
}

/// The position of the element `number` of a grid of this size, x first.
pub(super) fn position(number: usize, [x, y, _]: [u32; 3]) -> Dim3 {
    let (number, x, y) = (number as u32, x.max(1), y.max(1));
    Dim3 { x: number % x, y: number / x % y, z: number / (x * y) }
}
