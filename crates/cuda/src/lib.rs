//! NVIDIA GPUs as a device, with a worker for each.
//!
//! | module | idea |
//! |---|---|
//! | `device.rs`, `config.rs` | the device behind the contract of `batchmaker-device` |
//! | `state.rs`, `worker.rs` | what its queues share; a GPU with its memory |
//! | `queue/` | the queue of a worker: tasks, rosters, programs, reads |
//! | `cells/` | cells as GPUs run them, with their weights |
//! | `memory/` | values of requests, states in slots |
//! | `gpu/` | the driver |
//! | `mapping/` | how threads of persistent kernels are mapped to cells, and what a mapping costs |
//! | `tuning/` | how a GPU chooses among them |
//! | `kernels/` | the kernels, and what their launchers must agree on with them |
//!
//! No GPU has run it yet: `cargo xtask emulate` runs it on an emulated driver.
#![deny(unsafe_code)]

mod cells;
mod config;
mod device;
mod gpu;
pub mod kernels;
mod lock;
pub mod mapping;
mod memory;
mod queue;
mod state;
mod tuning;
mod worker;

pub use config::{Compile, CudaConfig, Quantum};
pub use device::CudaDevice;
pub use gpu::{Images, nvrtc};
pub use tuning::KernelTimer;
