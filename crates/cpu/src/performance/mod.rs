//! What a configuration of a recurrent cell costs, predicted.

mod configurations;
mod limits;
mod model;
mod probe;
mod search;

pub use configurations::Shape;
pub use limits::Limits;
pub use model::PerformanceModel;
pub use probe::Probe;
pub use search::{CANDIDATES, candidates, rank, search};
