//! The contract between the engine and what computes.
//!
//! A [`Device`] holds weights, requests' values and chains' states, for one or more workers.
//! Each worker drives one [`TaskQueue`] of it: tasks are submitted without waiting, run in
//! order, and are counted as they complete.

#![forbid(unsafe_code)]

pub mod conformance;
mod contract;

pub use contract::{Device, DeviceError, Progress, TaskQueue};
