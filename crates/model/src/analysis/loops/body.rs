//! Checks and clean-ups of the analysed body of a `Loop` or `Scan`, before it becomes a cell.

use crate::analysis::ids::limit_ids;
use crate::analysis::loop_body::BodyInput;
use crate::analysis::recurrence::Recurrent;
use crate::analysis::references::uses;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source};
use crate::data::dim::{Dim, steps};
use crate::data::symbol::{BATCH, Symbol};

/// Drops inputs that a body does not use: tensors of which it reads steps alone.
pub(crate) fn drop_unread(nested: &mut Analysis) {
    let count = nested.inputs.len();
    let is_state = |edge: &BodyInput| matches!(edge, BodyInput::State);
    let states: Vec<bool> = nested.body.iter().flat_map(|body| &body.edges).map(is_state).collect();
    let is_kept = |index: usize| states[index] || uses(nested, Source::Input(index)) > 0;
    let kept: Vec<bool> = (0..count).map(is_kept).collect();
    let place = |source: &mut Source| {
        if let Source::Input(index) = source {
            *index = kept[..*index].iter().filter(|&&kept| kept).count();
        }
    };
    for operand in nested.ops.iter_mut().flat_map(|op| &mut op.operands) {
        if let Operand::Rows { source, .. } | Operand::Tensor { source, .. } = operand {
            place(source);
        }
    }
    nested.recurrents.iter_mut().flat_map(Recurrent::views_mut).for_each(|v| place(&mut v.source));
    nested.outputs.iter_mut().for_each(|(_, view)| place(&mut view.source));
    let mut flags = kept.iter();
    nested.inputs.retain(|_| flags.next() == Some(&true));
    if let Some(body) = &mut nested.body {
        let mut flags = kept.iter();
        body.edges.retain(|_| flags.next() == Some(&true));
    }
}

/// Finds the batch, where it is not known yet: the axis that states and steps share, else the first open one.
pub(crate) fn find_batch(analysis: &mut Analysis, states: &[Vec<Dim>], slices: &[Vec<Dim>]) {
    let symbols = |lists: &[Vec<Dim>]| -> Vec<Symbol> {
        let all = lists.iter().flatten().filter_map(Dim::as_symbol);
        all.map(|symbol| analysis.axes.find(symbol)).collect()
    };
    let (of_states, of_slices) = (symbols(states), symbols(slices));
    if of_states.iter().chain(&of_slices).any(|&symbol| symbol == BATCH) {
        return;
    }
    let is_open = |symbol: &&Symbol| {
        !analysis.axes.is_time(**symbol) && analysis.axes.length(**symbol).is_none()
    };
    let both = of_slices.iter().filter(is_open).find(|symbol| of_states.contains(symbol));
    let either = || of_slices.iter().chain(&of_states).find(is_open);
    if let Some(&batch) = both.or_else(either) {
        // They differ: neither is time.
        let _ = analysis.axes.unify(batch, BATCH);
    }
}

/// Checks that every value which a body reads of the graph around it is available row by row.
pub(crate) fn check_edges(
    outer: &mut Analysis,
    nested: &Analysis,
    is_read: impl Fn(usize) -> bool,
) -> Result<(), String> {
    let edges = nested.body.as_ref().map_or(&[][..], |body| &body.edges);
    for (index, edge) in edges.iter().enumerate() {
        let ids = nested.inputs[index].ids;
        match edge {
            BodyInput::State => {}
            BodyInput::Step { of, .. } => {
                if let Some(rows) = ids {
                    limit_ids(outer, of, rows)?;
                }
            }
            BodyInput::Captured(view) if is_read(index) => {
                if !steps(&view.dims).is_empty() {
                    let shape = nested.axes.show(&view.dims);
                    let name = &nested.inputs[index].name;
                    return Err(format!("each of its steps reads all of `{name}`, {shape}"));
                }
                if let Some(rows) = ids {
                    limit_ids(outer, view, rows)?;
                }
            }
            BodyInput::Captured(_) => {}
        }
    }
    Ok(())
}
