//! The CPU device: [`Device`] over the cells, requests and queues of this process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use batchmaker_device::{
    BatchSize, Bell, Capabilities, Device, DeviceError, ExecutionPlan, KeptStates, Materialized,
    Measurement, OperatorMeasurement, Roofs, TaskQueue,
};
use batchmaker_executor::{ExecutorThreads, SharedCores};
use batchmaker_graph::{
    CellGraph, CellIdentity, CellType, CellTypeId, Chunk, RequestId, Tensor, WorkerId,
};

use crate::cells::materialized::{MaterializedCell, runner};
use crate::config::CpuConfig;
use crate::device_state::DeviceState;
use crate::memory::slot_arena::HeldSlot;
use crate::processor;
use crate::queue::CpuQueue;
use crate::strategies::plan::{BatchPlan, CellPlan, Plans};
use crate::threads::cores::{pin, stay_off};
use crate::threads::slices::{Slices, ask_for_slices};
use crate::threads::thread_group::ThreadGroup;
use crate::tuning::measuring::Measuring;

/// The slots of a session, which are free when this is dropped.
struct SessionSlots(Vec<HeldSlot>);

impl Drop for SessionSlots {
    fn drop(&mut self) {
        self.0.drain(..).for_each(HeldSlot::free);
    }
}

/// All cores as one device: weights, requests and slots are shared by the workers, so a subgraph
/// moves between them for nothing.
pub struct CpuDevice {
    config: CpuConfig,
    /// See [`Capabilities::processor`].
    processor: Arc<str>,
    plans: Plans,
    measuring: Mutex<Measuring>,
    /// Held while a cell type is materialised: one at a time, so that each has token ids of its own.
    materializing: Mutex<()>,
    cores: Arc<SharedCores>,
    state: Arc<DeviceState>,
}

impl CpuDevice {
    /// A device without cells.
    ///
    /// # Errors
    /// If this machine does not have the instruction set.
    pub fn new(config: CpuConfig) -> Result<Self, DeviceError> {
        if !config.isa.is_available() {
            let reason = format!("this machine does not have {} instructions", config.isa);
            return Err(DeviceError::Resources(reason));
        }
        assert!(config.threads_per_worker > 0, "a worker without threads");
        // A helper shares its core with that core's worker for a moment when this has work again. Meanwhile another worker may wait for it.
        let on_start = || ask_for_slices(Slices::Short);
        let cores = SharedCores::with_helpers(config.workers, config.threads_per_worker, on_start);
        Ok(Self {
            processor: processor::describe(config.isa),
            cores: Arc::new(cores),
            config,
            plans: Plans::default(),
            measuring: Mutex::default(),
            materializing: Mutex::default(),
            state: Arc::default(),
        })
    }

    /// See [`Materialized::workers_of_a_row`].
    fn workers_of_a_row(&self, cell: &MaterializedCell) -> u32 {
        let workers = cell.worth_of_a_row().div_ceil(self.config.threads_per_worker);
        workers.clamp(1, self.config.workers.max(1)) as u32
    }

    fn measuring(&self) -> MutexGuard<'_, Measuring> {
        self.measuring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for CpuDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            processor: self.processor.clone(),
            working_bytes: self.config.batch_bytes_max,
            ..Capabilities::default()
        }
    }

    fn materialize(&self, id: CellTypeId, cell: &CellType) -> Result<Materialized, DeviceError> {
        let materialized = |known: &MaterializedCell| Materialized {
            runner: runner(&cell.cell.body),
            rows_max: None,
            slot_bytes: known.slot_bytes(),
            workers_of_a_row: self.workers_of_a_row(known),
        };
        let _one = self.materializing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.state.retain(id, cell.identity) {
            return Ok(materialized(&known));
        }
        // Packing takes a while, and batches of other types go on meanwhile.
        let plan = self.plans.of(cell.identity);
        let new = MaterializedCell::new(cell, &self.config, plan, self.state.token_ids());
        let new = new.map_err(|error| DeviceError::Cell {
            cell: cell.name.clone(),
            reason: error.to_string(),
        })?;
        let materialized = materialized(&new);
        self.state.insert(id, cell, new, self.config.batch_bytes_max);
        Ok(materialized)
    }

    fn release(&self, id: CellTypeId) {
        self.state.release(id);
    }

    fn queue(
        self: Arc<Self>,
        worker: WorkerId,
        _bell: Arc<Bell>,
    ) -> Result<Box<dyn TaskQueue>, DeviceError> {
        let threads = self.config.threads_per_worker;
        let first = worker.index() * threads;
        let is_pinned = self.config.pin_threads;
        let pin = move |member: usize| match member < threads {
            _ if !is_pinned => {}
            true => pin(first + member),
            // A guest.
            false => stay_off(&(first..first + threads)),
        };
        let name = format!("worker-{}", worker.0);
        let group = ThreadGroup::of_worker(&name, threads, self.cores.clone(), pin)
            .map_err(|error| DeviceError::Resources(format!("no thread: {error}")))?;
        let keep_off = move || {
            if is_pinned {
                stay_off(&(first..first + threads));
            }
        };
        let program_threads =
            ExecutorThreads::of_worker(threads, self.cores.clone()).with_keep_off(keep_off);
        Ok(Box::new(CpuQueue::new(self.state.clone(), group, program_threads, Box::new(pin))))
    }

    fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError> {
        self.state.admit(request, graph, inputs)
    }

    fn working_bytes(&self, graph: &CellGraph, workers: usize) -> u64 {
        self.state.working_bytes(graph, self.config.batch_bytes_max, workers)
    }

    fn keep_states(&self, request: RequestId) -> Option<KeptStates> {
        let slots = self.state.memory(request).take_slots();
        (!slots.is_empty()).then(|| KeptStates::new(SessionSlots(slots)))
    }

    fn retire(&self, request: RequestId) {
        let memory = self.state.retire(request);
        let slots = memory.take_slots();
        // A session goes on from the states that its chunks leave.
        if memory.graph.chunk() == Chunk::Whole {
            slots.into_iter().for_each(HeldSlot::free);
        }
        // SAFETY: by the contract of `retire`, no task that names the request is in flight or comes any
        // more. Chains of it may still be on a roster, which runs no step of them.
        drop(unsafe { memory.take_outputs() });
    }

    fn measure(&self, cell: &CellType, batch: BatchSize) -> Result<Measurement, DeviceError> {
        assert!(batch.rows > 0, "a batch without rows");
        let new_device = || Self::new(self.config.clone()).map(|device| Arc::new(device) as _);
        self.measuring().measure(&self.config, new_device, cell, batch)
    }

    fn measure_operators(
        &self,
        cell: &CellType,
        batch: BatchSize,
    ) -> Result<Vec<OperatorMeasurement>, DeviceError> {
        self.measuring().measure_operators(&self.config, cell, batch)
    }

    fn roofs(&self, cell: &CellType) -> Option<Roofs> {
        self.measuring().roofs(&self.config, cell)
    }

    fn plan(
        &self,
        cell: CellIdentity,
        plans: &[(usize, ExecutionPlan)],
    ) -> Result<(), DeviceError> {
        self.plans.of(cell).set(CellPlan::read(plans)?);
        Ok(())
    }

    fn describe(&self, plan: &ExecutionPlan) -> Result<String, DeviceError> {
        Ok(BatchPlan::read(plan)?.to_string())
    }
}
