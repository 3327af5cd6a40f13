//! The first states of recurrent operators.

use crate::analysis::operators::select::take_positions;
use crate::analysis::recurrence::Initial;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::dim::Dim;
use crate::data::literal::Literal;
use crate::file::node::Node;

/// The requirements on a first state.
pub(super) struct InitialEdge<'a> {
    pub(super) name: &'a str,
    pub(super) batch: &'a Dim,
    pub(super) directions: usize,
    pub(super) hidden_size: usize,
}

/// The first state of each direction, from `[directions, batch, hidden_size]` (batch first:
/// `[batch, directions, hidden_size]`); the error is none where a diagnostic exists already.
pub(super) fn first_states(
    analysis: &mut Analysis,
    node: &Node,
    val: &Val,
    edge: &InitialEdge<'_>,
    is_batch_first: bool,
) -> Result<Vec<Initial>, Option<String>> {
    let val = match val {
        Val::List(_) | Val::Unknown => return Err(None),
        Val::Repeat(..) if is_batch_first => {
            return Err(Some(format!("its {} is a repeated constant", edge.name)));
        }
        Val::Literal(literal) if is_batch_first && literal.shape().len() == 3 => {
            Val::literal(literal.transposed(&[1, 0, 2]))
        }
        Val::View(view) if is_batch_first && view.dims.len() == 3 => {
            let mut view = view.clone();
            view.dims.swap(0, 1);
            // Only an axis of rows passes another without moving elements.
            if view.dims[1].in_row() && !view.dims[1].is_one() && !view.dims[0].is_one() {
                let name = edge.name;
                return Err(Some(format!("its {name} holds several sequences in a row")));
            }
            Val::View(view)
        }
        other => other.clone(),
    };
    let parts = match (edge.directions, &val) {
        (1, _) | (_, Val::Fill(..)) => vec![val; edge.directions],
        (count, _) => {
            let shape = analysis.axes.show(&val.dims());
            if val.dims().first().is_none_or(|dim| analysis.fixed(dim) != Some(count)) {
                let InitialEdge { name, hidden_size, .. } = edge;
                let reason = format!("its {name} is {shape}, not [{count}, batch, {hidden_size}]");
                match (!analysis.has_roles(), val.dims().first()) {
                    (true, Some(dim)) => analysis.learn(&dim.clone(), count),
                    _ => return Err(Some(reason)),
                }
                return Ok(vec![Initial::Zeros; count]);
            }
            let part = |direction| take_positions(analysis, node, &val, 0, &[direction]);
            (0..count).map(part).collect::<Result<_, _>>().map_err(Some)?
        }
    };
    parts.iter().map(|part| initial(analysis, part, edge)).collect()
}

/// A first state, `[1, batch, hidden_size]`; the error is none where a diagnostic exists already.
fn initial(
    analysis: &mut Analysis,
    val: &Val,
    edge: &InitialEdge<'_>,
) -> Result<Initial, Option<String>> {
    let InitialEdge { name, batch, hidden_size, .. } = *edge;
    let dims = val.dims();
    match val {
        Val::List(_) | Val::Unknown => return Err(None),
        Val::Fill(value, _) => {
            let x = value.as_f32().map_or(0.0, |array| array.data[0]);
            let data = Literal::F32(Array::vector(vec![x; hidden_size]));
            return Ok(if x == 0.0 { Initial::Zeros } else { Initial::Constant { rows: 1, data } });
        }
        _ => {}
    }
    let shape = analysis.axes.show(&dims);
    let misfit = || Some(format!("its {name} is {shape}, not [1, batch, {hidden_size}]"));
    let [one, own_batch, features] = &dims[..] else {
        return Err(misfit());
    };
    analysis.learn(features, hidden_size);
    if let Some(symbol) = one.as_symbol().filter(|_| !analysis.has_roles()) {
        analysis.axes.learn(symbol, 1);
    } else if !one.is_one() {
        return Err(misfit());
    }
    if analysis.fixed(features) != Some(hidden_size) {
        return Err(misfit());
    }
    match val {
        Val::Literal(literal) => {
            let Literal::F32(array) = &**literal else { return Err(misfit()) };
            let rows = array.shape[1];
            let length = batch.as_symbol().map_or(Some(1), |symbol| analysis.axes.length(symbol));
            if rows > 1 && length != Some(rows) && analysis.has_roles() {
                return Err(misfit());
            }
            if array.data.iter().all(|&x| x == 0.0) {
                return Ok(Initial::Zeros);
            }
            Ok(Initial::Constant { rows, data: Literal::clone(literal) })
        }
        Val::Repeat(literal, _) => {
            let Literal::F32(array) = &**literal else { return Err(misfit()) };
            match array.data.len() == hidden_size {
                true => Ok(Initial::Constant { rows: 1, data: Literal::clone(literal) }),
                false => Err(misfit()),
            }
        }
        Val::View(view) => {
            match (own_batch.as_symbol(), batch.as_symbol()) {
                (Some(own), Some(batch)) => analysis.axes.unify(own, batch).map_err(Some)?,
                _ if own_batch.is_one() || !analysis.has_roles() => {}
                _ => return Err(misfit()),
            }
            Ok(Initial::View(view.clone()))
        }
        _ => Err(None),
    }
}
