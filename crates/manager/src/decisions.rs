//! The decisions of one request, and the runs that they leave out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchmaker_graph::{CellGraph, DecisionIndex, RequestId, RunIndex};

use crate::event::Undecided;

/// The decisions of a request in flight, as far as they are known.
#[derive(Clone, Debug)]
pub(crate) struct Decisions {
    graph: Arc<CellGraph>,
    /// By [`DecisionIndex`].
    states: Vec<State>,
    /// The decisions of each run that decides.
    of_runs: BTreeMap<RunIndex, Vec<DecisionIndex>>,
    /// The runs whose guards name each decision.
    guarded: Vec<Vec<RunIndex>>,
    /// The runs with guards of which it is not known yet whether they are needed.
    open: BTreeSet<RunIndex>,
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

/// Whether a run with a guard is needed.
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
        let count = graph.decisions().len();
        if count == 0 {
            return None;
        }
        let mut of_runs: BTreeMap<RunIndex, Vec<DecisionIndex>> = BTreeMap::new();
        for (index, decision) in (0..).map(DecisionIndex).zip(graph.decisions()) {
            of_runs.entry(decision.run).or_default().push(index);
        }
        let (mut guarded, mut open) = (vec![Vec::new(); count], BTreeSet::new());
        for (index, run) in (0..).map(RunIndex).zip(graph.runs()) {
            if let Some(guard) = run.guard {
                guarded[guard.decision.index()].push(index);
                open.insert(index);
            }
        }
        let states = vec![State::Unwritten; count];
        Some(Box::new(Self { graph: graph.clone(), states, of_runs, guarded, open }))
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
        for &index in self.of_runs.get(&run).into_iter().flatten() {
            let decision = self.graph.decisions()[index.index()];
            let state = &mut self.states[index.index()];
            if decision.nodes <= nodes && *state == State::Unwritten {
                *state = State::AskedFor;
                written.push(Undecided { request, index, decision });
            }
        }
        written
    }

    /// Takes note of a decision. Returns the runs whose guards are met, and those that are left out: also those whose own
    /// decisions are.
    pub(crate) fn fell(&mut self, decision: DecisionIndex, is_true: bool) -> Settled {
        let mut settled = Settled::default();
        let mut open = vec![(decision, State::Fell(is_true))];
        while let Some((decision, state)) = open.pop() {
            let known = &mut self.states[decision.index()];
            if !matches!(*known, State::Unwritten | State::AskedFor) {
                continue;
            }
            *known = state;
            for &run in &self.guarded[decision.index()] {
                self.open.remove(&run);
                let guard = self.graph.runs()[run.index()].guard;
                if guard.is_some_and(|guard| state == State::Fell(guard.when)) {
                    settled.needed.push(run);
                    continue;
                }
                settled.left_out.push(run);
                let decides = self.of_runs.get(&run).into_iter().flatten();
                open.extend(decides.map(|&index| (index, State::Moot)));
            }
        }
        settled
    }

    /// The runs of which it is not known yet whether they are needed, each with the run that decides.
    pub(crate) fn open(&self) -> impl Iterator<Item = (RunIndex, RunIndex)> {
        self.open.iter().filter_map(|&run| {
            let guard = self.graph.runs()[run.index()].guard?;
            Some((run, self.graph.decisions()[guard.decision.index()].run))
        })
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
