//! Programs over whole sequences: see [`SequenceProgram`].

use std::collections::BTreeMap;

use batchmaker_graph::{PortAxes, RowSpec, TensorData, WholeProgram};

use crate::loaded::{Loaded, shaped};
use crate::{ExecutorError, ExecutorThread};

/// A program over whole sequences, loaded: a convolution over time, an attention over steps.
///
/// A node of its cell is one sequence, of which each port has a *span* of rows: its steps, or one row. Nodes
/// whose spans are equal at every port run as one batch, where the program keeps sequences apart.
pub struct SequenceProgram {
    loaded: Loaded,
    input_axes: Vec<PortAxes>,
    inputs: Vec<RowSpec>,
    output_axes: Vec<PortAxes>,
    outputs: Vec<RowSpec>,
}

/// Nodes that run together: see [`SequenceProgram::batches`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequenceBatch {
    /// Rows that each port has of each node: the input ports, then the output ports.
    pub spans: Vec<u32>,
    /// Positions of the nodes in the list that was divided.
    pub nodes: Vec<usize>,
}

impl SequenceProgram {
    /// Loads `whole`, an ONNX file with inputs `in0`, `in1`, … and outputs `out0`, `out1`, …. Each is
    /// `[sequences, steps, ...row]`, as far as its port has these axes, with the row that `inputs` or
    /// `outputs` has for it.
    ///
    /// # Errors
    /// [`ExecutorError::Load`] if the executor does not take it.
    pub fn new(
        whole: &WholeProgram,
        inputs: &[RowSpec],
        outputs: &[RowSpec],
    ) -> Result<Self, ExecutorError> {
        Ok(Self {
            loaded: Loaded::new(&whole.program, inputs.len(), outputs.len())?,
            input_axes: whole.inputs.clone(),
            inputs: inputs.to_vec(),
            output_axes: whole.outputs.clone(),
            outputs: outputs.to_vec(),
        })
    }

    /// Rows of the input ports.
    pub fn inputs(&self) -> &[RowSpec] {
        &self.inputs
    }

    /// Rows of the output ports.
    pub fn outputs(&self) -> &[RowSpec] {
        &self.outputs
    }

    /// Divides nodes into batches that [`Self::run`] takes: those of equal spans together, or, if the program
    /// has a port that is not by sequences, one by one. `spans` gives for each node the rows of its input
    /// ports, then of its output ports.
    pub fn batches(&self, spans: impl Iterator<Item = Vec<u32>>) -> Vec<SequenceBatch> {
        let mut nodes_by_spans: BTreeMap<Vec<u32>, Vec<usize>> = BTreeMap::new();
        for (node, spans) in spans.enumerate() {
            nodes_by_spans.entry(spans).or_default().push(node);
        }
        let together = self.input_axes.iter().chain(&self.output_axes).all(|axes| axes.batch);
        let mut batches = Vec::new();
        for (spans, nodes) in nodes_by_spans {
            let size = if together { nodes.len() } else { 1 };
            let batch =
                |nodes: &[usize]| SequenceBatch { spans: spans.clone(), nodes: nodes.into() };
            batches.extend(nodes.chunks(size).map(batch));
        }
        batches
    }

    /// Runs a batch that [`Self::batches`] made on `thread`. An input holds the rows of its port node by node,
    /// `[nodes, span, ...row]`; so does each tensor of the answer, one for each output port.
    ///
    /// # Errors
    /// [`ExecutorError::Input`] and [`ExecutorError::InputCount`] if inputs are not the ports';
    /// [`ExecutorError::Integer`], [`ExecutorError::Output`] and [`ExecutorError::Run`] if it fails.
    pub fn run(
        &self,
        batch: &SequenceBatch,
        inputs: Vec<TensorData>,
        thread: &ExecutorThread,
    ) -> Result<Vec<TensorData>, ExecutorError> {
        let SequenceBatch { spans, nodes } = batch;
        let (input_spans, output_spans) = spans.split_at(self.inputs.len());
        let shapes = shapes(&self.input_axes, &self.inputs, nodes.len(), input_spans);
        let inputs = shaped(inputs, &self.inputs, shapes.into_iter())?;
        let expected = self::shapes(&self.output_axes, &self.outputs, nodes.len(), output_spans);
        self.loaded.run(inputs, &self.outputs, &expected, thread)
    }
}

/// The shapes of ports of `nodes` sequences.
fn shapes(axes: &[PortAxes], rows: &[RowSpec], nodes: usize, spans: &[u32]) -> Vec<Vec<usize>> {
    let shape = |((axes, row), &span): ((&PortAxes, &RowSpec), &u32)| {
        let mut shape = Vec::new();
        shape.extend(axes.batch.then_some(nodes));
        shape.extend(axes.steps.then_some(span as usize));
        shape.extend(&row.shape);
        shape
    };
    axes.iter().zip(rows).zip(spans).map(shape).collect()
}
