//! What goes along the steps of sequences: one direction of a recurrent operator, or a loop.

use batchmaker_graph::{Cell, ElementType, Lookup, RowSpec};

use crate::analysis::recurrent::OperatorStep;
use crate::analysis::{Domain, RecurrentPort, View};
use crate::data::direction::Direction;
use crate::data::literal::Literal;
use crate::data::named_cell::NamedCell;

/// A chain of steps for every sequence.
pub(crate) struct Recurrent {
    pub(crate) label: String,
    pub(crate) step: Step,
    /// What a step reads beside its states, by input port, and which way that goes along the rows.
    pub(crate) inputs: Vec<(View, Direction)>,
    /// By output port, which way the rows are written.
    pub(crate) directions: Vec<Direction>,
    pub(crate) lengths: SequenceLengths,
    /// Of each state.
    pub(crate) initial: Vec<Initial>,
    pub(crate) domain: Domain,
    /// The number of recurrent operators upstream, along the longest path.
    pub(crate) level: usize,
}

/// What every step does.
pub(crate) enum Step {
    /// The only input is x.
    Operator(OperatorStep),
    /// The body of a loop, whose first outputs are its states.
    Body(NamedCell),
}

/// How many steps each sequence has: input `sequence_lens`. What a chain does not reach is zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SequenceLengths {
    /// As many as there are.
    All,
    /// Those of each sequence, or (one number) of all.
    Constant(Vec<usize>),
    /// What the request says, `[batch]`, in that input.
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

    /// The cell of its steps, what that is (for people), and whether a fused kernel runs it.
    pub(crate) fn cell(&self, lookup: Option<Lookup>) -> (Cell, String, bool) {
        match &self.step {
            Step::Operator(step) => {
                let (cell, why) = step.cell(self.directions[0], lookup);
                (cell, why, step.rule.is_none())
            }
            Step::Body(named) => {
                let why = format!("a loop over the steps of each sequence, {}", named.why);
                (named.cell.clone(), why, named.fused)
            }
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

    /// Views of what it reads.
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
