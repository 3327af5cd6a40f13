//! Runs the steps of a batch: the kernels and programs of a cell, one after the other.

use std::sync::Arc;

use batchmaker_graph::{CellTypeId, RowSpec};

use super::programs::{HostRows, HostRun};
use super::projections::{Extent, Projected};
use super::submitter::{Submitter, TaskError};
use crate::cells::{CudaCell, Operation, OperationBody, Program, Stepwise, Table};
use crate::gpu::{GpuError, Launches};
use crate::kernels::batch::{Batch, Lookup, Operand};
use crate::kernels::linear::{LinearArguments, PART_BYTES};
use crate::kernels::recurrent::StepArguments;
use crate::kernels::rows::{BLOCK, COPY_OPERAND, CopyOperandArguments, FINISH_STEP};
use crate::kernels::tiles;
use crate::kernels::tree::TreeArguments;
use crate::memory::Slots;

/// Registers begin at multiples of this number of bytes.
const ALIGNMENT: usize = 256;

/// A cell that runs row by row, with its type.
#[derive(Clone, Copy)]
pub(super) struct TypedCell<'a> {
    pub(super) id: CellTypeId,
    pub(super) cell: &'a Arc<CudaCell>,
    pub(super) stepwise: &'a Stepwise,
}

/// Where a cell has its registers for a batch.
pub(super) struct Frame {
    pub(super) registers: Vec<Operand>,
    /// Each state after the step.
    pub(super) next_states: Vec<Operand>,
    /// What one kernel leaves to the next, or one block to others.
    pub(super) between: u64,
    /// What steps begin with.
    pub(super) projected: Projected,
    /// Bytes of memory that registers and what kernels leave take.
    bytes: usize,
}

impl Frame {
    /// Places the registers for a batch: those that are no states in memory that begins at `scratch`, states in slots.
    fn new(of: &Stepwise, extent: Extent, scratch: u64, slots: Option<&Slots>) -> Self {
        let rows = extent.rows;
        let mut bytes = 0;
        let mut take = |count: usize| {
            let at = scratch + bytes as u64;
            bytes += count.next_multiple_of(ALIGNMENT);
            at
        };
        let half = of.half_bytes;
        let state = |state: usize| slots.map_or(0, |slots| slots.base(of.state_places[state]));
        let register = |(number, &row_bytes): (usize, &usize)| {
            let written_state =
                of.outputs.iter().take(of.states.len()).position(|&of| of == number);
            match number.checked_sub(of.inputs) {
                None => Operand::port(number),
                Some(number) if number < of.states.len() => Operand::state(state(number), half),
                Some(_) => match written_state {
                    Some(number) => Operand::next_state(state(number), half),
                    None => Operand::dense(take(rows * row_bytes), row_bytes),
                },
            }
        };
        let registers = of.registers.iter().enumerate().map(register).collect();
        let next_states =
            (0..of.states.len()).map(|of| Operand::next_state(state(of), half)).collect();
        let of_persistent = of.persistent.as_ref().map(|of| of.kernel.between_bytes(rows));
        let most =
            of.operations.iter().map(|of| between_bytes(of, rows)).chain(of_persistent).max();
        let between = take(most.unwrap_or(0));
        let projected = Projected::place(of, extent, take);
        Self { registers, next_states, between, projected, bytes }
    }

    fn register(&self, number: Option<usize>) -> Operand {
        number.map_or(Operand::NOWHERE, |number| self.registers[number])
    }

    /// Where each output is.
    pub(super) fn outputs(&self, of: TypedCell<'_>) -> Vec<Operand> {
        of.stepwise.outputs.iter().map(|&register| self.registers[register]).collect()
    }
}

/// Bytes that one kernel of an operation leaves to the next.
fn between_bytes(operation: &Operation, rows: usize) -> usize {
    match &operation.body {
        OperationBody::Step(step) => rows * step.packed.between_bytes(),
        OperationBody::Linear(linear) => rows * linear.packed.blocks_of_a_row() * PART_BYTES,
        OperationBody::Tree(_) | OperationBody::Program(_) => 0,
    }
}

/// A batch that is about to run.
pub(super) struct Run<'a> {
    pub(super) typed: TypedCell<'a>,
    pub(super) frame: &'a Frame,
    /// At its first step.
    pub(super) batch: Batch,
    /// The address of the operands of outputs.
    pub(super) outputs: u64,
    /// For each step, whether a row writes what it computes, or may end.
    pub(super) finishes: &'a [bool],
    /// Whether launches with the same arguments will come again.
    pub(super) repeats: bool,
}

