//! What the queues of a device share: its workers, its cell types, and the requests in flight.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use batchmaker_device::{CellTable, RequestTable};

use crate::cells::CudaCell;
use crate::config::Quantum;
use crate::memory::{HostPool, RequestMemory};
use crate::worker::Worker;

/// What the queues of a device share.
pub(crate) struct DeviceState {
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) cells: CellTable<CudaCell>,
    pub(crate) requests: RequestTable<RequestMemory>,
    /// Memory for values that kernels write and that the host reads.
    pub(crate) host_pool: Arc<HostPool>,
    /// What is left of requests that were retired: those who admit others drop it, so that the threads of workers need not.
    pub(crate) retired: Mutex<Vec<Arc<RequestMemory>>>,
    /// Bytes of the values of all requests in flight, which each GPU may come to hold.
    pub(crate) bytes: Mutex<usize>,
    /// The most bytes of products of inputs ahead of steps.
    pub(crate) projected_bytes: usize,
    /// The most graphs of a worker.
    pub(crate) graphs_max: usize,
    /// How long launches run task after task, of cells that have a kernel for it.
    pub(crate) quantum: Quantum,
    /// The time for which completions are polled before a thread sleeps.
    pub(crate) poll_for: Duration,
}
