//! Stacks of layers: tensors `[layers, batch, hidden]` of first or last states.
//!
//! PyTorch joins the last states of its layers into one tensor and splits the first
//! ones. As rows, a stack is the layers' rows one after the other, so that each layer
//! writes (or reads) its own and nothing need be computed.

use std::collections::BTreeMap;

use crate::analysis::recurrence::Initial;
use crate::analysis::references::uses;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RecurrentPort, Source, View};
use crate::data::dim::Dim;
use crate::data::symbol::BATCH;

/// The stacks of a file, which are read and written layer by layer.
#[derive(Default)]
pub(crate) struct Stacks {
    /// For an output: the recurrent operator and port of each layer.
    pub(crate) outputs: BTreeMap<usize, Vec<(usize, RecurrentPort)>>,
    /// For a first state (recurrent operator; 0: h, 1: c): the input and the layer.
    pub(crate) initial: BTreeMap<(usize, usize), (usize, usize)>,
    /// The layers of inputs that are stacks.
    pub(crate) inputs: BTreeMap<usize, usize>,
}

pub(crate) fn find(analysis: &Analysis) -> Stacks {
    let mut stacks = Stacks::default();
    for (index, (_, view)) in analysis.outputs.iter().enumerate() {
        if let Some(layers) = stacked_output(analysis, view) {
            stacks.outputs.insert(index, layers);
        }
    }
    let mut found = BTreeMap::new();
    for (index, recurrent) in analysis.recurrents.iter().enumerate() {
        for (state, initial) in recurrent.initial.iter().enumerate() {
            if let Initial::View(view) = initial
                && let Some(layer) = stacked_initial(analysis, view)
            {
                found.insert((index, state), layer);
            }
        }
    }
    for input in 0..analysis.inputs.len() {
        let layers = found.values().filter(|(from, _)| *from == input).count();
        if layers > 0 && layers == uses(analysis, Source::Input(input)) {
            stacks.inputs.insert(input, analysis.inputs[input].dims[0].fixed_part());
        }
    }
    found.retain(|_, (input, _)| stacks.inputs.contains_key(input));
    stacks.initial = found;
    stacks
}

/// `[layers, batch, hidden]` with batch in rows, or 1.
fn is_stack(dims: &[Dim]) -> bool {
    let plain = |dim: &Dim| dim.symbols().next().is_none();
    matches!(dims, [layers, batch, hidden_size] if plain(layers) && plain(hidden_size)
        && (batch.is_one() || batch.as_symbol() == Some(BATCH)))
}

fn stacked_output(analysis: &Analysis, view: &View) -> Option<Vec<(usize, RecurrentPort)>> {
    let Source::Op(op, 0) = view.source else { return None };
    let op = &analysis.ops[op];
    let along_first = op.attributes.iter().any(|a| a.i == Some(1));
    if op.operator != "Concat" || !along_first || !is_stack(&view.dims) || view.at.is_some() {
        return None;
    }
    if op.outputs[0].shape.first() != Some(&view.dims[0].fixed_part()) {
        return None;
    }
    let hidden_size = view.dims[2].fixed_part();
    let layer = |operand: &Operand| match operand {
        Operand::Rows { source: Source::Recurrent(index, port), at: None, .. }
            if !port.is_every()
                && analysis.recurrents[*index].row(*port).elements() == hidden_size =>
        {
            Some((*index, *port))
        }
        _ => None,
    };
    let layers: Option<Vec<_>> = op.operands.iter().map(layer).collect();
    layers.filter(|layers| layers.len() == view.dims[0].fixed_part())
}

/// The input and the layer of it that a first state is.
fn stacked_initial(analysis: &Analysis, view: &View) -> Option<(usize, usize)> {
    let Source::Op(index, 0) = view.source else { return None };
    let op = &analysis.ops[index];
    let Operand::Rows { source: Source::Input(input), at: None, .. } = op.operands.first()? else {
        return None;
    };
    if uses(analysis, view.source) != 1 || !is_stack(&analysis.inputs[*input].dims) {
        return None;
    }
    let numbers = |operand: Option<&Operand>| match operand {
        Some(Operand::Constant(literal)) => literal.as_numbers(),
        _ => None,
    };
    let layer = match (op.operator.as_str(), numbers(op.operands.get(1))?[..].first()) {
        ("Slice", Some(&start)) => {
            let one = numbers(op.operands.get(2))? == [start + 1];
            (one && numbers(op.operands.get(3))? == [1]).then_some(start)
        }
        ("Gather", Some(&layer)) => op.attributes.iter().any(|a| a.i == Some(1)).then_some(layer),
        _ => None,
    };
    Some((*input, usize::try_from(layer?).ok()?))
}
