//! The state that the submitters of requests and the workers of an engine share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

use batchmaker_device::{Capabilities, Device};
use batchmaker_graph::{
    CellGraph, CellRegistry, CellTypeId, InvalidRequest, RequestId, RunKind, StatePlacement,
    WorkerId,
};
use batchmaker_manager::Manager;

use crate::admission::Admission;
use crate::alarms::Alarms;
use crate::config::EngineConfig;
use crate::error::EngineError;
use crate::inbox::Inbox;
use crate::lock::lock;
use crate::memory::MemoryBudget;
use crate::request_table::RequestTable;
use crate::sessions::Sessions;
use crate::statistics::Times;
use crate::watch::Watch;

/// The state that submitters and workers share. Locks are taken in this order: the manager, the
/// sessions, the requests, the inbox.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) manager: Mutex<Manager>,
    pub(crate) requests: Mutex<RequestTable>,
    /// Signalled when the last request in flight has ended.
    pub(crate) drained: Condvar,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) memory: Arc<MemoryBudget>,
    /// See [`EngineConfig::memory_wait`].
    memory_wait: Duration,
    pub(crate) alarms: Alarms,
    pub(crate) sessions: Sessions,
    /// Whether new requests are refused.
    pub(crate) is_closing: AtomicBool,
    /// Whether the workers' threads are to end.
    pub(crate) is_stopping: AtomicBool,
    /// When the manager has to be asked again even if nothing happens, in nanoseconds since the
    /// start; `u64::MAX`: never.
    pub(crate) deadline_ns: AtomicU64,
    /// A bit for each worker that is not lost.
    workers_up: AtomicU64,
    /// Why nothing runs any more: set once all workers are lost.
    pub(crate) lost: OnceLock<Arc<str>>,
    /// The time that a worker with work in flight polls before it blocks.
    pub(crate) poll_for: Duration,
    pub(crate) times: Times,
    pub(crate) watch: Watch,
    pub(crate) placement: StatePlacement,
    pub(crate) cell_names: Vec<String>,
    /// The bytes of a slot on the device, by cell type.
    pub(crate) slot_bytes: Vec<usize>,
    /// See [`Capabilities::slots_max`].
    pub(crate) slots_max: Option<u32>,
    /// See [`EngineConfig::default_timeout`].
    pub(crate) default_timeout: Option<Duration>,
    /// See [`Capabilities::bytes_max`].
    device_bytes_max: Option<usize>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// The state of an engine that starts now.
    pub(crate) fn new(
        device: Arc<dyn Device>,
        capabilities: &Capabilities,
        manager: Manager,
        registry: &CellRegistry,
        slot_bytes: Vec<usize>,
        models: usize,
        config: &EngineConfig,
    ) -> Self {
        let of_workers = standing_bytes(capabilities, registry, config);
        let memory = MemoryBudget::new(config.max_memory_bytes - of_workers);
        let max_requests = config.max_requests;
        let per_model = config.max_requests_per_model(models);
        let workers_up = (0..config.workers).fold(0, |bits, worker| bits | 1 << worker);
        Self {
            device,
            manager: Mutex::new(manager),
            requests: Mutex::default(),
            drained: Condvar::new(),
            inbox: Arc::new(Inbox::new(usize::from(config.workers))),
            admission: Admission::new(max_requests, per_model, models),
            memory,
            memory_wait: config.memory_wait,
            alarms: Alarms::default(),
            sessions: Sessions::new(config.max_sessions, config.session_idle),
            is_closing: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            deadline_ns: AtomicU64::new(u64::MAX),
            workers_up: AtomicU64::new(workers_up),
            lost: OnceLock::new(),
            poll_for: capabilities.poll_for,
            times: Times::default(),
            watch: Watch::new(usize::from(config.workers), config.hung_after),
            placement: capabilities.placement,
            cell_names: registry.cell_types().iter().map(|cell| cell.name.clone()).collect(),
            slot_bytes,
            slots_max: capabilities.slots_max,
            default_timeout: config.default_timeout,
            device_bytes_max: capabilities.bytes_max,
        }
    }

    /// Waits for bytes of the budget, but not for ever: those who hold some may wait for each other.
    pub(crate) async fn wait_for_memory(
        &self,
        wait: impl Future<Output = Result<(), EngineError>>,
    ) -> Result<(), EngineError> {
        let waited = self.alarms.within(self.memory_wait, wait).await;
        waited.unwrap_or_else(|| Err(self.memory.error_in_use()))
    }

    /// The number of workers that are not lost.
    pub(crate) fn workers_up(&self) -> u32 {
        self.workers_up.load(Ordering::SeqCst).count_ones()
    }

    /// Records that a worker's part of the device is lost.
    pub(crate) fn worker_lost(&self, worker: WorkerId, reason: &Arc<str>) {
        let bit = 1 << worker.0;
        if self.workers_up.fetch_and(!bit, Ordering::SeqCst) == bit {
            let _ = self.lost.set(reason.clone());
        }
    }

    /// Drops a request that neither the manager nor the device has.
    pub(crate) fn take_back(&self, id: RequestId) {
        let mut requests = lock(&self.requests);
        drop(requests.take_back(id));
        if requests.len() == 0 {
            self.drained.notify_all();
        }
    }

    /// Checks that the device has slots for all chains of a session at once.
    pub(crate) fn check_slots(&self, graph: &CellGraph) -> Result<(), EngineError> {
        let Some(max) = self.slots_max else { return Ok(()) };
        let mut chains: HashMap<CellTypeId, u32> = HashMap::new();
        for run in graph.runs().iter().filter(|run| run.kind == RunKind::Chain) {
            *chains.entry(run.cell_type).or_default() += 1;
        }
        match chains.values().max() {
            Some(&most) if most > max => {
                let text =
                    format!("a session of {most} chains of one cell; the device holds {max}");
                Err(InvalidRequest(text).into())
            }
            _ => Ok(()),
        }
    }

    /// Checks that the device can ever hold the request's values.
    pub(crate) fn check_values(&self, graph: &CellGraph) -> Result<(), EngineError> {
        let (bytes, bytes_max) = (graph.bytes(), self.device_bytes_max.unwrap_or(usize::MAX));
        if bytes > bytes_max { Err(EngineError::TooLarge { bytes, bytes_max }) } else { Ok(()) }
    }
}

/// The part of the memory that the workers may take for their batches at any time: up to half of it. A device that is
/// made for the engine's memory takes no more.
fn standing_bytes(
    capabilities: &Capabilities,
    registry: &CellRegistry,
    config: &EngineConfig,
) -> usize {
    let has_programs = registry.cell_types().iter().any(|cell| cell.cell.body.has_program());
    let of_worker = usize::try_from(capabilities.working_bytes).unwrap_or(usize::MAX);
    let all = of_worker.saturating_mul(usize::from(config.workers));
    if has_programs { all.min(config.max_memory_bytes / 2) } else { 0 }
}
