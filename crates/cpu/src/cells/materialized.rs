//! A cell type as the CPU device runs it: packed weights or compiled programs, and batches of it.

use std::collections::VecDeque;
use std::sync::Arc;

use batchmaker_device::{Runner, StatePlace};
use batchmaker_executor::{ExecutorError, ExecutorThreads, RowProgram, SequenceProgram};
use batchmaker_graph::{
    CellBody, CellType, EndOfSequence, Operation, OperationBody, RequestId, RowSpec, TensorData,
    UnknownId, Work,
};
use batchmaker_kernels::KernelError;

use super::composite_chains::{CompositeChains, CompositeResources, CompositeRoster};
use super::composite_program::{CompositeError, CompositeProgram};
use super::recurrent_chains::{RecurrentChains, RecurrentRoster};
use super::row_wise::{divide_rows, run_rows};
use super::sequence_level::{divide_sequences, run_sequences};
use super::tree_buffers::TreeBuffers;
use super::tree_nodes::TreeNodes;
use crate::config::CpuConfig;
use crate::memory::request_memory::RequestMemory;
use crate::strategies::plan::LivePlan;
use crate::threads::thread_group::ThreadGroup;

/// A materialised cell type.
pub(crate) enum MaterializedCell {
    Recurrent(Box<RecurrentChains>),
    Tree(Box<TreeNodes>),
    RowWise { program: Box<RowProgram>, inputs: Vec<RowSpec> },
    SequenceLevel(Box<SequenceProgram>),
    Composite { program: Box<CompositeProgram>, inputs: Vec<RowSpec> },
    CompositeChains(Box<CompositeChains>),
}

/// The batches that a queue keeps of a cell type whose nodes form chains: the standing one, and an empty one
/// for batches of items.
pub(crate) enum Rosters {
    Recurrent(Box<[RecurrentRoster; 2]>),
    Composite([CompositeRoster; 2]),
}

/// A cell cannot be packed or compiled, or a batch of it cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CellError {
    #[error(transparent)]
    Program(#[from] ExecutorError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Composite(#[from] CompositeError),
    #[error("a cell computed an id that its consumer does not know: {0}")]
    Id(#[from] UnknownId),
}

/// The threads and buffers that a queue runs batches with.
pub(crate) struct WorkerResources<'a> {
    /// Runs compiled programs.
    pub(crate) threads: &'a ExecutorThreads,
    pub(crate) group: &'a mut ThreadGroup,
    pub(crate) tree_buffers: &'a mut TreeBuffers,
    /// The number of token ids of all cells of the device whose output depends on one token id alone.
    pub(crate) token_ids: usize,
    /// Receives the chains that reach their end of sequence.
    pub(crate) ends: &'a mut Vec<EndOfSequence>,
}

impl MaterializedCell {
    /// Packs the weights of a cell, or compiles its programs. Its batches run by `plan`, which may come
    /// later. Its token ids are numbered from `first_token_id` on, after those of other cells.
    pub(crate) fn new(
        cell_type: &CellType,
        config: &CpuConfig,
        plan: Arc<LivePlan>,
        first_token_id: usize,
    ) -> Result<Self, CellError> {
        let cell = &cell_type.cell;
        let packing = config.packing(cell);
        let inputs = cell.inputs.clone();
        Ok(match &cell.body {
            CellBody::Recurrent(recurrent) => {
                Self::Recurrent(Box::new(RecurrentChains::new(packing, recurrent, config, plan)?))
            }
            CellBody::Tree(cell) => {
                Self::Tree(Box::new(TreeNodes::new(packing, cell, first_token_id)?))
            }
            CellBody::Program(program) => {
                let options = config.program_options(cell);
                let program = RowProgram::with(program, &cell.inputs, &cell.outputs, &options)?
                    .bound_batches(config.batch_bytes_max);
                Self::RowWise { program: Box::new(program), inputs }
            }
            CellBody::Sequence(sequence) => {
                let options = config.program_options(cell);
                let program =
                    SequenceProgram::with(sequence, &cell.inputs, &cell.outputs, &options)?
                        .bound_batches(config.batch_bytes_max);
                Self::SequenceLevel(Box::new(program))
            }
            CellBody::Composite(composite) if !cell.states.is_empty() => {
                let chains = CompositeChains::new(packing, cell, composite, config)?;
                Self::CompositeChains(Box::new(chains))
            }
            CellBody::Composite(composite) => {
                let program = CompositeProgram::new(packing, composite, config)?;
                Self::Composite { program: Box::new(program), inputs }
            }
        })
    }

