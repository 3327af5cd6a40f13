//! Element-wise operators that are written in others on rows, since the executor lacks them or loses
//! precision.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operators::broadcast::align;
use crate::analysis::operators::narrow::data_type_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val};
use crate::data::array::Array;
use crate::data::dim::{Dim, row_shape};
use crate::data::literal::Literal;
use crate::file::attribute::{float_attribute, int_attribute};
use crate::file::node::Node;

/// `Softplus`: `log(1 + exp(x))` as `max(x, 0) + log(1 + exp(-|x|))`, which has no overflow.
pub(crate) fn softplus(
    analysis: &mut Analysis,
    node: &Node,
    operands: &[&Val],
    _: &[Dim],
) -> Result<Option<Vec<Val>>, String> {
    let Val::View(view) = operands[0] else { return Ok(None) };
    let mut emit = |operator: &str, operands: Vec<Operand>| {
        let outputs = vec![(view.element, view.dims.clone())];
        let produced = analysis.emit(node, operator, vec![], operands, outputs);
        match &produced[0] {
            Val::View(view) => (analysis.operand(view), produced),
            _ => unreachable!("an operator gives a view"),
        }
    };
    let x = Operand::Rows { source: view.source, at: view.at, shape: row_shape(&view.dims) };
    let one = Operand::Constant(Rc::new(Literal::F32(Array::scalar(1.0))));
    let (above, _) = emit("Relu", vec![x.clone()]);
    let (size, _) = emit("Abs", vec![x]);
    let (negative, _) = emit("Neg", vec![size]);
    let (power, _) = emit("Exp", vec![negative]);
    let (sum, _) = emit("Add", vec![power, one]);
    let (rest, _) = emit("Log", vec![sum]);
    Ok(Some(emit("Add", vec![above, rest]).1))
}

/// `Sign`: 1 above zero, -1 below, 0 at either zero.
pub(crate) fn sign(
    analysis: &mut Analysis,
    node: &Node,
    operands: &[&Val],
    _: &[Dim],
) -> Result<Option<Vec<Val>>, String> {
    let Val::View(view) = operands[0] else { return Ok(None) };
    let zero = Operand::Constant(Rc::new(Literal::zero(view.element)));
    let to = data_type_of(view.element.stored());
    let mut parts = Vec::new();
    for operator in ["Greater", "Less"] {
        let operands = vec![analysis.operand(view), zero.clone()];
        let outputs = vec![(ElementType::Bool, view.dims.clone())];
        let found = analysis.emit(node, operator, vec![], operands, outputs);
        let Val::View(found) = &found[0] else { continue };
        let cast = vec![int_attribute("to", to.0.into())];
        let (operands, outputs) =
            (vec![analysis.operand(found)], vec![(view.element, view.dims.clone())]);
        let number = analysis.emit(node, "Cast", cast, operands, outputs);
        if let Val::View(number) = &number[0] {
            parts.push(analysis.operand(number));
        }
    }
    let outputs = vec![(view.element, view.dims.clone())];
    Ok(Some(analysis.emit(node, "Sub", vec![], parts, outputs)))
}

/// `PRelu`: the slope times x where x is below zero.
pub(crate) fn p_relu(
    analysis: &mut Analysis,
    node: &Node,
    operands: &[&Val],
    dims: &[Dim],
) -> Result<Option<Vec<Val>>, String> {
    let &[x, slope] = operands else { return Err("it has no slope".to_owned()) };
    let (x, slope) = (align(analysis, x, dims)?, align(analysis, slope, dims)?);
    let element = operands[0].element().unwrap_or(ElementType::F32);
    let zero = Operand::Constant(Rc::new(Literal::F32(Array::scalar(0.0))));
    let mut emit = |operator: &str, element, operands| {
        let produced =
            analysis.emit(node, operator, vec![], operands, vec![(element, dims.to_vec())]);
        match &produced[0] {
            Val::View(view) => (analysis.operand(view), produced),
            _ => unreachable!("an operator gives a view"),
        }
    };
    let (below, _) = emit("Less", ElementType::Bool, vec![x.clone(), zero]);
    let (scaled, _) = emit("Mul", element, vec![x.clone(), slope]);
    Ok(Some(emit("Where", element, vec![below, scaled, x]).1))
}

/// `Selu` is `gamma Elu(x)`.
pub(crate) fn selu(
    analysis: &mut Analysis,
    node: &Node,
    operands: &[&Val],
    _: &[Dim],
) -> Result<Option<Vec<Val>>, String> {
    let alpha = node.float("alpha").unwrap_or(1.673_263_2);
    let gamma = node.float("gamma").unwrap_or(1.050_701);
    Ok(scaled_elu(analysis, node, operands[0], (1.0, alpha, gamma)))
}

/// `Celu` is `alpha Elu(x / alpha)` with alpha 1.
pub(crate) fn celu(
    analysis: &mut Analysis,
    node: &Node,
    operands: &[&Val],
    _: &[Dim],
) -> Result<Option<Vec<Val>>, String> {
    let alpha = node.float("alpha").unwrap_or(1.0);
    Ok(scaled_elu(analysis, node, operands[0], (1.0 / alpha, 1.0, alpha)))
}

/// `after * Elu(before * x)`.
fn scaled_elu(
    analysis: &mut Analysis,
    node: &Node,
    x: &Val,
    (before, alpha, after): (f32, f32, f32),
) -> Option<Vec<Val>> {
    let Val::View(view) = x else { return None };
    let number = |x: f32| Operand::Constant(Rc::new(Literal::F32(Array::scalar(x))));
    let same = || vec![(view.element, view.dims.clone())];
    let alpha = vec![float_attribute("alpha", alpha)];
    let mut val = Val::View(view.clone());
    for (operator, attributes, factor) in
        [("Mul", vec![], Some(before)), ("Elu", alpha, None), ("Mul", vec![], Some(after))]
    {
        let Val::View(view) = &val else { break };
        if factor != Some(1.0) {
            let mut operands = vec![analysis.operand(view)];
            operands.extend(factor.map(number));
            let mut produced = analysis.emit(node, operator, attributes, operands, same());
            val = produced.remove(0);
        }
    }
    Some(vec![val])
}

/// `Pow`: a square is written as a product.
pub(crate) fn power(
    analysis: &mut Analysis,
    node: &Node,
    operands: &[&Val],
    dims: &[Dim],
) -> Result<Option<Vec<Val>>, String> {
    let (Val::View(base), Some(2.0)) = (operands[0], exponent(operands)) else { return Ok(None) };
    if dims != base.dims {
        return Ok(None);
    }
    let twice = vec![analysis.operand(base), analysis.operand(base)];
    let same = vec![(base.element, base.dims.clone())];
    Ok(Some(analysis.emit(node, "Mul", vec![], twice, same)))
}

/// The second operand, if it is one number.
fn exponent(operands: &[&Val]) -> Option<f32> {
    match operands.get(1)? {
        Val::Literal(literal) | Val::Fill(literal, _) if literal.shape().len() <= 1 => {
            let data = &literal.as_f32()?.data;
            (data.len() == 1).then(|| data[0])
        }
        _ => None,
    }
}
