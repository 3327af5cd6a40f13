//! The search for the best configuration of a recurrent cell: a performance model ranks the configurations,
//! and the first few are run.
//!
//! Public for `examples/ranking.rs`, which judges it. Others ask the device: [`Device::measure`].
//!
//! | file | idea |
//! |---|---|
//! | `configurations.rs` | the configurations that a batch can run in |
//! | `machine_model.rs` | the rates of this machine's memory, forks and barriers |
//! | `probe.rs` | the costs of the kernels of a kind of cell |
//! | `trial.rs` | a cell alone, run in any configuration |
//! | `performance_model.rs` | the predicted cost of a configuration |
//! | `search.rs` | the best configuration: the model ranks all, the first few are run |
//! | `programs.rs` | times of programs, of all of one or of each operator |
//! | `measuring.rs` | batches of a cell measured, for [`Device::measure`] |
//!
//! [`Device::measure`]: batchmaker_device::Device::measure

mod configurations;
mod machine_model;
pub(crate) mod measuring;
mod performance_model;
mod probe;
mod programs;
mod search;
pub(crate) mod trial;

pub use batchmaker_kernels::{Packing, Precision, Tiling};
pub use configurations::{Configuration, Shape};
pub use machine_model::MachineModel;
pub use performance_model::PerformanceModel;
pub use probe::Probe;
pub use search::{CANDIDATES, candidates, rank, search};
pub use trial::Trial;

pub use crate::strategies::execution_strategy::{ExecutionStrategy, Split};
