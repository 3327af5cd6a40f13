//! The CPU device and the queues of its workers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use batchmaker_device::{Device, DeviceError, Progress, TaskQueue};
use batchmaker_executor::{ExecutorThread, RowProgram, SequenceProgram};
use batchmaker_graph::{
    BatchedTask, CellBody, CellGraph, CellType, CellTypeId, Item, Precision, RequestId, RowSpec,
    SinkTime, Stopped, Tensor, TensorData, ValueIndex, Work, WorkerId,
};
use batchmaker_kernels as kernels;
use batchmaker_kernels::{Isa, Packing};
use core_affinity::CoreId;

use crate::chains::{Chains, ProjectionAhead, RosterChains};
use crate::plan::Plans;
use crate::request_memory::{Gathered, RequestMemory, scatter};
use crate::staged::StagedProgram;
use crate::staged_chains::{Runner, StagedChains, StagedRoster};
use crate::thread_group::ThreadGroup;
use crate::tree_nodes::{TreeNodes, TreeRoom};
use crate::whole::run_sequences;

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
    /// How to run cells that were tried out.
    pub plans: Plans,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            threads_per_worker: 1,
            isa: Isa::best(),
            pin_threads: false,
            projection_ahead: ProjectionAhead::default(),
            plans: Plans::default(),
        }
    }
}

/// All cores as one device: weights, requests and slots are shared by the workers, so a subgraph
/// moves between them for nothing.
pub struct CpuDevice {
    config: CpuConfig,
    cells: Vec<MaterializedCell>,
    /// Ids of all cells whose output is a function of one, numbered through.
    words: usize,
    /// By position of the request's id.
    requests: Mutex<Vec<Option<Admitted>>>,
}

type Admitted = (RequestId, Arc<RequestMemory>);

enum MaterializedCell {
    Recurrent(Box<Chains>),
    Tree(Box<TreeNodes>),
    Program { program: Box<RowProgram>, inputs: Vec<RowSpec> },
    Whole(Box<SequenceProgram>),
    Staged { program: Box<StagedProgram>, inputs: Vec<RowSpec> },
    StagedChains(Box<StagedChains>),
}

/// What a queue keeps of a cell type whose nodes form chains: the standing batch, and an empty one
/// for batches of items.
enum Rosters {
    Recurrent(Box<[RosterChains; 2]>),
    Staged([StagedRoster; 2]),
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
        Ok(Self { config, cells: Vec::new(), words: 0, requests: Mutex::default() })
    }

    fn memory(&self, request: RequestId) -> Arc<RequestMemory> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        match &requests[request.index as usize] {
            Some((known, memory)) if *known == request => memory.clone(),
            _ => panic!("a task names {request:?}, which is not here"),
        }
    }
}

impl Device for CpuDevice {
    fn materialize(&mut self, cell_types: &[CellType]) -> Result<(), DeviceError> {
        for cell_type in cell_types {
            let cell = &cell_type.cell;
            let failed =
                |reason: String| DeviceError::Cell { cell: cell_type.name.clone(), reason };
            let plan = self.config.plans.of(cell_type.identity);
            let packing = packing(self.config.isa, cell.precision);
            self.cells.push(match &cell.body {
                CellBody::Recurrent(cell) => MaterializedCell::Recurrent(
                    Chains::new(packing, cell, &self.config, plan)
                        .map(Box::new)
                        .map_err(|e| failed(e.to_string()))?,
                ),
                CellBody::Tree(cell) => {
                    let nodes = TreeNodes::new(packing, cell, self.words)
                        .map_err(|e| failed(e.to_string()))?;
                    self.words += nodes.words();
                    MaterializedCell::Tree(Box::new(nodes))
                }
                CellBody::Program(program) => MaterializedCell::Program {
                    program: RowProgram::new(program, &cell.inputs, &cell.outputs)
                        .map(Box::new)
                        .map_err(|e| failed(e.to_string()))?,
                    inputs: cell.inputs.clone(),
                },
                CellBody::Whole(whole) => MaterializedCell::Whole(
                    SequenceProgram::new(whole, &cell.inputs, &cell.outputs)
                        .map(Box::new)
                        .map_err(|e| failed(e.to_string()))?,
                ),
                CellBody::Staged(staged) if !cell.states.is_empty() => {
                    MaterializedCell::StagedChains(
                        StagedChains::new(packing, cell, staged, self.config.projection_ahead)
                            .map(Box::new)
                            .map_err(|e| failed(e.to_string()))?,
                    )
                }
                CellBody::Staged(staged) => MaterializedCell::Staged {
                    program: StagedProgram::new(packing, staged, self.config.projection_ahead)
                        .map(Box::new)
                        .map_err(|e| failed(e.to_string()))?,
                    inputs: cell.inputs.clone(),
                },
            });
        }
        Ok(())
    }

