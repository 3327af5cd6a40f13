//! The HTTP server: the Open Inference Protocol v2 with Triton's binary tensors, metrics, and an
//! orderly end.
//!
//! | file | idea |
//! |---|---|
//! | `config.rs` | the configuration of a server |
//! | `lifecycle.rs` | bind, run, drain |
//! | `log.rs` | lines on standard error, for which nothing waits |
//! | `serving/` | what every transport shares: |
//! | `serving/app.rs` | the engine, the models' records, the metrics |
//! | `serving/parameters.rs` | what a request's parameters mean; unknown ones are ignored |
//! | `serving/tensors.rs`, `classification.rs` | tensors of the protocol and of the engine, and outputs as classes |
//! | `serving/exchange.rs` | a request to the engine, within the budget, and the engine's reply as a response |
//! | `serving/heavy_work.rs` | work on what is large, on threads of its own |
//! | `serving/deadline.rs` | until when a client waits |
//! | `serving/generation.rs` | text in, text out, whole or as it is computed |
//! | `serving/reports.rs` | metadata, configuration, statistics, index |
//! | `serving/error.rs`, `outcome.rs` | why a request has no reply, and how metrics count it |
//! | `serving/attempt.rs` | the outcome of a request, recorded exactly once |
//! | `serving/metrics.rs`, `exposition.rs` | Prometheus metrics, and the order of their text |
//! | `serving/offline.rs` | requests and replies as lines, without a network |
//! | `http/` | the HTTP door: |
//! | `http/port.rs` | one port: accepts connections, and stops without losing one |
//! | `http/connections.rs` | how many connections there are, which are idle, which clients are too slow |
//! | `http/connection.rs` | one connection: its limits, and how it ends |
//! | `http/watched_stream.rs`, `reply_body.rs` | how far a client is with what it is sent |
//! | `http/router.rs`, `target.rs` | paths and verbs, and the model that a path names |
//! | `http/infer.rs`, `generate.rs`, `describe.rs` | the handlers |
//! | `http/body.rs` | reading a body within limits of size, memory and patience |
//! | `http/reply.rs` | a reply, encoded and compressed; its memory is free with its last byte |
//! | `http/error.rs`, `response.rs` | the table of statuses, and responses of JSON |
//!
//! Nothing here batches or waits for a batch: a handler submits its request and awaits the reply.
//! When its client leaves, the handler or the streamed body is dropped, and with it the request. Types of
//! the wire end in this crate.
//!
//! ```no_run
//! # async fn example(engine: batchmaker::Engine) -> Result<(), batchmaker_server::ServerError> {
//! use batchmaker_server::{Server, ServerConfig};
//!
//! let server = Server::bind(ServerConfig::default(), engine.into())?;
//! println!("ready http://{}", server.addresses().http);
//! let stopped = server.run(async { /* until a signal comes */ }).await;
//! println!("{stopped:?}");
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

mod config;
mod http;
mod lifecycle;
mod log;
mod serving;

pub use config::ServerConfig;
pub use lifecycle::{Addresses, ListenError, Ports, Server, ServerError, Stopped};
pub use log::{flush_log, log, log_details};
pub use serving::offline;
