//! What a configuration of a recurrent cell costs, predicted, and the search for the fastest.
//!
//! Public for `examples/ranking.rs`, which judges it. Others ask the device: [`Device::measure`].
//!
//! [`Device::measure`]: batchmaker_device::Device::measure

mod configurations;
mod machine_model;
pub(crate) mod measuring;
mod performance_model;
mod probe;
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
