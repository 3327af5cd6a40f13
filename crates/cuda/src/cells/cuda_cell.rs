//! A cell: operations over registers, or a program over whole sequences.
//!
//! All cells but those over whole sequences have one form, that of a composite cell: a recurrent cell is one whose only operation is a step.

use std::sync::Arc;

use batchmaker_device::Runner;
use batchmaker_executor::{ProgramOptions, RowProgram, SequenceProgram};
use batchmaker_graph::{
    Cell, CellBody, Operation as CellOperation, OperationBody as CellOperationBody, Precision,
    Program as CellProgram, RecurrentCell, RowSpec, TreeCell,
};

use super::constants::{Constants, Packing};
use super::error::CellError;
use super::mapped::MappedKernels;
use super::operation::{Linear, Operation, OperationBody, Program, Step, Tree};
use super::persistent::{Compiler, OfQuantum, Persistent};
use crate::kernels::weights::Storage;
use crate::mapping::{Limits, Mapping};
use crate::worker::Worker;

/// States in a slot begin at multiples of this number of bytes.
const STATE_ALIGNMENT: usize = 16;

/// A cell, ready to run on all GPUs.
pub(crate) struct CudaCell {
    pub(crate) body: CudaCellBody,
    pub(crate) constants: Constants,
}

/// The two forms of cells.
pub(crate) enum CudaCellBody {
    /// Row by row.
    Stepwise(Stepwise),
    /// A program over whole sequences.
    Sequences(Arc<SequenceProgram>),
}

/// Operations, one after the other, over registers: a row of each for each row of the batch.
pub(crate) struct Stepwise {
    /// Bytes of a row of each register. The first hold the inputs, then the states.
    pub(crate) registers: Vec<usize>,
    /// The number of input ports.
    pub(crate) inputs: usize,
    /// The row of each state.
    pub(crate) states: Vec<RowSpec>,
    /// The offset of each state in half a slot.
    pub(crate) state_places: Vec<usize>,
    /// Bytes of half a slot.
    pub(crate) half_bytes: usize,
    pub(crate) operations: Vec<Operation>,
    /// The register of each output port.
    pub(crate) outputs: Vec<usize>,
    /// The kernel that runs all steps of a task in place of the operations, which are one step of a recurrent operator.
    pub(crate) persistent: Option<Box<Persistent>>,
}

impl CudaCell {
    /// Packs a cell and copies its weights to the GPUs.
    pub(crate) fn new(
        cell: &Cell,
        workers: &[Arc<Worker>],
        compiler: Option<Compiler>,
    ) -> Result<Self, CellError> {
        let mut packing = Packing::default();
        let body = match &cell.body {
            CellBody::Sequence(sequence) => {
                let options = ProgramOptions::in_precision(cell.precision);
                let (inputs, outputs) = (&cell.inputs, &cell.outputs);
                let program = SequenceProgram::with(sequence, inputs, outputs, &options)?;
                CudaCellBody::Sequences(Arc::new(program))
            }
            body => {
                let mut stepwise = Stepwise::new(cell, &mut packing)?;
                match (body, compiler, storage_of(cell.precision, workers)) {
                    (CellBody::Recurrent(step), Some(compiler), Some(storage)) => {
                        let persistent = persistent((step, storage), workers, compiler)?;
                        stepwise.persistent = persistent.map(Box::new);
                    }
                    (_, Some(Compiler { mapping: Some(_), .. }), _) => return Err(no_mapping()),
                    _ => {}
                }
                CudaCellBody::Stepwise(stepwise)
            }
        };
        Ok(Self { body, constants: Constants::copy(&packing, workers)? })
    }

    /// The kernels that are made for it, if it has such.
    pub(crate) fn mapped(&self) -> Option<MappedKernels> {
        let CudaCellBody::Stepwise(stepwise) = &self.body else { return None };
        let persistent = stepwise.persistent.as_ref()?;
        let quantum = persistent.quantum.as_ref().map(|of| of.kernel);
        Some(MappedKernels { kernel: persistent.kernel, quantum })
    }

    /// The kernels in a mapping that take the place of those that are made for it.
    ///
    /// # Errors
    /// The reason why none do.
    pub(crate) fn with_mapping(
        &self,
        mapping: Mapping,
        limits: Limits,
    ) -> Result<MappedKernels, String> {
        let own = self.mapped().ok_or_else(|| NO_MAPPING.to_owned())?;
        own.with_mapping(mapping, limits)
    }

