//! The configuration of a device of GPUs.

use std::time::Duration;

use crate::gpu::Images;

/// Compiles a source, which may include the headers of kernels, for an architecture, 90 for sm_90. An error is the reason.
pub type Compile = fn(&str, u32) -> Result<Vec<u8>, String>;

/// The configuration of a device of GPUs.
#[derive(Clone, Debug)]
pub struct CudaConfig {
    /// The GPUs, by their numbers: a worker for each.
    pub gpus: Vec<usize>,
    /// The compiled kernels.
    pub images: Images,
    /// Bytes of a GPU's memory that are taken from the driver at a time; 0: each allocation by itself, for tools that watch accesses.
    pub block_bytes: usize,
    /// Whether memory is filled with what is no number before it is used, so that a kernel that reads what nothing wrote is noticed.
    pub fills_memory: bool,
    /// The most bytes that the values of all requests may hold; none: half of the memory that is free at the start.
    pub bytes_max: Option<usize>,
    /// The most bytes of a GPU that products of inputs take which are made ahead of the steps of a task; 0: each step makes its own. A step of 512 rows of
    /// an LSTM of 1,024 units takes 8 MiB.
    pub projected_bytes: usize,
    /// What compiles kernels that are made for one recurrent cell, whose weights stay on the chip for all steps of a task, such as
    /// [`nvrtc`](crate::nvrtc). None: recurrent cells have the kernels that all share.
    pub persistent: Option<Compile>,
    /// The most graphs of a worker: the launches of a roster's task, of a cell without a kernel of its own, that are submitted together. Tasks have the same
    /// launches as long as the cell, the number of steps, the power of two from the number of rows on, and whether anything is written are the same, and
    /// memory need not grow. 0: each launch is submitted by itself.
    pub graphs_max: usize,
    /// Launches of such kernels that run task after task of a roster. None: each task has a launch of its own.
    pub quantum: Option<Quantum>,
    /// Threads of each worker for programs, which the host runs.
    pub program_threads: usize,
    /// The time that the thread which waits for a GPU polls for completions before it sleeps.
    pub poll_for: Duration,
}

/// How long a launch runs task after task of a roster: other work of its GPU ends it sooner.
#[derive(Clone, Copy, Debug)]
pub struct Quantum {
    /// The most steps of a launch. A first task that has more runs alone.
    pub steps_max: u32,
    /// The most looks for a task, about half a microsecond each, after which the launch ends.
    pub looks_max: u32,
}

impl Default for Quantum {
    fn default() -> Self {
        Self { steps_max: 256, looks_max: 2048 }
    }
}

impl Default for CudaConfig {
    fn default() -> Self {
        Self {
            gpus: vec![0],
            images: Images::default(),
            block_bytes: 64 << 20,
            fills_memory: false,
            bytes_max: None,
            projected_bytes: 64 << 20,
            graphs_max: 64,
            persistent: None,
            quantum: None,
            program_threads: 1,
            poll_for: Duration::from_micros(500),
        }
    }
}
