//! The CPU device: its cells and the requests in flight.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use batchmaker_device::{
    Bell, Capabilities, Device, DeviceError, ExecutionPlan, Materialized, Measurement, Roofs,
    TaskQueue,
};
use batchmaker_graph::{
    CellGraph, CellIdentity, CellPorts, CellType, CellTypeId, Precision, RequestId, Tensor,
    WorkerId, check_request,
};
use batchmaker_kernels as kernels;
use batchmaker_kernels::{Isa, Packing};
use core_affinity::CoreId;

use crate::cells::materialized::{MaterializedCell, runner};
use crate::cells::recurrent_chains::ProjectionAhead;
use crate::memory::request_memory::RequestMemory;
use crate::processor;
use crate::queue::CpuQueue;
use crate::strategies::plan::{BatchPlan, CellPlan, Plans};
use crate::threads::thread_group::ThreadGroup;
use crate::tuning::measuring::Measuring;

/// What a CPU device is told when it is made.
#[derive(Clone, Debug)]
pub struct CpuConfig {
    /// Threads of each worker, the worker's own included; at least 1.
    pub threads_per_worker: usize,
    /// The instruction set of the fused kernels.
    pub isa: Isa,
    /// Whether thread `t` of worker `w` stays on core `w * threads_per_worker + t` of those
    /// that the process may use.
    pub pin_threads: bool,
    /// Whether inputs are projected ahead of the steps that need them.
    pub projection_ahead: ProjectionAhead,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            threads_per_worker: 1,
            isa: Isa::best(),
            pin_threads: false,
            projection_ahead: ProjectionAhead::default(),
        }
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
    cells: RwLock<Vec<Option<KnownCell>>>,
    /// Held while a cell type is materialised: one at a time, so that each has ids of its own.
    materializing: Mutex<()>,
    /// Ids of all cells whose output is a function of one, numbered through.
    words: AtomicUsize,
    /// By position of the request's id.
    requests: Mutex<Vec<Option<Admitted>>>,
}

type Admitted = (RequestId, Arc<RequestMemory>);

/// A cell type that the device was given.
struct KnownCell {
    identity: CellIdentity,
    /// How often it was given and not given back.
    count: usize,
    ports: CellPorts,
    cell: Arc<MaterializedCell>,
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
        Ok(Self {
            processor: processor::in_words(config.isa),
            config,
            plans: Plans::default(),
            measuring: Mutex::default(),
            cells: RwLock::default(),
            materializing: Mutex::default(),
            words: AtomicUsize::new(0),
            requests: Mutex::default(),
        })
    }

    /// What the request in flight has in memory.
    ///
    /// # Panics
    /// If it is not in flight.
    pub(crate) fn memory(&self, request: RequestId) -> Arc<RequestMemory> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        match &requests[request.index as usize] {
            Some((known, memory)) if *known == request => memory.clone(),
            _ => panic!("a task names {request:?}, which is not here"),
        }
    }

    /// The cell type of that id.
    ///
    /// # Panics
    /// If the device does not have it.
    pub(crate) fn cell(&self, id: CellTypeId) -> Arc<MaterializedCell> {
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        match cells.get(id.index()) {
            Some(Some(known)) => known.cell.clone(),
            _ => panic!("a task names {id}, which is not here"),
        }
    }

    fn measuring(&self) -> MutexGuard<'_, Measuring> {
        self.measuring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ids of all cells whose output is a function of one.
    pub(crate) fn words(&self) -> usize {
        self.words.load(Ordering::Relaxed)
    }
}

impl Device for CpuDevice {
    fn capabilities(&self) -> Capabilities {
        Capabilities { processor: self.processor.clone(), ..Capabilities::default() }
    }

