//! The contract between the engine and what computes.
//!
//! A [`Device`] holds weights, requests' values and chains' states, for one or more workers.
//! Each worker drives one [`TaskQueue`] of it: tasks are submitted without waiting, run in
//! order, and are counted as they complete.
//!
//! Also here: a [`SimulatedDevice`] with virtual time, for the simulator.

#![forbid(unsafe_code)]

pub mod conformance;
mod contract;
mod simulated;

pub use contract::{Device, DeviceError, Progress, TaskQueue};
pub use simulated::{
    CellCost, Datum, Fate, Misuse, SimulatedConfig, SimulatedDevice, SimulatedMemory, Started,
    cell_output, says_stop,
};
