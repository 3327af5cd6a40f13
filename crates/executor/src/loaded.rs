//! A program in rten.

use batchmaker_graph::{Program, RowSpec, TensorData};
use rten::{Model, ModelOptions, NodeId, RunOptions};

use crate::tensors::{from_value, to_value};
use crate::{ExecutorError, ExecutorThread};

/// A program that rten has loaded: its graph optimised, the weights of its products packed.
pub(crate) struct Loaded {
    model: Model,
    input_ids: Vec<NodeId>,
    output_ids: Vec<NodeId>,
}

impl Loaded {
    /// Loads `program`, whose inputs are `in0`, `in1`, … and whose outputs are `out0`, `out1`, ….
    ///
    /// # Errors
    /// [`ExecutorError::Load`]
    pub(crate) fn new(
        program: &Program,
        inputs: usize,
        outputs: usize,
    ) -> Result<Self, ExecutorError> {
        let error =
            |reason: String| ExecutorError::Load { summary: program.summary.clone(), reason };
        let model = ModelOptions::with_all_ops()
            .enable_optimization(true)
            .prepack_weights(true)
            .load(program.bytes.to_vec())
            .map_err(|e| error(e.to_string()))?;
        let ids = |prefix: &str, count: usize| -> Result<Vec<NodeId>, ExecutorError> {
            let id = |port| model.node_id(&format!("{prefix}{port}"));
            (0..count).map(|port| id(port).map_err(|e| error(e.to_string()))).collect()
        };
        let (input_ids, output_ids) = (ids("in", inputs)?, ids("out", outputs)?);
        Ok(Self { model, input_ids, output_ids })
    }

    /// Runs on `inputs`, a shape and the elements of each input port. Each output must be of its port's
    /// type and of the shape in `expected`.
    ///
    /// # Errors
    /// Any but [`ExecutorError::Load`].
    pub(crate) fn run(
        &self,
        inputs: Vec<(Vec<usize>, TensorData)>,
        ports: &[RowSpec],
        expected: &[Vec<usize>],
        thread: &ExecutorThread,
    ) -> Result<Vec<TensorData>, ExecutorError> {
        let options = RunOptions::default().with_thread_pool(Some(thread.pool()));
        let values = inputs
            .into_iter()
            .zip(&self.input_ids)
            .map(|((shape, data), &id)| Ok((id, to_value(&shape, data)?)))
            .collect::<Result<Vec<_>, ExecutorError>>()?;
        let outputs = self
            .model
            .run(values, &self.output_ids, Some(options))
            .map_err(|error| ExecutorError::Run(error.to_string()))?;
        let outputs = outputs.into_iter().zip(ports).zip(expected).enumerate();
        outputs
            .map(|(port, ((value, row), shape))| from_value(port, value, row.element, shape))
            .collect()
    }
}

/// Checks that there is a tensor for each input port, of the port's type, with as many elements as its
/// shape in `shapes` has; and gives each its shape.
///
/// # Errors
/// [`ExecutorError::Input`], [`ExecutorError::InputCount`]
pub(crate) fn shaped(
    inputs: Vec<TensorData>,
    ports: &[RowSpec],
    shapes: impl Iterator<Item = Vec<usize>>,
) -> Result<Vec<(Vec<usize>, TensorData)>, ExecutorError> {
    if inputs.len() != ports.len() {
        return Err(ExecutorError::InputCount { count: inputs.len(), expected: ports.len() });
    }
    let inputs = inputs.into_iter().zip(ports).zip(shapes).enumerate();
    let shaped = |(port, ((data, row), shape)): (usize, ((TensorData, &RowSpec), Vec<usize>))| {
        let expected_count = shape.iter().product();
        if data.element() != row.element || data.len() != expected_count {
            let (element, count, expected) = (data.element(), data.len(), row.element);
            return Err(ExecutorError::Input { port, count, element, expected_count, expected });
        }
        Ok((shape, data))
    };
    inputs.map(shaped).collect()
}
