//! The engine: threads, channels and the clock. It joins the manager and a device. Programs use it
//! through the crate `batchmaker`.
//!
//! ```text
//!  submit ──► device.admit ──► inbox ──► worker thread ──► manager ──► rounds ──► device queue
//!    ▲                                       │    ▲                                  │
//!    └── Pending ◄── reply, device.retire ◄──┘    └────── tasks, steps, values ◄─────┘
//! ```
//!
//! Each worker has a thread. There is no manager thread: the manager is behind a lock and runs on
//! whichever worker asks for work. A worker without work blocks on its bell, which its queue rings when
//! it has something to report, as does a thread that submits a request.

#![forbid(unsafe_code)]

mod admission;
mod alarms;
mod config;
mod engine;
mod error;
mod idle_polling;
mod inbox;
mod lock;
mod manager_config;
mod memory;
mod needs;
mod pending;
mod permit;
mod reply;
mod request;
mod request_table;
mod responder;
mod served_model;
mod sessions;
mod shared;
mod statistics;
mod streaming;
mod waiting;
mod watch;
mod worker;

pub use batchmaker_graph::{ElementType, NamedTensor, Parameters, Tensor, TensorData};
pub use batchmaker_manager::{Fairness, PadTo, Padding, Policy};
pub use config::{BatchLimits, EngineConfig};
pub use engine::Engine;
pub use error::EngineError;
pub use memory::{MemoryBudget, Reservation};
pub use pending::Pending;
pub use permit::{NotUnfolded, Permit, UnfoldedRequest, WaitingRequest};
pub use reply::Reply;
pub use request::{Request, SessionChunk, SessionKey};
pub use statistics::{CellStatistics, SessionStatistics, Statistics};
pub use watch::HungWorker;
