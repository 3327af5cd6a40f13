//! The dimensions that operands broadcast to, and operands aligned with them.

use std::rc::Rc;

use crate::analysis::operators::arguments::{count, scalar};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val};
use crate::data::dim::Dim;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;

/// The domain that an operator computes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// Rows: axes of batch and steps stand outside of what it computes with.
    Rows,
    /// Whole tensors, where an axis of steps is as good as another.
    Sequences,
}

/// The dimensions that operands on rows broadcast to.
pub(crate) fn broadcast(analysis: &mut Analysis, operands: &[&Val]) -> Result<Vec<Dim>, String> {
    let all: Vec<Vec<Dim>> = operands.iter().map(|val| val.dims()).collect();
    broadcast_dims(analysis, &all, Over::Rows)
}

/// As [`broadcast`], for operands of the dimensions `all`.
pub(crate) fn broadcast_dims(
    analysis: &mut Analysis,
    all: &[Vec<Dim>],
    over: Over,
) -> Result<Vec<Dim>, String> {
    let rank = all.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = vec![Dim::fixed(1); rank];
    for dims in all {
        for (slot, dim) in out[rank - dims.len()..].iter_mut().zip(dims) {
            if slot.is_one() {
                *slot = dim.clone();
            } else if !dim.is_one() {
                merge(analysis, slot, dim, over)?;
            }
        }
    }
    Ok(out)
}

/// A value as an operand whose axes stand where those of `out`'s rows stand; of constants, integers of 32 bits alone.
pub(crate) fn align(analysis: &Analysis, val: &Val, out: &[Dim]) -> Result<Operand, String> {
    let operand = align_any(analysis, val, out)?;
    refuse_wide(analysis, &operand)?;
    Ok(operand)
}

/// Fails for a constant that has integers of more than 32 bits.
pub(crate) fn refuse_wide(analysis: &Analysis, operand: &Operand) -> Result<(), String> {
    let is_wide = |n: &i64| i32::try_from(*n).is_err();
    match operand {
        Operand::Constant(literal)
            if analysis.has_roles()
                && literal.as_numbers().is_some_and(|numbers| numbers.iter().any(is_wide)) =>
        {
            Err("an integer that does not fit 32 bits".to_owned())
        }
        _ => Ok(()),
    }
}

/// As [`align`], of any constants.
pub(crate) fn align_any(analysis: &Analysis, val: &Val, out: &[Dim]) -> Result<Operand, String> {
    let dims = val.dims();
    let own = |axis: usize| (axis + dims.len()).checked_sub(out.len()).map(|axis| &dims[axis]);
    let shape: Vec<usize> = (0..out.len())
        .filter(|&axis| out[axis].in_row())
        .map(|axis| own(axis).filter(|dim| dim.in_row()).map_or(1, Dim::fixed_part))
        .collect();
    match val {
        Val::View(view) => Ok(Operand::Rows { source: view.source, at: view.at, shape }),
        Val::Fill(value, _) if value.data().is_none() && analysis.has_roles() => {
            Err("an operand depends on the request's lengths".to_owned())
        }
        Val::Fill(value, _) => {
            // As long as its own axes within a row are, which no other operand may have.
            let ones = shape.iter().take_while(|&&n| n == 1).count();
            let count = shape.iter().try_fold(1usize, |count, &n| count.checked_mul(n));
            if !analysis.has_roles() || count.is_none_or(|count| count > 1 << 20) {
                return Ok(Operand::Constant(value.clone()));
            }
            let value = scalar(value).ok_or("a fill of several numbers")?;
            Ok(Operand::Constant(Rc::new(value.expanded(&shape[ones..]))))
        }
        Val::Literal(literal) => {
            if !analysis.has_roles() {
                return Ok(Operand::Constant(literal.clone()));
            }
            let outside = (0..out.len()).filter(|&axis| !out[axis].in_row()).filter_map(own);
            if outside.clone().any(|dim| !dim.is_one()) {
                return Err("a constant that varies along batch or time".to_owned());
            }
            let ones = shape.iter().take_while(|&&n| n == 1).count();
            let aligned = literal.reshaped(&shape[ones..]);
            if aligned.data().is_none() {
                return Err("an operand depends on the request's lengths".to_owned());
            }
            Ok(Operand::Constant(Rc::new(aligned)))
        }
        // Rows do not have the axes that it is repeated along.
        Val::Repeat(literal, dims) => {
            let is_outside = |dim: &Dim| dim.symbols().next().is_none() || !dim.in_row();
            if !dims.iter().all(is_outside) {
                return Err("a constant is repeated along batch or time".to_owned());
            }
            let ones = shape.iter().take_while(|&&n| n == 1).count();
            Ok(Operand::Constant(Rc::new(literal.reshaped(&shape[ones..]))))
        }
        Val::PerSequence(_) | Val::List(_) | Val::Unknown => {
            Err("an operand is unknown".to_owned())
        }
    }
}

