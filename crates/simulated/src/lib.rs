//! Simulated devices, which detect misuse by the manager or the engine.
//!
//! | file | idea |
//! |---|---|
//! | `virtual_device.rs` | a device in virtual time, which runs tasks and detects misuse |
//! | `batch.rs` | one batch of its tasks: reads rows and states, computes, writes |
//! | `memory.rs` | its rows and states: which task wrote them, and which workers hold them |
//! | `progress.rs` | the batches that its workers have completed, whose rows others may read |
//! | `misuse.rs` | a misuse: something that the contract forbids |
//! | `arithmetic.rs` | how rows are computed from rows |
//! | `hashes.rs` | rows that are hashes, for the simulator |
//! | `cells.rs` | rows that are real, for the engine and the conformance suite |
//! | `core.rs` | the virtual device behind a lock, which the units of the workers share |
//! | `unit.rs` | a thread for each worker, and its queue |
//! | `device.rs` | the device behind the contract, in real time |
//! | `faults.rs` | delays, failures and losses, drawn from a seed |
//! | `split_mix.rs` | the generator of random numbers |

#![forbid(unsafe_code)]

mod arithmetic;
mod batch;
mod cells;
mod core;
mod device;
mod faults;
mod hashes;
mod memory;
mod misuse;
mod progress;
mod split_mix;
mod unit;
mod virtual_device;

pub use arithmetic::Arithmetic;
pub use device::{SimulatedConfig, SimulatedDevice};
pub use faults::Faults;
pub use hashes::{Hashes, cell_output, is_end, is_true};
pub use memory::{Contents, Datum};
pub use misuse::Misuse;
pub use virtual_device::{CellCost, Fate, Started, VirtualConfig, VirtualDevice};
