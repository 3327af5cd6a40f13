//! The first values of a loop's states.

use std::rc::Rc;

use crate::analysis::ids::limit_ids;
use crate::analysis::recurrence::Initial;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::dim::{Dim, row_shape, steps};
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;

/// The first value of a state that has the dimensions `dims` from then on.
pub(super) fn first_state(analysis: &Analysis, val: &Val, dims: &[Dim]) -> Result<Initial, String> {
    let row: Vec<usize> = row_shape(dims);
    let constant = |rows: usize, data: Literal| {
        let is_zero = match &data {
            Literal::F32(array) | Literal::Whole(array, _) => {
                array.data.iter().all(|&x| x.to_bits() == 0)
            }
            Literal::Bool(array) => array.data.iter().all(|&bit| !bit),
            Literal::Int(..) => data.as_numbers().is_some_and(|n| n.iter().all(|&n| n == 0)),
        };
        match data.data() {
            None => Err("a first state is a length of the request".to_owned()),
            Some(_) if is_zero => Ok(Initial::Zeros),
            Some(_) => Ok(Initial::Constant { rows, data }),
        }
    };
    match val {
        Val::View(view) if steps(&view.dims).is_empty() => Ok(Initial::View(view.clone())),
        Val::View(_) => Err("a first state is all of a sequence".to_owned()),
        Val::Fill(value, _) => constant(1, value.expanded(&row)),
        Val::Literal(literal) | Val::Repeat(literal, _) => {
            // The literal with the leading axes of `dims` that it lacks.
            let mut shape = vec![1; dims.len().saturating_sub(literal.shape().len())];
            shape.extend(literal.shape());
            let literal = literal.reshaped(&shape);
            let batch = dims.iter().position(|dim| dim.as_symbol() == Some(BATCH));
            let rows = batch.map_or(1, |axis| shape[axis]);
            if rows > 1 && analysis.axes.length(BATCH) != Some(rows) {
                return Err(format!("a first state is of {rows} sequences"));
            }
            let order = batch.into_iter().chain((0..shape.len()).filter(|&a| Some(a) != batch));
            let literal = literal.transposed(&order.collect::<Vec<_>>());
            let shape: Vec<usize> = batch.map(|_| rows).into_iter().chain(row).collect();
            let fits = literal.shape().len() == shape.len();
            let mut pairs = literal.shape().iter().zip(&shape);
            if !(fits && pairs.all(|(&from, &to)| from == to || from == 1)) {
                let found = literal.shape();
                return Err(format!("a first state of {found:?} becomes one of {shape:?}"));
            }
            constant(rows, literal.expanded(&shape))
        }
        Val::PerSequence(_) | Val::List(_) | Val::Unknown => {
            Err("a first state that nothing makes".to_owned())
        }
    }
}

/// Checks that the first value of a state holds ids below `rows`.
pub(super) fn check_ids(analysis: &mut Analysis, val: &Val, rows: usize) -> Result<(), String> {
    let fits = |literal: &Rc<Literal>| {
        let numbers = literal.as_numbers();
        numbers.is_some_and(|n| n.iter().all(|&n| (0..rows as i64).contains(&n)))
    };
    match val {
        Val::View(view) => limit_ids(analysis, view, rows),
        Val::Literal(literal) | Val::Fill(literal, _) | Val::Repeat(literal, _)
            if fits(literal) =>
        {
            Ok(())
        }
        _ => Err(format!("a first state is no id below {rows}")),
    }
}
