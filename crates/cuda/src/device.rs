//! The device of GPUs: [`Device`] over NVIDIA's driver.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use batchmaker_device::{
    BatchSize, Bell, Capabilities, CellTable, CellTimer, Device, DeviceError, Effort,
    ExecutionPlan, Materialized, Measurement, RequestTable, TaskQueue, Usage, working_bytes,
};
use batchmaker_executor::{BATCH_BYTES_MAX, ExecutorThreads};
use batchmaker_graph::{
    CellBody, CellGraph, CellIdentity, CellType, CellTypeId, Precision, RequestId, StatePlacement,
    Tensor, WorkerId,
};

use crate::cells::{CellError, Compiler, CudaCell, CudaCellBody, model_of};
use crate::config::CudaConfig;
use crate::gpu::{self, GpuError};
use crate::lock::lock;
use crate::mapping::{CostModel, Limits, Mapping};
use crate::memory::{HostAllocation, HostPool, RequestMemory};
use crate::queue::{CudaQueue, ROWS_MAX};
use crate::state::DeviceState;
use crate::tuning::{self, KernelTimer};
use crate::worker::{Worker, limits};

/// GPUs as one device, with a worker and a memory for each.
pub struct CudaDevice {
    config: CudaConfig,
    /// See [`Capabilities::processor`].
    processor: Arc<str>,
    bytes_max: usize,
    /// What bounds mappings of kernels that are made for a cell, on each GPU.
    limits: Limits,
    /// The constants of the cost model on the first GPU, once a cell with such kernels has been measured.
    model: OnceLock<CostModel>,
    /// Mappings of such kernels, by the plans of cells.
    mappings: Mutex<HashMap<CellIdentity, Mapping>>,
    /// Held while a cell type is materialised, and while plans are taken.
    materializing: Mutex<()>,
    state: Arc<DeviceState>,
}

impl CudaDevice {
    /// The precisions of cells that kernels compute.
    pub const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::Bf16];

    /// The functions of NVIDIA's driver that are called: a driver that lacks one is refused.
    pub const DRIVER_FUNCTIONS: [&str; gpu::FUNCTIONS.len()] = gpu::FUNCTIONS;

    /// The number of GPUs of this machine.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where there is no driver, or it refuses.
    pub fn gpus() -> Result<usize, DeviceError> {
        gpu::devices()
    }

    /// A device without cells.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where a GPU is not there, or cannot run the kernels.
    pub fn new(config: CudaConfig) -> Result<Self, DeviceError> {
        assert!((1..=64).contains(&config.gpus.len()), "between 1 and 64 GPUs");
        let gpus = config.gpus.iter().enumerate();
        let host_pool = HostPool::new(config.block_bytes == 0);
        let worker = |(number, &gpu)| Worker::new(number, gpu, &config, &host_pool).map(Arc::new);
        let workers: Vec<Arc<Worker>> = gpus.map(worker).collect::<Result<_, _>>()?;
        let free = |worker: &Arc<Worker>| {
            let memory = worker.gpu().memory();
            memory.map(|(free, _)| free).map_err(|error| DeviceError::Resources(error.to_string()))
        };
        let free: Vec<usize> = workers.iter().map(free).collect::<Result<_, _>>()?;
        let half = free.into_iter().min().unwrap_or(0) / 2;
        let mut names: Vec<&str> = workers.iter().map(|of| of.gpu().description.as_str()).collect();
        names.dedup();
        // A profile is of one kind of kernels.
        let kernels = match (config.persistent, config.quantum) {
            (None, _) => "",
            (Some(_), None) => "; kernels of each cell",
            (Some(_), Some(_)) => "; kernels of each cell for many tasks",
        };
        let processor = (names.join("; ") + kernels).into();
        let limits = limits(&workers);
        let state = Arc::new(DeviceState {
            workers,
            cells: CellTable::default(),
            requests: RequestTable::default(),
            host_pool,
            retired: Mutex::default(),
            bytes: Mutex::default(),
            projected_bytes: config.projected_bytes,
            graphs_max: config.graphs_max,
            quantum: config.quantum.unwrap_or_default(),
            poll_for: config.poll_for,
        });
        let bytes_max = config.bytes_max.unwrap_or(half);
        let (model, mappings, materializing) = Default::default();
        Ok(Self { config, processor, bytes_max, limits, model, mappings, materializing, state })
    }

    /// Zeroed memory of the host, which the driver gives in the name of a GPU that works.
    fn on_host(&self, bytes: usize) -> Result<HostAllocation, GpuError> {
        let mut workers = self.state.workers.iter().filter(|worker| worker.lost().is_none());
        let first = workers.next().unwrap_or(&self.state.workers[0]);
        let allocated = self.state.host_pool.allocate(first.gpu(), bytes);
        // A GPU may have failed just now.
        workers.fold(allocated, |before, worker| {
            before.or_else(|_| self.state.host_pool.allocate(worker.gpu(), bytes))
        })
    }

    /// Finds the mapping in which the kernels that are made for a cell run `rows` rows fastest, and materialises the cell by it. None of a cell without such
    /// kernels.
    fn tune(
        &self,
        id: CellTypeId,
        cell: &CellType,
        rows: usize,
        fitted: &OnceLock<CostModel>,
    ) -> Result<Option<ExecutionPlan>, DeviceError> {
        let own = self.state.cells.get(id).mapped();
        let (Some(own), Some(compile), CellBody::Recurrent(recurrent)) =
            (own, self.config.persistent, &cell.cell.body)
        else {
            return Ok(None);
        };
        let timer = KernelTimer::of_worker(self.state.workers[0].clone(), compile);
        // Where they cannot be measured, the paper's constants rank as well as any.
        let model = fitted.get_or_init(|| timer.fit().unwrap_or_else(|_| model_of(self.limits)));
        let mut ranked = own.ranked(recurrent, rows, (self.limits, model), MAPPINGS_MAX);
        if !ranked.contains(&own) {
            ranked.push(own);
        }
        let kernels = ranked.iter().map(|of| of.kernel);
        let fastest = tuning::fastest(&timer, kernels, rows, self.config.projected_bytes)?;
        let mapping = fastest.unwrap_or(own.kernel).mapping();
        if mapping != own.kernel.mapping() {
            lock(&self.mappings).insert(cell.identity, mapping);
            self.release(id);
            self.materialize(id, cell)?;
        }
        // It may have its own again.
        let mapped = self.state.cells.get(id).mapped().unwrap_or(own);
        Ok(Some(tuning::write(mapped.kernel.mapping())))
    }

    fn refused(cell: &CellType, reason: impl ToString) -> DeviceError {
        DeviceError::Cell { cell: cell.name.clone(), reason: reason.to_string() }
    }
}

