//! A node runs after its predecessors: the node of its chain before it and those that write
//! its input rows are complete, or earlier in the same worker's queue.
//!
//! The writer of a row is looked up row by row, so that the edges of the graph are checked as well.

use std::collections::BTreeMap;

use batchmaker_graph::{CellGraph, RequestId, RunKind, SinkTime, WorkerId};

use crate::checkers::checker::Checker;
use crate::ledger::{Ledger, Request};
use crate::observation::{Nodes, Observation};

#[derive(Default)]
pub(crate) struct Predecessors {
    writers: BTreeMap<RequestId, Writers>,
}

/// For each row of each value: the run and node that writes it.
type Writers = Vec<Vec<Option<(usize, u32)>>>;

impl Checker for Predecessors {
    fn name(&self) -> &'static str {
        "predecessors"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Arrived { request, graph, .. } => {
                self.writers.insert(*request, writers(graph));
                Ok(())
            }
            Observation::Batch { worker, nodes, .. } => {
                for part in *nodes {
                    let request = ledger.requests.get(&part.request);
                    if let (Some(request), Some(writers)) =
                        (request, self.writers.get(&part.request))
                    {
                        check_nodes(request, writers, part, *worker)?;
                    }
                }
                Ok(())
            }
            Observation::Finished { finished } => {
                self.writers.remove(&finished.request);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn check_nodes(
    request: &Request,
    writers: &Writers,
    part: &Nodes,
    worker: WorkerId,
) -> Result<(), String> {
    let run = &request.graph.runs()[part.run.index()];
    for node in part.first..part.first + part.count {
        let before = (run.kind == RunKind::Chain && node > 0).then(|| (part.run.index(), node - 1));
        let initial = if node == 0 { run.initial.as_slice() } else { &[] };
        let inputs = run.inputs.iter().chain(initial.iter().flatten());
        let written = inputs.filter_map(|rows| writers[rows.value.index()][rows.row(node)]);
        for (producer, needed) in written.chain(before) {
            if !request.runs[producer].has_run_for(needed, worker) {
                return Err(format!(
                    "{:?} {:?} node {node} on {worker} before node {needed} of run{producer}",
                    part.request, part.run
                ));
            }
        }
    }
    Ok(())
}

fn writers(graph: &CellGraph) -> Writers {
    let nobody = |rows: u32| vec![None; rows as usize];
    let mut writers: Writers = graph.values().iter().map(|value| nobody(value.rows)).collect();
    for (index, run) in graph.runs().iter().enumerate() {
        for sink in &run.sinks {
            let rows = &mut writers[sink.rows.value.index()];
            match sink.time {
                SinkTime::Every => {
                    (0..run.length).for_each(|i| rows[sink.rows.row(i)] = Some((index, i)));
                }
                SinkTime::Last => rows[sink.rows.row(0)] = Some((index, run.length - 1)),
            }
        }
    }
    writers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::harness::{Harness, TWO_LAYERS, nodes};

    fn harness() -> Harness {
        let mut harness = Harness::new(Predecessors::default());
        harness.arrive(0, TWO_LAYERS);
        harness
    }

    #[test]
    fn behind_its_predecessors_a_node_may_run() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.task(0, 1, &[&[nodes(0, 1, 0)]]).unwrap();
        harness.complete(0).unwrap();
        harness.complete(0).unwrap();
        harness.task(1, 0, &[&[nodes(0, 0, 1)]]).unwrap();
    }

    #[test]
    fn completed_steps_release_nodes_on_other_workers() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)], &[nodes(0, 0, 1)], &[nodes(0, 0, 2)]]).unwrap();
        harness.progress(0, 1).unwrap();
        harness.task(1, 1, &[&[nodes(0, 1, 0)]]).unwrap();
        assert!(harness.task(1, 1, &[&[nodes(0, 1, 1)]]).is_err());
        harness.progress(0, 2).unwrap();
        harness.complete(0).unwrap();
    }

    #[test]
    fn before_the_layer_below_is_found() {
        let early = harness().task(0, 1, &[&[nodes(0, 1, 0)]]).unwrap_err();
        assert!(early.contains("before node 0 of run0"), "{early}");
    }

    #[test]
    fn in_one_batch_with_its_predecessor_is_found() {
        assert!(harness().task(0, 0, &[&[nodes(0, 0, 0), nodes(0, 1, 0)]]).is_err());
    }

    #[test]
    fn in_flight_on_another_worker_is_not_enough() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        assert!(harness.task(1, 1, &[&[nodes(0, 1, 0)]]).is_err());
    }
}
