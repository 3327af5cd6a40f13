//! Activations, element by element.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, input};
use crate::analysis::operators::composed::composer::{Composer, number};
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;
use batchmaker_graph::ElementType;
use rten_onnx::onnx::DataType;

/// `Mish`: x tanh(softplus(x)).
pub(crate) fn mish(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let mut to = Composer { analysis, node };
    let soft = to.op("Softplus", &[x])?;
    let gate = to.op("Tanh", &[&soft])?;
    to.op("Mul", &[x, &gate]).map(|val| vec![val])
}

/// `Swish`: x sigmoid(alpha x).
pub(crate) fn swish(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let mut to = Composer { analysis, node };
    let scaled = match node.float("alpha") {
        Some(alpha) if alpha != 1.0 => to.op("Mul", &[x, &number(alpha)])?,
        _ => x.clone(),
    };
    let gate = to.op("Sigmoid", &[&scaled])?;
    to.op("Mul", &[x, &gate]).map(|val| vec![val])
}

/// `ThresholdedRelu`: x where it is above alpha, else 0.
pub(crate) fn thresholded_relu(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let mut to = Composer { analysis, node };
    let above = to.op("Greater", &[x, &number(node.float("alpha").unwrap_or(1.0))])?;
    to.op("Where", &[&above, x, &number(0.0)]).map(|val| vec![val])
}

/// `Shrink`: x + bias below -lambd, x - bias above lambd, else 0.
pub(crate) fn shrink(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let lambd = node.float("lambd").unwrap_or(0.5);
    let bias = number(node.float("bias").unwrap_or(0.0));
    let mut to = Composer { analysis, node };
    let (below, above) =
        (to.op("Less", &[x, &number(-lambd)])?, to.op("Greater", &[x, &number(lambd)])?);
    let (raised, lowered) = (to.op("Add", &[x, &bias])?, to.op("Sub", &[x, &bias])?);
    let right = to.op("Where", &[&above, &lowered, &number(0.0)])?;
    to.op("Where", &[&below, &raised, &right]).map(|val| vec![val])
}

/// `IsInf`: above or below all numbers, as its attributes say.
pub(crate) fn is_infinite(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let mut to = Composer { analysis, node };
    let mut found: Option<Val> = None;
    for (name, infinity) in
        [("detect_positive", f32::INFINITY), ("detect_negative", f32::NEG_INFINITY)]
    {
        if node.int(name).unwrap_or(1) == 0 {
            continue;
        }
        let is_such = to.op("Equal", &[x, &number(infinity)])?;
        found = Some(match found {
            None => is_such,
            Some(found) => to.op("Or", &[&found, &is_such])?,
        });
    }
    found.map(|val| vec![val]).ok_or_else(|| "it detects nothing".to_owned())
}

/// `Mean` of several tensors.
pub(crate) fn mean(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let mut sum = input(inputs, 0)?.clone();
    let mut to = Composer { analysis, node };
    for index in 1..inputs.len() {
        sum = to.op("Add", &[&sum, input(inputs, index)?])?;
    }
    to.op("Div", &[&sum, &number(inputs.len() as f32)]).map(|val| vec![val])
}

/// `Hardmax`: 1 at the first of the greatest elements along an axis, 0 elsewhere.
pub(crate) fn hardmax(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let dims = x.dims();
    let joint = analysis.opset < 13;
    let axis = axis_of(node.int("axis").unwrap_or(if joint { 1 } else { -1 }), dims.len())?;
    if joint && dims[axis + 1..].iter().any(|dim| !dim.is_one()) {
        return Err("it chooses over several axes (before opset 13)".to_owned());
    }
    let length = analysis.need_fixed(&dims[axis], "chooses over")?;
    let mut shape = vec![1; dims.len()];
    shape[axis] = length;
    let places = (0..length).map(|n| Int::number(n as i64)).collect();
    let places = Val::literal(Literal::Int(Array::new(shape, places), ElementType::I64));
    let mut to = Composer { analysis, node };
    let chosen = to.op_with("ArgMax", vec![int_attribute("axis", axis as i64)], &[x])?;
    let is_chosen = to.op("Equal", &[&chosen, &places])?;
    let float = vec![int_attribute("to", DataType::FLOAT.0.into())];
    to.op_with("Cast", float, &[&is_chosen]).map(|val| vec![val])
}
