//! Operators along axes: they are row-wise where those axes lie within a row.

use std::rc::Rc;

use batchmaker_graph::ElementType;
use rten_onnx::onnx::AttributeProto;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, input, numbers};
use crate::analysis::operators::fold;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val, View};
use crate::data::array::Array;
use crate::data::dim::{Dim, row_axis, row_shape};
use crate::data::int::Int;
use crate::data::int_range::IntRange;
use crate::data::literal::Literal;
use crate::file::attribute::{float_attribute, int_attribute};
use crate::file::node::Node;

/// The input along whose axes the operator computes.
fn tensor(inputs: &Inputs) -> Result<&View, String> {
    match input(inputs, 0)? {
        Val::View(view) => Ok(view),
        _ => Err("a computation on constants that is not folded".to_owned()),
    }
}

/// `LpNormalization`.
pub(crate) fn lp_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let view = tensor(inputs)?;
    let axis = axis_of(node.int("axis").unwrap_or(-1), view.dims.len())?;
    analysis.need_fixed(&view.dims[axis], "normalises over")?;
    let p = int_attribute("p", node.int("p").unwrap_or(2));
    let attributes = vec![p, row_attribute(view, axis)];
    let (operands, outputs) = (vec![analysis.operand(view)], same(view));
    Ok(analysis.emit(node, "LpNormalization", attributes, operands, outputs))
}

fn same(view: &View) -> Vec<(ElementType, Vec<Dim>)> {
    vec![(view.element, view.dims.clone())]
}

fn row_attribute(view: &View, axis: usize) -> AttributeProto {
    int_attribute("axis", 1 + row_axis(&view.dims, axis) as i64)
}

/// `Softmax` and `LogSoftmax`; before opset 13, over all axes from `axis` on.
pub(crate) fn softmax(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let view = tensor(inputs)?;
    let rank = view.dims.len();
    let joint = analysis.opset < 13;
    let axis = axis_of(node.int("axis").unwrap_or(if joint { 1 } else { -1 }), rank)?;
    let end = if joint { rank } else { axis + 1 };
    let mut length = 1;
    for dim in &view.dims[axis..end] {
        length *= analysis.need_fixed(dim, "normalises over")?;
    }
    let mut shape = row_shape(&view.dims[..axis]);
    let row = 1 + shape.len() as i64;
    shape.push(length);
    shape.extend(row_shape(&view.dims[end..]));
    let operands = vec![Operand::Rows { source: view.source, at: view.at, shape: shape.clone() }];
    let attributes = vec![int_attribute("axis", row)];
    let vals = analysis.emit(node, &node.operator, attributes, operands, same(view));
    if let Some(op) = analysis.ops.last_mut() {
        op.outputs[0].shape = shape;
    }
    Ok(vals)
}

/// `LayerNormalization`, where its statistics are not used.
pub(crate) fn layer_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let view = tensor(inputs)?;
    if node.output(1).is_some() || node.output(2).is_some() {
        return Err("its outputs Mean and InvStdDev are not supported".to_owned());
    }
    let rank = view.dims.len();
    let axis = axis_of(node.int("axis").unwrap_or(-1), rank)?;
    for dim in &view.dims[axis..] {
        analysis.need_fixed(dim, "normalises over")?;
    }
    let mut operands = vec![analysis.operand(view)];
    for constant in inputs.iter().skip(1) {
        operands.push(match constant {
            Some(Val::Literal(literal)) => Operand::Constant(literal.clone()),
            Some(_) => return Err("its scale or bias is not constant".to_owned()),
            None => Operand::Absent,
        });
    }
    let attributes = vec![
        int_attribute("axis", axis as i64 - rank as i64),
        float_attribute("epsilon", node.float("epsilon").unwrap_or(1e-5)),
    ];
    Ok(analysis.emit(node, "LayerNormalization", attributes, operands, same(view)))
}

/// Refuses means, norms and logarithms of integers.
pub(super) fn check_type(node: &Node, view: &View) -> Result<(), String> {
    let is_of_any =
        matches!(&*node.operator, "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceSum");
    match is_of_any || view.element.is_float() {
        true => Ok(()),
        false => Err("integers are not supported".to_owned()),
    }
}