    fn queue(self: Arc<Self>, worker: WorkerId) -> Result<Box<dyn TaskQueue>, DeviceError> {
        let threads = self.config.threads_per_worker;
        let cores = if self.config.pin_threads { cores() } else { &[] };
        let pin = move |member: usize| {
            if let Some(&core) = cores.get(worker.index() * threads + member) {
                core_affinity::set_for_current(core);
            }
        };
        let name = format!("worker-{}", worker.0);
        let group = ThreadGroup::new(&name, threads, pin)
            .map_err(|error| DeviceError::Resources(format!("no thread: {error}")))?;
        let roster = |cell: &MaterializedCell| match cell {
            MaterializedCell::Recurrent(chains) => {
                Some(Rosters::Recurrent(Box::new([chains.roster(), chains.roster()])))
            }
            MaterializedCell::StagedChains(_) => Some(Rosters::Staged(Default::default())),
            _ => None,
        };
        let rosters = self.cells.iter().map(roster).collect();
        let pin = Some(Box::new(pin) as Box<_>);
        let program_thread = ExecutorThread::new();
        let (tree_room, tasks) = (TreeRoom::default(), VecDeque::new());
        let device = self;
        let stops = Vec::new();
        Ok(Box::new(CpuQueue {
            device,
            group,
            pin,
            program_thread,
            tree_room,
            rosters,
            tasks,
            stops,
        }))
    }

    fn admit(&self, request: RequestId, graph: Arc<CellGraph>, inputs: Vec<Tensor>) {
        let of_words = |cell_type: CellTypeId| match &self.cells[cell_type.index()] {
            MaterializedCell::Tree(nodes) => nodes.words() > 0,
            _ => false,
        };
        let memory = Arc::new(RequestMemory::new(graph, inputs, of_words));
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let index = request.index as usize;
        if requests.len() <= index {
            requests.resize_with(index + 1, || None);
        }
        let before = requests[index].replace((request, memory));
        assert!(before.is_none(), "{request:?} was admitted to a position in use");
    }

    fn peek(&self, request: RequestId, value: ValueIndex, rows: Range<usize>) -> TensorData {
        // SAFETY: complete nodes have written these rows, and each row is written once.
        unsafe { self.memory(request).copy(value, rows) }
    }

    fn retire(&self, request: RequestId) -> Vec<Tensor> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = requests[request.index as usize].take_if(|(known, _)| *known == request);
        let (_, memory) = memory.expect("a request is retired once, after it was admitted");
        drop(requests);
        // SAFETY: the contract of `retire`. A roster may still keep the memory alive, but runs no
        // step of it.
        unsafe { memory.take_outputs() }
    }
}

/// The queue of one worker. Its tasks run on the thread that polls it, and on that
/// thread's helpers.
struct CpuQueue {
    device: Arc<CpuDevice>,
    group: ThreadGroup,
    /// Puts the polling thread on its core; called once, at the first poll.
    pin: Option<Box<dyn FnOnce(usize) + Send>>,
    /// Runs programs.
    program_thread: ExecutorThread,
    tree_room: TreeRoom,
    /// By cell type; none for row-wise cells.
    rosters: Vec<Option<Rosters>>,
    tasks: VecDeque<BatchedTask>,
    /// Chains that said stop in the last task.
    stops: Vec<Stopped>,
}

impl TaskQueue for CpuQueue {
    fn take_stops(&mut self, into: &mut Vec<Stopped>) {
        into.append(&mut self.stops);
    }

    fn submit(&mut self, task: BatchedTask) {
        self.tasks.push_back(task);
    }

    fn poll(&mut self) -> Progress {
        if let Some(pin) = self.pin.take() {
            pin(0);
        }
        let Some(task) = self.tasks.pop_front() else { return Progress::None };
        match self.run(&task) {
            Ok(()) => Progress::Complete(task.id),
            Err(()) => Progress::Failed(task.id),
        }
    }
}

