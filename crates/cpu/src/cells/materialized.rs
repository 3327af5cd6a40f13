//! A cell type as the CPU device runs it: packed weights or compiled programs, and batches of it.

use std::sync::Arc;

use batchmaker_device::{Runner, StatePlace};
use batchmaker_executor::{ExecutorError, ExecutorThread, RowProgram, SequenceProgram};
use batchmaker_graph::{
    CellBody, CellType, EndOfSequence, Item, OperationBody, RequestId, RowSpec, SinkTime,
    TensorData, Work,
};
use batchmaker_kernels::KernelError;

use crate::cells::composite_chains::{StagedChains, StagedRoster, Steps};
use crate::cells::composite_program::{StagedError, StagedProgram};
use crate::cells::recurrent_chains::{Chains, RosterChains};
use crate::cells::sequence_level::run_sequences;
use crate::cells::tree_nodes::{TreeNodes, TreeRoom};
use crate::device::{CpuConfig, packing};
use crate::memory::request_memory::{Gathered, RequestMemory, scatter};
use crate::strategies::plan::Plans;
use crate::threads::thread_group::ThreadGroup;

/// A materialised cell type.
pub(crate) enum MaterializedCell {
    Recurrent(Box<Chains>),
    Tree(Box<TreeNodes>),
    Program { program: Box<RowProgram>, inputs: Vec<RowSpec> },
    Whole(Box<SequenceProgram>),
    Staged { program: Box<StagedProgram>, inputs: Vec<RowSpec> },
    StagedChains(Box<StagedChains>),
}

/// What a queue keeps of a cell type whose nodes form chains: the standing batch, and an empty one
/// for batches of items.
pub(crate) enum Rosters {
    Recurrent(Box<[RosterChains; 2]>),
    Staged([StagedRoster; 2]),
}

/// A cell cannot be packed or compiled, or a batch of it cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CellError {
    #[error(transparent)]
    Program(#[from] ExecutorError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Staged(#[from] StagedError),
}

/// The threads and buffers that a queue runs batches with.
pub(crate) struct Hands<'a> {
    /// Runs programs.
    pub(crate) thread: &'a ExecutorThread,
    pub(crate) group: &'a mut ThreadGroup,
    pub(crate) tree_room: &'a mut TreeRoom,
    /// Ids of all cells of the device whose output is a function of one.
    pub(crate) words: usize,
    /// Receives the chains that reach their end of sequence.
    pub(crate) ends: &'a mut Vec<EndOfSequence>,
}

impl MaterializedCell {
    /// Packs the weights of a cell, or compiles its programs. Its batches run by its plans in `plans`,
    /// which may come later. Its token ids are numbered from `first_word` on, after those of other cells.
    pub(crate) fn new(
        cell_type: &CellType,
        config: &CpuConfig,
        plans: &Plans,
        first_word: usize,
    ) -> Result<Self, CellError> {
        let cell = &cell_type.cell;
        let packing = packing(config.isa, cell.precision);
        let inputs = cell.inputs.clone();
        Ok(match &cell.body {
            CellBody::Recurrent(recurrent) => {
                let plan = plans.of(cell_type.identity);
                Self::Recurrent(Box::new(Chains::new(packing, recurrent, config, plan)?))
            }
            CellBody::Tree(cell) => {
                Self::Tree(Box::new(TreeNodes::new(packing, cell, first_word)?))
            }
            CellBody::Program(program) => {
                let program = RowProgram::new(program, &cell.inputs, &cell.outputs)?;
                Self::Program { program: Box::new(program), inputs }
            }
            CellBody::Sequence(whole) => {
                Self::Whole(Box::new(SequenceProgram::new(whole, &cell.inputs, &cell.outputs)?))
            }
            CellBody::Composite(staged) if !cell.states.is_empty() => {
                let chains = StagedChains::new(packing, cell, staged, config.projection_ahead)?;
                Self::StagedChains(Box::new(chains))
            }
            CellBody::Composite(staged) => {
                let program = StagedProgram::new(packing, staged, config.projection_ahead)?;
                Self::Staged { program: Box::new(program), inputs }
            }
        })
    }

    /// The number of token ids of the cell, if the output of each node depends on one token id alone;
    /// otherwise 0.
    pub(crate) fn words(&self) -> usize {
        match self {
            Self::Tree(nodes) => nodes.words(),
            _ => 0,
        }
    }

    /// Empty rosters; none of cells whose nodes form no chains.
    pub(crate) fn rosters(&self) -> Option<Rosters> {
        match self {
            Self::Recurrent(chains) => {
                Some(Rosters::Recurrent(Box::new([chains.roster(), chains.roster()])))
            }
            Self::StagedChains(_) => Some(Rosters::Staged(Default::default())),
            _ => None,
        }
    }

