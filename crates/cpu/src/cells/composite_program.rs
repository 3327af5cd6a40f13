//! Composite cells: programs, and operations with fused kernels between them.

use batchmaker_executor::{Executor, ExecutorError, ExecutorThreads, ProgramOptions, RowProgram};
use batchmaker_graph::{
    CompositeCell, LinearArgMax, Operation, OperationBody, RowSpec, TensorData, UnknownId,
};
use batchmaker_kernels::{
    KernelError, LinearParameters, PackedLinear, Packing, Recurrence, StepRow, XPart,
};

use super::arg_max::arg_max;
use super::batch_job::{Job, WORTH_THREADS, project_rows};
use super::embedding::Embedding;
use super::packing::pack;
use crate::config::CpuConfig;
use crate::strategies::execution_strategy::{InputProjection, Split};
use crate::threads::thread_group::ThreadGroup;

/// A materialised [`CompositeCell`].
pub(crate) struct CompositeProgram {
    registers: Vec<RowSpec>,
    operations: Vec<LoadedOperation>,
    outputs: Vec<Read>,
    batch_bytes_max: u64,
}

struct LoadedOperation {
    body: LoadedBody,
    reads: Vec<Option<Read>>,
    writes: Vec<usize>,
}

enum LoadedBody {
    Program(Box<RowProgram>),
    Step { cell: Box<dyn Recurrence>, embedding: Option<Embedding> },
    ArgMax(PackedLinear),
}

/// A read of a register.
#[derive(Clone, Copy)]
struct Read {
    register: usize,
    /// Whether nobody reads the register after this before it is written again, so that its rows can be
    /// moved, not copied.
    is_last: bool,
}

