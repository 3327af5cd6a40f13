//! A closed batch of cell graphs merged node by node, as TensorFlow Fold and DyNet do (section 7.5
//! of the paper): nodes of one cell type that have equally many nodes before them on their longest
//! path run together, whatever graph they are of.

use std::collections::BTreeMap;
use std::ops::Range;

use batchmaker_graph::{CellGraph, CellTypeId, Need, RequestId, Run, RunIndex, RunKind};

/// Consecutive nodes of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nodes {
    pub(super) request: RequestId,
    pub(super) run: RunIndex,
    pub(super) kind: RunKind,
    pub(super) nodes: Range<u32>,
}

/// The nodes of `members`, by depth and cell type, producers before consumers.
pub(super) fn merged<'a>(
    members: impl Iterator<Item = (RequestId, &'a CellGraph)>,
) -> Vec<(CellTypeId, Vec<Nodes>)> {
    let mut levels: BTreeMap<(u32, CellTypeId), Vec<Nodes>> = BTreeMap::new();
    for (request, graph) in members {
        for (run, (depths, index)) in graph.runs().iter().zip(depths(graph).iter().zip(0..)) {
            let mut first = 0;
            for equal in depths.chunk_by(|a, b| a == b) {
                let nodes = first..first + equal.len() as u32;
                first = nodes.end;
                let level = levels.entry((equal[0], run.cell_type)).or_default();
                level.push(Nodes { request, run: RunIndex(index), kind: run.kind, nodes });
            }
        }
    }
    levels.into_iter().map(|((_, cell_type), nodes)| (cell_type, nodes)).collect()
}

/// For each node of each run, the number of nodes on the longest path to it. The number never falls
/// within a run.
fn depths(graph: &CellGraph) -> Vec<Vec<u32>> {
    let mut depths: Vec<Vec<u32>> = Vec::with_capacity(graph.runs().len());
    for run in graph.runs() {
        let mut of_run: Vec<u32> = Vec::with_capacity(run.length as usize);
        for node in 0..run.length {
            let own = before(run, node).map(|before| of_run[before as usize]);
            let others = run.edges.iter().filter_map(|edge| {
                let producer = &depths[edge.producer.index()];
                let needed = match edge.need {
                    Need::First { nodes } => i64::from(nodes),
                    Need::Lockstep { offset } => i64::from(node) + 1 + offset,
                };
                let last = usize::try_from(needed - 1).ok()?;
                Some(producer[last.min(producer.len() - 1)])
            });
            let deepest = own.into_iter().chain(others).max();
            let depth = deepest.map_or(0, |depth| depth + 1);
            // A node of a run is not waited for less than those before it.
            of_run.push(depth.max(of_run.last().copied().unwrap_or(0)));
        }
        depths.push(of_run);
    }
    depths
}

/// The last node of its own run that a node needs.
fn before(run: &Run, node: u32) -> Option<u32> {
    match run.kind {
        RunKind::Chain => node.checked_sub(1),
        RunKind::Rows => None,
        RunKind::Nodes => run.precedence[node as usize].checked_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{CellGraphBuilder, ElementType, RowSpec, Rows, Sink, SinkTime};

    use super::*;

    /// Leaves of type 0 and left-branching inner nodes of type 1.
    fn left_branching(leaves: u32) -> CellGraph {
        let row = || RowSpec::new(ElementType::F32, [1]);
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(row(), leaves);
        let h = graph.value(row(), 2 * leaves - 1);
        let every = |rows| vec![Sink { port: 0, time: SinkTime::Every, rows }];
        graph.rows(CellTypeId(0), leaves, vec![Rows::all(x)], every(Rows::all(h)));
        let left = (0..leaves - 1).map(|node| if node == 0 { 0 } else { leaves + node - 1 });
        let reads = vec![Rows::listed(h, left.collect::<Vec<_>>()), Rows::strided(h, 1, 1)];
        graph.nodes(CellTypeId(1), leaves - 1, reads, every(Rows::strided(h, leaves, 1)));
        graph.finish().unwrap()
    }

    #[test]
    fn graphs_share_their_levels() {
        let graphs = [left_branching(4), left_branching(3)];
        let request = |index| RequestId { index, generation: 0 };
        let levels = merged((0..).zip(&graphs).map(|(index, graph)| (request(index), graph)));
        let counts = levels.iter().map(|(cell_type, nodes)| {
            let nodes = nodes.iter().map(|nodes| (nodes.request.index, nodes.nodes.clone()));
            (cell_type.0, nodes.collect::<Vec<_>>())
        });
        let expected = [
            (0, vec![(0, 0..4), (1, 0..3)]),
            (1, vec![(0, 0..1), (1, 0..1)]),
            (1, vec![(0, 1..2), (1, 1..2)]),
            (1, vec![(0, 2..3)]),
        ];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
    }
}
