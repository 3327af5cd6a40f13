//! What the ONNX operators do to views and constants.

use crate::analysis::{Analysis, Val};
use crate::file::node::Node;

mod composed;
mod constants;
mod contract;
mod elementwise;
mod fold;
mod layout;
mod lengths;
mod reduce;
mod repeated;
mod select;
mod sequence;
pub(crate) mod whole;

pub(crate) use composed::apply;
pub(crate) use elementwise::is_elementwise;
pub(crate) use layout::{dim_of, id_bound};
pub(crate) use lengths::as_data;
pub(crate) use select::{limit_ids, origin, take};
pub(crate) use sequence::{Sequence, takes_sequences};

/// The inputs of a node; none: an optional input that is absent.
pub(crate) type Inputs = [Option<Val>];

/// Whether an operator is known on whole tensors alone.
pub(crate) fn is_whole(node: &Node) -> bool {
    WHOLE.contains(&node.operator.as_str())
}

pub(crate) fn is_recurrent(node: &Node) -> bool {
    matches!(node.operator.as_str(), "LSTM" | "GRU" | "RNN")
}

const WHOLE: &[&str] = &[
    "AveragePool",
    "Conv",
    "CumSum",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "MaxPool",
    "Pad",
    "Trilu",
];

/// Why a node cannot be served whatever its inputs are.
pub(crate) fn unsupported(node: &Node) -> Option<String> {
    if !node.domain.is_empty() {
        let domain = &node.domain;
        return Some(format!(
            "operators of domain `{domain}` (functions of the file included) are not supported"
        ));
    }
    let known = is_recurrent(node)
        || matches!(node.operator.as_str(), "If" | "Loop" | "Scan")
        || constants::OPERATORS.contains(&node.operator.as_str())
        || layout::OPERATORS.contains(&node.operator.as_str())
        || contract::OPERATORS.contains(&node.operator.as_str())
        || select::OPERATORS.contains(&node.operator.as_str())
        || reduce::OPERATORS.contains(&node.operator.as_str())
        || is_elementwise(&node.operator)
        || sequence::is_known(&node.operator)
        || composed::OPERATORS.contains(&node.operator.as_str())
        || is_whole(node);
    (!known).then(|| "the operator is not supported".to_owned())
}

/// The node's outputs, or why it cannot be served.
pub(crate) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let operator = node.operator.as_str();
    let is_repeated = |val: &Option<Val>| matches!(val, Some(Val::Repeat(..)));
    let looks_at_dims = matches!(operator, "Shape" | "Size" | "Expand" | "MatMul" | "Gemm");
    if inputs.iter().any(is_repeated) && !looks_at_dims {
        return repeated::evaluate(analysis, node, inputs);
    }
    if sequence::is_known(operator) {
        sequence::evaluate(analysis, node, inputs)
    } else if composed::is_composed(node) {
        composed::evaluate(analysis, node, inputs)
    } else if constants::OPERATORS.contains(&operator) {
        constants::evaluate(analysis, node, inputs)
    } else if layout::OPERATORS.contains(&operator) {
        layout::evaluate(analysis, node, inputs)
    } else if select::OPERATORS.contains(&operator) {
        select::evaluate(analysis, node, inputs)
    } else if contract::OPERATORS.contains(&operator) {
        contract::evaluate(analysis, node, inputs)
    } else if reduce::OPERATORS.contains(&operator) {
        reduce::evaluate(analysis, node, inputs)
    } else if operator == "Trilu" && matches!(inputs.first(), Some(Some(Val::Literal(_)))) {
        constants::triangle(analysis, node, inputs)
    } else if is_whole(node) {
        Err("its input does not depend on the request".to_owned())
    } else {
        elementwise::evaluate(analysis, node, inputs)
    }
}

/// Whether an operator may have inputs along any axes.
pub(crate) fn is_any_shape(node: &Node) -> bool {
    matches!(node.operator.as_str(), "Shape" | "Size")
        || sequence::is_known(&node.operator)
        || composed::is_composed(node)
}

fn input(inputs: &Inputs, index: usize) -> Result<&Val, String> {
    let found = inputs.get(index).and_then(Option::as_ref);
    found.ok_or_else(|| format!("its input {index} is missing"))
}

/// `axis` counted from the front.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Result<usize, String> {
    let from_front = if axis < 0 { axis + rank as i64 } else { axis };
    let found = usize::try_from(from_front).ok().filter(|&axis| axis < rank);
    found.ok_or_else(|| format!("axis {axis} of a tensor of rank {rank}"))
}
