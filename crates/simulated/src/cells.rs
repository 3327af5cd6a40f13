//! Rows that are real: cells computed one node at a time, by their equations, and programs by the
//! general executor.

use std::collections::HashMap;
use std::sync::Arc;

use batchmaker_device::reference::{self, Row};
use batchmaker_device::{DeviceError, Runner, working_bytes};
use batchmaker_executor::{
    BATCH_BYTES_MAX, ExecutorError, ExecutorThreads, ProgramOptions, RowProgram, SequenceProgram,
};
use batchmaker_graph::{
    Cell, CellBody, CellGraph, CellIdentity, CellPorts, CellType, CellTypeId, CompositeCell,
    ElementType, OperationBody, Program, RowSpec, Stop, TensorData,
};

use crate::arithmetic::Arithmetic;

/// The cell types that a simulated device was given. A row of a value is one row of its elements.
pub(crate) struct Cells {
    known: HashMap<CellTypeId, KnownCell>,
    threads: ExecutorThreads,
}

struct KnownCell {
    identity: CellIdentity,
    /// The number of times that the type was added and not released.
    count: usize,
    cell: Arc<Cell>,
    ports: CellPorts,
    /// The programs of the cell.
    programs: Programs,
}

enum Programs {
    None,
    Rows(RowProgram),
    Sequences(SequenceProgram),
    /// The programs of a composite cell.
    Operations(OperationPrograms),
}

/// Programs by the address of their bytes, each with its input rows.
type OperationPrograms = HashMap<usize, (RowProgram, Vec<RowSpec>)>;

impl Cells {
    pub(crate) fn new() -> Self {
        Self { known: HashMap::new(), threads: ExecutorThreads::new() }
    }

    /// Adds a cell type, and returns what runs it.
    pub(crate) fn add(&mut self, id: CellTypeId, cell: &CellType) -> Result<Runner, DeviceError> {
        if let Some(known) = self.known.get_mut(&id) {
            assert_eq!(known.identity, cell.identity, "{id} stands for another cell");
            known.count += 1;
            return Ok(known.programs.runner());
        }
        let programs = Programs::of(&cell.cell).map_err(|error| DeviceError::Cell {
            cell: cell.name.clone(),
            reason: error.to_string(),
        })?;
        let runner = programs.runner();
        let (identity, cell) = (cell.identity, cell.cell.clone());
        let ports = CellPorts::of(&cell);
        self.known.insert(id, KnownCell { identity, count: 1, cell, ports, programs });
        Ok(runner)
    }

    /// The ports of a cell type that was added.
    pub(crate) fn ports(&self, id: CellTypeId) -> Option<&CellPorts> {
        self.known.get(&id).map(|known| &known.ports)
    }

    /// Releases a cell type. Returns whether it was added no more often than released.
    pub(crate) fn release(&mut self, id: CellTypeId) -> bool {
        let known = self.known.get_mut(&id).expect("a cell type is released once it was taken");
        known.count -= 1;
        let is_last = known.count == 0;
        if is_last {
            self.known.remove(&id);
        }
        is_last
    }

    /// The number of cell types that were added and not released.
    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// See [`batchmaker_device::Device::working_bytes`]. A worker computes nodes one after the other.
    pub(crate) fn working_bytes(&self, graph: &CellGraph, workers: usize) -> u64 {
        let of_rows =
            |program: &RowProgram| program.input_bytes().saturating_add(program.row_bytes());
        working_bytes(graph, BATCH_BYTES_MAX, workers, |cell_type, spans| {
            match self.known.get(&cell_type).map(|known| &known.programs) {
                None | Some(Programs::None) => 0,
                Some(Programs::Rows(program)) => of_rows(program),
                Some(Programs::Sequences(program)) => {
                    if spans.len() != program.inputs().len() + program.outputs().len() {
                        return 0;
                    }
                    program.input_bytes(spans).saturating_add(program.working_bytes(spans))
                }
                Some(Programs::Operations(programs)) => {
                    programs.values().map(|(program, _)| of_rows(program)).max().unwrap_or(0)
                }
            }
        })
    }

    fn cell(&self, id: CellTypeId) -> Result<&KnownCell, String> {
        self.known.get(&id).ok_or_else(|| format!("{id} is not here"))
    }
}

impl Programs {
    fn of(cell: &Cell) -> Result<Self, ExecutorError> {
        let options = ProgramOptions::in_precision(cell.precision);
        Ok(match &cell.body {
            CellBody::Recurrent(_) | CellBody::Tree(_) => Self::None,
            CellBody::Program(program) => {
                Self::Rows(RowProgram::with(program, &cell.inputs, &cell.outputs, &options)?)
            }
            CellBody::Sequence(whole) => Self::Sequences(SequenceProgram::with(
                whole,
                &cell.inputs,
                &cell.outputs,
                &options,
            )?),
            CellBody::Composite(composite) => {
                Self::Operations(operation_programs(composite, &options)?)
            }
        })
    }

    fn runner(&self) -> Runner {
        match self {
            Self::None => Runner::Device,
            Self::Rows(_) | Self::Sequences(_) => Runner::Executor,
            Self::Operations(programs) if programs.is_empty() => Runner::Device,
            Self::Operations(_) => Runner::Both,
        }
    }
}

