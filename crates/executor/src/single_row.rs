//! What keeps a row alone at the bits that it has in a batch.
//!
//! Two of rten's operators look at the lengths of axes that the batch is among, and compute otherwise for one
//! row than for two or more:
//!
//! - `MatMul` multiplies one vector by a matrix in another order of sums (`gemv` in rten-gemm's `gemm_impl`).
//!   `[..., m, k]` times `[..., k, n]` is that if `m` is 1; but several matrices on the left of one on the right are
//!   joined into one of more rows first (`matmul_impl` in rten's `ops/matmul.rs`).
//! - `Div` by a tensor of one element multiplies by its reciprocal (`div` in rten's `ops/binary_elementwise.rs`).
//!
//! An operator that takes another path for one row or sequence than for two is *sensitive*; the shapes that [`Probe`]
//! found for one and for two show which ones are. For one row, a sensitive operator, and the operators that follow it
//! up to the next costly one, run on the row twice; all others run on it once. `single_row_branch.rs` adds these operators to the
//! graph a second time; they share the weights of the first.
//!
//! Lengths of sequences are not known when a program is loaded, and one of few steps may be multiplied by a matrix as
//! one vector where longer ones are not. So the first run of one sequence of any lengths gives the shapes of operands
//! too ([`Check`]). If an operator was sensitive after all, that run and all further ones take the sequence twice.

use std::collections::BTreeSet;

use rten_onnx::onnx::{
    DataType, GraphProto, NodeProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};

use crate::probe::{Probe, constant_dims, shape_node, shape_of};
use crate::single_row_branch::mend;

/// Operators that hold products of which this module knows nothing. The model crate writes none of them.
const UNKNOWN_PRODUCTS: &[&str] = &[
    "Attention",
    "ConvTranspose",
    "Einsum",
    "GRU",
    "Gemm",
    "LSTM",
    "MatMulInteger",
    "MatMulNBits",
];

/// Whether an operator holds products of which this module knows nothing, itself or in a graph of its own
/// (`If`, `Loop`).
fn has_unknown_products(node: &NodeProto) -> bool {
    UNKNOWN_PRODUCTS.contains(&operator(node))
        || node.attribute.iter().any(|attribute| attribute.g.is_some())
}

/// How one row or sequence is run.
pub(crate) enum Alone {
    /// As any batch is.
    Plain,
    /// Twice, as a batch of two.
    Twice,
    /// By outputs of its own.
    Mended(Mended),
}

/// Outputs for one row or sequence.
pub(crate) struct Mended {
    /// By output port.
    pub(crate) outputs: Vec<AloneOutput>,
    /// Tensors whose shapes tell, after a run, whether these outputs are right.
    pub(crate) shapes: Vec<String>,
    /// The operators whose operands they are.
    pub(crate) checks: Vec<Check>,
}

/// An output port's tensor for one row or sequence.
pub(crate) struct AloneOutput {
    pub(crate) name: String,
    /// Whether it holds the row or sequence twice.
    pub(crate) is_double: bool,
}

/// An operator that may be sensitive for some lengths, and where its operands are among the shapes.
#[derive(Clone, Debug)]
pub(crate) enum Check {
    /// A product.
    Product {
        a: usize,
        /// None: one constant matrix.
        b: Option<usize>,
    },
    /// A division.
    Divisor(usize),
}

impl Check {
    /// Whether the operator may be sensitive, if operands have these shapes.
    pub(crate) fn is_sensitive(&self, shapes: &[Vec<usize>]) -> bool {
        match *self {
            Self::Product { a, b: None } => {
                let (matrices, rows) = matrices(&shapes[a]);
                matrices * rows == 1
            }
            Self::Product { a, b: Some(b) } => {
                matrices(&shapes[a]).1 == 1 && matrices(&shapes[b]).0 == 1
            }
            Self::Divisor(divisor) => shapes[divisor].iter().product::<usize>() == 1,
        }
    }
}

/// How many matrices a tensor holds, and how many rows each has.
fn matrices(shape: &[usize]) -> (usize, usize) {
    match shape {
        [lead @ .., rows, _] => (lead.iter().product(), *rows),
        _ => (1, 1),
    }
}

/// Whether rten multiplies operands of these shapes as vectors by a matrix.
fn is_by_vectors([a, b]: [&[usize]; 2]) -> bool {
    let ((a_matrices, rows), (b_matrices, _)) = (matrices(a), matrices(b));
    let is_joined = a_matrices > 1 && b_matrices == 1;
    if is_joined { a_matrices * rows == 1 } else { rows == 1 }
}

pub(crate) fn operator(node: &NodeProto) -> &str {
    node.op_type.as_deref().unwrap_or_default()
}

/// The operands of an operator that may be sensitive.
fn operands(node: &NodeProto) -> Option<[&str; 2]> {
    match (operator(node), &node.input[..]) {
        ("MatMul" | "Div", [a, b]) => Some([a, b]),
        _ => None,
    }
}

/// Whether `node` is sensitive, by the shapes that were probed; none if it has shapes that are not known.
pub(crate) fn is_sensitive(node: &NodeProto, probe: &Probe) -> Option<bool> {
    let Some([a, b]) = operands(node) else { return Some(false) };
    let (a, b) = (probe.shapes(a)?, probe.shapes(b)?);
    let [one, two] = [0, 1].map(|count| match operator(node) {
        "Div" => b[count].iter().product::<usize>() == 1,
        _ => is_by_vectors([&a[count], &b[count]]),
    });
    Some(one != two)
}

