//! An asynchronous simulated device in real time. Workers share a memory or have one each; slots,
//! rows and bytes may be bounded; tasks may fail and workers may be lost. Each worker has a thread
//! of its own, its unit, which computes real rows, slowly.
//!
//! [`SimulatedDevice::misuses`] lists each breach of the device contract by the engine or the manager.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use batchmaker_device::{
    BatchSize, Bell, Capabilities, Device, DeviceError, ExecutionPlan, Materialized, Measurement,
    TaskQueue,
};
use batchmaker_executor::BATCH_BYTES_MAX;
use batchmaker_graph::{
    CellGraph, CellIdentity, CellType, CellTypeId, RequestId, StatePlacement, Tensor, TensorData,
    WorkerId, check_request,
};

use crate::cells::{Cells, split};
use crate::core::{Core, SharedCore};
use crate::faults::{Draw, Faults};
use crate::misuse::Misuse;
use crate::unit::{SimulatedQueue, Unit};
use crate::virtual_device::{CellCost, VirtualConfig, VirtualDevice};

/// The configuration of a simulated device.
#[derive(Clone, Debug)]
pub struct SimulatedConfig {
    /// The number of workers that may have a queue.
    pub workers: u16,
    /// Whether workers share a memory.
    pub placement: StatePlacement,
    /// See [`Capabilities::lookahead`].
    pub lookahead: u32,
    /// See [`Capabilities::slots_max`].
    pub slots_max: Option<u32>,
    /// See [`Materialized::rows_max`].
    pub rows_max: Option<u32>,
    /// See [`Capabilities::bytes_max`].
    pub bytes_max: Option<usize>,
    /// Failures, losses and delays.
    pub faults: Faults,
    /// The seed that faults, delays and the order of reads are drawn from.
    pub seed: u64,
}

impl Default for SimulatedConfig {
    /// Two workers with a memory each, no bounds, no faults, no delays.
    fn default() -> Self {
        Self {
            workers: 2,
            placement: StatePlacement::PerWorker,
            lookahead: 1,
            slots_max: None,
            rows_max: None,
            bytes_max: None,
            faults: Faults::default(),
            seed: 1,
        }
    }
}

/// An asynchronous device that detects misuse, with a unit for each worker.
pub struct SimulatedDevice {
    config: SimulatedConfig,
    shared: Arc<SharedCore>,
}

impl SimulatedDevice {
    /// A device without cells.
    pub fn new(config: SimulatedConfig) -> Self {
        let workers = usize::from(config.workers);
        let virtual_config = VirtualConfig {
            workers,
            memory: config.placement,
            costs: Vec::new(),
            copy_ns: 0,
            slots_max: config.slots_max,
            rows_max: config.rows_max,
        };
        let virtual_device = VirtualDevice::new(virtual_config, Cells::new());
        let shared = Arc::new(SharedCore::new(virtual_device, workers, config.faults));
        Self { config, shared }
    }

    /// Loses a worker's unit: at the latest when it would begin its next task.
    pub fn lose(&self, worker: WorkerId) {
        self.shared.lose_soon(worker);
    }

    /// The number of states that were copied between memories, of chains that went on elsewhere.
    pub fn moved_states(&self) -> u64 {
        self.core().virtual_device.moved_states()
    }

    /// The number of workers whose unit was lost.
    pub fn workers_lost(&self) -> usize {
        self.core().workers_lost()
    }

    /// The misuses that the device detected.
    pub fn misuses(&self) -> Vec<Misuse> {
        self.core().misuses().to_vec()
    }

    /// The number of cell types that were materialised and not released.
    pub fn cell_types(&self) -> usize {
        self.core().virtual_device.arithmetic_mut().count()
    }

    /// The number of requests that were admitted and not retired.
    pub fn requests(&self) -> usize {
        self.core().requests.len()
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.shared.core()
    }
}

