//! The HTTP door: the Open Inference Protocol v2 with Triton's extensions.

mod body;
mod connection;
mod describe;
mod error;
mod generate;
mod infer;
mod reply;
mod response;
mod router;
mod state;
mod target;

pub(crate) use body::BodyLimits;
pub(crate) use connection::serve_port;
pub(crate) use router::{metrics_router, router};
pub(crate) use state::HttpState;
