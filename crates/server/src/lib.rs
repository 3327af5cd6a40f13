//! The HTTP server: the Open Inference Protocol v2 with Triton's binary tensors, metrics, and an
//! orderly end.
//!
//! | file | idea |
//! |---|---|
//! | `config.rs` | what a server is told when it starts |
//! | `lifecycle.rs` | bind, run, drain |
//! | `connection.rs` | one port and its connections: timeouts, and how they end |
//! | `router.rs` | paths and verbs |
//! | `target.rs` | the model that a path names |
//! | `describe.rs` | health, metadata, configuration, statistics, index: what is asked with no tensors |
//! | `infer.rs` | one inference request from body to reply |
//! | `exchange.rs` | a request of the wire to the engine, the engine's reply to the wire |
//! | `offline.rs` | requests and replies as lines, without a network |
//! | `parameters.rs` | what a request's parameters mean; those that mean nothing are refused |
//! | `body.rs` | reading a body within limits of size and patience |
//! | `convert.rs` | tensors of the wire and of the engine |
//! | `status.rs` | errors: the table of their statuses |
//! | `attempt.rs` | how a request went, recorded exactly once |
//! | `metrics.rs` | Prometheus |
//!
//! Nothing here batches or waits for a batch: a handler submits its request and awaits the reply.
//! When its client leaves, the handler is dropped, and with it the request. Types of the wire end
//! in this crate.
//!
//! ```no_run
//! # async fn example(engine: batchmaker_engine::Engine) -> Result<(), batchmaker_server::ServerError> {
//! use batchmaker_server::{Server, ServerConfig};
//!
//! let server = Server::bind(ServerConfig::default(), engine.into())?;
//! println!("ready http://{}", server.addresses().http);
//! let stopped = server.run(async { /* until a signal comes */ }).await;
//! println!("{stopped:?}");
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

mod attempt;
mod body;
mod config;
mod connection;
mod convert;
mod describe;
mod exchange;
mod generate;
mod infer;
mod lifecycle;
mod metrics;
pub mod offline;
mod parameters;
mod router;
mod status;
mod target;

pub use config::ServerConfig;
pub use lifecycle::{Addresses, Server, ServerError, Stopped};