impl Device for SimulatedDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            processor: "simulated".into(),
            placement: self.config.placement,
            workers_max: Some(self.config.workers),
            slots_max: self.config.slots_max,
            bytes_max: self.config.bytes_max,
            working_bytes: BATCH_BYTES_MAX,
            lookahead: self.config.lookahead,
            rounds_of_a_turn: 1 + (self.config.seed % 2) as u32,
            poll_for: Duration::from_micros(self.config.seed % 3 * 20),
        }
    }

    fn materialize(&self, id: CellTypeId, cell: &CellType) -> Result<Materialized, DeviceError> {
        let runner = self.core().virtual_device.arithmetic_mut().add(id, cell)?;
        let slot_bytes = cell.cell.state_bytes();
        Ok(Materialized { runner, rows_max: self.config.rows_max, slot_bytes, workers_of_a_row: 1 })
    }

    fn release(&self, id: CellTypeId) {
        let mut core = self.core();
        if core.virtual_device.arithmetic_mut().release(id) {
            core.virtual_device.forget_cell_type(id);
        }
    }

    fn queue(
        self: Arc<Self>,
        worker: WorkerId,
        bell: Arc<Bell>,
    ) -> Result<Box<dyn TaskQueue>, DeviceError> {
        if worker.0 >= u32::from(self.config.workers) {
            return Err(DeviceError::Resources(format!("there is no unit for {worker}")));
        }
        let seed = Draw::new(self.config.seed).below(u64::MAX) ^ (u64::from(worker.0) << 32);
        let unit = Unit::start(self.shared.clone(), worker, bell, Draw::new(seed))?;
        Ok(Box::new(SimulatedQueue::new(unit)))
    }

    fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError> {
        if self.core().workers_lost() == usize::from(self.config.workers) {
            return Err(DeviceError::Lost("all units are lost".to_owned()));
        }
        let mut core = self.core();
        let cells = core.virtual_device.arithmetic();
        check_request(&graph, &inputs, |cell_type| cells.ports(cell_type))?;
        let bytes = graph.bytes();
        let in_use: usize = core.requests.values().map(|(_, bytes)| bytes).sum();
        if self.config.bytes_max.is_some_and(|max| in_use + bytes > max) {
            return Err(DeviceError::Full { bytes });
        }
        let rows = graph.inputs().iter().zip(inputs).map(|(&value, tensor)| {
            let spec = &graph.values()[value.index()];
            let mut data: TensorData = tensor.into_data();
            let elements = spec.row.elements();
            data.resize(spec.rows as usize * elements);
            split(&data, elements)
        });
        let rows: Vec<_> = rows.collect();
        core.virtual_device.admit(request, graph.clone(), rows);
        core.requests.insert(request, (graph, bytes));
        Ok(())
    }

    fn working_bytes(&self, graph: &CellGraph, workers: usize) -> u64 {
        self.core().virtual_device.arithmetic().working_bytes(graph, workers)
    }

    fn retire(&self, request: RequestId) {
        let mut core = self.core();
        core.requests.remove(&request);
        if let Err(misuse) = core.virtual_device.retire(request) {
            core.misused(misuse);
        }
    }

    /// The cost of a made-up machine: ten microseconds, and one for each row.
    fn measure(&self, _: &CellType, batch: BatchSize) -> Result<Measurement, DeviceError> {
        let CellCost { fixed_ns, row_ns } = CellCost { fixed_ns: 10_000, row_ns: 1_000 };
        let ns = (fixed_ns + row_ns * batch.rows as u64) as f64;
        Ok(Measurement { ns, plan: None, steps: None })
    }

    fn plan(&self, _: CellIdentity, plans: &[(usize, ExecutionPlan)]) -> Result<(), DeviceError> {
        match plans {
            [] => Ok(()),
            [(_, plan), ..] => {
                let text = plan.text();
                Err(DeviceError::Resources(format!("a simulated device has no plan {text}")))
            }
        }
    }
}
