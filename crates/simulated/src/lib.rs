//! Simulated devices: they watch how they are used.
//!
//! | file | idea |
//! |---|---|
//! | `virtual_device.rs` | a device in virtual time: who holds which row and state, and what is misuse |
//! | `arithmetic.rs` | what its nodes compute with |
//! | `hashes.rs` | rows that are hashes, for the simulator |

#![forbid(unsafe_code)]

mod arithmetic;
mod hashes;
mod virtual_device;

pub use arithmetic::Arithmetic;
pub use hashes::{Hashes, cell_output, is_end};
pub use virtual_device::{CellCost, Datum, Fate, Misuse, Started, VirtualConfig, VirtualDevice};