/// A composite cell cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompositeError {
    #[error(transparent)]
    Program(#[from] ExecutorError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("a cell computed an id that its consumer does not know: {0}")]
    Id(#[from] UnknownId),
}

impl CompositeProgram {
    /// Whether its programs need a large stack to run.
    pub(crate) fn is_deep(&self) -> bool {
        let is_deep = |operation: &LoadedOperation| match &operation.body {
            LoadedBody::Program(program) => program.is_deep(),
            LoadedBody::Step { .. } | LoadedBody::ArgMax(_) => false,
        };
        self.operations.iter().any(is_deep)
    }

    /// Compiles the programs of a cell and packs its weights.
    pub(crate) fn new(
        packing: Packing,
        cell: &CompositeCell,
        config: &CpuConfig,
    ) -> Result<Self, CompositeError> {
        let batch_bytes_max = config.batch_bytes_max;
        let options = ProgramOptions { executor: Executor::Own, packing };
        let row = |&register: &usize| cell.registers[register].clone();
        let load = |(index, operation): (usize, &Operation)| {
            let Operation { body, reads, writes } = operation;
            let body = match body {
                OperationBody::Program(program) => {
                    let inputs: Vec<RowSpec> = reads.iter().flatten().map(row).collect();
                    let outputs: Vec<RowSpec> = writes.iter().map(row).collect();
                    let program = RowProgram::with(program, &inputs, &outputs, &options)?;
                    LoadedBody::Program(Box::new(program.bound_batches(batch_bytes_max)))
                }
                OperationBody::Step(step) => {
                    let (cell, lookup) = (pack(packing, step)?, step.lookup.clone());
                    let is_projected = config.input_projection != InputProjection::Never;
                    let embedding =
                        lookup.map(|lookup| Embedding::new(&*cell, lookup, is_projected));
                    LoadedBody::Step { cell, embedding }
                }
                OperationBody::LinearArgMax(linear) => {
                    let LinearArgMax { input_size, output_size, ref w, ref b } = *linear;
                    let b = b.as_deref();
                    let parameters = LinearParameters { input_size, output_size, w, b };
                    LoadedBody::ArgMax(PackedLinear::new(packing, parameters)?)
                }
            };
            let read = |register| Read { register, is_last: is_last_read(cell, index, register) };
            let reads = reads.iter().map(|&register| register.map(read)).collect();
            Ok(LoadedOperation { body, reads, writes: writes.clone() })
        };
        let operations = cell.operations.iter().enumerate().map(load);
        let operations = operations.collect::<Result<_, CompositeError>>()?;
        let output = |(port, &register): (usize, &usize)| Read {
            register,
            is_last: !cell.outputs[port + 1..].contains(&register),
        };
        let outputs = cell.outputs.iter().enumerate().map(output).collect();
        Ok(Self { registers: cell.registers.clone(), operations, outputs, batch_bytes_max })
    }

    /// An upper bound of the bytes that a row takes while it runs: those of all registers, and those that the program
    /// which takes most allocates.
    pub(crate) fn row_bytes(&self) -> u64 {
        let registers = self.registers.iter().map(|row| row.bytes().unwrap_or(usize::MAX) as u64);
        let of_program = |operation: &LoadedOperation| match &operation.body {
            LoadedBody::Program(program) => {
                program.input_bytes().saturating_add(program.row_bytes())
            }
            LoadedBody::Step { .. } | LoadedBody::ArgMax(_) => 0,
        };
        let programs = self.operations.iter().map(of_program).max().unwrap_or(0);
        registers.fold(0, u64::saturating_add).saturating_add(programs)
    }

    /// Whether an operation is a program.
    pub(crate) fn has_programs(&self) -> bool {
        let is_program =
            |operation: &LoadedOperation| matches!(operation.body, LoadedBody::Program(_));
        self.operations.iter().any(is_program)
    }

    /// The most rows that run together: the registers of more might take more than
    /// [`CpuConfig::batch_bytes_max`].
    pub(crate) fn rows_max(&self) -> usize {
        (self.batch_bytes_max / self.row_bytes().max(1)).max(1) as usize
    }

    /// Runs `rows` rows. Each input has `rows` rows of its port, and so has each output.
    pub(crate) fn run(
        &self,
        rows: usize,
        inputs: Vec<TensorData>,
        threads: &ExecutorThreads,
        group: &mut ThreadGroup,
    ) -> Result<Vec<TensorData>, CompositeError> {
        let mut registers: Vec<Option<TensorData>> = inputs.into_iter().map(Some).collect();
        registers.resize(self.registers.len(), None);
        for LoadedOperation { body, reads, writes } in &self.operations {
            let written = match body {
                LoadedBody::Program(program) => {
                    let inputs = reads.iter().flatten().map(|read| read.take(&mut registers));
                    program.run(rows, inputs.collect(), threads)?
                }
                LoadedBody::Step { cell, embedding } => {
                    let read = |port: usize| reads.get(port).copied().flatten();
                    // A step updates c in place. No other port of an operation reads a register that is
                    // moved.
                    let c = read(2).map(|read| read.take(&mut registers));
                    let x = read(0).expect("a step reads x").borrow(&registers);
                    let h = read(1).map(|read| read.borrow(&registers));
                    let states = States { h, c, has_c: reads.len() > 2 };
                    step(&**cell, embedding.as_ref(), rows, x, states, group)?
                }
                LoadedBody::ArgMax(linear) => {
                    let x = reads[0].expect("an arg-max reads x").borrow(&registers);
                    vec![TensorData::I64(arg_max(linear, rows, x, group))]
                }
            };
            for (&register, data) in writes.iter().zip(written) {
                registers[register] = Some(data);
            }
        }
        Ok(self.outputs.iter().map(|output| output.take(&mut registers)).collect())
    }
}

/// Whether operation `index` of a cell reads `register` once, and nobody reads it afterwards before it is
/// written again.
fn is_last_read(cell: &CompositeCell, index: usize, register: usize) -> bool {
    let is_read = |read: &&Option<usize>| **read == Some(register);
    if cell.operations[index].reads.iter().filter(is_read).count() > 1 {
        return false;
    }
    if cell.operations[index].writes.contains(&register) {
        return true;
    }
    for operation in &cell.operations[index + 1..] {
        if operation.reads.contains(&Some(register)) {
            return false;
        }
        if operation.writes.contains(&register) {
            return true;
        }
    }
    !cell.outputs.contains(&register)
}

impl Read {
    /// The rows of the register, moved out of it if nobody reads it afterwards.
    fn take(self, registers: &mut [Option<TensorData>]) -> TensorData {
        let rows = &mut registers[self.register];
        let rows = if self.is_last { rows.take() } else { rows.clone() };
        rows.expect("a register is written before it is read")
    }

    /// The rows of the register.
    fn borrow(self, registers: &[Option<TensorData>]) -> &TensorData {
        registers[self.register].as_ref().expect("a register is written before it is read")
    }
}

/// The states before a step, zeros where there are none.
struct States<'a> {
    h: Option<&'a TensorData>,
    c: Option<TensorData>,
    /// Whether the operation has a second state, c.
    has_c: bool,
}