    /// The code that runs its batches.
    pub(crate) fn runner(&self) -> Runner {
        let CudaCellBody::Stepwise(stepwise) = &self.body else { return Runner::Executor };
        let is_program = |of: &Operation| matches!(of.body, OperationBody::Program(_));
        let programs = stepwise.operations.iter().filter(|of| is_program(of)).count();
        match programs {
            0 => Runner::Device,
            _ if programs == stepwise.operations.len() => Runner::Executor,
            _ => Runner::Both,
        }
    }

    /// Bytes of the states of a chain: both halves of its slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        match &self.body {
            CudaCellBody::Stepwise(stepwise) => 2 * stepwise.half_bytes,
            CudaCellBody::Sequences(_) => 0,
        }
    }

    /// The bytes that a node takes of the host's memory while it runs; `spans` are the rows that its ports have of it.
    pub(crate) fn node_bytes(&self, spans: &[u32]) -> u64 {
        let of_rows = |of: &Operation| match &of.body {
            OperationBody::Program(of) => {
                // In the memory that the GPU accesses, and beside it.
                of.program.input_bytes().saturating_add(of.program.row_bytes()).saturating_mul(2)
            }
            _ => 0,
        };
        match &self.body {
            CudaCellBody::Stepwise(of) => of.operations.iter().map(of_rows).max().unwrap_or(0),
            CudaCellBody::Sequences(program) => {
                let ports = program.inputs().len() + program.outputs().len();
                let bytes =
                    || program.input_bytes(spans).saturating_add(program.working_bytes(spans));
                if spans.len() == ports { bytes() } else { 0 }
            }
        }
    }
}

impl Stepwise {
    /// The step of the cell, and the kernel that runs task after task of a roster, if it has one.
    pub(crate) fn quantum(&self) -> Option<(&Step, &OfQuantum)> {
        let quantum = self.persistent.as_ref()?.quantum.as_ref()?;
        match &self.operations.first()?.body {
            OperationBody::Step(step) => Some((step, quantum)),
            _ => None,
        }
    }

    /// Whether the launches of a batch differ only by what a [`Now`](crate::kernels::batch::Now) tells them.
    pub(crate) fn repeats(&self) -> bool {
        let is_program = |of: &Operation| matches!(of.body, OperationBody::Program(_));
        self.persistent.is_none() && !self.operations.iter().any(is_program)
    }

    fn new(cell: &Cell, packing: &mut Packing) -> Result<Self, CellError> {
        let mut packed = Packed { precision: cell.precision, packing };
        let (inputs, states) = (cell.inputs.len(), cell.states.len());
        // Of a cell of one operation: it reads the inputs and the states, and writes the outputs.
        let first = inputs + states;
        let own = [&cell.inputs[..], &cell.states, &cell.outputs].concat();
        let whole = |body: OperationBody| Operation {
            body,
            reads: (0..first).map(Some).collect(),
            writes: (first..own.len()).collect(),
        };
        let (registers, operations, outputs) = match &cell.body {
            CellBody::Recurrent(step) => {
                (own.clone(), vec![whole(packed.step(step)?)], (first..own.len()).collect())
            }
            CellBody::Tree(tree) => {
                (own.clone(), vec![whole(packed.tree(tree)?)], (first..own.len()).collect())
            }
            CellBody::Program(program) => {
                let body = packed.program(program, &cell.inputs, &cell.outputs)?;
                (own.clone(), vec![whole(body)], (first..own.len()).collect())
            }
            CellBody::Composite(composite) => {
                let operations = composite.operations.iter();
                let operations = operations.map(|of| packed.operation(of, &composite.registers));
                let operations = operations.collect::<Result<Vec<_>, CellError>>()?;
                (composite.registers.clone(), operations, composite.outputs.clone())
            }
            CellBody::Sequence(_) => unreachable!("it has a form of its own"),
        };
        let bytes = |row: &RowSpec| {
            row.bytes().ok_or_else(|| CellError::NoKernel(format!("rows of {:?}", row.shape)))
        };
        let mut half_bytes = 0;
        let mut state_places = Vec::new();
        for state in &cell.states {
            state_places.push(half_bytes);
            half_bytes += bytes(state)?.next_multiple_of(STATE_ALIGNMENT);
        }
        Ok(Self {
            registers: registers.iter().map(bytes).collect::<Result<_, _>>()?,
            inputs,
            states: cell.states.clone(),
            state_places,
            half_bytes,
            operations,
            outputs,
            persistent: None,
        })
    }
}