/// `ReduceSum` and its like.
pub(crate) fn reduce(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let rank = input(inputs, 0)?.dims().len();
    let keep = node.int("keepdims").unwrap_or(1) != 0;
    let mut axes: Vec<usize> = match numbers(node, "axes", inputs, 1)? {
        Some(axes) if !axes.is_empty() => {
            axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?
        }
        _ if node.int("noop_with_empty_axes").unwrap_or(0) != 0 => {
            return Ok(vec![input(inputs, 0)?.clone()]);
        }
        _ => (0..rank).collect(),
    };
    axes.sort_unstable();
    axes.dedup();
    if let Val::Literal(literal) = input(inputs, 0)? {
        let reduced = fold::reduction(&node.operator, literal, &axes);
        let reduced = reduced.ok_or("a computation on constants that is not folded")?;
        let is_kept = |axis: &usize| keep || !axes.contains(axis);
        let shape: Vec<usize> =
            (0..rank).filter(is_kept).map(|axis| reduced.shape()[axis]).collect();
        return Ok(vec![Val::literal(reduced.reshaped(&shape))]);
    }
    let view = tensor(inputs)?;
    check_type(node, view)?;
    for &axis in &axes {
        analysis.need_fixed(&view.dims[axis], "reduces over")?;
    }
    let rows = axes.iter().map(|&axis| Int::number(1 + row_axis(&view.dims, axis) as i64));
    let rows = Operand::Constant(Rc::new(Literal::ints(rows.collect())));
    let mut out = view.dims.clone();
    for &axis in axes.iter().rev() {
        if keep {
            out[axis] = Dim::fixed(1);
        } else {
            out.remove(axis);
        }
    }
    let attributes = vec![int_attribute("keepdims", keep.into())];
    let operands = vec![analysis.operand(view), rows];
    Ok(analysis.emit(node, &node.operator, attributes, operands, vec![(view.element, out)]))
}

/// `ArgMax` and `ArgMin`.
pub(crate) fn arg(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let view = tensor(inputs)?;
    let axis = axis_of(node.int("axis").unwrap_or(0), view.dims.len())?;
    let length = analysis.need_fixed(&view.dims[axis], "chooses over")?;
    let keep = node.int("keepdims").unwrap_or(1) != 0;
    let mut out = view.dims.clone();
    if keep {
        out[axis] = Dim::fixed(1);
    } else {
        out.remove(axis);
    }
    let attributes = vec![
        row_attribute(view, axis),
        int_attribute("keepdims", keep.into()),
        int_attribute("select_last_index", node.int("select_last_index").unwrap_or(0)),
    ];
    let operands = vec![analysis.operand(view)];
    let outputs = vec![(ElementType::I64, out)];
    let vals = analysis.emit(node, &node.operator, attributes, operands, outputs);
    if let Some(op) = analysis.ops.last_mut() {
        op.range = IntRange::below(length);
    }
    Ok(vals)
}

/// `TopK`.
pub(crate) fn top_k(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let view = tensor(inputs)?;
    let k = numbers(node, "k", inputs, 1)?.and_then(|k| k.first().copied());
    let k = k.or(node.int("k")).ok_or("it has no k")?;
    let axis = axis_of(node.int("axis").unwrap_or(-1), view.dims.len())?;
    let length = analysis.need_fixed(&view.dims[axis], "chooses over")?;
    if k < 1 || k as usize > length {
        return Err(format!("k={k} of {length}"));
    }
    if length == 1 {
        let zero = Literal::Int(Array::scalar(Int::number(0)), ElementType::I64);
        let zeros = Val::Fill(Rc::new(zero), view.dims.clone());
        let is_plain = view.dims.iter().all(|dim| dim.symbols().next().is_none());
        let zeros = match (zeros, is_plain) {
            (Val::Fill(zero, dims), true) => {
                Val::literal(zero.expanded(&dims.iter().map(Dim::fixed_part).collect::<Vec<_>>()))
            }
            (zeros, _) => zeros,
        };
        return Ok(vec![Val::View(view.clone()), zeros]);
    }
    let mut out = view.dims.clone();
    out[axis] = Dim::fixed(k as usize);
    let attributes = vec![
        row_attribute(view, axis),
        int_attribute("largest", node.int("largest").unwrap_or(1)),
        int_attribute("sorted", node.int("sorted").unwrap_or(1)),
    ];
    let k = Operand::Constant(Rc::new(Literal::ints(vec![Int::number(k)])));
    let operands = vec![analysis.operand(view), k];
    let outputs = vec![(view.element, out.clone()), (ElementType::I64, out)];
    Ok(analysis.emit(node, "TopK", attributes, operands, outputs))
}

/// `OneHot`.
pub(crate) fn one_hot(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let view = tensor(inputs)?;
    let (Val::Literal(depth), Val::Literal(values)) = (input(inputs, 1)?, input(inputs, 2)?) else {
        return Err("its depth or values are not constant".to_owned());
    };
    let axis = node.int("axis").unwrap_or(-1);
    if axis != -1 && axis != view.dims.len() as i64 {
        return Err("an axis that is not the last is not supported".to_owned());
    }
    let count = match &**depth {
        Literal::F32(array) => array.data.first().map(|&x| x as i64),
        other => other.as_numbers().and_then(|numbers| numbers.first().copied()),
    };
    let count = count.filter(|&n| n > 0).ok_or("its depth is not constant")?;
    let mut out = view.dims.clone();
    out.push(Dim::fixed(count as usize));
    let depth =
        Literal::Int(crate::data::array::Array::scalar(Int::number(count)), ElementType::I64);
    let operands = vec![
        analysis.operand(view),
        Operand::Constant(Rc::new(depth)),
        Operand::Constant(values.clone()),
    ];
    let attributes = vec![int_attribute("axis", -1)];
    Ok(analysis.emit(node, "OneHot", attributes, operands, vec![(values.element(), out)]))
}
