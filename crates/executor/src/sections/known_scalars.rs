//! Which tensors of a program are scalars: one number, or one for each row or sequence of the batch.

use std::collections::BTreeSet;

use rten_onnx::onnx::{GraphProto, NodeProto};

use crate::growth::Growth;
use crate::operator::operator;
use crate::probe::Probe;
use crate::sections::constants::Constants;
use crate::sections::element_types::Floats;

/// The tensors of floats that are scalars at all lengths: inputs of one element, reductions along all axes but the batch, and what operators
/// compute of nothing but these. Where shapes depend on no length, all whose shapes are those of scalars.
pub(super) fn scalars_of<'a>(
    graph: &'a GraphProto,
    floats: &Floats<'_>,
    constants: &Constants<'_>,
    probe: &Probe,
) -> BTreeSet<&'a str> {
    let has_lengths = probe.lengths().count() > 0;
    let has_shape = |name: &str| {
        let Some([one, two]) = probe.shapes(name).filter(|_| floats.has(name)) else {
            return false;
        };
        let growth = probe.growth(name);
        one.iter().all(|&n| n == 1)
            && growth.is_some_and(|growth| growth.dims.iter().all(Growth::is_one))
            && (one == two || probe.batch_axis(name).is_some())
    };
    let inputs = graph.input.iter().filter_map(|input| input.name.as_deref());
    let mut scalars: BTreeSet<&str> = inputs.filter(|name| has_shape(name)).collect();
    for node in &graph.node {
        let is_known = |name: &String| constants.has(name) || scalars.contains(name.as_str());
        let is_scalar = !has_lengths
            || node.input.iter().all(is_known)
            || reduces_all(node, constants, probe) == Some(true);
        let outputs = node.output.iter().map(String::as_str).filter(|_| is_scalar);
        scalars.extend(outputs.filter(|name| has_shape(name)));
    }
    scalars
}

/// Whether an operator reduces all axes but that of the batch; none if it is no reduction.
fn reduces_all(node: &NodeProto, constants: &Constants<'_>, probe: &Probe) -> Option<bool> {
    let [x, axes] = &node.input[..] else { return None };
    let shapes = probe.shapes(x).filter(|_| operator(node).starts_with("Reduce"))?;
    let rank = shapes[0].len() as i64;
    let axes = constants.ints(axes)?;
    let is_reduced = |axis: i64| axes.contains(&axis) || axes.contains(&(axis - rank));
    let batch = probe.batch_axis(x).map(|axis| axis as i64);
    Some((0..rank).all(|axis| is_reduced(axis) || Some(axis) == batch))
}
