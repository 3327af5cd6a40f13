//! What the emulator reports of a kernel.

use std::fmt;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// Two accesses of the same bytes, at least one of them a write, that nothing orders; unless both are atomic, and the scope of each includes the
    /// other's thread.
    DataRace,
    /// An access of bytes that belong to no allocation.
    OutOfBounds,
    /// An atomic operation at an address that is no multiple of its bytes, or another access at one that is no multiple of its type's alignment.
    Misaligned,
    /// A read of bytes that nobody has written.
    UninitialisedRead,
    /// A read through the read-only cache of bytes that the same launch writes, before or after.
    ReadOnlyWritten,
    /// Threads of a block that wait at different barriers.
    DivergentBarrier,
    /// A warp instruction whose mask lacks its own thread, or threads that wait for each other with different masks.
    WarpMask,
    /// A shuffle that reads from a thread that does not take part.
    ShuffleSource,
    /// An atomic operation on memory of the host whose scope is not the system's, or a store there that publishes nothing to the host: neither does it
    /// release, nor was the last fence before it one of the system's scope.
    HostScope,
    /// Threads that wait for what no thread will do.
    Deadlock,
    /// More threads than the emulator runs, or a launch that does not end.
    Limit,
}

impl Fault {
    /// Whether nothing sensible can be run after the fault.
    pub(crate) fn is_fatal(self) -> bool {
        matches!(
            self,
            Self::OutOfBounds | Self::Misaligned | Self::WarpMask | Self::Deadlock | Self::Limit
        )
    }

    fn name(self) -> &'static str {
        match self {
            Self::DataRace => "data race",
            Self::OutOfBounds => "access out of bounds",
            Self::Misaligned => "misaligned access",
            Self::UninitialisedRead => "read of uninitialised memory",
            Self::ReadOnlyWritten => "read-only load of written memory",
            Self::DivergentBarrier => "barrier in divergent code",
            Self::WarpMask => "wrong mask of a warp instruction",
            Self::ShuffleSource => "shuffle from a thread that takes no part",
            Self::HostScope => "too narrow a scope for memory of the host",
            Self::Deadlock => "deadlock",
            Self::Limit => "limit of the emulator",
        }
    }
}

/// A fault, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The kind of fault.
    pub fault: Fault,
    /// The kernel's name.
    pub kernel: String,
    /// The memory, threads and lines of source.
    pub detail: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.kernel, self.fault.name(), self.detail)
    }
}
