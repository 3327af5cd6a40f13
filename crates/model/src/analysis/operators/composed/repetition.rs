//! Numbers that count, and copies of tensors.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{input, int_list};
use crate::analysis::operators::dispatch::apply;
use crate::analysis::operators::sequence_level::spatial::length_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;

/// `Tile`: an `Expand` along an axis of length 1, a `Concat` of copies along another.
pub(crate) fn tile(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let mut val = input(inputs, 0)?.clone();
    let repeats = int_list(inputs, 1).ok_or("its repeats are not constant")?;
    if repeats.len() != val.dims().len() {
        return Err("its repeats are not one an axis".to_owned());
    }
    for (axis, repeat) in repeats.into_iter().enumerate() {
        let dims = val.dims();
        match repeat.as_number() {
            Some(1) => {}
            _ if dims[axis].is_one() => {
                let mut shape: Vec<Int> = dims.iter().map(|dim| analysis.axes.int(dim)).collect();
                shape[axis] = repeat;
                let shape = Val::literal(Literal::ints(shape));
                val = apply(analysis, node, "Expand", vec![], vec![val, shape])?;
            }
            Some(count @ 2..=64) => {
                let axis = vec![int_attribute("axis", axis as i64)];
                let parts = vec![val; count as usize];
                val = apply(analysis, node, "Concat", axis, parts)?;
            }
            _ => return Err(format!("its repeats along axis {axis}")),
        }
    }
    Ok(vec![val])
}

/// The integers from 0 to `length` - 1, where `length` is a length of the request.
pub(in crate::analysis::operators) fn range(
    analysis: &mut Analysis,
    node: &Node,
    length: &Int,
) -> Result<Val, String> {
    let one = Rc::new(Literal::Int(Array::scalar(Int::number(1)), ElementType::I64));
    let dims = vec![length_of(analysis, length)?];
    let axis = Val::literal(Literal::Int(Array::scalar(Int::number(0)), ElementType::I64));
    let from_one =
        apply(analysis, node, "CumSum", vec![], vec![Val::Fill(one.clone(), dims.clone()), axis])?;
    let symbol = dims[0].as_symbol();
    if symbol == Some(BATCH) {
        return Err("it has as many numbers as the batch has sequences".to_owned());
    }
    let from_zero = apply(analysis, node, "Sub", vec![], vec![from_one, Val::Literal(one)])?;
    if let Some(op) = analysis.ops.last_mut() {
        op.counts = symbol;
    }
    Ok(from_zero)
}
