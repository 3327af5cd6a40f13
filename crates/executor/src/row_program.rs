//! Programs over rows: see [`RowProgram`].

use batchmaker_graph::{Program, RowSpec, TensorData};

use crate::loaded::{Loaded, shaped};
use crate::{ExecutorError, ExecutorThread};

/// A program over rows, loaded.
///
/// A row's bits do not depend on how many rows there are: rten's exception, a batch of one (which takes
/// another product kernel), is padded to two by repeating the row.
pub struct RowProgram {
    loaded: Loaded,
    inputs: Vec<RowSpec>,
    outputs: Vec<RowSpec>,
}

impl RowProgram {
    /// Loads `program`, an ONNX file with inputs `in0`, `in1`, …, each `[rows, ...row]` with the row that
    /// `inputs` has for it, and outputs `out0`, `out1`, …, likewise of `outputs`.
    ///
    /// # Errors
    /// [`ExecutorError::Load`] if the executor does not take it.
    pub fn new(
        program: &Program,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
    ) -> Result<Self, ExecutorError> {
        Ok(Self {
            loaded: Loaded::new(program, inputs.len(), outputs.len())?,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
        })
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
        let shape = |rows: usize, row: &RowSpec| [&[rows], &row.shape[..]].concat();
        let shapes = self.inputs.iter().map(|row| shape(rows, row));
        let mut inputs = shaped(inputs, &self.inputs, shapes)?;
        let padded = rows.max(2);
        if padded > rows {
            inputs.iter_mut().for_each(|(shape, data)| {
                shape[0] = padded;
                double(data);
            });
        }
        let expected: Vec<_> = self.outputs.iter().map(|row| shape(padded, row)).collect();
        let mut outputs = self.loaded.run(inputs, &self.outputs, &expected, thread)?;
        for (output, row) in outputs.iter_mut().zip(&self.outputs) {
            output.resize(rows * row.elements());
        }
        Ok(outputs)
    }
}

/// Repeats the data.
fn double(data: &mut TensorData) {
    match data {
        TensorData::F32(data) => data.extend_from_within(..),
        TensorData::I32(data) => data.extend_from_within(..),
        TensorData::I64(data) => data.extend_from_within(..),
        TensorData::Bool(data) => data.extend_from_within(..),
        TensorData::Bytes(_) => {}
    }
}
