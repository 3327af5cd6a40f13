//! The engine: threads, channels and the clock. It joins the manager and a device, and is
//! the public Rust API.
//!
//! ```text
//!  submit ──► device.admit ──► inbox ──► worker thread ──► manager ──► rounds ──► device queue
//!    ▲                                       │    ▲                                  │
//!    └── Pending ◄── reply, device.retire ◄──┘    └────── tasks, steps, values ◄─────┘
//! ```
//!
//! Each worker has a thread. There is no manager thread: the manager is behind a lock and runs on
//! whichever worker asks for work. A worker without work blocks on its bell, which its queue rings when
//! it has something to report, and whoever submits a request.

#![forbid(unsafe_code)]

mod admission;
mod engine;
mod error;
mod manager_config;
mod pending;
mod reply;
mod request_table;
mod sessions;
mod statistics;
mod streaming;
mod waiting;
mod worker;

pub use batchmaker_graph::{ElementType, NamedTensor, Parameters, Tensor, TensorData};
pub use batchmaker_manager::{PadTo, Padding, Policy};
pub use engine::{BatchLimits, Engine, EngineConfig, Request};
pub use error::EngineError;
pub use pending::{Pending, Reply};
pub use sessions::{SessionChunk, SessionKey};
pub use statistics::{CellStatistics, SessionStatistics, Statistics};
