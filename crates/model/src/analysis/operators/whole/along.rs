//! Operators along axes: softmax, reductions and their like.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operators::layout::numbers;
use crate::analysis::operators::whole::{Whole, has_batch, ints, literal, view, whole};
use crate::analysis::operators::{Inputs, axis_of, reduce};
use crate::analysis::{Analysis, Operand};
use crate::data::array::Array;
use crate::data::literal::Literal;
use crate::data::symbolic::{Dim, Int};
use crate::file::attribute::{float_attribute, int_attribute};
use crate::file::node::Node;

pub(super) fn softmax(analysis: &Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    let joint = analysis.opset < 13;
    let axis = axis_of(node.int("axis").unwrap_or(if joint { 1 } else { -1 }), rank)?;
    if joint && x.dims[axis + 1..].iter().any(|dim| !dim.is_one()) {
        return Err("it normalises over several axes (before opset 13)".to_owned());
    }
    Ok(Whole {
        operator: node.operator.clone(),
        attributes: vec![int_attribute("axis", axis as i64)],
        operands: vec![whole(x)],
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    })
}

pub(super) fn arg(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let axis = axis_of(node.int("axis").unwrap_or(0), x.dims.len())?;
    let keep = node.int("keepdims").unwrap_or(1);
    let out = reduced(&x.dims, &[axis], keep != 0);
    Ok(Whole {
        operator: node.operator.clone(),
        attributes: vec![
            int_attribute("axis", axis as i64),
            int_attribute("keepdims", keep),
            int_attribute("select_last_index", node.int("select_last_index").unwrap_or(0)),
        ],
        operands: vec![whole(x)],
        outputs: vec![(ElementType::I64, out)],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    })
}

pub(super) fn reduced(dims: &[Dim], axes: &[usize], keep: bool) -> Vec<Dim> {
    let dims = dims.iter().enumerate();
    let kept = dims.filter_map(|(axis, dim)| match axes.contains(&axis) {
        true => keep.then(|| Dim::fixed(1)),
        false => Some(dim.clone()),
    });
    kept.collect()
}

pub(super) fn reduce(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    reduce::check_type(node, x)?;
    let rank = x.dims.len();
    let axes: Vec<usize> = match numbers(node, "axes", inputs, 1)? {
        Some(axes) if !axes.is_empty() => {
            axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?
        }
        _ => (0..rank).collect(),
    };
    if !reduce::OPERATORS.contains(&node.operator.as_str()) {
        return Err("not supported".to_owned());
    }
    let keep = node.int("keepdims").unwrap_or(1);
    let out = reduced(&x.dims, &axes, keep != 0);
    let mixes = axes.iter().any(|&axis| has_batch(&x.dims[axis..=axis]));
    Ok(Whole {
        operator: node.operator.clone(),
        attributes: vec![int_attribute("keepdims", keep)],
        operands: vec![whole(x), ints(axes.iter().map(|&axis| axis as i64))],
        outputs: vec![(x.element, out)],
        is_independent: !mixes,
        is_along_first: !axes.contains(&0),
    })
}

pub(super) fn layer_normalization(
    analysis: &Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let axis = axis_of(node.int("axis").unwrap_or(-1), x.dims.len())?;
    for dim in &x.dims[axis..] {
        analysis.need_fixed(dim, "normalises over")?;
    }
    let mut operands = vec![whole(x)];
    for (index, name) in [(1, "scale"), (2, "bias")] {
        operands.push(match inputs.get(index) {
            Some(Some(_)) => Operand::Constant(literal(inputs, index, name)?),
            _ => Operand::Absent,
        });
    }
    if node.output(1).is_some() || node.output(2).is_some() {
        return Err("its outputs Mean and InvStdDev".to_owned());
    }
    let epsilon = float_attribute("epsilon", node.float("epsilon").unwrap_or(1e-5));
    Ok(Whole {
        operator: "LayerNormalization".to_owned(),
        attributes: vec![int_attribute("axis", axis as i64), epsilon],
        operands,
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: true,
        is_along_first: axis != 0,
    })
}

pub(super) fn trilu(analysis: &Analysis, node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    if rank < 2 || has_batch(&x.dims[rank - 2..]) {
        let shape = analysis.axes.show(&x.dims);
        return Err(format!("triangles of {shape}"));
    }
    let mut operands = vec![whole(x)];
    if inputs.get(1).is_some_and(Option::is_some) {
        operands.push(Operand::Constant(literal(inputs, 1, "k")?));
    }
    Ok(Whole {
        operator: "Trilu".to_owned(),
        attributes: vec![int_attribute("upper", node.int("upper").unwrap_or(1))],
        operands,
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: true,
        is_along_first: rank > 2,
    })
}

pub(super) fn cumulative_sum(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let axis = numbers(node, "axis", inputs, 1)?.and_then(|axes| axes.first().copied());
    let axis = axis_of(axis.ok_or("it has no axis")?, x.dims.len())?;
    let is_odd = |name| node.int(name).unwrap_or(0) != 0;
    if is_odd("exclusive") || is_odd("reverse") {
        return Err("exclusive or reverse".to_owned());
    }
    let axis_of_rows = Literal::Int(Array::scalar(Int::number(axis as i64)), ElementType::I64);
    Ok(Whole {
        operator: "CumSum".to_owned(),
        attributes: vec![],
        operands: vec![whole(x), Operand::Constant(Rc::new(axis_of_rows))],
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    })
}