impl Submitter {
    /// Places a cell's registers for a batch.
    pub(super) fn frame(
        &mut self,
        of: TypedCell<'_>,
        extent: Extent,
        slots: Option<&Slots>,
    ) -> Result<Frame, GpuError> {
        let bytes = Frame::new(of.stepwise, extent, 0, slots).bytes;
        match self.scratch(bytes) {
            Ok(scratch) => Ok(Frame::new(of.stepwise, extent, scratch, slots)),
            // Steps that multiply x themselves need less.
            Err(error) if error.is_out_of_memory() && extent.steps > 1 => {
                self.frame(of, Extent { steps: 1, ..extent }, slots)
            }
            Err(error) => Err(error),
        }
    }

    /// Runs the steps of a batch.
    pub(super) fn run_steps(&mut self, run: &Run<'_>) -> Result<(), TaskError> {
        if run.batch.count == 0 {
            return Ok(());
        }
        let operations = &run.typed.stepwise.operations;
        let staged = operations.iter().map(|operation| self.stage_program(run, operation));
        let host_runs = staged.collect::<Result<Vec<_>, _>>()?;
        let (steps, projected) = (run.finishes.len(), &run.frame.projected);
        let mut launches = std::mem::take(&mut self.launches);
        launches.clear();
        // Launches that come again are the same whichever step writes: a row that does not is passed over.
        let any_finishes = run.repeats && run.finishes.contains(&true);
        for (step, &finishes) in run.finishes.iter().enumerate() {
            let batch = Batch { time: run.batch.time.wrapping_add(step as u32), ..run.batch };
            if projected.steps > 0 && step % projected.steps == 0 {
                let cell = (&**run.typed.cell, run.typed.stepwise);
                let steps = projected.steps.min(steps - step);
                self.project(cell, projected, batch, steps, &mut launches);
            }
            for (number, host_run) in host_runs.iter().enumerate() {
                let operation = (number, host_run.as_ref());
                self.run_operation(run, (batch, step), operation, &mut launches)?;
            }
            self.pass_states(run, batch, &mut launches);
            if finishes || any_finishes {
                let inputs = run.typed.stepwise.inputs;
                let arguments = self.completions.finish(batch, run.outputs, inputs);
                let grid = [batch.count as u32, 1, 1];
                launches.push(self.worker.gpu(), FINISH_STEP, [grid, BLOCK], &arguments);
            }
        }
        let stream = &self.worker.stream;
        match run.repeats {
            true => self.graphs.submit(stream, &launches)?,
            false => stream.launch_all(&launches)?,
        }
        self.launches = launches;
        Ok(())
    }

    fn run_operation(
        &self,
        run: &Run<'_>,
        (batch, at): (Batch, usize),
        (number, host_run): (usize, Option<&Arc<HostRun>>),
        launches: &mut Launches,
    ) -> Result<(), GpuError> {
        let operation = &run.typed.stepwise.operations[number];
        let constants = run.typed.cell.constants.on(self.worker.number);
        let rows = batch.count as usize;
        let read = |at: usize| run.frame.register(operation.reads.get(at).copied().flatten());
        let write = |at: usize| run.frame.register(operation.writes.get(at).copied());
        let between = run.frame.between;
        let gpu = self.worker.gpu();
        match &operation.body {
            OperationBody::Step(step) => {
                let row_bytes = step.packed.between_bytes();
                let place = |of: Option<u64>| of.map_or(0, |place| constants + place);
                let [w_scale, r_scale] = step.scales.map(place);
                let kernels = step.packed.launches.iter().zip(&step.weights);
                for (place_of, (launch, weights)) in kernels.enumerate() {
                    let [w, r, b] = weights.map(|place| constants + place);
                    let arguments = StepArguments {
                        batch,
                        x: read(0),
                        h: read(1),
                        c: read(2),
                        next_h: write(0),
                        next_c: write(1),
                        between: Operand::dense(between, row_bytes),
                        projected: run.frame.projected.operand([number, place_of], at),
                        lookup: self.lookup(step.table, constants),
                        w,
                        r,
                        b,
                        peepholes: place(step.peepholes),
                        w_scale,
                        r_scale,
                        input: step.packed.input_size() as i32,
                        hidden: step.packed.hidden_size() as i32,
                    };
                    let grid = launch.grid(rows);
                    launches.push(gpu, launch.kernel, [grid, tiles::BLOCK], &arguments);
                }
            }
            OperationBody::Tree(tree) => {
                let [w, r, b] = tree.weights.map(|place| constants + place);
                // Of an inner node: h and c of the left child, then of the right one.
                let of_child = |at: usize| if tree.is_leaf { Operand::NOWHERE } else { read(at) };
                let arguments = TreeArguments {
                    batch,
                    first: read(0),
                    right: of_child(2),
                    c_left: of_child(1),
                    c_right: of_child(3),
                    h: write(0),
                    c: write(1),
                    lookup: self.lookup(tree.table, constants),
                    w,
                    r,
                    b,
                    input: tree.packed.input_size() as i32,
                    hidden: tree.packed.hidden_size() as i32,
                };
                let grid = tree.packed.grid(rows);
                launches.push(gpu, tree.packed.kernel, [grid, tiles::BLOCK], &arguments);
            }
            OperationBody::Linear(linear) => {
                let [w, b] = linear.weights.map(|place| constants + place);
                let arguments = LinearArguments {
                    batch,
                    x: read(0),
                    y: write(0),
                    w,
                    b,
                    parts: between,
                    inputs: linear.packed.inputs() as i32,
                    outputs: linear.packed.outputs() as i32,
                };
                let grids = linear.packed.grids(rows);
                for (kernel, grid) in linear.packed.kernels.into_iter().zip(grids) {
                    launches.push(gpu, kernel, [grid, tiles::BLOCK], &arguments);
                }
            }
            OperationBody::Program(program) => {
                let host_run = host_run.expect("a program has memory of the host");
                self.run_program(run, batch, (operation, program, host_run), launches)?;
            }
        }
        Ok(())
    }