    fn materialize(&self, id: CellTypeId, cell: &CellType) -> Result<Materialized, DeviceError> {
        let materialized = Materialized { runner: runner(&cell.cell.body), rows_max: None };
        let _one = self.materializing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        if cells.len() <= id.index() {
            cells.resize_with(id.index() + 1, || None);
        }
        if let Some(known) = &mut cells[id.index()] {
            assert_eq!(known.identity, cell.identity, "{id} stands for another cell");
            known.count += 1;
            return Ok(materialized);
        }
        drop(cells);
        // Packing takes a while, and batches of other types go on meanwhile.
        let new = MaterializedCell::new(cell, &self.config, &self.plans, self.words());
        let new = new.map_err(|error| DeviceError::Cell {
            cell: cell.name.clone(),
            reason: error.to_string(),
        })?;
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        self.words.fetch_add(new.words(), Ordering::Relaxed);
        let (identity, ports) = (cell.identity, CellPorts::of(&cell.cell));
        let known = KnownCell { identity, count: 1, ports, cell: Arc::new(new) };
        cells[id.index()] = Some(known);
        Ok(materialized)
    }

    fn release(&self, id: CellTypeId) {
        let mut cells = self.cells.write().unwrap_or_else(PoisonError::into_inner);
        let known = cells[id.index()].as_mut().expect("a cell type is released once it was taken");
        known.count -= 1;
        if known.count == 0 {
            cells[id.index()] = None;
        }
    }

    fn queue(
        self: Arc<Self>,
        worker: WorkerId,
        _bell: Arc<Bell>,
    ) -> Result<Box<dyn TaskQueue>, DeviceError> {
        let threads = self.config.threads_per_worker;
        let first = worker.index() * threads;
        let is_pinned = self.config.pin_threads;
        let pin = move |member: usize| {
            if is_pinned {
                pin(first + member);
            }
        };
        let name = format!("worker-{}", worker.0);
        let group = ThreadGroup::new(&name, threads, pin)
            .map_err(|error| DeviceError::Resources(format!("no thread: {error}")))?;
        Ok(Box::new(CpuQueue::new(self, group, Box::new(pin))))
    }

    fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError> {
        let cells = self.cells.read().unwrap_or_else(PoisonError::into_inner);
        check_request(&graph, &inputs, |cell_type| {
            cells.get(cell_type.index())?.as_ref().map(|known| &known.ports)
        })?;
        let of_words = |cell_type: CellTypeId| {
            cells[cell_type.index()].as_ref().is_some_and(|known| known.cell.words() > 0)
        };
        let memory = Arc::new(RequestMemory::new(graph, inputs, of_words));
        drop(cells);
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let index = request.index as usize;
        if requests.len() <= index {
            requests.resize_with(index + 1, || None);
        }
        let before = requests[index].replace((request, memory));
        assert!(before.is_none(), "{request:?} was admitted to a position in use");
        Ok(())
    }

    fn retire(&self, request: RequestId) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = requests[request.index as usize].take_if(|(known, _)| *known == request);
        let (_, memory) = memory.expect("a request is retired once, after it was admitted");
        drop(requests);
        // SAFETY: the contract of `retire`. A roster may still keep the memory alive, but runs no
        // step of it.
        drop(unsafe { memory.take_outputs() });
    }

    fn measure(&self, cell: &CellType, rows: usize) -> Result<Measurement, DeviceError> {
        assert!(rows > 0, "a batch without rows");
        self.measuring().measure(&self.config, cell, rows)
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

/// What the weights of a cell in a precision are packed for.
pub(crate) fn packing(isa: Isa, precision: Precision) -> Packing {
    let precision = match precision {
        Precision::F32 => kernels::Precision::F32,
        Precision::Bf16 => kernels::Precision::Bf16,
        Precision::Int8 => kernels::Precision::Int8,
    };
    Packing { isa, precision }
}

/// Puts the calling thread on a core, counted from the first that the process may use, if there are so
/// many.
pub(crate) fn pin(core: usize) {
    if let Some(&core) = cores().get(core) {
        core_affinity::set_for_current(core);
    }
}

/// The cores that the process may use, as it was when this was first asked: a thread that is on
/// one core since sees that one only.
fn cores() -> &'static [CoreId] {
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}
