//! Constants that are repeated along axes of the request: a learned first state for every sequence.
//!
//! An operator that does nothing along those axes is the same on the constant itself.

use std::rc::Rc;

use crate::analysis::operator::{Inputs, OnRepeated, Operator, Rule};
use crate::analysis::operators::broadcast::{Over, broadcast_dims};
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::dim::Dim;
use crate::file::node::Node;

/// The constant, of length 1 along the axes that it is repeated along.
fn once(val: &Val) -> Val {
    match val {
        Val::Repeat(literal, _) => Val::Literal(literal.clone()),
        other => other.clone(),
    }
}

/// The outputs of a node that reads such constants.
pub(crate) fn evaluate(
    analysis: &mut Analysis,
    operator: &Operator<Analysis>,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let plain: Vec<Option<Val>> = inputs.iter().map(|val| val.as_ref().map(once)).collect();
    match (operator.on_repeated, operator.on_rows) {
        (OnRepeated::Broadcast, Some(rule)) => broadcast(analysis, rule, node, inputs, &plain),
        (OnRepeated::KeepAxes | OnRepeated::MoveAxes, Some(rule)) => {
            moved(analysis, (rule, operator.on_repeated), node, inputs, &plain)
        }
        _ => Err("a constant is repeated along batch or time".to_owned()),
    }
}

fn broadcast(
    analysis: &mut Analysis,
    rule: Rule<Analysis>,
    node: &Node,
    inputs: &Inputs,
    plain: &Inputs,
) -> Result<Vec<Val>, String> {
    let dims: Vec<Vec<Dim>> = inputs.iter().flatten().map(Val::dims).collect();
    let out = broadcast_dims(analysis, &dims, Over::Rows)?;
    let vals = rule(analysis, node, plain)?;
    vals.into_iter()
        .map(|val| match val {
            Val::Literal(literal) if literal.shape().len() == out.len() => {
                Ok(Val::repeated(literal, out.clone()))
            }
            val if val.dims() == out || !analysis.has_roles() => Ok(val),
            _ => Err("a constant is repeated along the axes of the request".to_owned()),
        })
        .collect()
}

fn moved(
    analysis: &mut Analysis,
    (rule, on_repeated): (Rule<Analysis>, OnRepeated),
    node: &Node,
    inputs: &Inputs,
    plain: &Inputs,
) -> Result<Vec<Val>, String> {
    let Some(Some(Val::Repeat(literal, dims))) = inputs.first() else {
        return Err("its indices are repeated along batch or time".to_owned());
    };
    let vals = rule(analysis, node, plain)?;
    // Applied to a probe whose axes have lengths of their own, the rule shows where axes move.
    let marks: Vec<Dim> = (0..dims.len()).map(|axis| Dim::fixed(1000 + axis)).collect();
    let probe = Val::Fill(Rc::new(literal.gathered_first()), marks);
    let mut probes = plain.to_vec();
    probes[0] = Some(probe);
    let moved = match on_repeated {
        OnRepeated::MoveAxes => rule(analysis, node, &probes)?.first().map(Val::dims),
        _ => None,
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
                Some(from) if from < dims.len() && dims[from].symbols().next().is_some() => {
                    (literal.shape()[axis] == 1).then(|| dims[from].clone())
                }
                None if moved.is_none() => None,
                _ => Some(Dim::fixed(literal.shape()[axis])),
            })
            .collect();
        let out = out.ok_or("a constant that is repeated is cut along the axes of the request")?;
        Ok(Val::repeated(literal, out))
    };
    vals.into_iter().map(place).collect()
}
