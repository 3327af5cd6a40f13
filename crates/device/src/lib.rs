//! The contract between the engine and what computes.
//!
//! A [`Device`] holds weights, requests' values and chains' states, for one or more workers. Each
//! worker drives one [`TaskQueue`] of it: rounds of tasks are submitted without waiting, run in order,
//! and are reported as they complete.
//!
//! | file | idea |
//! |---|---|
//! | `contract.rs` | what a device does, and what it says of itself |
//! | `bell.rs` | how a worker that waits is woken |
//! | `chain.rs` | what a chain in a batch does from step to step, and the roster: for devices to use |
//! | `lone_worker.rs` | one worker driven by hand, for measurements and tests |
//! | `cells_alone.rs` | how long batches of a cell take on that worker |
//! | `plan.rs` | what a device found out about running a cell |
//! | `conformance/` | the suite that every device passes |
//! | `reference/` | the equations of cells in f64: what devices are compared with |

#![forbid(unsafe_code)]

mod bell;
mod cells_alone;
mod chain;
pub mod conformance;
mod contract;
mod lone_worker;
mod plan;
pub mod reference;

pub use bell::Bell;
pub use cells_alone::{CellsAlone, Effort};
pub use chain::{Chain, Origin, Roster, RosterError};
pub use contract::{
    Capabilities, Completion, Device, DeviceError, Materialized, Read, Runner, StatePlace,
    TaskDone, TaskQueue,
};
pub use lone_worker::LoneWorker;
pub use plan::{ExecutionPlan, Measurement, Roofs};
