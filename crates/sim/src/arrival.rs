//! A request, or a chunk of a session, that arrives in a scenario.

use std::sync::Arc;

use batchmaker_graph::{CellGraph, ModelId};

/// When a request arrives, and what it asks for.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    pub(crate) time_ns: u64,
    pub(crate) model: ModelId,
    pub(crate) priority: u32,
    /// The time from the arrival to the deadline, in nanoseconds.
    pub(crate) allowed_ns: Option<u64>,
    pub(crate) graph: Arc<CellGraph>,
}
