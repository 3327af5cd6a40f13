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
        let run_options = RunOptions::default().with_thread_pool(Some(thread.0.clone()));
        let padded = rows.max(2);
        let values = inputs
            .into_iter()
            .zip(&self.inputs)
            .zip(&self.input_ids)
            .map(|((data, row), &id)| Ok((id, to_value(data, row, rows, padded)?)))
            .collect::<Result<Vec<(NodeId, ValueOrView<'_>)>, ProgramError>>()?;
        let outputs = self
            .model
            .run(values, &self.output_ids, Some(run_options))
            .map_err(|error| ProgramError(error.to_string()))?;
        outputs
            .into_iter()
            .zip(&self.outputs)
            .map(|(value, row)| from_value(value, row, rows, padded))
            .collect()
    }
}

fn to_value<'a>(
    data: TensorData,
    row: &RowSpec,
    rows: usize,
    padded: usize,
) -> Result<ValueOrView<'a>, ProgramError> {
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
    let narrow = |n: i64| {
        i32::try_from(n).map_err(|_| ProgramError(format!("integer {n} does not fit 32 bits")))
    };
    let value = match data {
        TensorData::F32(data) => Value::from_shape(&shape, pad(data, rows, padded)),
        TensorData::I32(data) => return int_value(&shape, pad(data, rows, padded)),
        TensorData::I64(data) => {
            let data = data.into_iter().map(narrow).collect::<Result<Vec<i32>, _>>()?;
            return int_value(&shape, pad(data, rows, padded));
        }
        TensorData::Bool(data) => {
            let data = data.into_iter().map(i32::from).collect();
            return int_value(&shape, pad(data, rows, padded));
        }
        TensorData::Bytes(_) => return Err(ProgramError("text inside a cell".to_owned())),
    };
    value.map(ValueOrView::from).map_err(|error| ProgramError(error.to_string()))
}

fn int_value<'a>(shape: &[usize], data: Vec<i32>) -> Result<ValueOrView<'a>, ProgramError> {
    let value = Value::from_shape(shape, data);
    value.map(ValueOrView::from).map_err(|error| ProgramError(error.to_string()))
}

fn pad<T: Clone>(mut data: Vec<T>, rows: usize, padded: usize) -> Vec<T> {
    if rows == 1 && padded == 2 {
        data.extend_from_within(..);
    }
    data
}

fn from_value(
    value: Value,
    row: &RowSpec,
    rows: usize,
    padded: usize,
) -> Result<TensorData, ProgramError> {
    let (shape, count) = (value.shape().to_vec(), rows * row.elements());
    if shape.first() != Some(&padded) || shape.iter().product::<usize>() != padded * row.elements()
    {
        return Err(ProgramError(format!("an output of shape {shape:?} for {padded} rows")));
    }
    let data = match (value, row.element) {
        (Value::FloatTensor(tensor), ElementType::F32) => {
            let mut data = tensor.into_data();
            data.truncate(count);
            TensorData::F32(data)
        }
        (Value::Int32Tensor(tensor), element) => {
            let mut data = tensor.into_data();
            data.truncate(count);
            match element {
                ElementType::I32 => TensorData::I32(data),
                ElementType::I64 => TensorData::I64(data.into_iter().map(i64::from).collect()),
                ElementType::Bool => TensorData::Bool(data.into_iter().map(|n| n != 0).collect()),
                _ => return Err(ProgramError(format!("an integer output, not {element}"))),
            }
        }
        (_, element) => return Err(ProgramError(format!("an output that is not {element}"))),
    };
    Ok(data)
}
