//! Counts of the engine: batches by the manager, time by the workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use batchmaker_device::Usage;

/// Counts of one cell type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellStatistics {
    /// The cell type's name.
    pub name: String,
    /// Batches since the start.
    pub tasks: u64,
    /// Nodes in them.
    pub nodes: u64,
    /// Rows of padding in them.
    pub padding: u64,
    /// Nodes in them of chains that had reached their end of sequence, which no device computed.
    pub past_end_of_sequence: u64,
    /// The number of batches of each size from 0 on, padding included.
    pub batches_by_size: Vec<u64>,
    /// State slots in use now.
    pub slots_in_use: usize,
    /// Subgraphs that wait with a ready node now.
    pub waiting: usize,
}

/// Counts of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStatistics {
    /// Those that hold state now.
    pub open: usize,
    /// The most there may be.
    pub max: usize,
    /// Begun since the start.
    pub begun: u64,
    /// Ended by their client, or begun anew.
    pub ended_by_client: u64,
    /// Ended for having been idle.
    pub reaped: u64,
    /// Ended because a chunk was given up.
    pub broken: u64,
}

/// The state of an engine, and where its time went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Requests in flight, each with a permit.
    pub permits_in_use: usize,
    /// The most there may be.
    pub permits: usize,
    /// Bytes that requests, replies, sessions and whoever else shares the budget hold.
    pub memory_bytes: usize,
    /// The most there may be.
    pub memory_bytes_max: usize,
    /// Workers that were started.
    pub workers: usize,
    /// Workers whose part of the device is not lost.
    pub workers_up: usize,
    /// The use of each worker's processor and memory, where workers have their own.
    pub devices: Vec<Usage>,
    /// Per cell type.
    pub cells: Vec<CellStatistics>,
    /// The time that workers spent on tasks of each model, in nanoseconds, by the model's name; empty where models have
    /// no shares in it.
    pub worker_ns_of_models: BTreeMap<String, u64>,
    /// Sequences that come in chunks.
    pub sessions: SessionStatistics,
    /// Time of all workers' threads inside the manager, waiting for its lock included, in
    /// nanoseconds.
    pub manager_ns: u64,
    /// Time of all workers' threads handing tasks and reads to the device, and putting replies
    /// together, in nanoseconds.
    pub replies_ns: u64,
    /// Time of all workers' threads asking the device what it has completed, in nanoseconds: of a
    /// device that computes on these threads, the time in batches.
    pub device_ns: u64,
}

/// The uses of the time of the workers' threads, their sleep left out.
#[derive(Debug, Default)]
pub(crate) struct Times {
    manager_ns: AtomicU64,
    replies_ns: AtomicU64,
    device_ns: AtomicU64,
}

/// One turn of a worker's loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) manager_ns: u64,
    pub(crate) replies_ns: u64,
    pub(crate) device_ns: u64,
}

impl Times {
    pub(crate) fn add(&self, turn: Turn) {
        self.manager_ns.fetch_add(turn.manager_ns, Ordering::Relaxed);
        self.replies_ns.fetch_add(turn.replies_ns, Ordering::Relaxed);
        self.device_ns.fetch_add(turn.device_ns, Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> Turn {
        Turn {
            manager_ns: self.manager_ns.load(Ordering::Relaxed),
            replies_ns: self.replies_ns.load(Ordering::Relaxed),
            device_ns: self.device_ns.load(Ordering::Relaxed),
        }
    }
}