/// One step of `rows` rows: the states after it, from x (or token ids) and the states before it.
///
/// # Errors
/// If the embedding lacks a token id.
fn step(
    cell: &dyn Recurrence,
    embedding: Option<&Embedding>,
    rows: usize,
    x: &TensorData,
    states: States<'_>,
    group: &mut ThreadGroup,
) -> Result<Vec<TensorData>, UnknownId> {
    let (hidden, input, c_len) = (cell.hidden_size(), cell.input_size(), cell.c_len());
    let zeros;
    let h_in = match states.h {
        Some(TensorData::F32(h)) => &h[..],
        _ => {
            zeros = vec![0.0; rows * hidden];
            &zeros[..]
        }
    };
    let mut h_out = vec![0.0; rows * hidden];
    // The second state of an LSTM, or a scratch buffer of the step.
    let mut c = match states.c {
        Some(TensorData::F32(c)) => c,
        _ if states.has_c => vec![0.0; rows * hidden],
        _ => vec![0.0; rows * c_len],
    };
    assert_eq!((h_in.len(), c.len()), (rows * hidden, rows * c_len), "states are the cell's");
    let c_first = c.as_mut_ptr();
    if let (TensorData::I64(ids), Some(embedding)) = (x, embedding) {
        embedding.check(ids.iter().copied())?;
        project_new_ids(cell, embedding, ids, group);
    }
    let x_of = |row: usize| match (x, embedding) {
        (TensorData::I64(ids), Some(embedding)) => embedding.x(ids[row]),
        (TensorData::F32(x), None) => (x[row * input..].as_ptr(), XPart::Given),
        _ => unreachable!("x is {}", x.element()),
    };
    let step_rows: Vec<StepRow> = h_out
        .chunks_exact_mut(hidden)
        .enumerate()
        .map(|(row, h_out)| {
            let (x, x_part) = x_of(row);
            let (h_in, h_out) = (h_in[row * hidden..].as_ptr(), h_out.as_mut_ptr());
            let c = c_first.wrapping_add(row * c_len);
            StepRow { x, x_part, h_in, h_out, c, y: std::ptr::null_mut() }
        })
        .collect();
    let macs = rows * (cell.step_macs() + cell.projection_macs());
    let split = if macs >= WORTH_THREADS { Split::Units } else { Split::None };
    let job = Job { cell, to_project: &[], rows: &step_rows, size: rows, split };
    // SAFETY: every row has elements of its own in buffers of this call, of the cell's lengths.
    unsafe { job.run(group, group.own_members()) };
    let mut after = vec![TensorData::F32(h_out)];
    after.extend(states.has_c.then_some(TensorData::F32(c)));
    Ok(after)
}