/// The most requests that were retired and are not dropped.
const RETIRED_MAX: usize = 1024;

/// Steps of a task that is measured: a round has no more of them by default. What a task does once, such as the products of its inputs, has its part in
/// the time of a step.
const MEASURED_STEPS: u32 = 5;

/// Mappings of a cell's kernels that run when it is measured, beside the one that it has: those that the cost model ranks first (GRNN, section 7.2), with
/// constants of micro-benchmarks on the first GPU (section 7.1.3).
const MAPPINGS_MAX: usize = 5;

/// Rounds of a chain's cell before another one has its turn, where a launch takes task after task: a turn ends the launch, and another one loads its weights. With
/// two, two layers of 1,024 units keep an H200 at 80 % of its ideal, with one at 76 % (`cargo xtask quanta`).
const ROUNDS_OF_A_TURN: u32 = 2;

impl Device for CudaDevice {
    fn capabilities(&self) -> Capabilities {
        let has_quanta = self.config.persistent.is_some() && self.config.quantum.is_some();
        Capabilities {
            processor: self.processor.clone(),
            placement: StatePlacement::PerWorker,
            workers_max: Some(self.state.workers.len() as u16),
            slots_max: None,
            bytes_max: Some(self.bytes_max),
            working_bytes: BATCH_BYTES_MAX,
            // A launch that takes task after task finds the next one brought to the GPU before it is done with this one. Other cells have two, too.
            lookahead: if has_quanta { 2 } else { 1 },
            rounds_of_a_turn: if has_quanta { ROUNDS_OF_A_TURN } else { 1 },
            // The thread that wakes the worker polls.
            poll_for: Duration::ZERO,
        }
    }

    fn materialize(&self, id: CellTypeId, cell: &CellType) -> Result<Materialized, DeviceError> {
        let materialized = |known: &CudaCell| Materialized {
            runner: known.runner(),
            rows_max: Some(ROWS_MAX),
            slot_bytes: known.slot_bytes(),
            workers_of_a_row: 1,
        };
        let _one = lock(&self.materializing);
        if let Some(known) = self.state.cells.retain(id, cell.identity) {
            return Ok(materialized(&known));
        }
        let compiler = self.config.persistent.map(|compile| Compiler {
            compile,
            with_quanta: self.config.quantum.is_some(),
            limits: self.limits,
            mapping: lock(&self.mappings).get(&cell.identity).copied(),
        });
        let new = CudaCell::new(&cell.cell, &self.state.workers, compiler);
        let new = new.map_err(|error| match error {
            CellError::Gpu(error) => {
                DeviceError::Resources(format!("the weights of cell {}: {error}", cell.name))
            }
            CellError::Plan(reason) => {
                DeviceError::Resources(format!("the plan of cell {}: {reason}", cell.name))
            }
            error => Self::refused(cell, error),
        })?;
        let materialized = materialized(&new);
        self.state.cells.insert(id, cell, new);
        Ok(materialized)
    }

    fn release(&self, id: CellTypeId) {
        let _one = lock(&self.materializing);
        if self.state.cells.release(id).is_some() {
            self.state.workers.iter().for_each(|worker| worker.forget_slots(id));
        }
    }

