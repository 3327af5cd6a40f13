//! A worker as all see it: a GPU with its memory, and whether it is lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use batchmaker_device::{Bell, DeviceError, Usage};
use batchmaker_graph::CellTypeId;

use crate::config::CudaConfig;
use crate::gpu::{Gpu, GpuError, Pool, Stream};
use crate::lock::lock;
use crate::mapping::Limits;
use crate::memory::{HostPool, Slots};

/// A worker: a GPU, which works on one task after the other.
pub(crate) struct Worker {
    pub(crate) number: usize,
    /// The work of its tasks.
    pub(crate) stream: Arc<Stream>,
    pub(crate) pool: Arc<Pool>,
    /// That of all workers.
    pub(crate) host_pool: Arc<HostPool>,
    slots: Mutex<HashMap<CellTypeId, Arc<Mutex<Slots>>>>,
    lost: Mutex<Option<Arc<str>>>,
    /// Wakes the thread that drives its queue, which reports the loss.
    bell: OnceLock<Arc<Bell>>,
    /// Nanoseconds in which work was in flight.
    pub(crate) busy_ns: AtomicU64,
    /// States that came from other GPUs.
    pub(crate) states_moved: AtomicU64,
}

impl Worker {
    /// The worker of that number, on a GPU.
    pub(crate) fn new(
        number: usize,
        gpu: usize,
        config: &CudaConfig,
        host_pool: &Arc<HostPool>,
    ) -> Result<Self, DeviceError> {
        let refused = |error: GpuError| DeviceError::Resources(format!("GPU {gpu}: {error}"));
        let gpu = Arc::new(Gpu::open(gpu, &config.images)?);
        let stream = Arc::new(Stream::new(&gpu).map_err(refused)?);
        Ok(Self {
            number,
            pool: Pool::new(stream.clone(), config.block_bytes, config.fills_memory),
            host_pool: host_pool.clone(),
            stream,
            slots: Mutex::default(),
            lost: Mutex::default(),
            bell: OnceLock::new(),
            busy_ns: AtomicU64::default(),
            states_moved: AtomicU64::default(),
        })
    }

    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        self.stream.gpu()
    }

    /// The slots of a cell type, whose states have `half_bytes` bytes.
    pub(crate) fn slots(&self, cell_type: CellTypeId, half_bytes: usize) -> Arc<Mutex<Slots>> {
        let mut all = lock(&self.slots);
        all.entry(cell_type).or_insert_with(|| Arc::new(Mutex::new(Slots::new(half_bytes)))).clone()
    }

    /// Frees the slots of a cell type.
    pub(crate) fn forget_slots(&self, cell_type: CellTypeId) {
        lock(&self.slots).remove(&cell_type);
    }

    /// What its GPU has done.
    pub(crate) fn usage(&self) -> Usage {
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (free, all) = self.gpu().memory().unwrap_or_default();
        let copied = self.stream.copied();
        Usage {
            memory_bytes: (all - free) as u64,
            memory_bytes_max: all as u64,
            busy: Duration::from_nanos(load(&self.busy_ns)),
            copied_in: load(&copied.r#in),
            copied_out: load(&copied.out),
            copied_between: load(&copied.between),
            states_moved: load(&self.states_moved),
        }
    }

    /// The queue of the worker is driven by a thread that waits for this bell.
    pub(crate) fn attach(&self, bell: Arc<Bell>) {
        // A worker has one queue.
        let _ = self.bell.set(bell);
    }

    /// The worker is lost: its GPU does nothing any more. Its queue is to report it.
    pub(crate) fn lose(&self, reason: &str) {
        {
            let mut lost = lock(&self.lost);
            if lost.is_none() {
                // Before anybody knows of the loss, who may give back memory that the GPU still writes to.
                self.host_pool.abandon();
                *lost = Some(reason.into());
            }
        }
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    /// Why it is lost, if it is.
    pub(crate) fn lost(&self) -> Option<Arc<str>> {
        lock(&self.lost).clone()
    }
}

/// What bounds mappings that each of some GPUs can run.
pub(crate) fn limits(workers: &[Arc<Worker>]) -> Limits {
    let least = |of: fn(&Gpu) -> usize| workers.iter().map(|worker| of(worker.gpu())).min();
    let shared = least(|gpu| gpu.shared).unwrap_or(0);
    Limits {
        shared_for_weights: shared.saturating_sub(Limits::SHARED),
        ..Limits::of(least(|gpu| gpu.multiprocessors).unwrap_or(0))
    }
}
