//! Cells in stages: programs, and what has fused kernels between them.

use batchmaker_executor::{ExecutorError, ExecutorThread, RowProgram};
use batchmaker_graph::{
    CompositeCell, LinearArgMax, Operation, OperationBody, RowSpec, TensorData,
};
use batchmaker_kernels::{
    ArgMax, ArgMaxRow, KernelError, LinearParameters, PackedLinear, Packing, Recurrence, StepRow,
    XPart,
};

use crate::cells::batch_job::{Job, WORTH_THREADS, items, project_rows};
use crate::cells::embedding::Embedding;
use crate::cells::recurrent_chains::{ProjectionAhead, pack};
use crate::strategies::tuner::Split;
use crate::threads::phases::{Member, part};
use crate::threads::thread_group::ThreadGroup;

/// A materialised [`CompositeCell`].
pub(crate) struct StagedProgram {
    registers: Vec<RowSpec>,
    stages: Vec<LoadedStage>,
    outputs: Vec<usize>,
}

struct LoadedStage {
    body: LoadedBody,
    reads: Vec<Option<usize>>,
    writes: Vec<usize>,
}

enum LoadedBody {
    Program(Box<RowProgram>),
    Step { cell: Box<dyn Recurrence>, embedding: Option<Embedding> },
    ArgMax(PackedLinear),
}

