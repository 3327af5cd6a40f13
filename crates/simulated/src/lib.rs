//! Simulated devices, which detect misuse by the manager or the engine.
//!
//! | file | idea |
//! |---|---|
//! | `virtual_device.rs` | a device in virtual time, which runs tasks and detects misuse |
//! | `memory.rs` | its rows and states: by whom they were written, and who holds them |
//! | `progress.rs` | what its workers have completed, so that others may read it |
//! | `misuse.rs` | a misuse: something that the contract forbids |
//! | `arithmetic.rs` | what its nodes compute with |
//! | `hashes.rs` | rows that are hashes, for the simulator |
//! | `cells.rs` | rows that are real, for the engine and the conformance suite |
//! | `device.rs` | the virtual device behind the contract, in real time |
//! | `unit.rs` | a thread for each worker, and its queue |
//! | `faults.rs` | delays, failures and losses, drawn from a seed |

#![forbid(unsafe_code)]

mod arithmetic;
mod cells;
mod device;
mod faults;
mod hashes;
mod memory;
mod misuse;
mod progress;
mod unit;
mod virtual_device;

pub use arithmetic::Arithmetic;
pub use device::{SimulatedConfig, SimulatedDevice};
pub use faults::Faults;
pub use hashes::{Hashes, cell_output, is_end};
pub use memory::{Contents, Datum};
pub use misuse::Misuse;
pub use virtual_device::{CellCost, Fate, Started, VirtualConfig, VirtualDevice};