    /// A row of each state before a step of a chain; none of cells without states.
    ///
    /// # Safety
    /// No task in flight uses the slot.
    pub(crate) unsafe fn read_state(&self, place: StatePlace) -> Option<Vec<TensorData>> {
        match self {
            // SAFETY: the caller's promise.
            Self::Recurrent(chains) => Some(unsafe { chains.read_state(place) }),
            // SAFETY: the caller's promise.
            Self::StagedChains(chains) => Some(unsafe { chains.read_state(place) }),
            _ => None,
        }
    }

    /// Sets the state of a chain before a step: `states` has one row for each state of the cell.
    ///
    /// # Safety
    /// No task in flight uses the slot.
    ///
    /// # Panics
    /// If the cell has no such states.
    pub(crate) unsafe fn write_state(&self, place: StatePlace, states: Vec<TensorData>) {
        match self {
            // SAFETY: the caller's promise.
            Self::Recurrent(chains) => unsafe { chains.write_state(place, states) },
            // SAFETY: the caller's promise.
            Self::StagedChains(chains) => unsafe { chains.write_state(place, states) },
            _ => panic!("{place:?}: the cell has no states"),
        }
    }

    /// Runs a batch.
    ///
    /// # Safety
    /// The rows that the nodes read are written, and nobody else accesses those that they write.
    pub(crate) unsafe fn run(
        &self,
        work: &Work,
        rosters: Option<&mut Rosters>,
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        hands: &mut Hands<'_>,
    ) -> Result<(), CellError> {
        let Hands { thread, group, tree_room, words, ends } = hands;
        match (self, rosters, work) {
            (Self::Recurrent(chains), Some(Rosters::Recurrent(rosters)), work) => {
                let [roster, batch] = &mut **rosters;
                // SAFETY: the caller's promise.
                unsafe {
                    match work {
                        Work::Roster { leaves, joins, steps } => {
                            chains.run_roster(roster, leaves, joins, *steps, memory_of, group);
                        }
                        Work::Rows(items) => chains.run_items(batch, items, memory_of, group),
                    }
                }
            }
            (Self::StagedChains(chains), Some(Rosters::Staged(rosters)), work) => {
                let [roster, batch] = rosters;
                let mut steps = Steps { thread, group, ends };
                // SAFETY: the caller's promise.
                unsafe {
                    match work {
                        Work::Roster { leaves, joins, steps: count } => chains
                            .run_roster(roster, leaves, joins, *count, memory_of, &mut steps)?,
                        Work::Rows(items) => {
                            chains.run_items(batch, items, memory_of, &mut steps)?;
                        }
                    }
                }
            }
            (Self::Program { program, inputs }, _, Work::Rows(items)) => {
                let run = |rows, inputs| program.run(rows, inputs, thread);
                // SAFETY: the caller's promise.
                unsafe { run_rows(run, inputs, items, memory_of) }?;
            }
            (Self::Whole(whole), _, Work::Rows(items)) => {
                // SAFETY: the caller's promise.
                unsafe { run_sequences(whole, items, memory_of, thread) }?;
            }
            (Self::Staged { program, inputs }, _, Work::Rows(items)) => {
                let run = |rows, inputs| program.run(rows, inputs, thread, group);
                // SAFETY: the caller's promise.
                unsafe { run_rows(run, inputs, items, memory_of) }?;
            }
            (Self::Tree(nodes), _, Work::Rows(items)) => {
                // SAFETY: the caller's promise.
                unsafe { nodes.run(items, memory_of, *words, tree_room, group) };
            }
            _ => unreachable!("a roster of row-wise cells, or a chain without one"),
        }
        Ok(())
    }
}

/// Says whether kernels, the executor or both run the batches of a cell.
pub(crate) fn runner(body: &CellBody) -> Runner {
    let is_program =
        |stage: &batchmaker_graph::Operation| matches!(stage.body, OperationBody::Program(_));
    match body {
        CellBody::Recurrent(_) | CellBody::Tree(_) => Runner::Device,
        CellBody::Program(_) | CellBody::Sequence(_) => Runner::Executor,
        CellBody::Composite(cell) if cell.operations.iter().any(is_program) => Runner::Both,
        CellBody::Composite(_) => Runner::Device,
    }
}

/// Gathers the rows of `items`, runs them as one batch, and scatters what comes out. Padding is
/// rows of zeros.
///
/// # Safety
/// The rows that the nodes of `items` read are written, and until this returns nobody else accesses the
/// rows that they write.
unsafe fn run_rows<E>(
    run: impl FnOnce(usize, Vec<TensorData>) -> Result<Vec<TensorData>, E>,
    inputs: &[RowSpec],
    items: &[Item],
    memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
) -> Result<(), E> {
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
    let mut outputs = run(rows, inputs)?;
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
