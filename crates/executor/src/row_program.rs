//! Programs over rows: see [`RowProgram`].

use batchmaker_graph::{Program, RowSpec, TensorData};

use crate::error::ExecutorError;
use crate::executor_choice::{Executor, ProgramOptions};
use crate::loaded::Loaded;
use crate::port::Port;
use crate::tensors::append;
use crate::threads::ExecutorThreads;

/// A program over rows, loaded. A single row gives the same bits as in any batch.
pub struct RowProgram(Loaded);

impl RowProgram {
    /// Loads `program`, an ONNX file with inputs `in0`, `in1`, …, each `[rows, ...row]` with the row that
    /// `inputs` has for it, and outputs `out0`, `out1`, …, likewise of `outputs`. Runs it a few times, to see
    /// what it needs for one row.
    ///
    /// # Errors
    /// [`ExecutorError::Load`] if the executor does not take it.
    pub fn new(
        program: &Program,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
    ) -> Result<Self, ExecutorError> {
        Self::with(program, inputs, outputs, &ProgramOptions::default())
    }

    /// As [`Self::new`], run as `options` say, as far as their executor takes it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(
        program: &Program,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
        options: &ProgramOptions,
    ) -> Result<Self, ExecutorError> {
        Loaded::new(program, Port::of_rows(inputs), Port::of_rows(outputs), options).map(Self)
    }

    /// The executor that runs it.
    pub fn executor(&self) -> Executor {
        self.0.executor()
    }

    /// Whether it needs a stack of many MiB to run: it has thousands of operators, along which rten calls itself.
    pub fn is_deep(&self) -> bool {
        self.0.is_deep()
    }

    /// Why the executor that was wanted does not run it, if that is so.
    pub fn refusal(&self) -> Option<&str> {
        self.0.refusal()
    }

    /// Bounds a batch of several rows by `bytes` instead of [`crate::BATCH_BYTES_MAX`].
    #[must_use]
    pub fn bound_batches(self, bytes: u64) -> Self {
        Self(self.0.bound_batches(bytes))
    }

    /// Whether a batch of one row computes it once, but for the products that need it twice. Otherwise the
    /// whole program runs on the row twice, as it has operators that this crate does not know.
    pub fn computes_single_row_once(&self) -> bool {
        self.0.computes_single_row_once()
    }

    /// An upper bound of the bytes that a run of one row allocates beside its inputs: intermediate values and outputs.
    pub fn row_bytes(&self) -> u64 {
        self.0.working_bytes().of_one(&self.spans())
    }

    /// Bytes of the inputs of one row.
    pub fn input_bytes(&self) -> u64 {
        self.0.working_bytes().of_inputs(1, &self.spans())
    }

    /// The most rows that run together, at least 1: with more, a run of them, with their inputs, might take more than
    /// the bytes that bound a batch.
    pub fn rows_max(&self) -> usize {
        self.0.working_bytes().batch_max(&self.spans()) as usize
    }

    fn spans(&self) -> Vec<u32> {
        vec![1; self.0.inputs.len() + self.0.outputs.len()]
    }

    /// Runs `rows` rows, at least 1, on `threads`. An input holds the rows of its port one after the other,
    /// `[rows, ...row]`; so does each tensor of the answer, one for each output port. More than [`Self::rows_max`] rows
    /// run in parts.
    ///
    /// # Errors
    /// [`ExecutorError::Input`] and [`ExecutorError::InputCount`] if inputs are not the ports';
    /// [`ExecutorError::Integer`], [`ExecutorError::Output`] and [`ExecutorError::Run`] if it fails.
    pub fn run(
        &self,
        rows: usize,
        inputs: Vec<TensorData>,
        threads: &ExecutorThreads,
    ) -> Result<Vec<TensorData>, ExecutorError> {
        let spans = self.spans();
        let parts = rows.div_ceil(self.rows_max());
        if parts <= 1 {
            return self.0.run(rows, &spans, inputs, threads);
        }
        self.0.check_inputs(rows, &spans, &inputs)?;
        let mut all: Vec<TensorData> = Vec::new();
        // Parts are as equal as they can be: a row alone may cost as much as two.
        for part in 0..parts {
            let range = part * rows / parts..(part + 1) * rows / parts;
            let slice = |(data, port): (&TensorData, &Port)| {
                let elements = port.row.elements();
                data.slice(range.start * elements..range.end * elements)
            };
            let inputs = inputs.iter().zip(&self.0.inputs).map(slice).collect();
            let outputs = self.0.run(range.len(), &spans, inputs, threads)?;
            match all.is_empty() {
                true => all = outputs,
                false => all.iter_mut().zip(outputs).for_each(|(all, part)| append(all, part)),
            }
        }
        Ok(all)
    }
}