impl CpuQueue {
    fn run(&mut self, task: &BatchedTask) -> Result<(), ()> {
        let Self { device, group, program_thread, tree_room, rosters, stops, .. } = self;
        let memory_of = |request| device.memory(request);
        let rosters = rosters[task.cell_type.index()].as_mut();
        match (&device.cells[task.cell_type.index()], rosters, &task.work) {
            (MaterializedCell::Recurrent(chains), Some(Rosters::Recurrent(rosters)), work) => {
                let [roster, batch] = &mut **rosters;
                // SAFETY: the manager gives out a node after those that it depends on, once.
                unsafe {
                    match work {
                        Work::Roster { leaves, joins, steps } => {
                            chains.run_roster(roster, leaves, joins, *steps, memory_of, group);
                        }
                        Work::Rows(items) => chains.run_items(batch, items, memory_of, group),
                    }
                }
                Ok(())
            }
            (MaterializedCell::StagedChains(chains), Some(Rosters::Staged(rosters)), work) => {
                let [roster, batch] = rosters;
                let mut run = Runner { thread: program_thread, group, stops };
                // SAFETY: as above.
                unsafe {
                    match work {
                        Work::Roster { leaves, joins, steps } => {
                            chains.run_roster(roster, leaves, joins, *steps, memory_of, &mut run)
                        }
                        Work::Rows(items) => chains.run_items(batch, items, memory_of, &mut run),
                    }
                }
            }
            (MaterializedCell::Program { program, inputs }, _, Work::Rows(items)) => {
                let run = |rows, inputs| program.run(rows, inputs, program_thread);
                run_rows(run, inputs, items, memory_of)
            }
            (MaterializedCell::Whole(whole), _, Work::Rows(items)) => {
                // SAFETY: as above.
                let ran = unsafe { run_sequences(whole, items, memory_of, program_thread) };
                ran.map_err(|error| eprintln!("batchmaker: whole sequences failed: {error}"))
            }
            (MaterializedCell::Staged { program, inputs }, _, Work::Rows(items)) => {
                let run = |rows, inputs| program.run(rows, inputs, program_thread, group);
                run_rows(run, inputs, items, memory_of)
            }
            (MaterializedCell::Tree(nodes), _, Work::Rows(items)) => {
                // SAFETY: as above.
                unsafe { nodes.run(items, memory_of, device.words, tree_room, group) };
                Ok(())
            }
            _ => unreachable!("a roster of row-wise cells, or a chain without one"),
        }
    }
}

/// What the weights of a cell in a precision are packed for.
pub fn packing(isa: Isa, precision: Precision) -> Packing {
    let precision = match precision {
        Precision::F32 => kernels::Precision::F32,
        Precision::Bf16 => kernels::Precision::Bf16,
        Precision::Int8 => kernels::Precision::Int8,
    };
    Packing { isa, precision }
}

/// The cores that the process may use, as it was when this was first asked: a thread that is on
/// one core since sees that one only.
fn cores() -> &'static [CoreId] {
    static CORES: OnceLock<Vec<CoreId>> = OnceLock::new();
    CORES.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

/// Gathers the rows of `items`, runs them as one batch, and scatters what comes out. Padding is
/// rows of zeros.
fn run_rows<E: std::fmt::Display>(
    run: impl FnOnce(usize, Vec<TensorData>) -> Result<Vec<TensorData>, E>,
    inputs: &[RowSpec],
    items: &[Item],
    memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
) -> Result<(), ()> {
    let memories: Vec<_> = items.iter().map(|item| memory_of(item.request)).collect();
    let items = || items.iter().zip(&memories);
    let rows = items().map(|(item, _)| item.count as usize).sum();
    let gather = |(port, spec): (usize, &RowSpec)| {
        let mut gathered = Gathered::with_capacity(spec, rows);
        for (item, memory) in items() {
            let from = memory.rows(&memory.graph.runs()[item.run.index()].inputs[port]);
            let nodes = nodes_of(item, memory);
            // SAFETY: the manager gives out rows after those that they depend on.
            unsafe { gathered.append(&from, item.first, nodes) };
            gathered.skip(item.count - nodes);
        }
        gathered.finish()
    };
    let inputs = inputs.iter().enumerate().map(gather).collect();
    let mut outputs = run(rows, inputs).map_err(|error| {
        eprintln!("batchmaker: a batch of {rows} rows failed: {error}");
    })?;
    let mut skip = 0;
    for (item, memory) in items() {
        let run = &memory.graph.runs()[item.run.index()];
        for sink in &run.sinks {
            let to = memory.rows(&sink.rows);
            let output = &mut outputs[sink.port];
            let count = nodes_of(item, memory);
            // SAFETY: each row of a run is given out once, and its target is its own.
            unsafe {
                match sink.time {
                    SinkTime::Every => scatter(output, skip, &to, item.first, count),
                    SinkTime::Last if count > 0 && item.first + count == run.length => {
                        scatter(output, skip + count as usize - 1, &to, 0, 1);
                    }
                    SinkTime::Last => {}
                }
            }
        }
        skip += item.count as usize;
    }
    Ok(())
}

/// How many of an item's rows are within its run.
fn nodes_of(item: &Item, memory: &RequestMemory) -> u32 {
    let length = memory.graph.runs()[item.run.index()].length;
    length.saturating_sub(item.first).min(item.count)
}