/// A staged cell cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StagedError {
    #[error(transparent)]
    Program(#[from] ExecutorError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl StagedProgram {
    pub(crate) fn new(
        packing: Packing,
        cell: &CompositeCell,
        ahead: ProjectionAhead,
    ) -> Result<Self, StagedError> {
        let row = |&register: &usize| cell.registers[register].clone();
        let stages = cell.operations.iter().map(|Operation { body, reads, writes }| {
            let body = match body {
                OperationBody::Program(program) => {
                    let inputs: Vec<RowSpec> = reads.iter().flatten().map(row).collect();
                    let outputs: Vec<RowSpec> = writes.iter().map(row).collect();
                    LoadedBody::Program(Box::new(RowProgram::new(program, &inputs, &outputs)?))
                }
                OperationBody::Step(step) => {
                    let (cell, lookup) = (pack(packing, step)?, step.lookup.clone());
                    let is_projected = ahead != ProjectionAhead::Never;
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
            Ok(LoadedStage { body, reads: reads.clone(), writes: writes.clone() })
        });
        let stages = stages.collect::<Result<_, StagedError>>()?;
        Ok(Self { registers: cell.registers.clone(), stages, outputs: cell.outputs.clone() })
    }

    /// Runs `rows` rows. Each input has `rows` rows of its port, and so has each output.
    pub(crate) fn run(
        &self,
        rows: usize,
        inputs: Vec<TensorData>,
        thread: &ExecutorThread,
        group: &mut ThreadGroup,
    ) -> Result<Vec<TensorData>, StagedError> {
        let mut registers: Vec<Option<TensorData>> = inputs.into_iter().map(Some).collect();
        registers.resize(self.registers.len(), None);
        for LoadedStage { body, reads, writes } in &self.stages {
            let read = |register: usize| registers[register].as_ref().expect("written before");
            let written = match body {
                LoadedBody::Program(program) => {
                    let inputs = reads.iter().flatten().map(|&register| read(register).clone());
                    program.run(rows, inputs.collect(), thread)?
                }
                LoadedBody::Step { cell, embedding } => {
                    let reads: Vec<_> = reads.iter().map(|read_| read_.map(read)).collect();
                    let x = reads[0].expect("a step reads x");
                    step(&**cell, embedding.as_ref(), rows, x, &reads[1..], group)
                }
                LoadedBody::ArgMax(linear) => {
                    let x = read(reads[0].expect("an arg-max reads x"));
                    vec![TensorData::I64(arg_max(linear, rows, x, group))]
                }
            };
            for (&register, data) in writes.iter().zip(written) {
                registers[register] = Some(data);
            }
        }
        let output =
            |&register: &usize| registers[register].clone().expect("every output is written");
        Ok(self.outputs.iter().map(output).collect())
    }
}

/// One step of `rows` rows: the states after it, from x (or ids) and the states before it.
fn step(
    cell: &dyn Recurrence,
    embedding: Option<&Embedding>,
    rows: usize,
    x: &TensorData,
    states: &[Option<&TensorData>],
    group: &mut ThreadGroup,
) -> Vec<TensorData> {
    let (hidden, input) = (cell.hidden_size(), cell.input_size());
    let zeros = vec![0.0; rows * hidden];
    let state = |port: usize| match states.get(port).copied().flatten() {
        Some(TensorData::F32(data)) => &data[..],
        _ => &zeros[..],
    };
    let h_in = state(0);
    let mut h_out = vec![0.0; rows * hidden];
    // An LSTM's second state, or room for the step's own use.
    let has_c = states.len() > 1;
    let mut c = if has_c { state(1).to_vec() } else { vec![0.0; rows * cell.c_len()] };
    let c_len = cell.c_len();
    assert_eq!((h_in.len(), c.len()), (rows * hidden, rows * c_len), "states are the cell's");
    let c_first = c.as_mut_ptr();
    if let (TensorData::I64(ids), Some(embedding)) = (x, embedding) {
        meet_words(cell, embedding, ids, group);
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
    unsafe { job.run(group) };
    let mut after = vec![TensorData::F32(h_out)];
    after.extend(has_c.then_some(TensorData::F32(c)));
    after
}

/// Projects the words that nobody has met yet, which are remembered.
fn meet_words(cell: &dyn Recurrence, embedding: &Embedding, ids: &[i64], group: &mut ThreadGroup) {
    let (to_project, claims): (Vec<_>, Vec<_>) =
        ids.iter().filter_map(|&id| embedding.meet(id)).unzip();
    if claims.is_empty() {
        return;
    }
    // SAFETY: inputs are rows of the table, and the other rows were claimed for this.
    unsafe { project_rows(cell, &to_project, group) };
    embedding.publish(claims);
}

/// The index of the greatest sum of each row.
fn arg_max(
    linear: &PackedLinear,
    rows: usize,
    x: &TensorData,
    group: &mut ThreadGroup,
) -> Vec<i64> {
    let TensorData::F32(x) = x else { unreachable!("x is {}", x.element()) };
    let (input, panels) = (linear.input_size(), linear.panels());
    assert_eq!(x.len(), rows * input, "x has all rows");
    let macs = rows * input * linear.output_size();
    let is_shared = macs >= WORTH_THREADS;
    let items =
        if is_shared { items(macs, panels, linear.panels_a_call(), group.threads()) } else { 1 };
    // Of each item, the greatest among its panels' sums for each row.
    let mut found = vec![ArgMax::NONE; items * rows];
    let first = Shared(found.as_mut_ptr());
    let work = |member: &mut Member<'_>| {
        let first = &first;
        member.share(items, |item| {
            let row = |row: usize| ArgMaxRow {
                x: x[row * input..].as_ptr(),
                best: first.0.wrapping_add(item * rows + row),
            };
            let rows: Vec<ArgMaxRow> = (0..rows).map(row).collect();
            // SAFETY: x is as long as was checked; an item has places of its own in `found`.
            unsafe { linear.argmax(&rows, part(panels, item, items)) };
        });
    };
    match is_shared {
        true => group.run(&work),
        false => group.run_alone(&work),
    }
    let best = |row: usize| {
        let of_items = found.iter().skip(row).step_by(rows);
        i64::from(of_items.fold(ArgMax::NONE, |best, &found| best.or(found)).index)
    };
    (0..rows).map(best).collect()
}

/// Places that members of a group write to, each to its own.
struct Shared(*mut ArgMax);

// SAFETY: only an address; what may be done there is said at each access.
unsafe impl Sync for Shared {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use batchmaker_graph::{ElementType, RecurrentCell, RecurrentKind};

    use super::*;

    /// Two steps in one cell, the second over the first's h: the same as one after the other, and
    /// each row the same alone.
    #[test]
    fn stages_pass_rows_on() {
        let numbers = |count: usize, scale: f32| -> Arc<[f32]> {
            (0..count).map(|i| ((i * 7919 % 97) as f32 / 48.0 - 1.0) * scale).collect()
        };
        let lstm = RecurrentCell {
            kind: RecurrentKind::Lstm { p: None },
            input_size: 5,
            hidden_size: 5,
            w: numbers(100, 0.4),
            r: numbers(100, 0.3),
            b: None,
            lookup: None,
        };
        let row = RowSpec::new(ElementType::F32, [5]);
        let stage = |reads: [Option<usize>; 3], writes: [usize; 2]| {
            let body = OperationBody::Step(lstm.clone());
            Operation { body, reads: reads.into(), writes: writes.into() }
        };
        let both = CompositeCell {
            registers: vec![row.clone(); 7],
            operations: vec![
                stage([Some(0), Some(1), Some(2)], [3, 4]),
                stage([Some(3), None, None], [5, 6]),
            ],
            outputs: vec![5, 4],
        };
        let one = CompositeCell {
            registers: vec![row; 5],
            operations: vec![stage([Some(0), None, None], [1, 2])],
            outputs: vec![1],
        };
        let load = |cell| {
            StagedProgram::new(
                batchmaker_kernels::Isa::best().into(),
                cell,
                ProjectionAhead::Measured,
            )
            .unwrap()
        };
        let (both, one, thread) = (load(&both), load(&one), ExecutorThread::new());
        let mut group = ThreadGroup::new("test", 2, |_| {}).unwrap();
        let mut run = |cell: &StagedProgram, rows: usize, inputs: &[&[f32]]| {
            let inputs = inputs.iter().map(|data| TensorData::F32(data.to_vec())).collect();
            let outputs = cell.run(rows, inputs, &thread, &mut group).unwrap();
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