/// Projects the token ids that the projection cache lacks.
fn project_new_ids(
    cell: &dyn Recurrence,
    embedding: &Embedding,
    ids: &[i64],
    group: &mut ThreadGroup,
) {
    let (to_project, claims): (Vec<_>, Vec<_>) =
        ids.iter().filter_map(|&id| embedding.claim(id)).unzip();
    if claims.is_empty() {
        return;
    }
    // SAFETY: inputs are rows of the table, and the other rows were claimed for this.
    unsafe { project_rows(cell, &to_project, group) };
    embedding.publish(claims);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batchmaker_graph::{ElementType, RecurrentCell, RecurrentKind};

    use super::*;

    #[test]
    fn a_register_is_moved_at_its_last_read() {
        let operation = |reads: [usize; 2], write: usize| {
            let (input_size, output_size, w) = (1, 1, Arc::new([1.0]));
            let body =
                OperationBody::LinearArgMax(LinearArgMax { input_size, output_size, w, b: None });
            Operation { body, reads: reads.map(Some).into(), writes: vec![write] }
        };
        let cell = CompositeCell {
            registers: vec![RowSpec::new(ElementType::F32, [1]); 4],
            operations: vec![operation([0, 1], 2), operation([2, 0], 0), operation([0, 0], 3)],
            outputs: vec![3, 2],
        };
        let is_last = |index, register| is_last_read(&cell, index, register);
        assert!(!is_last(0, 0), "the next operation reads it");
        assert!(is_last(0, 1), "nobody reads it again");
        assert!(is_last(1, 0), "the operation writes it");
        assert!(!is_last(1, 2), "it is an output");
        assert!(!is_last(2, 0), "the operation reads it twice");
    }

    /// Two steps in one cell, the second over the first's h: the same as one after the other, and
    /// each row the same alone.
    #[test]
    fn operations_pass_rows_on() {
        let numbers = |count: usize, scale: f32| -> Arc<[f32]> {
            (0..count).map(|i| ((i * 7919 % 97) as f32 / 48.0 - 1.0) * scale).collect()
        };
        let lstm = RecurrentCell {
            kind: RecurrentKind::Lstm { p: None, bytes: None },
            input_size: 5,
            hidden_size: 5,
            w: numbers(100, 0.4),
            r: numbers(100, 0.3),
            b: None,
            lookup: None,
        };
        let row = RowSpec::new(ElementType::F32, [5]);
        let step = |reads: [Option<usize>; 3], writes: [usize; 2]| {
            let body = OperationBody::Step(lstm.clone());
            Operation { body, reads: reads.into(), writes: writes.into() }
        };
        let both = CompositeCell {
            registers: vec![row.clone(); 7],
            operations: vec![
                step([Some(0), Some(1), Some(2)], [3, 4]),
                step([Some(3), None, None], [5, 6]),
            ],
            outputs: vec![5, 4],
        };
        let one = CompositeCell {
            registers: vec![row; 5],
            operations: vec![step([Some(0), None, None], [1, 2])],
            outputs: vec![1],
        };
        let load = |cell| {
            CompositeProgram::new(
                batchmaker_kernels::Isa::best().into(),
                cell,
                &CpuConfig::default(),
            )
            .unwrap()
        };
        let (both, one, threads) = (load(&both), load(&one), ExecutorThreads::new());
        let mut group = ThreadGroup::new("test", 2).unwrap();
        let mut run = |cell: &CompositeProgram, rows: usize, inputs: &[&[f32]]| {
            let inputs = inputs.iter().map(|data| TensorData::F32(data.to_vec())).collect();
            let outputs = cell.run(rows, inputs, &threads, &mut group).unwrap();
            outputs
                .into_iter()
                .map(|output| match output {
                    TensorData::F32(data) => data,
                    _ => unreachable!(),
                })
                .collect::<Vec<_>>()
        };
        let (x, h, c) = (numbers(15, 1.0), numbers(15, 0.5), numbers(15, 0.7));
        let together = run(&both, 3, &[&x, &h, &c]);
        for at in 0..3 {
            let of = |data: &[f32]| data[5 * at..5 * at + 5].to_vec();
            let alone = run(&both, 1, &[&of(&x), &of(&h), &of(&c)]);
            assert_eq!(alone, [of(&together[0]), of(&together[1])]);
        }
        assert_ne!(run(&one, 3, &[&x])[0], together[0], "states are read");
    }
}