fn address(program: &Program) -> usize {
    program.bytes.as_ptr() as usize
}

fn operation_programs(
    cell: &CompositeCell,
    options: &ProgramOptions,
) -> Result<OperationPrograms, ExecutorError> {
    let row = |&register: &usize| cell.registers[register].clone();
    let mut programs = HashMap::new();
    for operation in &cell.operations {
        let OperationBody::Program(program) = &operation.body else { continue };
        let inputs: Vec<RowSpec> = operation.reads.iter().flatten().map(row).collect();
        let outputs: Vec<RowSpec> = operation.writes.iter().map(row).collect();
        let loaded = RowProgram::with(program, &inputs, &outputs, options)?;
        programs.insert(address(program), (loaded, inputs));
    }
    Ok(programs)
}

impl Arithmetic for Cells {
    type Row = TensorData;

    fn zero_state(&self, cell_type: CellTypeId, port: usize) -> TensorData {
        let state = &self.known[&cell_type].cell.states[port];
        TensorData::zeros(state.element, state.elements())
    }

    fn outputs(
        &self,
        cell_type: CellTypeId,
        inputs: &[Vec<TensorData>],
        states: &[TensorData],
        spans: &[u32],
    ) -> Result<Vec<Vec<TensorData>>, String> {
        let KnownCell { cell, programs, .. } = self.cell(cell_type)?;
        let one_row = |data: TensorData| vec![data];
        match programs {
            Programs::Rows(program) => {
                let inputs = inputs.iter().map(|rows| rows[0].clone()).collect();
                let outputs = program.run(1, inputs, &self.threads).map_err(|e| e.to_string())?;
                Ok(outputs.into_iter().map(one_row).collect())
            }
            Programs::Sequences(program) => {
                let of_inputs = inputs.iter().map(|rows| rows.len() as u32);
                let all: Vec<u32> = of_inputs.chain(spans.iter().copied()).collect();
                let batches = program.batches(std::iter::once(all));
                let inputs = cell.inputs.iter().zip(inputs);
                let inputs = inputs.map(|(row, rows)| joined(row.element, rows)).collect();
                let outputs = program
                    .run(&batches[0], inputs, &self.threads)
                    .map_err(|error| error.to_string())?;
                let rows = |(data, row): (TensorData, &RowSpec)| split(&data, row.elements());
                Ok(outputs.into_iter().zip(&cell.outputs).map(rows).collect())
            }
            Programs::None => {
                let no_programs =
                    |_: &Program, _: &[Row]| Err("the cell has no program".to_owned());
                node(cell, inputs, states, &no_programs)
            }
            Programs::Operations(programs) => {
                let run = |program: &Program, rows: &[Row]| {
                    run_operation(programs, program, rows, &self.threads)
                };
                node(cell, inputs, states, &run)
            }
        }
    }

    fn left_out(&self, row: &RowSpec) -> TensorData {
        TensorData::zeros(row.element, row.elements())
    }

    fn is_true(&self, row: &TensorData) -> bool {
        matches!(row, TensorData::Bool(truth) if truth[..] == [true])
    }

    fn is_end(&self, stop: Stop, output: &TensorData) -> bool {
        matches!(output, TensorData::I64(id) if id[..] == [stop.value])
    }
}

/// The output rows of a node of a cell with fused kernels, in the cell's element types.
fn node(
    cell: &Cell,
    inputs: &[Vec<TensorData>],
    states: &[TensorData],
    run_program: reference::RunProgram<'_>,
) -> Result<Vec<Vec<TensorData>>, String> {
    let row = |data: &TensorData| Row::of(data, 0..data.len());
    let inputs: Vec<Row> = inputs.iter().map(|rows| row(&rows[0])).collect();
    let states: Vec<Row> = states.iter().map(row).collect();
    let outputs = reference::outputs(cell, &inputs, &states, run_program)?;
    let data = |(row, spec): (Row, &RowSpec)| vec![row.to_data(spec.element)];
    Ok(outputs.into_iter().zip(&cell.outputs).map(data).collect())
}

fn run_operation(
    programs: &OperationPrograms,
    program: &Program,
    rows: &[Row],
    threads: &ExecutorThreads,
) -> Result<Vec<Row>, String> {
    let (program, inputs) = &programs[&address(program)];
    let data = rows.iter().zip(inputs).map(|(row, spec)| row.to_data(spec.element)).collect();
    let outputs = program.run(1, data, threads).map_err(|error| error.to_string())?;
    Ok(outputs.iter().map(|data| Row::of(data, 0..data.len())).collect())
}

/// The elements of rows, one row after the other.
pub(crate) fn joined(element: ElementType, rows: &[TensorData]) -> TensorData {
    let mut all = Row::of(&TensorData::zeros(element, 0), 0..0);
    rows.iter().for_each(|row| all.extend(&Row::of(row, 0..row.len())));
    all.to_data(element)
}

/// `data` as rows of `elements` elements.
pub(crate) fn split(data: &TensorData, elements: usize) -> Vec<TensorData> {
    let rows = data.len().checked_div(elements).unwrap_or(0);
    (0..rows).map(|row| data.slice(row * elements..(row + 1) * elements)).collect()
}
