//! The CPU device: each worker a group of pinned threads over shared weights and slots.
//!
//! | file | idea |
//! |---|---|
//! | `device.rs` | the device: its cells, and the requests in flight |
//! | `queue.rs` | the tasks of a worker, which run on the thread that polls |
//! | `cell.rs` | a cell type, packed or compiled, and batches of it |
//! | `chains.rs` | a batch of chains as rows of a fused kernel: rosters, states, outputs |
//! | `batch_job.rs` | some steps of a batch, divided among threads |
//! | `projections.rs` | inputs projected ahead |
//! | `embedding.rs` | an embedding in front of a recurrent cell, and what its rows project to |
//! | `measuring.rs` | what batches of a cell cost, and how they run the fastest, without requests |
//! | `plan.rs` | plans: how to run a cell, as was found before it runs here |
//! | `processor.rs` | what this processor is, in words |
//! | `trial.rs` | a recurrent cell alone, in any configuration |
//! | `performance/` | what configurations cost, predicted, and the search for the best |
//! | `tuner.rs` | which way of running a batch is the fastest |
//! | `tree_nodes.rs` | a batch of TreeLSTM nodes as rows of a fused kernel |
//! | `remembered.rs` | rows that are a function of one word, computed once and kept |
//! | `whole.rs` | sequence-level programs over the values of requests, run by the general executor |
//! | `staged_chains.rs` | a batch of chains whose steps are programs |
//! | `staged.rs` | cells in stages: programs, and steps of recurrent operators between them |
//! | `request_memory.rs` | the values of one request |
//! | `state_arena.rs` | the state slots of one cell type |
//! | `row_arena.rs` | memory that grows and never moves |
//! | `thread_group.rs` | threads that start a job together |
//! | `stages.rs` | a job's work in stages, divided among threads as they come to it |
//! | `signal.rs` | waiting for another thread |
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

pub use batchmaker_kernels::Isa;
pub use config::CpuConfig;
pub use device::CpuDevice;
pub use strategies::execution_strategy::ProjectionAhead;
