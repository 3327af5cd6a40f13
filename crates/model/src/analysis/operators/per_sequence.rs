//! Tensors that each sequence has for itself, where ONNX has one for the whole batch: a scale that is computed of a
//! sequence's own numbers. An operator that computes element by element reads each beside the rows of its sequence.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::sequence_op::has_batch;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Val, View};
use crate::data::int::Int;
use crate::data::symbol::BATCH;

pub(crate) fn is_per_sequence(val: &Val) -> bool {
    matches!(val, Val::PerSequence(_))
}

/// The place of the batch among the axes of an operator's output, counted from 1 at the last axis, by the inputs that
/// have a batch; none if all its inputs are constants or such tensors.
pub(crate) fn place_of_batch(inputs: &Inputs) -> Result<Option<usize>, String> {
    let mut place = None;
    for val in inputs.iter().flatten().filter(|val| !is_per_sequence(val)) {
        let dims = val.dims();
        for axis in (0..dims.len()).filter(|&axis| has_batch(&dims[axis..=axis])) {
            let own = dims.len() - axis;
            if dims[axis].as_symbol() != Some(BATCH) || place.is_some_and(|other| other != own) {
                return Err("the batch is not one axis of what it reads".to_owned());
            }
            place = Some(own);
        }
    }
    Ok(place)
}

/// The shape in which such a tensor broadcasts with tensors whose batch is at `place`.
pub(crate) fn shape_at(analysis: &Analysis, view: &View, place: usize) -> Result<Vec<Int>, String> {
    let mut shape: Vec<Int> = view.dims.iter().map(|dim| analysis.axes.int(dim)).collect();
    let batch = shape.remove(0);
    match shape.len().checked_sub(place) {
        Some(at) if view.dims[at + 1].is_one() => shape[at] = batch,
        Some(_) => return Err("an axis of it meets the batch".to_owned()),
        None => {
            let ones = std::iter::repeat_n(Int::number(1), place - 1 - shape.len());
            shape = std::iter::once(batch).chain(ones).chain(shape).collect();
        }
    }
    Ok(shape)
}
