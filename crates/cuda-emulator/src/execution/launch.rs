//! A launch, the order of its threads, and what came of it.

use crate::kernel::Kernel;
use crate::report::Report;

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'a Kernel,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: usize,
    /// The most blocks that run at a time: others begin when one is over.
    pub resident_blocks_max: usize,
    /// The bytes of each argument.
    pub arguments: Vec<Vec<u8>>,
}

/// The order in which threads run.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Two launches with the same seed and arguments run alike.
    pub seed: u64,
    /// The probability with which another thread goes on at a load or store.
    pub preemption: f64,
}

impl Schedule {
    /// The schedule of a seed.
    pub fn of_seed(seed: u64) -> Self {
        Self { seed, preemption: 0.001 }
    }
}

/// What a launch did.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was wrong, at most 20 faults; none in a launch that ran to its end by the rules.
    pub reports: Vec<Report>,
    /// Loads and stores of device and shared memory.
    pub accesses: u64,
    /// Switches from thread to thread.
    pub switches: u64,
    /// Whether a thread stored a value in memory of the host that publishes to it: the store released in the system's scope, or was a relaxed one of
    /// that scope after a fence of it. A host that polls the value then sees what precedes the store.
    pub publishes_to_host: bool,
}
