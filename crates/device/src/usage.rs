//! The use of a worker's own processor and memory.

use std::time::Duration;

/// What a worker's processor has done since the device began, where workers have processors and memories of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of the processor's memory that are taken, by whomever.
    pub memory_bytes: u64,
    /// All bytes of its memory.
    pub memory_bytes_max: u64,
    /// The time in which it had work.
    pub busy: Duration,
    /// Bytes that were copied to its memory from the host's.
    pub copied_in: u64,
    /// Bytes that were copied from its memory to the host's.
    pub copied_out: u64,
    /// Bytes that were copied to its memory from those of other workers.
    pub copied_between: u64,
    /// States among them, of chains that went on here.
    pub states_moved: u64,
}
