//! What a configuration of a recurrent cell costs, predicted, and the search for the fastest.
//!
//! Public for `examples/ranking.rs`, which judges it. Others ask the device: [`Device::measure`].
//!
//! [`Device::measure`]: batchmaker_device::Device::measure

mod configurations;
mod limits;
mod model;
mod probe;
mod search;

pub use batchmaker_kernels::{Packing, Precision, Tiling};
pub use configurations::Shape;
pub use limits::Limits;
pub use model::PerformanceModel;
pub use probe::Probe;
pub use search::{CANDIDATES, candidates, rank, search};

pub use crate::trial::{Configuration, Trial};
pub use crate::tuner::{Split, Way};
