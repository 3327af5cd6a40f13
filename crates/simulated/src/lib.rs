//! The simulated device: it computes hashes in virtual time, and watches how it is used.

#![forbid(unsafe_code)]

mod simulated;

pub use simulated::{
    CellCost, Datum, Fate, Misuse, SimulatedConfig, SimulatedDevice, Started, cell_output,
    says_stop,
};
