//! The manager of section 4 of the BatchMaker paper: request processor and scheduler, as
//! a state machine without clock, threads or I/O.
//!
//! # Driving it
//! Whoever owns a [`Manager`] reports what happened ([`Manager::handle`] with the time
//! in nanoseconds), asks for work on behalf of a worker ([`Manager::next_task`] until
//! that gives none), and collects the requests that ended
//! ([`Manager::drain_finished`]). The tasks of a worker must be run in the order in which they were
//! given out, and reported as complete in that order; the first steps of a roster's task may be
//! reported before its end ([`Event::Progress`]). Threads and the simulator drive the same code.
//!
//! An event, or tasks given to one worker, can make work for another: [`Manager::has_work_for`]
//! says whether there is any. A worker without work sleeps until that changes, or until
//! [`Manager::next_deadline`], when whoever wakes calls [`Manager::advance`]. With
//! [`Config::lookahead`], a worker that still has tasks may have to be woken as well.
//!
//! # Work in flight
//! A round is formed while at most `lookahead` of the worker's tasks are unfinished.
//! - *To this worker* these are as good as complete, since they run first: nodes that depend on them are
//!   ready, and they do not count as running when the next cell type is chosen.
//! - *To all other workers* they are in flight. A subgraph is pinned to a worker while any task
//!   there with a node of it is unfinished, whether it is still in the worker's standing batch, has
//!   left it, or the worker's rounds have turned to another type. After the last of these tasks any
//!   worker may take it. So a standing batch whose rounds overlap keeps its members, and other
//!   workers take the subgraphs that wait.
//! - *Priorities* decide whenever a batch is formed: a request waits for the tasks that were
//!   submitted before it came, and for no more.
//!
//! # Who goes first
//! Without [`Config::fairness`], and but for models in stages, which share the workers with the others ([`Config::staged_models`]), Algorithm 1 decides alone: the fullest cell types first, then priorities
//! and arrival. Its rules can keep a model, a cell type or a request waiting for as long as others keep
//! coming. Each rule of [`Fairness`] bounds one of these waits, and is on or off by itself:
//! - *Shares* bound what other models take: the model of a round is chosen before its cell type, by
//!   the worker time that it had (`shares.rs`), and a round has a bounded time.
//! - *Patience* bounds how long a cell type waits for a full batch of others (`scheduler.rs`), beside
//!   large requests that fill batches perhaps for less.
//! - *Aging* bounds how long a request waits for those of higher priorities (`aging.rs`). With shares,
//!   it does so within its model.
//! - *Places of large requests* bound how long small requests wait for a large one, and it for them
//!   (`fair_places.rs`). Of a large request that grows old, one slice of each cell type is promoted at
//!   each age: small ones wait for no more of it than that.
//!
//! A request with a deadline is given up when the deadline is reached (`deadlines.rs`), and refused at
//! once where even alone it could not be computed in time (`service_time.rs`). The bound on its time is
//! that of an idle worker, by batches seen of late: what could be met is not refused, as long as tasks
//! are reported when they are complete and do not get faster. What was seen is forgotten when no batch of
//! the kind ran for a second: if all requests are refused, the next one is tried.
//!
//! # The files
//! [`Manager`] (`manager.rs`) passes each [`Event`] (`event.rs`) to the policy that its [`Config`]
//! (`config.rs`) names. All policies implement the trait in `batching.rs`, count batches in
//! `counters.rs`, keep deadlines in `deadlines.rs`, the decisions of requests in `decisions.rs`, the ages of requests in `aging.rs` and worker time by model in `shares.rs`, and take the
//! slots for states of chains from `slot_table.rs`. The rules of fairness are listed in `fairness.rs`.
//!
//! Models in stages may stand beside models under another policy: `policy_per_model.rs` then passes events on and shares the workers out.
//!
//! - `cellular/` is the paper's own policy. A request becomes subgraphs (`request_processor.rs`), which
//!   wait in queues (`queue.rs`) or are members of a worker's standing batch (`roster.rs`) until
//!   their nodes have run. `scheduler.rs` is Algorithm 1. `cellular/mod.rs` follows a request through
//!   the files.
//! - `graph_batching/` is what the paper compares it with: requests wait in buckets, and a batch of
//!   them runs as a whole. `graph_batching/mod.rs` follows a request there.
//! - `staged/` is DVABatch, for models without recurrence that are cut into stages (`stages.rs`), by its
//!   options (`staging.rs`). `staged/mod.rs` follows a request there.

#![forbid(unsafe_code)]

mod aging;
mod batch_in_stages;
mod batching;
mod cellular;
mod config;
mod counters;
mod deadlines;
mod decisions;
mod discarded;
mod event;
mod fairness;
mod graph_batching;
mod live_requests;
mod manager;
mod policy_per_model;
mod shares;
mod slot_table;
mod staged;
mod stages;
mod staging;

pub use batch_in_stages::BatchInStages;
pub use config::{
    BatchSizes, CellTypeConfig, Config, Merging, PadTo, Padding, Policy, StagedModel,
    StatePlacement, TaskForm,
};
pub use discarded::Discarded;
pub use event::{Event, Failure, Finished, Outcome, Undecided};
pub use fairness::Fairness;
pub use manager::{CellTypeStatistics, Manager};
pub use stages::Stages;
pub use staging::{Delay, Diversity, Split, Staging, StagingOptions};