/// A constant repeated to dimensions, some of which vary.
pub(crate) fn repeat(literal: &Literal, wide: Vec<Dim>) -> Result<Val, String> {
    let once: Vec<usize> = wide
        .iter()
        .map(|dim| if dim.symbols().next().is_some() { 1 } else { dim.fixed_part() })
        .collect();
    if count(&once).is_none_or(|n| n > 1 << 24) {
        return Err("it repeats a constant beyond all reason".to_owned());
    }
    Ok(Val::repeated(Rc::new(literal.expanded(&once)), wide))
}

/// The axis of steps, of an axis of steps and a fixed one of the same length, over whole sequences. If the
/// axis of steps has no length yet, an exporter wrote a number in its place: the axis is bound to it, which
/// the next pass takes into account.
pub(crate) fn same_length(analysis: &mut Analysis, a: &Dim, b: &Dim, over: Over) -> Option<Dim> {
    let (open, fixed) = match (a.as_symbol(), b.as_symbol()) {
        (Some(_), None) => (a, b),
        (None, Some(_)) => (b, a),
        _ => return None,
    };
    let (symbol, length) = (open.as_symbol()?, analysis.fixed(fixed)?);
    match analysis.axes.length(symbol) {
        Some(n) if n == length && over == Over::Sequences => Some(open.clone()),
        None if symbol != BATCH && length > 1 => {
            analysis.bind(analysis.axes.find(symbol), length);
            None
        }
        _ => None,
    }
}

/// Makes `dim` the dimension that both operands share; the error says that they differ.
pub(crate) fn merge(
    analysis: &mut Analysis,
    dim: &mut Dim,
    other: &Dim,
    over: Over,
) -> Result<(), String> {
    if analysis.axes.same_dim(dim, other) {
        return Ok(());
    }
    if let (Some(a), Some(b)) = (dim.as_symbol(), other.as_symbol()) {
        // While roles are being found, axes of a fixed length are symbols, too.
        match [a, b].map(|symbol| analysis.axes.length(symbol)) {
            [Some(1), Some(2..)] if !analysis.has_roles() => *dim = other.clone(),
            [Some(2..), Some(1)] if !analysis.has_roles() => {}
            _ => return analysis.axes.unify(a, b),
        }
        return Ok(());
    }
    let (a, b) = (analysis.axes.int(dim), analysis.axes.int(other));
    if !analysis.has_roles() && (a == b || a.as_number().is_none() || b.as_number().is_none()) {
        if dim.as_symbol().is_none() {
            *dim = other.clone();
        }
        return Ok(());
    }
    if analysis.has_roles()
        && let Some(taken) = same_length(analysis, dim, other, over)
    {
        *dim = taken;
        return Ok(());
    }
    let names = [dim, other].map(|dim| {
        analysis.axes.show(std::slice::from_ref(dim)).trim_matches(['[', ']']).to_owned()
    });
    let [a, b] = names;
    Err(format!("an axis of {a} meets one of {b}: values that vary along it are not supported"))
}