    pub(super) fn lookup(&self, table: Option<Table>, constants: u64) -> Lookup {
        table.map_or(Lookup::NONE, |Table { place, rows, width }| Lookup {
            table: constants + place,
            failed: self.completions.failed(),
            rows: rows as i32,
            width: width as i32,
        })
    }

    /// Memory of the host for the ports of an operation that is a program: the same for all steps, which run one after the other.
    fn stage_program(
        &mut self,
        run: &Run<'_>,
        operation: &Operation,
    ) -> Result<Option<Arc<HostRun>>, GpuError> {
        let OperationBody::Program(program) = &operation.body else { return Ok(None) };
        let rows = run.batch.count as usize;
        let registers = &run.typed.stepwise.registers;
        let mut stage = |(row, register): (&RowSpec, usize)| {
            let staged = self.stage(rows * registers[register])?;
            Ok(HostRows { row: row.clone(), rows, staged })
        };
        let reads = operation.reads.iter().flatten().copied();
        let inputs = program.inputs.iter().zip(reads).map(&mut stage);
        let inputs = inputs.collect::<Result<_, GpuError>>()?;
        let writes = operation.writes.iter().copied();
        let outputs = program.outputs.iter().zip(writes).map(&mut stage);
        let outputs = outputs.collect::<Result<_, GpuError>>()?;
        let (threads, failure) = (self.threads.clone(), self.failure.clone());
        Ok(Some(Arc::new(HostRun { inputs, outputs, threads, failure })))
    }

    /// Copies a program's inputs to the host, has the host run it, and copies its outputs back.
    fn run_program(
        &self,
        run: &Run<'_>,
        batch: Batch,
        (operation, program, host_run): (&Operation, &Arc<Program>, &Arc<HostRun>),
        launches: &mut Launches,
    ) -> Result<(), GpuError> {
        let rows = batch.count as usize;
        let registers = &run.typed.stepwise.registers;
        let on_host =
            |of: &HostRows, bytes: usize| Operand::dense(of.staged.device_address(), bytes);
        for (of, &register) in host_run.inputs.iter().zip(operation.reads.iter().flatten()) {
            let (bytes, from) = (registers[register], run.frame.register(Some(register)));
            // Programs run on rows of zeros where nobody wants what they compute: they fail on none of them.
            self.copy_operand(batch, (from, on_host(of, bytes)), (bytes, true), launches);
        }
        self.worker.stream.launch_all(launches)?;
        launches.clear();
        let (program, on_stream) = (program.clone(), host_run.clone());
        self.worker.stream.run_on_host(move || {
            on_stream.run(|inputs, threads| program.program.run(rows, inputs, threads));
        })?;
        for (of, &register) in host_run.outputs.iter().zip(&operation.writes) {
            let (bytes, to) = (registers[register], run.frame.register(Some(register)));
            self.copy_operand(batch, (on_host(of, bytes), to), (bytes, false), launches);
        }
        Ok(())
    }

    /// Copies states that no operation writes to where they are after the step.
    fn pass_states(&self, run: &Run<'_>, batch: Batch, launches: &mut Launches) {
        let of = run.typed.stepwise;
        for (state, &register) in of.outputs.iter().take(of.states.len()).enumerate() {
            let is_written =
                register >= of.inputs + of.states.len() && !of.outputs[..state].contains(&register);
            if !is_written {
                let (from, bytes) = (run.frame.registers[register], of.registers[register]);
                let to = run.frame.next_states[state];
                self.copy_operand(batch, (from, to), (bytes, false), launches);
            }
        }
    }

    fn copy_operand(
        &self,
        batch: Batch,
        (from, to): (Operand, Operand),
        (bytes, clears_idle): (usize, bool),
        launches: &mut Launches,
    ) {
        let (bytes, clears_idle) = (bytes as u32, u32::from(clears_idle));
        let arguments = CopyOperandArguments { batch, from, to, bytes, clears_idle };
        let grid = [batch.count as u32, 1, 1];
        launches.push(self.worker.gpu(), COPY_OPERAND, [grid, BLOCK], &arguments);
    }
}
