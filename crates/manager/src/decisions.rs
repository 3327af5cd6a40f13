//! The decisions of one request, and the runs that they leave out.

use std::sync::Arc;

use batchmaker_graph::{CellGraph, DecisionIndex, RequestId, RunIndex};

use crate::event::Undecided;

/// What is known of the decisions of a request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Decisions {
    graph: Arc<CellGraph>,
    /// By [`DecisionIndex`].
    states: Vec<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The run that decides has not written the row.
    Unwritten,
    /// The row is written, and was asked for.
    AskedFor,
    Fell(bool),
    /// The run that decides is left out.
    Moot,
}

/// What a guard says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It runs.
    Needed,
    /// It is not known yet.
    Unknown,
    /// It is left out.
    LeftOut,
}

impl Decisions {
    /// Those of a request that arrives; none if its graph has none.
    pub(crate) fn of(graph: &Arc<CellGraph>) -> Option<Box<Self>> {
        let states = vec![State::Unwritten; graph.decisions().len()];
        (!states.is_empty()).then(|| Box::new(Self { graph: graph.clone(), states }))
    }

    /// The request's graph.
    pub(crate) fn into_graph(self) -> Arc<CellGraph> {
        self.graph
    }

    /// Takes note that the first `nodes` nodes of a run are complete. Returns the decisions to ask for.
    pub(crate) fn written(
        &mut self,
        request: RequestId,
        run: RunIndex,
        nodes: u32,
    ) -> Vec<Undecided> {
        let mut written = Vec::new();
        for (index, &decision) in (0..).map(DecisionIndex).zip(self.graph.decisions()) {
            let state = &mut self.states[index.index()];
            if decision.run == run && decision.nodes <= nodes && *state == State::Unwritten {
                *state = State::AskedFor;
                written.push(Undecided { request, index, decision });
            }
        }
        written
    }

    /// Takes note of a decision. Returns the runs whose guards are met, and those that are left out: also those whose own
    /// decisions are.
    pub(crate) fn fell(&mut self, decision: DecisionIndex, is_true: bool) -> Settled {
        let graph = &self.graph;
        let mut settled = Settled::default();
        let mut open = vec![(decision, State::Fell(is_true))];
        while let Some((decision, state)) = open.pop() {
            let known = &mut self.states[decision.index()];
            if !matches!(*known, State::Unwritten | State::AskedFor) {
                continue;
            }
            *known = state;
            let guarded = (0..).map(RunIndex).zip(graph.runs()).filter_map(|(index, run)| {
                let guard = run.guard.filter(|guard| guard.decision == decision)?;
                Some((index, state == State::Fell(guard.when)))
            });
            for (run, is_needed) in guarded {
                if is_needed {
                    settled.needed.push(run);
                    continue;
                }
                settled.left_out.push(run);
                let decides = (0..).map(DecisionIndex).zip(graph.decisions());
                let decides = decides.filter(|(_, decision)| decision.run == run);
                open.extend(decides.map(|(index, _)| (index, State::Moot)));
            }
        }
        settled
    }

    /// Whether a run is needed, as far as that is known.
    pub(crate) fn need(&self, run: RunIndex) -> Need {
        let Some(guard) = self.graph.runs()[run.index()].guard else { return Need::Needed };
        match self.states[guard.decision.index()] {
            State::Fell(is_true) if is_true == guard.when => Need::Needed,
            State::Fell(_) | State::Moot => Need::LeftOut,
            State::Unwritten | State::AskedFor => Need::Unknown,
        }
    }
}

/// The runs of which a decision settled whether they are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) needed: Vec<RunIndex>,
    pub(crate) left_out: Vec<RunIndex>,
}
