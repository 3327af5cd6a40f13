//! The times of a program's operators: see [`OperatorTimer`].

use std::time::Duration;

use batchmaker_graph::{Program, RowSpec, SequenceCell};
use batchmaker_kernels::Packing;

use crate::error::ExecutorError;
use crate::made_up::made_up;
use crate::port::Port;
use crate::program_file::{on_large_stack, read};
use crate::sections::{Cut, SectionedProgram, cut_by_operators};
use crate::tensors::to_value;
use crate::threads::ExecutorThreads;

/// The time of an operator, or of several that run as one.
#[derive(Clone, Debug)]
pub struct OperatorTime {
    /// The operators: their names in ONNX, with sizes where weights have them.
    pub operators: String,
    /// The name of the last tensor that they produce.
    pub output: String,
    /// The median time of a run.
    pub time: Duration,
    /// Multiplications and additions of a run; 0 of operators whose work this crate does not know.
    pub operations: u64,
    /// Whether the multiplications are in the precision that was asked for; otherwise they are in f32.
    pub is_reduced: bool,
    /// Bytes of the weights, and of the tensors that are read and written.
    pub bytes: u64,
}

/// Runs a program operator by operator. Operators that rten would run together, and might fuse, run one by one.
pub struct OperatorTimer {
    program: SectionedProgram,
    inputs: Vec<Port>,
    known_steps: usize,
}

impl OperatorTimer {
    /// Loads a program over rows, as [`crate::RowProgram::new`], its constant matrices packed by `packing`.
    ///
    /// # Errors
    /// [`ExecutorError::Load`] if the executor does not take it, or nothing is known of the lengths that it takes.
    pub fn of_rows(
        program: &Program,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
        packing: Packing,
    ) -> Result<Self, ExecutorError> {
        Self::new(program, Port::of_rows(inputs), Port::of_rows(outputs), packing)
    }

    /// Loads a program over sequences, as [`crate::SequenceProgram::new`].
    ///
    /// # Errors
    /// As for [`Self::of_rows`].
    pub fn of_sequences(
        cell: &SequenceCell,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
        packing: Packing,
    ) -> Result<Self, ExecutorError> {
        let inputs = Port::of_sequences(inputs, &cell.inputs);
        Self::new(&cell.program, inputs, Port::of_sequences(outputs, &cell.outputs), packing)
    }

    fn new(
        program: &Program,
        mut inputs: Vec<Port>,
        mut outputs: Vec<Port>,
        packing: Packing,
    ) -> Result<Self, ExecutorError> {
        let failed = |reason: &str| ExecutorError::Load {
            summary: program.summary.clone(),
            reason: reason.to_owned(),
        };
        on_large_stack(program, || {
            let (file, probe) = read(program, &mut inputs, &mut outputs)?;
            let probe = probe.ok_or_else(|| failed("it takes none of the lengths tried"))?;
            let cut = cut_by_operators(&file, &probe, packing);
            let Cut { program, .. } =
                cut.ok_or_else(|| failed("it does not run operator by operator"))?;
            Ok(Self { program, inputs, known_steps: probe.span })
        })
    }

    /// Runs `count` rows or sequences of `steps` steps (of as many as the program is known to take, if none) several times.
    /// Returns the median times of the operators, in the order in which they run.
    ///
    /// # Errors
    /// [`ExecutorError::Run`] if a run fails.
    pub fn run(
        &self,
        count: usize,
        steps: Option<usize>,
        runs: usize,
        threads: &ExecutorThreads,
    ) -> Result<Vec<OperatorTime>, ExecutorError> {
        let inputs = made_up(&self.inputs, count, steps.unwrap_or(self.known_steps));
        let run = || {
            let inputs = inputs.iter().cloned().map(|(shape, data)| to_value(&shape, data));
            self.program.run_timed(inputs.collect::<Result<_, _>>()?, threads)
        };
        // The first fills caches.
        run()?;
        let all = (0..runs.max(1)).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
        let median = |at: usize| {
            let mut times: Vec<Duration> = all.iter().map(|run| run[at].time).collect();
            times.sort_unstable();
            times[times.len() / 2]
        };
        let last = all.last().map_or(&[][..], |run| &run[..]);
        let operator = |(at, of): (usize, &crate::sections::SectionTime<'_>)| OperatorTime {
            operators: of.name.operators.clone(),
            output: of.name.output.clone(),
            time: median(at),
            operations: of.operations,
            is_reduced: of.is_reduced,
            bytes: of.bytes,
        };
        Ok(last.iter().enumerate().map(operator).collect())
    }
}