    /// Whether its programs need a large stack to run.
    pub(crate) fn is_deep(&self) -> bool {
        match self {
            Self::RowWise { program, .. } => program.is_deep(),
            Self::SequenceLevel(program) => program.is_deep(),
            Self::Composite { program, .. } => program.is_deep(),
            Self::CompositeChains(chains) => chains.is_deep(),
            Self::Recurrent(_) | Self::Tree(_) => false,
        }
    }

    /// The most threads that a batch of one row is worth from step to step, while all other workers are idle.
    pub(crate) fn worth_of_a_row(&self) -> usize {
        match self {
            Self::Recurrent(chains) => chains.worth(1),
            _ => 1,
        }
    }

    /// The number of token ids of the cell, if the output of each node depends on one token id alone;
    /// otherwise 0.
    pub(crate) fn token_ids(&self) -> usize {
        match self {
            Self::Tree(nodes) => nodes.token_ids(),
            _ => 0,
        }
    }

    /// The bytes that a slot takes; 0 of cells without states.
    pub(crate) fn slot_bytes(&self) -> usize {
        match self {
            Self::Recurrent(chains) => chains.slot_bytes(),
            Self::CompositeChains(chains) => chains.slot_bytes(),
            _ => 0,
        }
    }

    /// An upper bound of the bytes that one node takes while it runs, beside what kernels take. `spans` has the rows
    /// of its input ports, then of its output ports; 0 if they are not the cell's.
    pub(crate) fn node_bytes(&self, spans: &[u32]) -> u64 {
        match self {
            Self::Recurrent(_) | Self::Tree(_) => 0,
            Self::RowWise { program, .. } => {
                program.input_bytes().saturating_add(program.row_bytes())
            }
            Self::SequenceLevel(program) => {
                if spans.len() != program.inputs().len() + program.outputs().len() {
                    return 0;
                }
                program.input_bytes(spans).saturating_add(program.working_bytes(spans))
            }
            Self::Composite { program, .. } if program.has_programs() => program.row_bytes(),
            Self::Composite { .. } => 0,
            Self::CompositeChains(chains) => chains.row_bytes(),
        }
    }

    /// The most that [`node_bytes`](Self::node_bytes) returns for any spans.
    pub(crate) fn node_bytes_max(&self) -> u64 {
        match self {
            Self::SequenceLevel(_) => u64::MAX,
            of_one_row => of_one_row.node_bytes(&[]),
        }
    }

    /// Empty rosters; none of cells whose nodes form no chains.
    pub(crate) fn rosters(&self) -> Option<Rosters> {
        match self {
            Self::Recurrent(chains) => {
                Some(Rosters::Recurrent(Box::new([chains.roster(), chains.roster()])))
            }
            Self::CompositeChains(_) => Some(Rosters::Composite(Default::default())),
            _ => None,
        }
    }

    /// A row of each state before a step of a chain; none of cells without states.
    ///
    /// # Safety
    /// No task in flight uses the slot, and nobody else accesses it until this returns.
    pub(crate) unsafe fn read_state(&self, place: StatePlace) -> Option<Vec<TensorData>> {
        match self {
            // SAFETY: the caller vouches for the slot.
            Self::Recurrent(chains) => Some(unsafe { chains.read_state(place) }),
            // SAFETY: the caller vouches for the slot.
            Self::CompositeChains(chains) => Some(unsafe { chains.read_state(place) }),
            _ => None,
        }
    }

    /// Sets the state of a chain before a step: `states` has one row for each state of the cell.
    ///
    /// # Safety
    /// No task in flight uses the slot, and nobody else accesses it until this returns.
    ///
    /// # Panics
    /// If the cell has no such states.
    pub(crate) unsafe fn write_state(&self, place: StatePlace, states: Vec<TensorData>) {
        match self {
            // SAFETY: the caller vouches for the slot.
            Self::Recurrent(chains) => unsafe { chains.write_state(place, states) },
            // SAFETY: the caller vouches for the slot.
            Self::CompositeChains(chains) => unsafe { chains.write_state(place, states) },
            _ => panic!("{place:?}: the cell has no states"),
        }
    }

