//! Chains along the steps of sequences: one direction of a recurrent operator, or a loop.

use std::sync::Arc;

use batchmaker_graph::{ElementType, RecurrentKind, RowSpec};

use crate::analysis::step_rule::StepRule;
use crate::analysis::value::{Domain, RecurrentPort, View};
use crate::data::direction::Direction;
use crate::data::literal::Literal;
use crate::data::named_cell::NamedCell;

/// A chain of steps for every sequence.
pub(crate) struct Recurrent {
    pub(crate) label: String,
    pub(crate) step: Step,
    /// The inputs of a step other than its states, by input port, each with its direction along the rows.
    pub(crate) inputs: Vec<(View, Direction)>,
    /// The direction in which rows are written, by output port.
    pub(crate) directions: Vec<Direction>,
    pub(crate) lengths: SequenceLengths,
    /// The first value of each state.
    pub(crate) initial: Vec<Initial>,
    pub(crate) domain: Domain,
    /// The number of recurrent operators upstream, along the longest path.
    pub(crate) recurrence_depth: usize,
}

/// A step of one direction of a recurrent operator.
pub(crate) struct OperatorStep {
    pub(crate) kind: RecurrentKind,
    /// The departures of the step from the fused kernels; none: a fused kernel does it.
    pub(crate) rule: Option<StepRule>,
    pub(crate) input_size: usize,
    pub(crate) hidden_size: usize,
    /// `[gates * hidden_size, input_size]`.
    pub(crate) w: Arc<[f32]>,
    /// `[gates * hidden_size, hidden_size]`.
    pub(crate) r: Arc<[f32]>,
    /// `[2 * gates * hidden_size]`.
    pub(crate) b: Option<Arc<[f32]>>,
    /// Whether h is made 256 whole numbers, between its least and its greatest element, before the step: where R is no bytes,
    /// which a kernel would multiply with such an h itself.
    pub(crate) quantises_h: bool,
}

impl OperatorStep {
    /// The operator's name.
    pub(crate) fn operator(&self) -> &'static str {
        operator_name(&self.kind)
    }

    /// The outputs that are states after the last step, in the order of states.
    pub(crate) fn last_states(&self) -> &'static [RecurrentPort] {
        &[RecurrentPort::Last(0), RecurrentPort::Last(1)][..self.kind.states()]
    }
}

/// The name of the operator whose step it is.
pub(crate) fn operator_name(kind: &RecurrentKind) -> &'static str {
    match kind {
        RecurrentKind::Lstm { .. } => "LSTM",
        RecurrentKind::Gru { .. } => "GRU",
        RecurrentKind::Rnn { .. } => "RNN",
    }
}

/// The computation of one step.
pub(crate) enum Step {
    /// The only input is x.
    Operator(OperatorStep),
    /// The body of a loop, whose first outputs are its states.
    Body(NamedCell),
}

/// The number of steps of each sequence: input `sequence_lens`. Rows that a chain does not reach are zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SequenceLengths {
    /// Every sequence has all steps that there are.
    All,
    /// The length of each sequence, or one length for all.
    Constant(Vec<usize>),
    /// The lengths are in the input of this index, `[batch]`.
    Input(usize),
}

/// A first state.
#[derive(Clone, Debug)]
pub(crate) enum Initial {
    Zeros,
    /// One row for all sequences, or (`rows` > 1) one for each.
    Constant {
        rows: usize,
        data: Literal,
    },
    View(View),
}

impl Recurrent {
    /// The step, where it is a recurrent operator's.
    pub(crate) fn operator(&self) -> Option<&OperatorStep> {
        match &self.step {
            Step::Operator(step) => Some(step),
            Step::Body(_) => None,
        }
    }

    /// Whether a step depends on the one before.
    pub(crate) fn keeps_state(&self) -> bool {
        match &self.step {
            Step::Operator(_) => true,
            Step::Body(named) => !named.cell.states.is_empty(),
        }
    }

    /// A row of an output, flat.
    pub(crate) fn row(&self, port: RecurrentPort) -> RowSpec {
        match &self.step {
            Step::Operator(step) => RowSpec::flat(ElementType::F32, step.hidden_size),
            Step::Body(named) => named.cell.outputs[port.number()].clone(),
        }
    }

    /// The step (below 0: from the end) of what an output port writes that a chain comes to last,
    /// whatever the sequence.
    pub(crate) fn last_step(&self, port: usize) -> Option<i64> {
        if !self.keeps_state() {
            return None;
        }
        match (self.directions[port], &self.lengths) {
            (Direction::Forward, SequenceLengths::All) => Some(-1),
            (Direction::Reverse, SequenceLengths::All) => Some(0),
            _ => None,
        }
    }

    /// The views that it reads.
    pub(crate) fn views(&self) -> impl Iterator<Item = &View> {
        let states = self.initial.iter().filter_map(|initial| match initial {
            Initial::View(view) => Some(view),
            _ => None,
        });
        self.inputs.iter().map(|(view, _)| view).chain(states)
    }

    pub(crate) fn views_mut(&mut self) -> impl Iterator<Item = &mut View> {
        let states = self.initial.iter_mut().filter_map(|initial| match initial {
            Initial::View(view) => Some(view),
            _ => None,
        });
        self.inputs.iter_mut().map(|(view, _)| view).chain(states)
    }
}
