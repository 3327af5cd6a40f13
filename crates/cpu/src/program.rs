//! Row-wise programs: what has no fused kernel, run by rten.
//!
//! A program is a small ONNX file over `[rows, ...]` with inputs `in0`, `in1`, … and
//! outputs `out0`, `out1`, …. It runs in one thread. A row's bits do not depend on how
//! many rows there are: rten's exception, a batch of one (which takes another product
//! kernel), is padded to two by repeating the row.

use std::sync::Arc;

use batchmaker_graph::{ElementType, Program, RowSpec, TensorData};
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView};
use rten_tensor::prelude::*;

/// A program cannot be loaded or run.
#[derive(Debug)]
pub struct ProgramError(String);

impl std::fmt::Display for ProgramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProgramError {}

/// A program, loaded: its weights are packed.
pub struct RowProgram {
    model: Model,
    input_ids: Vec<NodeId>,
    output_ids: Vec<NodeId>,
    inputs: Vec<RowSpec>,
    outputs: Vec<RowSpec>,
}

/// A thread that programs run on; each worker has its own.
pub struct ProgramThread(Arc<ThreadPool>);

impl ProgramThread {
    /// Starts it.
    #[expect(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Self {
        Self(Arc::new(ThreadPool::with_num_threads(1)))
    }
}

impl RowProgram {
    /// Loads a program whose ports are `inputs` and `outputs`.
    /// # Errors
    /// Where the executor cannot load it.
    pub fn new(
        program: &Program,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
    ) -> Result<Self, ProgramError> {
        let error = |text: String| ProgramError(format!("{}: {text}", program.summary));
        let model = ModelOptions::with_all_ops()
            .enable_optimization(true)
            .prepack_weights(true)
            .load(program.bytes.to_vec())
            .map_err(|e| error(e.to_string()))?;
        let ids = |prefix: &str, count: usize| -> Result<Vec<NodeId>, ProgramError> {
            let id = |port| model.node_id(&format!("{prefix}{port}"));
            (0..count).map(|port| id(port).map_err(|e| error(e.to_string()))).collect()
        };
        Ok(Self {
            input_ids: ids("in", inputs.len())?,
            output_ids: ids("out", outputs.len())?,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            model,
        })
    }

    /// Runs `rows` rows on `thread`. Each input has `rows` rows of its port, one after the other, and
    /// so has each output.
    /// # Errors
    /// Where inputs are not of the ports' types and sizes, or the executor fails.
    pub fn run(
        &self,
        rows: usize,
        inputs: Vec<TensorData>,
        thread: &ProgramThread,
    ) -> Result<Vec<TensorData>, ProgramError> {
        let padded = rows.max(2);
        let shaped = |(data, row): (TensorData, &RowSpec)| {
            let expected = rows * row.elements();
            if data.element() != row.element || data.len() != expected {
                let (element, count) = (data.element(), data.len());
                return Err(ProgramError(format!(
                    "an input of {count} {element} where {expected} {} go",
                    row.element
                )));
            }
            let mut shape = vec![padded];
            shape.extend(&row.shape);
            Ok((shape, padded_data(data, padded > rows)))
        };
        let inputs = inputs.into_iter().zip(&self.inputs).map(shaped).collect::<Result<_, _>>()?;
        let shape = |row: &RowSpec| [&[padded], &row.shape[..]].concat();
        let mut outputs = self.run_shaped(inputs, self.outputs.iter().map(shape), thread)?;
        for (output, row) in outputs.iter_mut().zip(&self.outputs) {
            output.resize(rows * row.elements());
        }
        Ok(outputs)
    }

    /// Runs on tensors of these shapes; each output must be of the shape that is expected of it.
    /// # Errors
    /// Where it is not, or the executor fails.
    pub fn run_shaped(
        &self,
        inputs: Vec<(Vec<usize>, TensorData)>,
        expected: impl Iterator<Item = Vec<usize>>,
        thread: &ProgramThread,
    ) -> Result<Vec<TensorData>, ProgramError> {
        let run_options = RunOptions::default().with_thread_pool(Some(thread.0.clone()));
        let values = inputs
            .into_iter()
            .zip(&self.input_ids)
            .map(|((shape, data), &id)| Ok((id, to_value(&shape, data)?)))
            .collect::<Result<Vec<(NodeId, ValueOrView<'_>)>, ProgramError>>()?;
        let outputs = self
            .model
            .run(values, &self.output_ids, Some(run_options))
            .map_err(|error| ProgramError(error.to_string()))?;
        let outputs = outputs.into_iter().zip(&self.outputs).zip(expected);
        outputs.map(|((value, row), shape)| from_value(value, row.element, &shape)).collect()
    }
}

fn to_value<'a>(shape: &[usize], data: TensorData) -> Result<ValueOrView<'a>, ProgramError> {
    let narrow = |n: i64| {
        i32::try_from(n).map_err(|_| ProgramError(format!("integer {n} does not fit 32 bits")))
    };
    let ints = match data {
        TensorData::F32(data) => {
            let value = Value::from_shape(shape, data);
            return value.map(ValueOrView::from).map_err(|error| ProgramError(error.to_string()));
        }
        TensorData::I32(data) => data,
        TensorData::I64(data) => data.into_iter().map(narrow).collect::<Result<_, _>>()?,
        TensorData::Bool(data) => data.into_iter().map(i32::from).collect(),
        TensorData::Bytes(_) => return Err(ProgramError("text inside a cell".to_owned())),
    };
    let value = Value::from_shape(shape, ints);
    value.map(ValueOrView::from).map_err(|error| ProgramError(error.to_string()))
}

/// The data of one row, twice if that is asked for.
fn padded_data(mut data: TensorData, is_doubled: bool) -> TensorData {
    if is_doubled {
        match &mut data {
            TensorData::F32(data) => data.extend_from_within(..),
            TensorData::I32(data) => data.extend_from_within(..),
            TensorData::I64(data) => data.extend_from_within(..),
            TensorData::Bool(data) => data.extend_from_within(..),
            TensorData::Bytes(_) => {}
        }
    }
    data
}

fn from_value(
    value: Value,
    element: ElementType,
    expected: &[usize],
) -> Result<TensorData, ProgramError> {
    if value.shape()[..] != *expected {
        let shape = value.shape().to_vec();
        return Err(ProgramError(format!("an output of shape {shape:?} where {expected:?} goes")));
    }
    Ok(match (value, element) {
        (Value::FloatTensor(tensor), ElementType::F32) => TensorData::F32(tensor.into_data()),
        (Value::Int32Tensor(tensor), ElementType::I32) => TensorData::I32(tensor.into_data()),
        (Value::Int32Tensor(tensor), ElementType::I64) => {
            TensorData::I64(tensor.into_data().into_iter().map(i64::from).collect())
        }
        (Value::Int32Tensor(tensor), ElementType::Bool) => {
            TensorData::Bool(tensor.into_data().into_iter().map(|n| n != 0).collect())
        }
        (_, element) => return Err(ProgramError(format!("an output that is not {element}"))),
    })
}
