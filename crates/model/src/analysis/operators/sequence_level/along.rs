//! Operators along axes: softmax, reductions and their like.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, constant_input, numbers, view};
use crate::analysis::operators::reduce::check_type;
use crate::analysis::operators::sequence_op::{SequenceOp, has_batch, ints, tensor};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val};
use crate::data::array::Array;
use crate::data::dim::Dim;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::{float_attribute, int_attribute};
use crate::file::node::Node;

/// `Softmax` and `LogSoftmax`.
pub(crate) fn softmax(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    let joint = analysis.opset < 13;
    let axis = axis_of(node.int("axis").unwrap_or(if joint { 1 } else { -1 }), rank)?;
    if joint && x.dims[axis + 1..].iter().any(|dim| !dim.is_one()) {
        return Err("it normalises over several axes (before opset 13)".to_owned());
    }
    let op = SequenceOp {
        operator: node.operator.clone(),
        attributes: vec![int_attribute("axis", axis as i64)],
        operands: vec![tensor(x)],
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    };
    op.add(analysis, node)
}

/// `ArgMax` and `ArgMin`.
pub(crate) fn arg(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let axis = axis_of(node.int("axis").unwrap_or(0), x.dims.len())?;
    let keep = node.int("keepdims").unwrap_or(1);
    let out = reduced(&x.dims, &[axis], keep != 0);
    let op = SequenceOp {
        operator: node.operator.clone(),
        attributes: vec![
            int_attribute("axis", axis as i64),
            int_attribute("keepdims", keep),
            int_attribute("select_last_index", node.int("select_last_index").unwrap_or(0)),
        ],
        operands: vec![tensor(x)],
        outputs: vec![(ElementType::I64, out)],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    };
    op.add(analysis, node)
}

pub(super) fn reduced(dims: &[Dim], axes: &[usize], keep: bool) -> Vec<Dim> {
    let dims = dims.iter().enumerate();
    let kept = dims.filter_map(|(axis, dim)| match axes.contains(&axis) {
        true => keep.then(|| Dim::fixed(1)),
        false => Some(dim.clone()),
    });
    kept.collect()
}

/// `ReduceSum` and its like.
pub(crate) fn reduce(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    check_type(node, x)?;
    let rank = x.dims.len();
    let axes: Vec<usize> = match numbers(node, "axes", inputs, 1)? {
        Some(axes) if !axes.is_empty() => {
            axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?
        }
        _ => (0..rank).collect(),
    };
    let keep = node.int("keepdims").unwrap_or(1);
    let out = reduced(&x.dims, &axes, keep != 0);
    let mixes = axes.iter().any(|&axis| has_batch(&x.dims[axis..=axis]));
    let op = SequenceOp {
        operator: node.operator.clone(),
        attributes: vec![int_attribute("keepdims", keep)],
        operands: vec![tensor(x), ints(axes.iter().map(|&axis| axis as i64))],
        outputs: vec![(x.element, out)],
        is_independent: !mixes,
        is_along_first: !axes.contains(&0),
    };
    op.add(analysis, node)
}

/// `LayerNormalization`.
pub(crate) fn layer_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let axis = axis_of(node.int("axis").unwrap_or(-1), x.dims.len())?;
    for dim in &x.dims[axis..] {
        analysis.need_fixed(dim, "normalises over")?;
    }
    let mut operands = vec![tensor(x)];
    for (index, name) in [(1, "scale"), (2, "bias")] {
        operands.push(match inputs.get(index) {
            Some(Some(_)) => Operand::Constant(constant_input(inputs, index, name)?),
            _ => Operand::Absent,
        });
    }
    if node.output(1).is_some() || node.output(2).is_some() {
        return Err("its outputs Mean and InvStdDev".to_owned());
    }
    let epsilon = float_attribute("epsilon", node.float("epsilon").unwrap_or(1e-5));
    let op = SequenceOp {
        operator: "LayerNormalization".to_owned(),
        attributes: vec![int_attribute("axis", axis as i64), epsilon],
        operands,
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: true,
        is_along_first: axis != 0,
    };
    op.add(analysis, node)
}

/// `Trilu`.
pub(crate) fn trilu(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let rank = x.dims.len();
    if rank < 2 || has_batch(&x.dims[rank - 2..]) {
        let shape = analysis.axes.show(&x.dims);
        return Err(format!("triangles of {shape}"));
    }
    let mut operands = vec![tensor(x)];
    if inputs.get(1).is_some_and(Option::is_some) {
        operands.push(Operand::Constant(constant_input(inputs, 1, "k")?));
    }
    let op = SequenceOp {
        operator: "Trilu".to_owned(),
        attributes: vec![int_attribute("upper", node.int("upper").unwrap_or(1))],
        operands,
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: true,
        is_along_first: rank > 2,
    };
    op.add(analysis, node)
}

/// `CumSum`.
pub(crate) fn cumulative_sum(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let axis = numbers(node, "axis", inputs, 1)?.and_then(|axes| axes.first().copied());
    let axis = axis_of(axis.ok_or("it has no axis")?, x.dims.len())?;
    let flag = |name| int_attribute(name, node.int(name).unwrap_or(0));
    let axis_of_rows = Literal::Int(Array::scalar(Int::number(axis as i64)), ElementType::I64);
    let op = SequenceOp {
        operator: "CumSum".to_owned(),
        attributes: vec![flag("exclusive"), flag("reverse")],
        operands: vec![tensor(x), Operand::Constant(Rc::new(axis_of_rows))],
        outputs: vec![(x.element, x.dims.clone())],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: axis != 0,
    };
    op.add(analysis, node)
}
