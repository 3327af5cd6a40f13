//! The CPU device: each worker a group of pinned threads over shared weights and slots.
//!
//! Each folder or file uses only those above it in this table:
//!
//! | folder or file | idea |
//! |---|---|
//! | `memory/` | rows of requests, state slots of chains, rows that were computed before they are needed |
//! | `threads/` | threads that run a job together, phase by phase |
//! | `strategies/` | execution strategies, plans, and the choice among strategies while batches run |
//! | `config.rs` | the configuration of a device |
//! | `cells/` | how batches of each kind of cell run |
//! | `tuning/` | the search for the best configuration of a cell, by a performance model and trials |
//! | `processor.rs` | a description of this processor |
//! | `device_state.rs` | the cells and requests of a device, which its queues share |
//! | `queue.rs` | the tasks of a worker, which run on the thread that polls |
//! | `device.rs` | the device |
//!
//! Nothing is gathered for a recurrent step: the kernel takes each row by its pointers, into the
//! request's own values, an embedding table, or a slot.

mod cells;
mod config;
mod device;
mod device_state;
mod memory;
mod processor;
mod queue;
mod strategies;
mod threads;
pub mod tuning;

pub use batchmaker_executor::{
    CellExecutor, Executor, ExecutorError, OnnxRuntime, OnnxRuntimeError,
};
pub use batchmaker_kernels::Isa;
pub use config::CpuConfig;
pub use device::CpuDevice;
pub use strategies::execution_strategy::InputProjection;
pub use threads::slices::{Slices, ask_for_slices};
