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
//! [`scheduler`](self) holds Algorithm 1; `request_processor` tracks which nodes
//! are ready; `roster` is the standing batch that makes a steady step cost nothing a
//! node; `slot_table` hands out places for state.
//!
//! # Watermarks
//! A node is ready for a worker when what it depends on has *completed*, or has been
//! *submitted to that same worker*, which runs its tasks in order.

#![forbid(unsafe_code)]

mod config;
mod event;
mod manager;
mod queue;
mod request_processor;
mod roster;
mod scheduler;
mod slot_table;
mod subgraph;

pub use config::{BatchSizes, CellTypeConfig, Config, StatePlacement, TaskForm};
pub use event::{Event, Failure, Finished, Outcome};
pub use manager::{CellTypeStatistics, Manager};
