//! Everything that is independent of the transport: parameters and tensors of a request,
//! deadlines, text generation, the outcome of a request and its metrics. Nothing here knows HTTP.

pub(crate) mod app;
pub(crate) mod attempt;
pub(crate) mod blocks;
pub(crate) mod classification;
pub(crate) mod deadline;
pub(crate) mod error;
pub(crate) mod exchange;
pub(crate) mod exposition;
pub(crate) mod generation;
pub(crate) mod heavy_work;
pub(crate) mod metrics;
pub mod offline;
pub(crate) mod outcome;
pub(crate) mod parameters;
pub(crate) mod reports;
pub(crate) mod tensors;
