//! The contract between the engine and the devices that compute.
//!
//! A [`Device`] holds weights, requests' values and chains' states, for one or more workers. Each
//! worker drives one [`TaskQueue`] of it: rounds of tasks are submitted without waiting, run in order,
//! and are reported as they complete.
//!
//! | file | idea |
//! |---|---|
//! | `contract.rs` | the interface of a device, and its capabilities |
//! | `bell.rs` | the bell that wakes a waiting worker |
//! | `chain.rs` | a chain in a batch from step to step, and the roster: for devices to use |
//! | `lone_worker.rs` | one worker driven by hand, for measurements and tests |
//! | `cell_timer.rs` | the time of batches of a cell on that worker |
//! | `usage.rs` | the use of a worker's own processor and memory |
//! | `plan.rs` | the results of measuring a cell |
//! | `request_table.rs`, `cell_table.rs` | the requests in flight, and the cell types that a device has: for devices to use |
//! | `working_bytes.rs` | the bytes that nodes take while they run: for devices to use |
//! | `conformance/` | the suite that every device passes |
//! | `reference/` | the equations of cells in f64: what devices are compared with |

#![forbid(unsafe_code)]

mod bell;
mod cell_table;
mod cell_timer;
mod chain;
pub mod conformance;
mod contract;
mod lone_worker;
mod plan;
pub mod reference;
mod request_table;
mod usage;
mod working_bytes;

pub use bell::Bell;
pub use cell_table::CellTable;
pub use cell_timer::{CellTimer, Effort};
pub use chain::{Chain, Origin, Roster, RosterError};
pub use contract::{
    Capabilities, Completion, Device, DeviceError, Host, KeptStates, Materialized, Read, Runner,
    StatePlace, TaskDone, TaskQueue,
};
pub use lone_worker::LoneWorker;
pub use plan::{BatchSize, ExecutionPlan, Measurement, OperatorMeasurement, Roofs};
pub use request_table::RequestTable;
pub use usage::Usage;
pub use working_bytes::working_bytes;
