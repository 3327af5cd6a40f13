//! Which tensors of a program hold floats.

use std::collections::BTreeSet;

use rten_onnx::onnx::{DataType, GraphProto, NodeProto, ValueInfoProto};

use crate::operator::operator;
use crate::sections::constants::int;

/// Operators whose outputs are FLOAT whatever they read, in programs.
const OF_FLOATS: [&str; 20] = [
    "AveragePool",
    "Conv",
    "ConvTranspose",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "MatMul",
    "ReduceMean",
    "Sigmoid",
    "Sin",
    "Softmax",
    "Sqrt",
    "Tanh",
];

/// Operators whose output has the type of their first input.
const OF_FIRST: [&str; 34] = [
    "Abs",
    "Add",
    "Ceil",
    "Clip",
    "Concat",
    "Div",
    "Expand",
    "Floor",
    "Gather",
    "GatherElements",
    "Identity",
    "Max",
    "MaxPool",
    "Min",
    "Mul",
    "Neg",
    "Pad",
    "Pow",
    "Reciprocal",
    "ReduceMax",
    "ReduceMin",
    "ReduceSum",
    "Relu",
    "Reshape",
    "Resize",
    "Round",
    "Sign",
    "Slice",
    "Split",
    "Squeeze",
    "Sub",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// The names of the tensors that are known to hold floats.
pub(super) struct Floats<'a>(BTreeSet<&'a str>);

impl<'a> Floats<'a> {
    /// Those of a program whose operators come after those that they read.
    pub(super) fn of(graph: &'a GraphProto) -> Self {
        let is_float = |info: &&ValueInfoProto| {
            let tensor = info.r#type.as_ref().and_then(|of| of.tensor_type.as_ref());
            tensor.is_some_and(|tensor| tensor.elem_type == Some(DataType::FLOAT))
        };
        let inputs = graph.input.iter().filter(is_float).filter_map(|info| info.name.as_deref());
        let constants = graph.initializer.iter();
        let constants = constants.filter(|tensor| tensor.data_type == Some(DataType::FLOAT));
        let constants = constants.filter_map(|tensor| tensor.name.as_deref());
        let mut floats = Self(inputs.chain(constants).collect());
        for node in &graph.node {
            if floats.makes_floats(node) {
                let count = if operator(node) == "Split" { node.output.len() } else { 1 };
                floats.0.extend(node.output.iter().take(count).map(String::as_str));
            }
        }
        floats
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    fn makes_floats(&self, node: &NodeProto) -> bool {
        let reads_float = |at: usize| node.input.get(at).is_some_and(|name| self.has(name));
        match operator(node) {
            "Cast" => int(node, "to", 0) == 1,
            "Where" => reads_float(1),
            name if OF_FLOATS.contains(&name) => true,
            name => OF_FIRST.contains(&name) && reads_float(0),
        }
    }
}