    /// Appends the parts of a task to `parts`, at least one, each of which [`run`](Self::run) takes in turn: batches
    /// that stay within the bytes of a worker, where the general executor runs them.
    pub(crate) fn divide(
        &self,
        work: Work,
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        parts: &mut VecDeque<Work>,
    ) {
        match (self, work) {
            (Self::RowWise { program, .. }, Work::Rows(items)) => {
                divide_rows(items, program.rows_max(), parts);
            }
            (Self::Composite { program, .. }, Work::Rows(items)) => {
                divide_rows(items, program.rows_max(), parts);
            }
            (Self::SequenceLevel(program), Work::Rows(items)) => {
                divide_sequences(program, items, memory_of, parts);
            }
            (_, work) => parts.push_back(work),
        }
    }

    /// Runs a part of a task: see [`divide`](Self::divide).
    ///
    /// # Safety
    /// The rows that the nodes read are written, and nobody writes them until this returns. Until then nobody
    /// else accesses the rows and the slots that they write.
    pub(crate) unsafe fn run(
        &self,
        work: &Work,
        rosters: Option<&mut Rosters>,
        memory_of: impl Fn(RequestId) -> Arc<RequestMemory>,
        resources: &mut WorkerResources<'_>,
    ) -> Result<(), CellError> {
        let WorkerResources { threads, group, tree_buffers, token_ids, ends } = resources;
        match (self, rosters, work) {
            (Self::Recurrent(chains), Some(Rosters::Recurrent(rosters)), work) => {
                let [roster, batch] = &mut **rosters;
                // SAFETY: the caller vouches for the rows and slots of the nodes.
                unsafe {
                    match work {
                        Work::Roster { leaves, joins, steps } => {
                            chains.run_roster(roster, leaves, joins, *steps, memory_of, group)?;
                        }
                        Work::Rows(items) => chains.run_items(batch, items, memory_of, group)?,
                    }
                }
            }
            (Self::CompositeChains(chains), Some(Rosters::Composite(rosters)), work) => {
                let [roster, batch] = rosters;
                let mut steps = CompositeResources { threads, group, ends };
                // SAFETY: the caller vouches for the rows and slots of the nodes.
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
            (Self::RowWise { program, inputs }, _, Work::Rows(items)) => {
                let run = |rows, inputs| program.run(rows, inputs, threads);
                // SAFETY: the caller vouches for the rows and slots of the nodes.
                unsafe { run_rows(run, inputs, items, memory_of) }?;
            }
            (Self::SequenceLevel(program), _, Work::Rows(items)) => {
                // SAFETY: the caller vouches for the rows and slots of the nodes.
                unsafe { run_sequences(program, items, memory_of, threads) }?;
            }
            (Self::Composite { program, inputs }, _, Work::Rows(items)) => {
                let run = |rows, inputs| program.run(rows, inputs, threads, group);
                // SAFETY: the caller vouches for the rows and slots of the nodes.
                unsafe { run_rows(run, inputs, items, memory_of) }?;
            }
            (Self::Tree(nodes), _, Work::Rows(items)) => {
                // SAFETY: the caller vouches for the rows and slots of the nodes.
                unsafe { nodes.run(items, memory_of, *token_ids, tree_buffers, group) }?;
            }
            _ => unreachable!("a roster of row-wise cells, or a chain without one"),
        }
        Ok(())
    }
}

/// Whether kernels, the executor or both run the batches of a cell.
pub(crate) fn runner(body: &CellBody) -> Runner {
    let is_program = |operation: &Operation| matches!(operation.body, OperationBody::Program(_));
    match body {
        CellBody::Recurrent(_) | CellBody::Tree(_) => Runner::Device,
        CellBody::Program(_) | CellBody::Sequence(_) => Runner::Executor,
        CellBody::Composite(cell) if cell.operations.iter().any(is_program) => Runner::Both,
        CellBody::Composite(_) => Runner::Device,
    }
}
