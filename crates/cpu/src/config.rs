//! The configuration of a CPU device.

use batchmaker_executor::{BATCH_BYTES_MAX, Executor, ProgramOptions, packing};
use batchmaker_graph::Cell;
use batchmaker_kernels::{Isa, Packing};

use crate::strategies::execution_strategy::InputProjection;

/// The configuration of a CPU device.
#[derive(Clone, Debug)]
pub struct CpuConfig {
    /// Workers, which lend each other their cores while they are idle; at least 1. A device may have others, which borrow none.
    pub workers: usize,
    /// Threads of each worker, the worker's own included; at least 1.
    pub threads_per_worker: usize,
    /// The instruction set of fused kernels, products and convolutions.
    pub isa: Isa,
    /// Whether thread `t` of worker `w` stays on core `w * threads_per_worker + t` of those
    /// that the process may use.
    pub pin_threads: bool,
    /// Whether inputs are projected before the steps that need them.
    pub input_projection: InputProjection,
    /// The most bytes that a batch of several rows or sequences takes which the general executor runs: each worker may
    /// take as many at any time.
    pub batch_bytes_max: u64,
    /// The executor of programs.
    pub executor: Executor,
}

impl CpuConfig {
    /// The packing of the weights of a cell.
    pub(crate) fn packing(&self, cell: &Cell) -> Packing {
        packing(self.isa, cell.precision)
    }

    /// The executor and the packing of the program of a cell.
    pub(crate) fn program_options(&self, cell: &Cell) -> ProgramOptions {
        ProgramOptions { executor: self.executor.clone(), packing: self.packing(cell) }
    }
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            threads_per_worker: 1,
            isa: Isa::best(),
            pin_threads: false,
            input_projection: InputProjection::default(),
            batch_bytes_max: BATCH_BYTES_MAX,
            executor: Executor::Own,
        }
    }
}
