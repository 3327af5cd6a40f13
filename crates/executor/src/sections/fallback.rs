//! Operators that run in rten, as a program of their own.

use std::collections::BTreeSet;

use rten::{Model, ModelOptions, NodeId, RunOptions, Value, ValueOrView};
use rten_onnx::onnx::{GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto};

use crate::error::ExecutorError;
use crate::sections::constants::Constants;
use crate::threads::ExecutorThreads;

/// The shapes in which the constants of a fallback are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ConstantLayout {
    /// The shapes of the file.
    ChannelsFirst,
    /// `[]` or `[channels]`, to broadcast with tensors `[pixels, channels]`.
    ChannelsLast,
}

/// A program for rten that holds some operators of another.
pub(super) struct Fallback {
    model: Model,
    inputs: Vec<NodeId>,
    outputs: Vec<NodeId>,
}

impl Fallback {
    /// Loads operators of the program in `file`. They read the tensors `inputs` and produce `outputs`. Returns none if rten does
    /// not take them.
    pub(super) fn load(
        file: &ModelProto,
        nodes: &[NodeProto],
        constants: &Constants<'_>,
        (inputs, outputs): (&[String], &[String]),
        layout: ConstantLayout,
    ) -> Option<Self> {
        let read: BTreeSet<&str> =
            nodes.iter().flat_map(|node| &node.input).map(String::as_str).collect();
        let info = |name: &String| ValueInfoProto { name: Some(name.clone()), r#type: None };
        let constant = |tensor: &TensorProto| {
            let mut tensor = tensor.clone();
            if layout == ConstantLayout::ChannelsLast {
                tensor.dims.retain(|&n| n != 1);
            }
            tensor
        };
        let graph = GraphProto {
            node: nodes.to_vec(),
            initializer: read.iter().filter_map(|name| constants.get(name)).map(constant).collect(),
            input: inputs.iter().map(info).collect(),
            output: outputs.iter().map(info).collect(),
            ..GraphProto::default()
        };
        let part = ModelProto {
            ir_version: file.ir_version,
            graph: Some(graph),
            opset_import: file.opset_import.clone(),
            ..ModelProto::default()
        };
        let mut options = ModelOptions::with_all_ops();
        let model = options
            .enable_optimization(true)
            .prepack_weights(true)
            .load(part.write_buf().ok()?)
            .ok()?;
        let ids = |names: &[String]| -> Option<Vec<NodeId>> {
            names.iter().map(|name| model.node_id(name).ok()).collect()
        };
        let (inputs, outputs) = (ids(inputs)?, ids(outputs)?);
        Some(Self { model, inputs, outputs })
    }

    /// Computes the outputs from the inputs.
    pub(super) fn run(
        &self,
        inputs: Vec<ValueOrView<'_>>,
        threads: &ExecutorThreads,
    ) -> Result<Vec<Value>, ExecutorError> {
        let options = RunOptions::default().with_thread_pool(Some(threads.pool()));
        let values = self.inputs.iter().copied().zip(inputs).collect();
        let run = self.model.run(values, &self.outputs, Some(options));
        run.map_err(|error| ExecutorError::Run(error.to_string()))
    }
}
