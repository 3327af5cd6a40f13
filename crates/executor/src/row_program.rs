//! Programs over rows: see [`RowProgram`].

use batchmaker_graph::{Program, RowSpec, TensorData};

use crate::error::ExecutorError;
use crate::loaded::Loaded;
use crate::port::Port;
use crate::thread::ExecutorThread;

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
        Loaded::new(program, Port::of_rows(inputs), Port::of_rows(outputs)).map(Self)
    }

    /// Whether a batch of one row computes it once, but for the products that need it twice. Otherwise the
    /// whole program runs on the row twice, as it has operators that this crate does not know.
    pub fn computes_single_row_once(&self) -> bool {
        self.0.computes_single_row_once()
    }

    /// Runs `rows` rows, at least 1, on `thread`. An input holds the rows of its port one after the other,
    /// `[rows, ...row]`; so does each tensor of the answer, one for each output port.
    ///
    /// # Errors
    /// [`ExecutorError::Input`] and [`ExecutorError::InputCount`] if inputs are not the ports';
    /// [`ExecutorError::Integer`], [`ExecutorError::Output`] and [`ExecutorError::Run`] if it fails.
    pub fn run(
        &self,
        rows: usize,
        inputs: Vec<TensorData>,
        thread: &ExecutorThread,
    ) -> Result<Vec<TensorData>, ExecutorError> {
        let spans = vec![1; self.0.inputs.len() + self.0.outputs.len()];
        self.0.run(rows, &spans, inputs, thread)
    }
}
