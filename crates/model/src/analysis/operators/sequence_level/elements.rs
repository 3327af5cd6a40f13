//! Element-wise operators, casts and matrix products.

use batchmaker_graph::ElementType;

use crate::analysis::operator::{Inputs, Operands};
use crate::analysis::operators::arguments::input;
use crate::analysis::operators::broadcast::{Over, broadcast_dims, merge, refuse_wide};
use crate::analysis::operators::contract::check_floats;
use crate::analysis::operators::dispatch::apply;
use crate::analysis::operators::elementwise::{self, entry};
use crate::analysis::operators::sequence_op::{SequenceOp, has_batch, operand};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val};
use crate::data::dim::Dim;
use crate::file::node::Node;

/// `MatMul`.
pub(crate) fn matmul(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let is_filled = |val: &Val| matches!(val, Val::Fill(..) | Val::Repeat(..));
    let (a, b) = (input(inputs, 0)?, input(inputs, 1)?);
    check_floats(&[a, b])?;
    let (da, db) = (a.dims(), b.dims());
    if da.len() < 2 || db.len() < 2 || is_filled(a) || is_filled(b) {
        return Err("a product with a vector".to_owned());
    }
    let (ra, rb) = (da.len() - 2, db.len() - 2);
    let mut inner = da[ra + 1].clone();
    merge(analysis, &mut inner, &db[rb], Over::Sequences)?;
    let mut out =
        broadcast_dims(analysis, &[da[..ra].to_vec(), db[..rb].to_vec()], Over::Sequences)?;
    out.extend([da[ra].clone(), db[rb + 1].clone()]);
    let is_alone = |dim: &Dim, other: &Val| {
        !has_batch(std::slice::from_ref(dim)) || !matches!(other, Val::View(_))
    };
    let is_independent = !has_batch(std::slice::from_ref(&inner))
        && is_alone(&da[ra], b)
        && is_alone(&db[rb + 1], a);
    // Matrices along axis 0, or rows of one matrix times a constant one.
    let is_along_first = match (a, b) {
        (Val::View(_), Val::View(_)) => da.len() > 2 && da.len() == db.len(),
        (Val::View(_), _) => db.len() == 2,
        _ => false,
    };
    let operands = vec![operand(a)?, operand(b)?];
    let outputs = vec![(ElementType::F32, out)];
    let operator = "MatMul".to_owned();
    let op = SequenceOp {
        operator,
        attributes: vec![],
        operands,
        outputs,
        is_independent,
        is_along_first,
    };
    op.add(analysis, node)
}

/// An operator that computes element by element.
pub(crate) fn elementwise(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let elementwise = entry(analysis, node);
    let vals = elementwise::operands(elementwise, inputs)?;
    (elementwise.check)(&vals)?;
    let all: Vec<Vec<Dim>> = vals.iter().map(|val| val.dims()).collect();
    let out = broadcast_dims(analysis, &all, Over::Sequences)?;
    let given: Vec<Vec<Dim>> = vals
        .iter()
        .filter(|val| !matches!(val, Val::Fill(..) | Val::Repeat(..)))
        .map(|val| val.dims())
        .collect();
    let is_given = broadcast_dims(analysis, &given, Over::Sequences)? == out;
    analysis
        .require(is_given, || "a constant is repeated along the axes of the request".to_owned())?;
    let element = elementwise.gives.element(&vals)?;
    let mut operands = vals.iter().map(|val| operand(val)).collect::<Result<Vec<_>, _>>()?;
    if operands.iter().any(|operand| matches!(operand, Operand::Lengths(_))) {
        return Err("an operand depends on the request's lengths".to_owned());
    }
    operands.iter().try_for_each(|operand| refuse_wide(analysis, operand))?;
    if let Operands::First(others) = elementwise.operands {
        operands.extend(others(node, inputs)?);
    }
    let op = SequenceOp {
        operator: node.operator.clone(),
        attributes: elementwise::attributes(elementwise, node)?,
        operands,
        outputs: vec![(element, out)],
        is_independent: true,
        is_along_first: false,
    };
    op.add(analysis, node)
}

/// `Clip`, whose bounds may be computed.
pub(crate) fn clip(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let is_computed = |val: &Val| matches!(val, Val::View(_));
    if !inputs.iter().skip(1).flatten().any(is_computed) {
        return elementwise(analysis, node, inputs);
    }
    let mut x = input(inputs, 0)?.clone();
    for (index, operator) in [(1, "Max"), (2, "Min")] {
        if let Some(Some(bound)) = inputs.get(index) {
            x = apply(analysis, node, operator, vec![], vec![x, bound.clone()])?;
        }
    }
    Ok(vec![x])
}
