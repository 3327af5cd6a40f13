//! The weights, peepholes and lengths that a recurrent operator is given.

use std::sync::Arc;

use crate::analysis::ids::origin;
use crate::analysis::operator::Inputs;
use crate::analysis::recurrence::SequenceLengths;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Source, Val};
use crate::data::dim::Dim;
use crate::data::int::Int;
use crate::file::node::Node;

/// Reads input `sequence_lens`, `[batch]`; the error is none where a diagnostic exists already.
pub(super) fn lengths(
    analysis: &mut Analysis,
    val: &Val,
    (batch, time): (&Dim, &Dim),
) -> Result<SequenceLengths, Option<String>> {
    let of_numbers = |numbers: Option<Vec<i64>>| {
        let lengths: Option<Vec<usize>> =
            numbers?.into_iter().map(|n| usize::try_from(n).ok()).collect();
        lengths.map(SequenceLengths::Constant)
    };
    let misfit = || Some("its sequence_lens are no lengths".to_owned());
    let all = analysis.axes.int(time);
    let is_time = |int: &Int| *int == all;
    match val {
        Val::List(_) | Val::Unknown => Err(None),
        Val::Repeat(..) | Val::PerSequence(_) => Err(misfit()),
        Val::Fill(value, _) => {
            let ints = value.as_ints().ok_or_else(misfit)?;
            match ints.data.iter().all(is_time) {
                true => Ok(SequenceLengths::All),
                false => of_numbers(value.as_numbers()).ok_or_else(misfit),
            }
        }
        Val::Literal(literal) => {
            let length = batch.as_symbol().map_or(Some(1), |symbol| analysis.axes.length(symbol));
            let ints = literal.as_ints().ok_or_else(misfit)?;
            match ints.data.iter().all(is_time) {
                true => Ok(SequenceLengths::All),
                _ if Some(ints.data.len()) != length && analysis.has_roles() => {
                    let count = ints.data.len();
                    Err(Some(format!("its sequence_lens are of {count} sequences")))
                }
                false => of_numbers(literal.as_numbers()).ok_or_else(misfit),
            }
        }
        Val::View(view) => {
            let Source::Input(input) = origin(analysis, view.source) else {
                let reason = "its sequence_lens are computed: known too late to unfold a request";
                return Err(Some(reason.to_owned()));
            };
            if analysis.inputs[input].element.is_narrow()
                || !analysis.inputs[input].element.is_integer()
            {
                return Err(misfit());
            }
            match (&view.dims[..], batch.as_symbol()) {
                ([own], Some(batch)) if own.as_symbol().is_some() => {
                    let own = own.as_symbol().unwrap_or(batch);
                    analysis.axes.unify(own, batch).map_err(Some)?;
                }
                ([own], _) if own.is_one() || !analysis.has_roles() => {}
                _ => return Err(misfit()),
            }
            Ok(SequenceLengths::Input(input))
        }
    }
}

/// Reads input P of an LSTM, `[directions, 3 * hidden_size]`.
pub(super) fn peepholes(
    p: Option<&Val>,
    directions: usize,
    hidden_size: usize,
) -> Result<Option<Arc<[f32]>>, String> {
    let Some(p) = p else { return Ok(None) };
    let Val::Literal(literal) = p else { return Err("its P is not constant".to_owned()) };
    let p = literal.as_f32().ok_or("its P is not FLOAT")?;
    if p.shape != [directions, 3 * hidden_size] {
        return Err(format!("P of {:?}, not [{directions}, {}]", p.shape, 3 * hidden_size));
    }
    Ok(p.data.iter().any(|&x| x != 0.0).then(|| Arc::from(&p.data[..])))
}

pub(super) type Weights = ([Arc<[f32]>; 2], Option<Arc<[f32]>>);

/// The weights and the sizes of x and h.
pub(super) fn weights(
    node: &Node,
    inputs: &Inputs,
    directions: usize,
    gates: usize,
) -> Result<(Weights, Option<[usize; 2]>), String> {
    let constant = |index: usize, name: &str| match inputs.get(index).and_then(Option::as_ref) {
        Some(Val::Literal(literal)) => {
            literal.as_f32().map(Some).ok_or_else(|| format!("its {name} is not FLOAT"))
        }
        Some(_) => Err(format!("its {name} is not constant")),
        None => Ok(None),
    };
    let w = constant(1, "W")?.ok_or("its W is missing")?;
    let r = constant(2, "R")?.ok_or("its R is missing")?;
    let b = constant(3, "B")?;
    let (&[_, _, input], &[_, _, hidden_size]) = (&w.shape[..], &r.shape[..]) else {
        return Err(format!("W of {:?} and R of {:?}", w.shape, r.shape));
    };
    let fits = w.shape == [directions, gates * hidden_size, input]
        && r.shape == [directions, gates * hidden_size, hidden_size]
        && b.is_none_or(|b| b.shape == [directions, 2 * gates * hidden_size])
        && node.int("hidden_size").is_none_or(|size| size == hidden_size as i64)
        && input > 0
        && hidden_size > 0;
    if !fits {
        let b = b.map(|b| &b.shape[..]);
        return Err(format!("W of {:?}, R of {:?} and B of {b:?} do not fit", w.shape, r.shape));
    }
    let b = b.map(|b| Arc::from(&b.data[..])).filter(|b: &Arc<[f32]>| b.iter().any(|&x| x != 0.0));
    let matrices = [Arc::from(&w.data[..]), Arc::from(&r.data[..])];
    Ok(((matrices, b), Some([input, hidden_size])))
}
