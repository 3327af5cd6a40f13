//! Checks of operands' shapes during a run.
//!
//! Lengths of sequences are not known when a program is loaded, and a sequence of few steps may be multiplied by a
//! matrix as one vector where longer ones are not. So the first run of a single sequence with new lengths also gives
//! the shapes of the operands that [`ShapeCheck`] names.

use std::collections::BTreeSet;

use rten_onnx::onnx::{GraphProto, NodeProto};

use crate::operator::operator;
use crate::probe::{Probe, constant_dims};
use crate::row_count::{constant, matrices, operands};

/// An operator that may be sensitive to the number of rows for some lengths of sequences. Its operands are given by
/// their positions in a list of shapes.
#[derive(Clone, Debug)]
pub(crate) enum ShapeCheck {
    /// A product.
    Product {
        a: usize,
        /// None: one constant matrix.
        b: Option<usize>,
    },
    /// A division by the tensor at this position.
    Divisor(usize),
}

impl ShapeCheck {
    /// Whether the operator may be sensitive if operands have these shapes.
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

/// An operator that may be sensitive, and that takes a single row or sequence once.
pub(crate) struct Operation {
    is_division: bool,
    /// Its operands in the file.
    operands: [String; 2],
    /// The tensors that it reads in their places for a single row or sequence.
    pub(crate) reads: [String; 2],
}

impl Operation {
    /// The operation of `node` as the file has it; none if `node` cannot be sensitive.
    pub(crate) fn of(node: &NodeProto) -> Option<Self> {
        let operands = operands(node)?.map(str::to_owned);
        let is_division = operator(node) == "Div";
        Some(Self { is_division, reads: operands.clone(), operands })
    }
}

/// The checks of `operations`, which are not sensitive with the lengths that were probed and may be with others. Gives
/// the names of the tensors whose shapes are needed, and the checks, by positions among these names.
pub(crate) fn shape_checks(
    graph: &GraphProto,
    probe: Option<&Probe>,
    operations: &[Operation],
) -> (Vec<String>, Vec<ShapeCheck>) {
    let checks = named_checks(graph, probe, operations);
    let names: BTreeSet<&String> = checks.iter().flat_map(NamedCheck::names).collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    let position = |name: &String| names.binary_search(name).expect("just collected");
    let check = |check: &NamedCheck| match check {
        NamedCheck::Product(a, b) => {
            ShapeCheck::Product { a: position(a), b: b.as_ref().map(position) }
        }
        NamedCheck::Divisor(divisor) => ShapeCheck::Divisor(position(divisor)),
    };
    let checks = checks.iter().map(check).collect();
    (names, checks)
}

/// [`ShapeCheck`] by the names of operands.
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

fn named_checks(
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
