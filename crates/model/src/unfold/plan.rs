//! The plan by which the requests of a whole ONNX file are unfolded: all that is known before a request comes.

use batchmaker_graph::{CellTypeId, RowSpec, SinkTime, TensorData};

use crate::analysis::derivation::Derived;
use crate::analysis::reach::Reach;
use crate::analysis::recurrence::SequenceLengths;
use crate::analysis::value::Domain;
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::data::symbol::{Symbol, Windows};

/// The length of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Fixed(usize),
    Batch,
    Steps(Symbol),
    /// Batch times steps, in the order of the value's rows.
    Both(Symbol),
}

/// A request tensor, or one that is derived of such.
#[derive(Clone, Debug)]
pub(crate) struct PlanInput {
    /// The tensor's name; of one that is derived, the node's.
    pub(crate) name: String,
    pub(crate) derived: Option<Derived>,
    pub(crate) axes: Vec<Extent>,
    /// The permutation that brings the axes of rows to the front; none: they are there already.
    pub(crate) permutation: Option<Vec<usize>>,
    /// Elements must be in 0..ids.
    pub(crate) ids: Option<usize>,
    /// Whether 64-bit integers must be narrow: cells compute with 32 bits, which those that are derived must fit; those that a request
    /// brings must fit 31, as one more or less must fit too.
    pub(crate) narrow: bool,
    /// The value that it becomes; none: nothing reads it.
    pub(crate) value: Option<usize>,
}

/// A matrix of rows.
#[derive(Clone, Debug)]
pub(crate) struct PlanValue {
    pub(crate) row: RowSpec,
    pub(crate) domain: Domain,
    /// Whether the rows of a step stand together, rather than those of a sequence.
    pub(crate) time_major: bool,
    /// The number of times that the domain's rows stand one after the other.
    pub(crate) slots: usize,
}

/// The rows that a cell reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanRead {
    pub(crate) value: usize,
    /// The step, where the value is over time and the reader is not.
    pub(crate) at: Option<i64>,
    pub(crate) slot: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanSink {
    pub(crate) port: usize,
    pub(crate) time: SinkTime,
    pub(crate) value: usize,
    pub(crate) slot: usize,
}

/// The rows that a chain's steps take, and their order.
#[derive(Clone, Debug)]
pub(crate) struct ChainOrder {
    /// The direction along the rows, by input port.
    pub(crate) reads: Vec<Direction>,
    /// The direction along the rows, by output port.
    pub(crate) writes: Vec<Direction>,
    pub(crate) lengths: SequenceLengths,
    /// Whether a step depends on the one before; if not, its steps are independent rows.
    pub(crate) keeps_state: bool,
}

impl ChainOrder {
    /// Whether steps go from the last row to the first.
    pub(super) fn is_backwards(&self) -> bool {
        self.reads.iter().chain(&self.writes).any(|&direction| direction == Direction::Reverse)
    }
}

/// A cell and its runs.
#[derive(Clone, Debug)]
pub(crate) struct PlanCell {
    pub(crate) cell_type: CellTypeId,
    /// The order of a chain's steps; none: the nodes are independent rows.
    pub(crate) chain: Option<ChainOrder>,
    /// Whether a node takes all steps of its inputs and gives all steps of its outputs.
    pub(crate) is_sequence_level: bool,
    pub(crate) domain: Domain,
    pub(crate) inputs: Vec<PlanRead>,
    pub(crate) initial: Vec<Option<PlanRead>>,
    pub(crate) sinks: Vec<PlanSink>,
    /// The truth value by which a sequence needs it; none if every one does.
    pub(crate) guard: Option<PlanGuard>,
}

/// The condition for a sequence to need a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanGuard {
    /// The value of truth values.
    pub(crate) condition: usize,
    pub(crate) when: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PlanOutput {
    pub(crate) name: String,
    pub(crate) value: usize,
    pub(crate) axes: Vec<Extent>,
    pub(crate) permutation: Option<Vec<usize>>,
    /// The values that its rows may be instead, each behind that of its condition. The first that is true holds.
    pub(crate) choices: Vec<(usize, usize)>,
}

impl PlanOutput {
    /// The reply tensor's axis of batch.
    pub(crate) fn batch_axis(&self) -> Option<usize> {
        let own = self.axes.iter().position(|&axis| axis == Extent::Batch)?;
        match &self.permutation {
            Some(permutation) => permutation.iter().position(|&axis| axis == own),
            None => Some(own),
        }
    }
}

/// A value whose integers a request is checked for: see [`IndexCheck`](crate::analysis::index_check::IndexCheck).
#[derive(Clone, Debug)]
pub(crate) struct PlanCheck {
    pub(crate) value: usize,
    pub(crate) low: Int,
    pub(crate) high: Int,
    /// What it means if they are not.
    pub(crate) reason: String,
    pub(crate) is_of_indices: bool,
}

/// All that is known of a file's unfolding before a request comes.
#[derive(Clone, Debug)]
pub(crate) struct UnfoldPlan {
    pub(crate) inputs: Vec<PlanInput>,
    pub(crate) values: Vec<PlanValue>,
    /// Values that every request is given: first states that the file holds.
    pub(crate) constants: Vec<(usize, TensorData)>,
    /// Values that are the lengths of axes.
    pub(crate) lengths: Vec<(usize, Symbol)>,
    pub(crate) cells: Vec<PlanCell>,
    pub(crate) outputs: Vec<PlanOutput>,
    pub(crate) checks: Vec<PlanCheck>,
    /// Sums of lengths that must not be below 0.
    pub(crate) not_negative: Vec<Int>,
    /// The number of sequences of a request, where the file fixes it.
    pub(crate) batch: Option<usize>,
    /// Axes of steps, by their symbols' ids.
    pub(crate) axes: Vec<PlanAxis>,
    /// The most rows a request may carry.
    pub(crate) max_length: usize,
    /// The windows over steps that reach from a chunk back over those before it; the reason that a sequence cannot
    /// come in chunks, if they do more than that.
    pub(crate) overlap: Result<Option<Overlap>, &'static str>,
    /// The reason that a sequence cannot come in chunks, if there is one.
    pub(crate) refuses_chunks: Option<&'static str>,
}

/// An axis of steps.
#[derive(Clone, Debug)]
pub(crate) struct PlanAxis {
    /// The length, where the file fixes it.
    pub(crate) length: Option<usize>,
    /// The fewest steps that hold every step that is read by its number.
    pub(crate) min: usize,
    /// The most that the file has constants for.
    pub(crate) max: usize,
    /// The axes whose windows it counts; more than one where such counts turned out to be equal.
    pub(crate) windows: Vec<(Symbol, Windows)>,
    /// The axes whose lengths' product it is, if it is one.
    pub(crate) factors: Vec<Symbol>,
}

/// Windows over steps that reach from a chunk of a sequence back over those before it.
#[derive(Clone, Debug)]
pub(crate) struct Overlap {
    /// The axis of the request's steps.
    pub(crate) axis: Symbol,
    /// The axis of the reply's steps, which cells after the last windows have.
    pub(crate) replied: Symbol,
    /// The reach of a step of the reply.
    pub(crate) reach: Reach,
    /// The fewest steps of which there is a step of every value.
    pub(crate) least: usize,
    /// Whether each cell computes kept steps again.
    pub(crate) is_again: Vec<bool>,
    /// Whether an output is one for all steps so far.
    pub(crate) has_totals: bool,
}
