//! Operators that depend on the number of rows: rten computes them for one row otherwise than for two or more, so that
//! bits may differ.
//!
//! Two operators look at the lengths of axes that the batch is among:
//!
//! - `MatMul` multiplies one vector by a matrix in another order of sums (`gemv` in rten-gemm's `gemm_impl`).
//!   `[..., m, k]` times `[..., k, n]` is such a product if `m` is 1; but several matrices on the left of one on the
//!   right are joined into one of more rows first (`matmul_impl` in rten's `ops/matmul.rs`).
//! - `Div` by a tensor of one element multiplies by its reciprocal (`div` in rten's `ops/binary_elementwise.rs`).
//!
//! Convolutions, transposed ones among them, are products of each image by itself.
//!
//! An operator is *sensitive* if its operands have such shapes for one row or sequence and not for two, or the other
//! way round. The shapes that [`Probe`] found for one and for two show which operators are.

use rten_onnx::onnx::{GraphProto, NodeProto, TensorProto};

use crate::operator::operator;
use crate::probe::Probe;

/// Operators that compute products which this module does not know. The model crate writes none of them.
const UNKNOWN_PRODUCTS: &[&str] =
    &["Attention", "Einsum", "GRU", "Gemm", "LSTM", "MatMulInteger", "MatMulNBits"];

/// The operands of an operator that may be sensitive; none of any other.
pub(crate) fn operands(node: &NodeProto) -> Option<[&str; 2]> {
    match (operator(node), &node.input[..]) {
        ("MatMul" | "Div", [a, b]) => Some([a, b]),
        _ => None,
    }
}

/// The constant `name` of the program, if it is one.
pub(crate) fn constant<'a>(graph: &'a GraphProto, name: &str) -> Option<&'a TensorProto> {
    graph.initializer.iter().find(|constant| constant.name.as_deref() == Some(name))
}

/// The number of matrices in a tensor of this shape, and the number of rows of each.
pub(crate) fn matrices(shape: &[usize]) -> (usize, usize) {
    match shape {
        [lead @ .., rows, _] => (lead.iter().product(), *rows),
        _ => (1, 1),
    }
}

/// Whether an operator computes products that this module does not know, itself or in a graph inside it (`If`,
/// `Loop`).
pub(crate) fn has_unknown_products(node: &NodeProto) -> bool {
    UNKNOWN_PRODUCTS.contains(&operator(node))
        || node.attribute.iter().any(|attribute| attribute.g.is_some())
}

/// Whether a program has operators that may be sensitive.
pub(crate) fn may_be_sensitive(graph: &GraphProto) -> bool {
    let is_constant = |name: &str| constant(graph, name).is_some();
    graph.node.iter().any(|node| is_suspect(node, is_constant))
}

/// Whether an operator may be sensitive.
pub(crate) fn is_suspect(node: &NodeProto, is_constant: impl Fn(&str) -> bool) -> bool {
    match (operator(node), operands(node)) {
        ("Div", Some([_, b])) => !is_constant(b),
        ("MatMul", _) => true,
        _ => has_unknown_products(node),
    }
}

/// Whether `node` is sensitive, by the shapes that were probed; none if the shape of an operand is unknown.
pub(crate) fn is_sensitive(node: &NodeProto, probe: &Probe) -> Option<bool> {
    let Some([a, b]) = operands(node) else { return Some(false) };
    let (a, b) = (probe.shapes(a)?, probe.shapes(b)?);
    let [one, two] = [0, 1].map(|count| match operator(node) {
        "Div" => b[count].iter().product::<usize>() == 1,
        _ => is_by_vectors([&a[count], &b[count]]),
    });
    Some(one != two)
}

/// Whether an operator of `graph` is sensitive at no lengths, by the shapes that were probed.
pub(crate) fn is_never_sensitive(graph: &GraphProto, node: &NodeProto, probe: &Probe) -> bool {
    let Some([a, b]) = operands(node) else { return !has_unknown_products(node) };
    let is_shared = |name| probe.shapes(name).is_some() && !probe.is_batched(name);
    match operator(node) {
        "Div" => is_shared(b) || has_many_elements(graph, b),
        _ => {
            is_shared(a) && (is_shared(b) || has_matrices(b, probe))
                || have_a_matrix_each([a, b], probe)
        }
    }
}

/// Whether a tensor is a product with a constant of several elements. Shapes of a few lengths do not tell: an axis of windows that
/// is 2 in all of them may be 1.
fn has_many_elements(graph: &GraphProto, name: &str) -> bool {
    let is_produced = |node: &&NodeProto| node.output.iter().any(|output| output == name);
    let is_many = |dims: &[i64]| dims.iter().product::<i64>() > 1;
    let producer = graph.node.iter().find(is_produced).filter(|node| operator(node) == "Mul");
    let mut inputs = producer.iter().flat_map(|node| &node.input);
    inputs.any(|input| constant(graph, input).is_some_and(|constant| is_many(&constant.dims)))
}

/// Whether a tensor holds several matrices for each row or sequence: then none on its left are joined.
fn has_matrices(name: &str, probe: &Probe) -> bool {
    let lead = probe.growth(name).and_then(|growth| growth.dims.split_last_chunk::<2>());
    let Some((lead, _)) = lead else { return false };
    let is_of_batch = probe.batch_axis(name).is_some_and(|axis| axis < lead.len());
    is_of_batch && lead.iter().any(|dim| dim.is_fixed() && !dim.is_one())
}

/// Whether the operands of a product have as many matrices each, and the batch is an axis of these: then none are joined.
fn have_a_matrix_each([a, b]: [&str; 2], probe: &Probe) -> bool {
    let lead = |name| Some(probe.growth(name)?.dims.split_last_chunk::<2>()?.0);
    let axes = [a, b].map(|name| probe.batch_axis(name));
    match (lead(a), lead(b), axes) {
        (Some(of_a), Some(of_b), [Some(axis), other]) => {
            of_a == of_b && axis < of_a.len() && other == Some(axis)
        }
        _ => false,
    }
}

/// Whether rten multiplies operands of these shapes as vectors by a matrix.
pub(crate) fn is_by_vectors([a, b]: [&[usize]; 2]) -> bool {
    let ((a_matrices, rows), (b_matrices, _)) = (matrices(a), matrices(b));
    let is_joined = a_matrices > 1 && b_matrices == 1;
    if is_joined { a_matrices * rows == 1 } else { rows == 1 }
}
