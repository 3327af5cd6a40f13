//! No request is refused that could meet its deadline: not even alone on an idle device would its nodes
//! be computed in time.

use batchmaker_graph::{CellGraph, Need, RunKind};
use batchmaker_manager::Outcome;
use batchmaker_simulated::CellCost;

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct Refusals {
    costs: Vec<CellCost>,
}

impl Refusals {
    pub(crate) fn new(costs: &[CellCost]) -> Self {
        Self { costs: costs.to_vec() }
    }

    /// The least time, in nanoseconds, in which the nodes of `graph` are computed, node by node.
    fn least_ns(&self, graph: &CellGraph) -> u64 {
        let mut ends_ns: Vec<Vec<u64>> = Vec::new();
        for run in graph.runs() {
            let CellCost { fixed_ns, row_ns } = self.costs[run.cell_type.index()];
            // A chain that may end early may have one node.
            let length = if run.stop.is_some() { 1 } else { run.length as usize };
            let mut ends: Vec<u64> = Vec::with_capacity(length);
            for node in 0..length {
                let own = match run.kind {
                    RunKind::Chain => node,
                    RunKind::Rows => 0,
                    RunKind::Nodes => run.precedence[node] as usize,
                };
                let others = run.edges.iter().map(|edge| {
                    let needed = match edge.need {
                        Need::First { nodes } => nodes as usize,
                        Need::Lockstep { offset } => (node as i64 + 1 + offset).max(0) as usize,
                    };
                    let producer = &ends_ns[edge.producer.index()];
                    &producer[..needed.min(producer.len())]
                });
                let start_ns = others.chain([&ends[..own]]).flatten().max();
                ends.push(start_ns.map_or(0, |&ns| ns) + fixed_ns + row_ns);
            }
            ends_ns.push(ends);
        }
        ends_ns.into_iter().flatten().max().unwrap_or(0)
    }
}

impl Checker for Refusals {
    fn name(&self) -> &'static str {
        "refusals"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        let Observation::Finished { finished } = seen else { return Ok(()) };
        let request = ledger.requests.get(&finished.request);
        let Some(request) = request.filter(|_| finished.outcome == Outcome::Unmeetable) else {
            return Ok(());
        };
        let least_ns = self.least_ns(&request.graph);
        let (now_ns, deadline_ns) = (ledger.now_ns, request.deadline_ns);
        if deadline_ns.is_none_or(|deadline_ns| now_ns + least_ns <= deadline_ns) {
            return Err(format!(
                "{finished:?} takes {least_ns} ns at least, until {deadline_ns:?}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::harness::{Harness, TWO_LAYERS};

    #[test]
    fn refusing_what_could_be_met_is_found() {
        // Three steps, and one of the second layer after the last: 44 ns.
        let costs = [CellCost { fixed_ns: 10, row_ns: 1 }; 2];
        for (deadline_ns, is_good) in [(43, true), (44, false)] {
            let mut harness = Harness::new(Refusals::new(&costs));
            harness.arrive_until(0, TWO_LAYERS, deadline_ns);
            assert_eq!(harness.finish(0, Outcome::Unmeetable).is_ok(), is_good);
        }
    }
}
