//! The HTTP door: the Open Inference Protocol v2 with Triton's extensions.

mod body;
mod connection;
mod connections;
mod describe;
mod error;
mod generate;
mod infer;
mod need;
mod port;
mod reply;
mod reply_body;
mod response;
mod router;
mod state;
mod stop;
mod taking;
mod target;
mod watched_stream;

pub(crate) use body::BodyLimits;
pub(crate) use connection::{Serving, connection_bytes};
pub(crate) use connections::ConnectionLimits;
pub(crate) use port::serve_port;
pub(crate) use router::{metrics_router, router};
pub(crate) use state::HttpState;
