//! The order of steps turned round.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, input, uniform};
use crate::analysis::operators::composed::composer::{Composer, ints};
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::int::Int;
use crate::file::node::Node;

/// `ReverseSequence` of all steps of every sequence: a `Slice` backwards.
pub(crate) fn reverse_sequence(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (x, lengths) = (input(inputs, 0)?, input(inputs, 1)?);
    let dims = x.dims();
    let axis = axis_of(node.int("time_axis").unwrap_or(0), dims.len())?;
    let steps = analysis.axes.int(&dims[axis]);
    if one_integer(lengths).as_ref() != Some(&steps) {
        return Err("it reverses other numbers of steps than the tensor has".to_owned());
    }
    let mut to = Composer { analysis, node };
    let [from, until, axes, step] = [-1, -i64::MAX, axis as i64, -1].map(|n| ints([n]));
    to.op("Slice", &[x, &from, &until, &axes, &step]).map(|val| vec![val])
}

/// The integer that all elements of a constant are.
fn one_integer(val: &Val) -> Option<Int> {
    let (Val::Literal(literal) | Val::Fill(literal, _) | Val::Repeat(literal, _)) = val else {
        return None;
    };
    uniform(literal)?.as_ints()?.data.first().cloned()
}