/// Makes kernels for a recurrent cell, in the mapping of its plan if it has one. They are none where its weights fit no GPU's registers and shared memory.
fn persistent(
    (cell, storage): (&RecurrentCell, Storage),
    workers: &[Arc<Worker>],
    compiler: Compiler,
) -> Result<Option<Persistent>, CellError> {
    let Compiler { compile, with_quanta, limits, mapping } = compiler;
    let make = |of: MappedKernels| Persistent::new((of.kernel, of.quantum), workers, compile);
    let own = MappedKernels::of((cell, storage), limits, with_quanta);
    let Some(mapping) = mapping else { return Ok(own.map(make).transpose()?.flatten()) };
    let own = own.ok_or_else(no_mapping)?;
    let planned = make(own.with_mapping(mapping, limits).map_err(CellError::Plan)?)?;
    // The compiler may take more registers than are expected.
    match planned.filter(|of| of.quantum.is_some() || own.quantum.is_none()) {
        Some(planned) => Ok(Some(planned)),
        None => make(own),
    }
}

/// The first architecture that multiplies matrices in bfloat16.
const BF16_ARCHITECTURE: u32 = 80;

/// How such kernels store the weights of a cell; none if all GPUs have none for its precision.
fn storage_of(precision: Precision, workers: &[Arc<Worker>]) -> Option<Storage> {
    let oldest = workers.iter().map(|worker| worker.gpu().architecture).min();
    let storage = Storage::of(precision)?;
    (storage == Storage::F32 || oldest >= Some(BF16_ARCHITECTURE)).then_some(storage)
}

/// Why a cell without such kernels has no plan.
const NO_MAPPING: &str = "a mapping, where the cell has no kernels that take one";

fn no_mapping() -> CellError {
    CellError::Plan(NO_MAPPING.to_owned())
}

/// Packs operations.
struct Packed<'a> {
    precision: Precision,
    packing: &'a mut Packing,
}

impl Packed<'_> {
    fn operation(
        &mut self,
        operation: &CellOperation,
        registers: &[RowSpec],
    ) -> Result<Operation, CellError> {
        let body = match &operation.body {
            CellOperationBody::Step(step) => self.step(step)?,
            CellOperationBody::LinearArgMax(layer) => {
                OperationBody::Linear(Linear::new(layer, self.storage()?, self.packing))
            }
            CellOperationBody::Program(program) => {
                let row = |&register: &usize| registers[register].clone();
                let inputs: Vec<_> = operation.reads.iter().flatten().map(row).collect();
                let outputs: Vec<_> = operation.writes.iter().map(row).collect();
                self.program(program, &inputs, &outputs)?
            }
        };
        let (reads, writes) = (operation.reads.clone(), operation.writes.clone());
        Ok(Operation { body, reads, writes })
    }

    fn step(&mut self, cell: &RecurrentCell) -> Result<OperationBody, CellError> {
        let step = Step::new(cell, self.storage()?, self.packing);
        let none = || {
            CellError::NoKernel("GPUs have no kernel for an LSTM of bytes of its size".to_owned())
        };
        step.map(OperationBody::Step).ok_or_else(none)
    }

    fn tree(&mut self, cell: &TreeCell) -> Result<OperationBody, CellError> {
        Ok(OperationBody::Tree(Tree::new(cell, self.storage()?, self.packing)))
    }

    fn program(
        &mut self,
        program: &CellProgram,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
    ) -> Result<OperationBody, CellError> {
        let options = ProgramOptions::in_precision(self.precision);
        let program = RowProgram::with(program, inputs, outputs, &options)?;
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        Ok(OperationBody::Program(Arc::new(Program { program, inputs, outputs })))
    }

    /// The type that weights are stored in.
    fn storage(&self) -> Result<Storage, CellError> {
        let precision = self.precision;
        let none = || CellError::NoKernel(format!("GPUs have no kernel for it in {precision}"));
        Storage::of(precision).ok_or_else(none)
    }
}
