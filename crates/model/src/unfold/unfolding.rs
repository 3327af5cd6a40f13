//! An unfolder with the description of its requests and replies.

use std::sync::Arc;

use batchmaker_graph::{ElementType, Unfold};

use crate::data::layout::InputLayout;
use crate::emit::registration::ModelCell;

/// An unfolder, which turns requests into cell graphs, with the tensors that it takes and gives.
#[derive(Clone)]
pub struct Unfolding {
    /// The unfolding function.
    pub unfolder: Arc<dyn Unfold>,
    /// The tensors that it takes, in the order in which it takes them.
    pub inputs: Vec<RequestTensor>,
    /// The tensors that it gives.
    pub outputs: Vec<ReplyTensor>,
    /// The cells of its graphs, in order of computation.
    pub cells: Vec<ModelCell>,
    /// The most rows that a request may carry.
    pub max_length: usize,
    /// The parameters that the function takes; others are refused before it is called.
    pub takes: Takes,
}

/// The parameters that an unfolding function takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Bounds on the steps of an open chain.
    pub steps: bool,
    /// Chunks of a session's sequence.
    pub chunks: bool,
}

impl Takes {
    /// The function takes no parameters.
    pub const NONE: Self = Self { steps: false, chunks: false };
    /// The function takes all parameters, or refuses them itself.
    pub const ALL: Self = Self { steps: true, chunks: true };
}

/// A tensor of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTensor {
    /// Name, type and shape.
    pub info: TensorInfo,
    /// The meaning of its axes and elements.
    pub layout: InputLayout,
    /// The axis along which it holds one element a step, where it holds nothing else.
    pub step_axis: Option<usize>,
}

/// A tensor of replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyTensor {
    /// Name, type and shape.
    pub info: TensorInfo,
    /// The axis of the request's sequences, where there is one.
    pub batch_axis: Option<usize>,
}

/// A tensor of requests or replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub element: ElementType,
    /// Its axes; -1: a length that requests choose.
    pub shape: Vec<i64>,
}
