//! The body of a `Loop` or `Scan`: what it reads of the graph around it, and which of that goes along the
//! steps.

use std::collections::HashMap;

use crate::analysis::value::{Val, View};
use crate::data::direction::Direction;
use crate::data::int::Int;
use crate::data::symbol::Symbol;

/// The name of the state that is the number of the step.
pub(crate) const COUNTER: &str = "\u{1}number of the step";

/// The surroundings with which the body of a loop is analysed.
pub(crate) struct LoopBody {
    /// The values of the graph around it.
    pub(super) outer: HashMap<String, Val>,
    /// The number of steps done when a step ends, from 1.
    pub(super) iteration: Symbol,
    /// The kind of each input of the analysis.
    pub(crate) edges: Vec<BodyInput>,
    /// The state that is the number of the step, where something is computed on it.
    pub(crate) counter: Option<View>,
}

/// An input of a body.
#[derive(Clone, Debug)]
pub(crate) enum BodyInput {
    State,
    /// One step along `axis` of the tensor at each step.
    Step {
        of: View,
        axis: usize,
        direction: Direction,
    },
    /// A tensor from around the loop, the same at every step.
    Captured(View),
}

impl LoopBody {
    pub(crate) fn new(outer: HashMap<String, Val>, iteration: Symbol) -> Self {
        Self { outer, iteration, edges: Vec::new(), counter: None }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.outer.contains_key(name)
    }

    /// The number of the step, from 0.
    pub(crate) fn number(&self) -> Option<Int> {
        Int::symbol(self.iteration).minus(&Int::number(1))
    }
}

/// The outputs of a body at each step.
pub(crate) struct BodyEdges {
    /// The condition for another step; none: there always is one.
    pub(crate) going: Option<View>,
    pub(crate) next: Vec<View>,
    pub(crate) every: Vec<View>,
}
