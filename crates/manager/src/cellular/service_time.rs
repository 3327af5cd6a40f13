//! The least time in which a request can be served, to refuse one that cannot meet its deadline.
//!
//! The bound counts what no schedule can avoid: the steps of chains, and of nodes that feed each other,
//! one after the other, each in the least time that its cell type took of late (`task_times`). It leaves out
//! what may cost nothing: waiting, row-wise nodes (one batch may hold all, and the nodes of a
//! sequence-level cell differ in size), steps after the first of a chain that may end early.

use batchmaker_graph::{CellGraph, CellTypeId, Need, RunKind};

/// The least times, in nanoseconds from the start of the request, of one run.
struct RunTimes {
    is_chain: bool,
    /// The number of its nodes; 1 for a chain that may end early.
    nodes: u64,
    step_ns: u64,
    /// When its first node can start.
    start_ns: u64,
    /// When its last node can be complete.
    end_ns: u64,
}

impl RunTimes {
    /// When its first `nodes` nodes can be complete.
    fn after_ns(&self, nodes: u64) -> u64 {
        match nodes {
            0 => 0,
            _ if nodes >= self.nodes => self.end_ns,
            _ if self.is_chain => self.start_ns.saturating_add(nodes.saturating_mul(self.step_ns)),
            _ => self.start_ns,
        }
    }
}

/// The least time, in nanoseconds, in which `graph` can be computed, where a step of a cell type takes
/// at least as long as `step_ns` says.
pub(super) fn least_service_ns(graph: &CellGraph, step_ns: impl Fn(CellTypeId) -> u64) -> u64 {
    let mut times: Vec<RunTimes> = Vec::with_capacity(graph.runs().len());
    for run in graph.runs() {
        let is_chain = run.kind == RunKind::Chain;
        let nodes = if run.stop.is_some() { 1 } else { u64::from(run.length) };
        let steps = match run.kind {
            RunKind::Chain => nodes,
            RunKind::Nodes => run.waves().count() as u64,
            RunKind::Rows => 0,
        };
        let step_ns = if steps > 0 { step_ns(run.cell_type) } else { 0 };
        let (mut start_ns, mut last_ns) = (0, 0);
        for edge in &run.edges {
            let producer = &times[edge.producer.index()];
            start_ns = start_ns.max(producer.after_ns(needed(edge.need, 0)));
            last_ns = last_ns.max(producer.after_ns(needed(edge.need, nodes - 1)));
        }
        let own_end_ns = start_ns.saturating_add(steps.saturating_mul(step_ns));
        let end_ns = own_end_ns.max(last_ns.saturating_add(step_ns));
        times.push(RunTimes { is_chain, nodes, step_ns, start_ns, end_ns });
    }
    times.iter().map(|times| times.end_ns).max().unwrap_or(0)
}

/// The number of a producer's nodes that a consumer's `node` needs.
fn needed(need: Need, node: u64) -> u64 {
    match need {
        Need::First { nodes } => u64::from(nodes),
        Need::Lockstep { offset } => (node as i64 + 1 + offset).max(0) as u64,
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, ElementType, RowSpec, Rows, Sink, SinkTime, Stop};

    use super::*;

    fn row() -> RowSpec {
        RowSpec::new(ElementType::F32, [1])
    }

    /// Layers of 10 steps, then a head on every step.
    fn stack(layers: u32) -> CellGraph {
        let mut graph = CellGraphBuilder::new();
        let mut below = graph.input(row(), 10);
        for layer in 0..=layers {
            let above = graph.value(row(), 10);
            let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(above) };
            let (cell, inputs) = (CellTypeId(layer), vec![Rows::all(below)]);
            if layer == layers {
                graph.rows(cell, 10, inputs, vec![sink]);
            } else {
                graph.chain(cell, 10, inputs, vec![None], vec![sink]);
            }
            below = above;
        }
        graph.finish().unwrap()
    }

    #[test]
    fn layers_overlap_step_by_step() {
        assert_eq!(least_service_ns(&stack(1), |_| 5), 50);
        assert_eq!(least_service_ns(&stack(2), |_| 5), 55, "the second is a step behind");
        let slow_first = |ct: CellTypeId| if ct.0 == 0 { 100 } else { 1 };
        assert_eq!(least_service_ns(&stack(2), slow_first), 1_001);
        assert_eq!(least_service_ns(&stack(2), |_| 0), 0, "nothing is known");
    }

    #[test]
    fn a_chain_that_may_end_early_counts_as_one_step() {
        let mut graph = CellGraphBuilder::new();
        let stop = Stop { port: 0, value: 1 };
        let value = graph.value(RowSpec::new(ElementType::I64, [1]), 10);
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(value) };
        graph.chain_until(CellTypeId(0), 10, Vec::new(), vec![None], vec![sink], stop);
        assert_eq!(least_service_ns(&graph.finish().unwrap(), |_| 5), 5);
    }
}
