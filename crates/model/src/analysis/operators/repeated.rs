//! Constants that are repeated along axes of the request: a learned first state for every sequence.
//!
//! An operator that does nothing along those axes is the same on the constant itself.

use std::rc::Rc;

use crate::analysis::operators::{Inputs, elementwise, layout, select};
use crate::analysis::{Analysis, Val};
use crate::data::literal::Literal;
use crate::data::symbolic::Dim;
use crate::file::node::Node;

/// The constant, of length 1 along the axes that it is repeated along.
fn once(val: &Val) -> Val {
    match val {
        Val::Repeat(literal, _) => Val::Literal(literal.clone()),
        other => other.clone(),
    }
}

/// A literal of 1s along `dims` that vary, as a value under these.
pub(super) fn repeated(literal: Rc<Literal>, dims: Vec<Dim>) -> Val {
    match dims.iter().any(|dim| dim.atoms().next().is_some()) {
        true => Val::Repeat(literal, dims),
        false => Val::Literal(literal),
    }
}

/// The outputs of a node that reads such constants.
pub(super) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let operator = node.operator.as_str();
    let dims: Vec<Vec<Dim>> = inputs.iter().flatten().map(Val::dims).collect();
    let plain: Vec<Option<Val>> = inputs.iter().map(|val| val.as_ref().map(once)).collect();
    if elementwise::is_elementwise(operator) {
        let out = elementwise::broadcast_dims(analysis, &dims)?;
        let vals = elementwise::evaluate(analysis, node, &plain)?;
        return vals
            .into_iter()
            .map(|val| match val {
                Val::Literal(literal) if literal.shape().len() == out.len() => {
                    Ok(repeated(literal, out.clone()))
                }
                val if val.dims() == out || analysis.draft => Ok(val),
                _ => Err("a constant is repeated along the axes of the request".to_owned()),
            })
            .collect();
    }
    let moves = matches!(
        operator,
        "Identity" | "Cast" | "Slice" | "Gather" | "Transpose" | "Unsqueeze" | "Squeeze" | "Split"
    );
    if !moves {
        return Err("a constant is repeated along batch or time".to_owned());
    }
    let Some(Some(Val::Repeat(literal, dims))) = inputs.first() else {
        return Err("its indices are repeated along batch or time".to_owned());
    };
    // What becomes of axes is read off a constant whose axes have lengths of their own.
    let vals = match select::OPERATORS.contains(&operator) {
        true => select::evaluate(analysis, node, &plain)?,
        false => layout::evaluate(analysis, node, &plain)?,
    };
    let marks: Vec<Dim> = (0..dims.len()).map(|axis| Dim::fixed(1000 + axis)).collect();
    let probe = Val::Fill(Rc::new(literal.gathered_first()), marks);
    let mut probes = plain.clone();
    probes[0] = Some(probe);
    let is_kept = matches!(operator, "Identity" | "Cast" | "Slice" | "Gather" | "Split");
    let moved = match is_kept {
        true => None,
        false => layout::evaluate(analysis, node, &probes)?.first().map(Val::dims),
    };
    let place = |val: Val| {
        let Val::Literal(literal) = val else { return Ok(val) };
        let rank = literal.shape().len();
        let axis_of = |axis: usize| match &moved {
            None if rank == dims.len() => Some(axis),
            None => None,
            Some(moved) => moved[axis].fixed_part().checked_sub(1000),
        };
        let out: Option<Vec<Dim>> = (0..rank)
            .map(|axis| match axis_of(axis) {
                Some(from) if from < dims.len() && dims[from].atoms().next().is_some() => {
                    (literal.shape()[axis] == 1).then(|| dims[from].clone())
                }
                None if moved.is_none() => None,
                _ => Some(Dim::fixed(literal.shape()[axis])),
            })
            .collect();
        let out = out.ok_or("a constant that is repeated is cut along the axes of the request")?;
        Ok(repeated(literal, out))
    };
    vals.into_iter().map(place).collect()
}