    fn queue(
        self: Arc<Self>,
        worker: WorkerId,
        bell: Arc<Bell>,
    ) -> Result<Box<dyn TaskQueue>, DeviceError> {
        if worker.index() >= self.state.workers.len() {
            return Err(DeviceError::Resources(format!("there is no GPU for {worker}")));
        }
        let threads = Arc::new(ExecutorThreads::with_threads(self.config.program_threads));
        Ok(Box::new(CudaQueue::new(self.state.clone(), worker.index(), threads, bell)?))
    }

    fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError> {
        let lost: Vec<_> = self.state.workers.iter().map(|worker| worker.lost()).collect();
        if let [Some(reason), ..] = &lost[..]
            && lost.iter().all(Option::is_some)
        {
            return Err(DeviceError::Lost(reason.to_string()));
        }
        self.state.cells.check(&graph, &inputs)?;
        let bytes = graph.bytes();
        {
            let mut in_use = lock(&self.state.bytes);
            if bytes > self.bytes_max.saturating_sub(*in_use) {
                return Err(DeviceError::Full { bytes });
            }
            *in_use += bytes;
        }
        let workers = self.state.workers.len();
        let retired = std::mem::take(&mut *lock(&self.state.retired));
        // The lock is free by now.
        drop(retired);
        match RequestMemory::new(graph, inputs, workers, |bytes| self.on_host(bytes)) {
            Ok(memory) => {
                self.state.requests.admit(request, memory);
                Ok(())
            }
            Err(error) => {
                *lock(&self.state.bytes) -= bytes;
                match error.is_out_of_memory() {
                    true => Err(DeviceError::Full { bytes }),
                    false => Err(DeviceError::Lost(error.to_string())),
                }
            }
        }
    }

    fn working_bytes(&self, graph: &CellGraph, workers: usize) -> u64 {
        working_bytes(graph, BATCH_BYTES_MAX, workers, |cell_type, spans| {
            self.state.cells.find(cell_type).map_or(0, |cell| cell.node_bytes(spans))
        })
    }

    fn retire(&self, request: RequestId) {
        let memory = self.state.requests.retire(request);
        // A chain of it may still be on a roster, which runs no step of it.
        memory.free();
        *lock(&self.state.bytes) -= memory.budget_bytes;
        let mut retired = lock(&self.state.retired);
        if memory.is_small() && retired.len() < RETIRED_MAX {
            retired.push(memory);
        }
    }

    fn usage(&self) -> Vec<Usage> {
        self.state.workers.iter().map(|worker| worker.usage()).collect()
    }

    fn measure(&self, cell: &CellType, batch: BatchSize) -> Result<Measurement, DeviceError> {
        assert!(batch.rows > 0, "a batch without rows");
        let config = CudaConfig { gpus: self.config.gpus[..1].to_vec(), ..self.config.clone() };
        // The order of sums is that of all GPUs.
        let device = Arc::new(Self { limits: self.limits, ..Self::new(config)? });
        let id = CellTypeId(0);
        device.materialize(id, cell)?;
        if let CudaCellBody::Sequences(program) = &device.state.cells.get(id).body {
            let threads = ExecutorThreads::with_threads(self.config.program_threads);
            let timed = program.time(batch.rows, batch.steps, &threads);
            let (time, steps) = timed.map_err(|error| Self::refused(cell, error))?;
            let ns = time.as_secs_f64() * 1e9;
            return Ok(Measurement { ns, plan: None, steps: Some(steps) });
        }
        let plan = device.tune(id, cell, batch.rows, &self.model)?;
        let mut timer = CellTimer::new(device)?;
        let effort = Effort { steps: MEASURED_STEPS, ..Effort::default() };
        let seconds = timer.batch_s(id, cell, batch.rows, effort)?;
        Ok(Measurement { ns: seconds * 1e9, plan, steps: None })
    }

    fn plan(
        &self,
        cell: CellIdentity,
        plans: &[(usize, ExecutionPlan)],
    ) -> Result<(), DeviceError> {
        let mapping = tuning::of_cell(plans, self.limits)?;
        let _one = lock(&self.materializing);
        // Without a compiler, no cell has kernels that take a mapping.
        if let (Some(mapping), Some(known), Some(_)) =
            (mapping, self.state.cells.of_identity(cell), self.config.persistent)
        {
            let with = known.with_mapping(mapping, self.limits);
            with.map_err(|reason| DeviceError::Resources(format!("the plan of a cell: {reason}")))?;
        }
        let mut mappings = lock(&self.mappings);
        match mapping {
            Some(mapping) => drop(mappings.insert(cell, mapping)),
            None => drop(mappings.remove(&cell)),
        }
        Ok(())
    }

    fn describe(&self, plan: &ExecutionPlan) -> Result<String, DeviceError> {
        Ok(tuning::describe(tuning::read(plan, self.limits)?))
    }
}
