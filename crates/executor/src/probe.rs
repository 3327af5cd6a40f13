//! Which shape each tensor of a program has for one row or sequence, and for two: found by running the
//! program once on zeros of each.

use std::collections::BTreeMap;

use batchmaker_graph::TensorData;
use rten::{ModelOptions, NodeId, RunOptions, Value, ValueOrView};
use rten_onnx::onnx::{ModelProto, NodeProto, TensorProto, ValueInfoProto};

use crate::port::Port;
use crate::tensors::to_value;
use crate::thread::ExecutorThread;

/// Steps of each sequence that a program is tried with: long enough for most windows, then short enough
/// for most bounds, and then for long windows. A program that takes none of them is not probed.
const SPANS: [usize; 4] = [64, 8, 1000, 16_000];

/// Shapes of all tensors of a program by name, of one row or sequence and of two.
pub(crate) struct Probe {
    shapes: BTreeMap<String, [Vec<usize>; 2]>,
    /// Steps that each sequence had.
    pub(crate) span: usize,
}

impl Probe {
    /// Probes the program in `model`, which comes back as it was.
    pub(crate) fn run(model: &mut ModelProto, inputs: &[Port]) -> Option<Self> {
        let has_steps = inputs.iter().any(|port| port.axes.steps);
        let names = with_shapes(model);
        let bytes = model.write_buf().ok();
        without_shapes(model, names.len());
        let probed = ModelOptions::with_all_ops().enable_optimization(false).load(bytes?).ok()?;
        let outputs: Vec<NodeId> =
            names.iter().map(|name| probed.node_id(&shape_of(name)).ok()).collect::<Option<_>>()?;
        let thread = ExecutorThread::new();
        let run = |count: usize, span: usize| -> Option<Vec<Vec<usize>>> {
            let input = |(number, port): (usize, &Port)| {
                let shape = port.shape(count, span);
                let data = TensorData::zeros(port.row.element, shape.iter().product());
                Some((probed.node_id(&format!("in{number}")).ok()?, to_value(&shape, data).ok()?))
            };
            let values: Vec<(NodeId, ValueOrView<'_>)> =
                inputs.iter().enumerate().map(input).collect::<Option<_>>()?;
            let options = RunOptions::default().with_thread_pool(Some(thread.pool()));
            let shapes = probed.run(values, &outputs, Some(options)).ok()?;
            shapes.into_iter().map(dims).collect()
        };
        let spans = if has_steps { &SPANS[..] } else { &[1] };
        let (span, one, two) =
            spans.iter().find_map(|&span| Some((span, run(1, span)?, run(2, span)?)))?;
        let made = names.into_iter().zip(one.into_iter().zip(two));
        let mut shapes: BTreeMap<_, _> =
            made.map(|(name, (one, two))| (name, [one, two])).collect();
        for (number, port) in inputs.iter().enumerate() {
            shapes.insert(format!("in{number}"), [1, 2].map(|count| port.shape(count, span)));
        }
        for constant in &model.graph.as_ref()?.initializer {
            let dims = constant_dims(constant);
            shapes.insert(constant.name.clone()?, [dims.clone(), dims]);
        }
        Some(Self { shapes, span })
    }

    /// The shapes of a tensor for one row or sequence and for two.
    pub(crate) fn shapes(&self, name: &str) -> Option<&[Vec<usize>; 2]> {
        self.shapes.get(name)
    }

    /// Whether a tensor holds something of every row or sequence. A constant does not.
    pub(crate) fn is_batched(&self, name: &str) -> bool {
        self.shapes(name).is_some_and(|[one, two]| one != two)
    }

    /// The axis of a tensor that is the batch's and nothing else's.
    pub(crate) fn batch_axis(&self, name: &str) -> Option<usize> {
        let [one, two] = self.shapes(name)?;
        let mut differing = (0..one.len().max(two.len())).filter(|&at| one.get(at) != two.get(at));
        let axis = differing.next()?;
        let is_plain =
            differing.next().is_none() && (one.get(axis), two.get(axis)) == (Some(&1), Some(&2));
        is_plain.then_some(axis)
    }
}

/// The shape of a constant.
pub(crate) fn constant_dims(constant: &TensorProto) -> Vec<usize> {
    constant.dims.iter().map(|&n| n as usize).collect()
}

/// The elements of a shape that a program computed.
pub(crate) fn dims(shape: Value) -> Option<Vec<usize>> {
    match shape {
        Value::Int32Tensor(tensor) => {
            tensor.into_data().into_iter().map(|n| usize::try_from(n).ok()).collect()
        }
        _ => None,
    }
}

/// The name of a tensor's shape.
pub(crate) fn shape_of(name: &str) -> String {
    format!("shape of {name}")
}

/// The operator that computes a tensor's shape.
pub(crate) fn shape_node(name: &str) -> NodeProto {
    NodeProto {
        op_type: Some("Shape".to_owned()),
        input: vec![name.to_owned()],
        output: vec![shape_of(name)],
        ..NodeProto::default()
    }
}

/// Makes the shapes of all tensors outputs; gives the tensors' names.
fn with_shapes(model: &mut ModelProto) -> Vec<String> {
    let Some(graph) = model.graph.as_mut() else { return Vec::new() };
    let made = graph.node.iter().flat_map(|node| &node.output);
    let names: Vec<String> = made.filter(|name| !name.is_empty()).cloned().collect();
    graph.node.extend(names.iter().map(|name| shape_node(name)));
    let info = |name: &String| ValueInfoProto { name: Some(shape_of(name)), r#type: None };
    graph.output.extend(names.iter().map(info));
    names
}

fn without_shapes(model: &mut ModelProto, count: usize) {
    if let Some(graph) = model.graph.as_mut() {
        graph.node.truncate(graph.node.len() - count);
        graph.output.truncate(graph.output.len() - count);
    }
}
