//! The values of a graph: views of matrices of rows, constants, and the operators between them.

use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::analysis::derivation::Derived;
use crate::data::dim::{Dim, steps};
use crate::data::int::Int;
use crate::data::int_range::IntRange;
use crate::data::literal::Literal;
use crate::data::symbol::{BATCH, Symbol};

/// The axes that rows of a matrix run along: the batch, and at most one axis of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Domain {
    pub(crate) time: Option<Symbol>,
    pub(crate) batch: bool,
}

impl Domain {
    /// The domain of a tensor of dimensions `dims`; of several axes of steps it takes the first.
    pub(crate) fn of(dims: &[Dim]) -> Self {
        let batch = dims.iter().any(|dim| dim.symbols().any(|symbol| symbol == BATCH));
        Self { time: steps(dims).first().copied(), batch }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { time: self.time.or(other.time), batch: self.batch || other.batch }
    }
}

/// The part of an output port that a chain of steps gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RecurrentPort {
    /// After every step.
    Every(usize),
    /// After the last step.
    Last(usize),
}

impl RecurrentPort {
    pub(crate) fn number(self) -> usize {
        match self {
            Self::Every(port) | Self::Last(port) => port,
        }
    }

    pub(crate) fn is_every(self) -> bool {
        matches!(self, Self::Every(_))
    }
}

/// A matrix of flat rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    Input(usize),
    Recurrent(usize, RecurrentPort),
    /// An output of a row op.
    Op(usize, usize),
    /// The length of an axis, one integer.
    Length(Symbol),
}

/// A tensor that depends on the request.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) source: Source,
    /// The step chosen, where the source has rows along time and the view has not; below
    /// 0: from the end.
    pub(crate) at: Option<i64>,
    pub(crate) element: ElementType,
    pub(crate) dims: Vec<Dim>,
}

/// All that is known of an ONNX value.
#[derive(Clone, Debug)]
pub(crate) enum Val {
    Literal(Rc<Literal>),
    /// One element (a literal of one) everywhere.
    Fill(Rc<Literal>, Vec<Dim>),
    /// A constant of length 1 along those dimensions that vary, repeated along them.
    Repeat(Rc<Literal>, Vec<Dim>),
    View(View),
    /// A tensor that each sequence has for itself, along the view's first axis, the batch. ONNX has one of the view's
    /// other axes for the whole batch.
    PerSequence(View),
    List(Rc<TensorList>),
    /// Downstream of a diagnostic, which was already reported.
    Unknown,
}

impl Val {
    pub(crate) fn literal(literal: Literal) -> Self {
        Self::Literal(Rc::new(literal))
    }

    /// A literal of length 1 along those of `dims` that vary, repeated along them.
    pub(crate) fn repeated(literal: Rc<Literal>, dims: Vec<Dim>) -> Self {
        match dims.iter().any(|dim| dim.symbols().next().is_some()) {
            true => Self::Repeat(literal, dims),
            false => Self::Literal(literal),
        }
    }

    pub(crate) fn element(&self) -> Option<ElementType> {
        match self {
            Self::Literal(literal) | Self::Fill(literal, _) | Self::Repeat(literal, _) => {
                Some(literal.element())
            }
            Self::View(view) | Self::PerSequence(view) => Some(view.element),
            Self::List(_) | Self::Unknown => None,
        }
    }

    pub(crate) fn dims(&self) -> Vec<Dim> {
        match self {
            Self::Literal(literal) => literal.shape().iter().map(|&n| Dim::fixed(n)).collect(),
            Self::Fill(_, dims) | Self::Repeat(_, dims) => dims.clone(),
            Self::View(view) => view.dims.clone(),
            Self::PerSequence(view) => view.dims[1..].to_vec(),
            Self::List(_) | Self::Unknown => Vec::new(),
        }
    }
}

/// A list of tensors, which ONNX calls a sequence.
#[derive(Clone, Debug)]
pub(crate) enum TensorList {
    /// The slices of a tensor along an axis, which they keep (of length 1) or not.
    Slices {
        tensor: Val,
        axis: usize,
        keeps_axis: bool,
    },
    List(Vec<Val>),
    /// In the body of a loop, the list that the steps before left, with the tensor that this step appends.
    Grown(Option<Val>),
}

/// A reference to a value: a matrix that stands between cells, or the step of it that a cell reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ValueRef {
    pub(crate) source: Source,
    /// The step that is read, where `source` is over time and the reader is not; for an
    /// op's output, the step that alone is computed.
    pub(crate) at: Option<i64>,
}

/// An input of a row op.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    /// Rows of a source under a shape (`[rows, ...shape]`), `at` as in [`View`].
    Rows {
        source: Source,
        at: Option<i64>,
        shape: Vec<usize>,
    },
    /// A whole tensor under its dimensions.
    Tensor {
        source: Source,
        at: Option<i64>,
        dims: Vec<Dim>,
    },
    /// A constant as it is, without an axis of rows.
    Constant(Rc<Literal>),
    /// A vector of integers, some of which are lengths that come with the request.
    Lengths(Vec<Int>),
    /// The length of an axis, where no tensor has that axis. It is not an input of the operator.
    Length(Symbol),
    Absent,
}

/// The part of a request that one application of an operator takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// One row: the operator is the same function of every row of `[rows, ...]`.
    Row,
    /// All steps of a sequence, whatever the others of its batch are.
    Sequence,
    /// All of the request.
    Request,
}

/// An ONNX operator on the rows of its domain, or on whole tensors.
#[derive(Clone, Debug)]
pub(crate) struct RowOp {
    pub(crate) label: String,
    pub(crate) operator: String,
    pub(crate) attributes: Vec<AttributeProto>,
    pub(crate) operands: Vec<Operand>,
    /// The shapes of its outputs, without the axis of rows.
    pub(crate) outputs: Vec<RowSpec>,
    pub(crate) domain: Domain,
    pub(crate) scope: Scope,
    /// The dimensions of each output, for an operator on whole tensors; empty for an operator on rows.
    pub(crate) tensor_dims: Vec<Vec<Dim>>,
    /// The number of recurrent operators upstream, along the longest path.
    pub(crate) recurrence_depth: usize,
    /// The integers that its first output may hold: of 64 bits if it is derivable, else of 32.
    pub(crate) range: IntRange,
    /// Whether its output can be derived of what the request brings: see
    /// [`Derivation`](crate::analysis::derivation::Derivation).
    pub(crate) is_derivable: bool,
    /// If given, its integers are at least 0 and less than the length of that axis.
    pub(crate) counts: Option<Symbol>,
}

/// The attribute, in the analysis alone, of a product whose factors are bytes ([`batchmaker_graph::BYTE_PRODUCTS`]).
pub(crate) const OF_BYTES: &str = "of bytes";

impl RowOp {
    /// The integers of an attribute.
    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| &attribute.ints[..])
    }

    /// The integer of an attribute.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name)?.i
    }

    fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name.as_deref() == Some(name))
    }
}

/// A graph input as the analysis sees it.
#[derive(Clone, Debug)]
pub(crate) struct InputInfo {
    pub(crate) name: String,
    pub(crate) element: ElementType,
    pub(crate) dims: Vec<Dim>,
    /// The number of rows of the table that its elements index, if they index one.
    pub(crate) ids: Option<usize>,
    /// The derivation of its tensor, where no request brings it.
    pub(crate) derived: Option<Derived>,
}
