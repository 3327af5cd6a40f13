//! The state that a simulated device shares with the units of its workers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchmaker_graph::{CellGraph, RequestId, TensorData, ValueIndex, WorkerId};

use crate::cells::{Cells, joined};
use crate::faults::Faults;
use crate::memory::Contents;
use crate::misuse::Misuse;
use crate::virtual_device::VirtualDevice;

/// The core behind its lock, with what can be read without the lock.
pub(crate) struct SharedCore {
    core: Mutex<Core>,
    /// Whether the unit of each worker is to be lost, or is lost.
    lost: Vec<AtomicBool>,
    faults: Faults,
}

/// The virtual device, the requests in flight, and what went wrong.
pub(crate) struct Core {
    pub(crate) virtual_device: VirtualDevice<Cells>,
    /// The graphs of requests in flight, and the bytes of their values.
    pub(crate) requests: HashMap<RequestId, (Arc<CellGraph>, usize)>,
    misuses: Vec<Misuse>,
    /// The number of workers whose unit is lost.
    workers_lost: usize,
}

impl SharedCore {
    pub(crate) fn new(
        virtual_device: VirtualDevice<Cells>,
        workers: usize,
        faults: Faults,
    ) -> Self {
        let core =
            Core { virtual_device, requests: HashMap::new(), misuses: Vec::new(), workers_lost: 0 };
        let lost = (0..workers).map(|_| AtomicBool::new(false)).collect();
        Self { core: Mutex::new(core), lost, faults }
    }

    pub(crate) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    /// Makes the worker's unit lose itself: at the latest when it would begin its next task.
    pub(crate) fn lose_soon(&self, worker: WorkerId) {
        self.lost[worker.index()].store(true, Ordering::SeqCst);
    }

    /// Whether the worker's unit is to be lost, or is.
    pub(crate) fn is_to_be_lost(&self, worker: WorkerId) -> bool {
        self.lost[worker.index()].load(Ordering::SeqCst)
    }
}

impl Core {
    /// Keeps a misuse, and returns it as a reason for whoever waits for a result.
    pub(crate) fn misused(&mut self, misuse: Misuse) -> Arc<str> {
        let reason = format!("misuse: {misuse}").into();
        self.misuses.push(misuse);
        reason
    }

    pub(crate) fn misuses(&self) -> &[Misuse] {
        &self.misuses
    }

    /// Loses a worker's unit.
    pub(crate) fn lose(&mut self, worker: WorkerId) {
        self.virtual_device.lose(worker);
        self.workers_lost += 1;
    }

    /// The number of workers whose unit is lost.
    pub(crate) fn workers_lost(&self) -> usize {
        self.workers_lost
    }

    /// The elements of `rows` of a request's value, one row after the other: zeros for rows that nobody
    /// has written. None where one of them is lost.
    pub(crate) fn joined(
        &self,
        request: RequestId,
        value: ValueIndex,
        rows: Vec<Contents<TensorData>>,
    ) -> Option<TensorData> {
        let spec = &self.requests[&request].0.values()[value.index()].row;
        let known = |row| match row {
            Contents::Unwritten => Some(TensorData::zeros(spec.element, spec.elements())),
            Contents::Lost => None,
            Contents::Known(row) => Some(row),
        };
        let rows: Option<Vec<TensorData>> = rows.into_iter().map(known).collect();
        Some(joined(spec.element, &rows?))
    }
}
