//! The manager of section 4 of the BatchMaker paper: request processor and scheduler, as
//! a state machine without clock, threads or I/O.
//!
//! # Driving it
//! Whoever owns a [`Manager`] tells it what happened ([`Manager::handle`] with the time
//! in nanoseconds), asks for work on behalf of a worker ([`Manager::next_task`] until
//! that gives none), and collects the requests that ended
//! ([`Manager::drain_finished`]). The tasks of a worker must be run in the order in which they were
//! given out, and told as complete in that order. Threads and the simulator
//! drive the same code.
//!
//! # Reading it
//! [`Policy`] names the policies. `cellular` is the paper's own: `cellular/scheduler.rs` is
//! Algorithm 1. `graph_batching` is what the paper compares it with. Both hand out places for state
//! from a `slot_table`.

#![forbid(unsafe_code)]

mod cellular;
mod config;
mod event;
mod graph_batching;
mod manager;
mod slot_table;
mod tally;

pub use config::{
    BatchSizes, CellTypeConfig, Config, Merging, PadTo, Padding, Policy, StatePlacement, TaskForm,
};
pub use event::{Event, Failure, Finished, Outcome};
pub use manager::{CellTypeStatistics, Manager};
