//! The user-defined unfolding function (section 4.1 of the BatchMaker paper).

use std::ops::Range;

use crate::cell_graph::{CellGraph, Chunk};
use crate::ids::{RunIndex, ValueIndex};
use crate::tensor::Tensor;

/// A tensor of a request or a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// The name that the model declares.
    pub name: String,
    /// Shape and elements.
    pub tensor: Tensor,
}

/// Why a request cannot be unfolded; the client must change it. The text names the
/// tensor, what was expected and what came.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(pub String);

/// Why a cell graph cannot run: the unfolding function that built it is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the unfolding function built a graph that cannot run: {0}")]
pub struct InvalidGraph(pub String);

/// A request as a cell graph, with the tensors at its edge.
#[derive(Clone, Debug)]
pub struct Unfolded {
    /// The cells to run.
    pub graph: CellGraph,
    /// The elements of the graph's input values, in the order of
    /// [`CellGraph::inputs`], laid out as rows. Rows of zeros follow where one brings fewer rows
    /// than its value has.
    pub inputs: Vec<Tensor>,
    /// The tensors of the reply, each with the value that holds its elements.
    pub outputs: Vec<OutputTensor>,
    /// The values whose integers decide, once they are computed, whether the request gets its reply.
    pub checks: Vec<ValueCheck>,
}

/// A computed value whose integers must lie in a range; else the request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueCheck {
    /// The value; one of [`CellGraph::outputs`].
    pub value: ValueIndex,
    /// The least integer that it may hold.
    pub low: i64,
    /// The greatest integer that it may hold.
    pub high: i64,
    /// What is wrong otherwise, in words.
    pub reason: String,
}

/// A reply tensor and the value that holds its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTensor {
    /// The name that the model declares.
    pub name: String,
    /// The value; one of [`CellGraph::outputs`].
    pub value: ValueIndex,
    /// The rows of it that the tensor holds; none: all of them.
    pub rows: Option<Range<usize>>,
    /// The rows under their own axes, before `permutation`.
    pub shape: Vec<usize>,
    /// A chain with a stop whose nodes the rows are of, one each: the tensor holds those before the
    /// node that met the chain's stop; `shape` begins with the number of nodes, which holds if none does.
    pub until: Option<RunIndex>,
    /// The order of the axes in the reply ([`Tensor::permuted`]); none: as they are.
    pub permutation: Option<Vec<usize>>,
}

/// The parameters of a request besides its tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The most steps that an open chain may run.
    pub max_steps: Option<u32>,
    /// The number of steps that an open chain runs, whatever its output.
    pub force_steps: Option<u32>,
    /// The part of its sequence that the tensors are.
    pub chunk: Chunk,
    /// The number of steps that earlier replies had, of those that kept steps make again: see [`Unfold::keep`].
    pub answered_steps: usize,
    /// The most bytes that the records of the request's graph may take ([`CellGraph::record_bytes`]); none: any
    /// number.
    pub graph_bytes_max: Option<usize>,
}

impl Parameters {
    /// Refuses chunks, for the reason given.
    ///
    /// # Errors
    /// If the request is one.
    pub fn refuse_chunks(&self, reason: &str) -> Result<(), InvalidRequest> {
        match self.chunk {
            Chunk::Whole => Ok(()),
            _ => Err(InvalidRequest(format!("the model takes no sessions: {reason}"))),
        }
    }

    /// Refuses the parameters that only open chains take.
    ///
    /// # Errors
    /// If one is given.
    pub fn refuse_steps(&self) -> Result<(), InvalidRequest> {
        let given = [("max_steps", self.max_steps), ("force_steps", self.force_steps)];
        match given.into_iter().find(|(_, value)| value.is_some()) {
            Some((name, _)) => Err(InvalidRequest(format!(
                "parameter '{name}': the model has no decoder whose steps it could bound"
            ))),
            None => Ok(()),
        }
    }
}

/// The last steps of a session's sequence, which its next chunk needs again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptSteps {
    /// The number of a reply's steps that are made of these, and that earlier replies had.
    pub answered: usize,
    /// The last steps of each of the model's inputs that has steps.
    pub tensors: Vec<NamedTensor>,
}

/// Why a request was not unfolded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnfoldError {
    /// The request is wrong; the client must change it.
    #[error(transparent)]
    Request(#[from] InvalidRequest),
    /// The unfolding function is wrong; the model's author must change it.
    #[error(transparent)]
    Graph(#[from] InvalidGraph),
    /// The records of the graph take more than [`Parameters::graph_bytes_max`].
    #[error("the records of the request's cell graph take more than {bytes_max} bytes")]
    TooLarge {
        /// The bound, in bytes.
        bytes_max: usize,
    },
}

/// The unfolding function of a model: turns a request into a cell graph (section 4.1 of the BatchMaker
/// paper). Implementations are pure and quick: it is called once for each request, before the request is
/// admitted.
pub trait Unfold: Send + Sync {
    /// Unfolds a request. Its tensors bear the names, data types and ranks that the model declares, each
    /// name once, and stand in the declared order; optional ones may be missing. `parameters` are those
    /// that the model takes: what it does not take is refused before.
    ///
    /// # Errors
    /// [`UnfoldError::Request`] for whatever else is wrong with the request,
    /// [`UnfoldError::Graph`] where the graph cannot run, [`UnfoldError::TooLarge`] where it has too many runs. A graph that does not fit its cells is refused
    /// when the request is admitted ([`check_request`](crate::check_request)).
    fn unfold(
        &self,
        tensors: Vec<NamedTensor>,
        parameters: &Parameters,
    ) -> Result<Unfolded, UnfoldError>;

    /// The reason that a sequence cannot come in chunks; none if it can. Whoever unfolds requests refuses chunks then
    /// ([`Parameters::refuse_chunks`]).
    fn refuses_chunks(&self) -> Option<&str> {
        None
    }

    /// The steps of a session that its next chunk needs again, where windows over steps reach back to them.
    /// `tensors` are those of a chunk after the steps kept before it ([`join`](Self::join)), `answered` the reply's
    /// steps that earlier replies had, of those that these make ([`KeptSteps::answered`]).
    fn keep(&self, tensors: &[NamedTensor], answered: usize) -> KeptSteps {
        let _ = (tensors, answered);
        KeptSteps::default()
    }

    /// The tensors of a chunk, after the steps kept before it. What does not fit stays as it is, and is refused
    /// when it is unfolded.
    fn join(&self, kept: &KeptSteps, chunk: Vec<NamedTensor>) -> Vec<NamedTensor> {
        let _ = kept;
        chunk
    }

    /// The most bytes that [`keep`](Self::keep) gives.
    fn kept_bytes_max(&self) -> usize {
        0
    }
}