fn constant<'a>(graph: &'a GraphProto, name: &str) -> Option<&'a rten_onnx::onnx::TensorProto> {
    graph.initializer.iter().find(|constant| constant.name.as_deref() == Some(name))
}

/// Whether a program has operators that may be sensitive.
pub(crate) fn may_be_sensitive(graph: &GraphProto) -> bool {
    let of_node = |node: &NodeProto| match (operator(node), operands(node)) {
        ("Div", Some([_, b])) => constant(graph, b).is_none(),
        ("MatMul", _) => true,
        _ => has_unknown_products(node),
    };
    graph.node.iter().any(of_node)
}

/// How to run one row or sequence of the program `graph`, into which outputs for that are written.
/// `has_lengths` tells that shapes differ from sequence to sequence; `probe` is none if the program could not be
/// probed.
pub(crate) fn plan(graph: &mut GraphProto, probe: Option<&Probe>, has_lengths: bool) -> Alone {
    if !may_be_sensitive(graph) {
        return Alone::Plain;
    }
    if graph.node.iter().any(has_unknown_products) {
        return Alone::Twice;
    }
    let mended = match probe {
        Some(probe) => mend(graph, probe),
        // Unknown lengths are checked; of unknown rows nothing is known.
        None if has_lengths => {
            let names = graph.output.iter().filter_map(|output| output.name.clone());
            let outputs = names.map(|name| AloneOutput { name, is_double: false }).collect();
            Some((outputs, graph.node.iter().filter_map(Operation::of).collect()))
        }
        None => None,
    };
    let Some((outputs, operations)) = mended else { return Alone::Twice };
    let checks = if has_lengths { checks(graph, probe, &operations) } else { BTreeSet::new() };
    let mut own = graph.output.iter().filter_map(|output| output.name.as_ref());
    if checks.is_empty() && outputs.iter().all(|output| own.next() == Some(&output.name)) {
        return Alone::Plain;
    }
    let mut shapes: Vec<String> = checks.iter().flat_map(NamedCheck::names).cloned().collect();
    shapes.sort();
    shapes.dedup();
    let place = |name: &String| shapes.binary_search(name).expect("just collected");
    let check = |check: &NamedCheck| match check {
        NamedCheck::Product(a, b) => Check::Product { a: place(a), b: b.as_ref().map(place) },
        NamedCheck::Divisor(divisor) => Check::Divisor(place(divisor)),
    };
    let checks = checks.iter().map(check).collect();
    graph.node.extend(shapes.iter().map(|name| shape_node(name)));
    graph.output.extend(shapes.iter().map(|name| info(shape_of(name), Some(DataType::INT64))));
    Alone::Mended(Mended { outputs, shapes, checks })
}

/// An operator that may be sensitive, as one row or sequence runs it on that once.
pub(crate) struct Operation {
    is_division: bool,
    /// Its operands in the file.
    operands: [String; 2],
    /// The tensors that it reads in their places.
    pub(crate) reads: [String; 2],
}

impl Operation {
    /// The operation that the file has, if `node` is one.
    pub(crate) fn of(node: &NodeProto) -> Option<Self> {
        let operands = operands(node)?.map(str::to_owned);
        let is_division = operator(node) == "Div";
        Some(Self { is_division, reads: operands.clone(), operands })
    }
}

/// [`Check`] by the names of operands.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum NamedCheck {
    Product(String, Option<String>),
    Divisor(String),
}

impl NamedCheck {
    fn names(&self) -> impl Iterator<Item = &String> {
        let (first, second) = match self {
            Self::Product(a, b) => (a, b.as_ref()),
            Self::Divisor(divisor) => (divisor, None),
        };
        [Some(first), second].into_iter().flatten()
    }
}

/// Checks of operators that are not sensitive with the lengths that were probed, and may be with others.
fn checks(
    graph: &GraphProto,
    probe: Option<&Probe>,
    operations: &[Operation],
) -> BTreeSet<NamedCheck> {
    let is_batched = |name: &str| probe.is_none_or(|probe| probe.is_batched(name));
    let lead = |name: &str| {
        let shape = &probe?.shapes(name)?[0];
        Some(&shape[..shape.len().saturating_sub(2)])
    };
    let check = |operation: &Operation| {
        let [a, b] = &operation.operands;
        let [reads_a, reads_b] = operation.reads.clone();
        match constant(graph, b) {
            _ if operation.is_division => (constant(graph, b).is_none() && is_batched(b))
                .then_some(NamedCheck::Divisor(reads_b)),
            Some(constant) => {
                let is_one = matrices(&constant_dims(constant)).0 == 1;
                (is_one && is_batched(a)).then_some(NamedCheck::Product(reads_a, None))
            }
            // Equally many matrices are equally many whatever the lengths.
            None if lead(a).is_some() && lead(a) == lead(b) => None,
            None => (is_batched(a) || is_batched(b))
                .then_some(NamedCheck::Product(reads_a, Some(reads_b))),
        }
    };
    operations.iter().filter_map(check).collect()
}

/// An output of any shape.
pub(crate) fn info(name: String, elem_type: Option<DataType>) -> ValueInfoProto {
    let tensor_type = Some(TypeProtoTensor { elem_type, shape: None });
    let r#type = Some(TypeProto { tensor_type, sequence: None });
    ValueInfoProto { name: Some(name), r#type }
}
