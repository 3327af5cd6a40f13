//! Cell graphs that are no stacks of layers: trees, and any acyclic graph of some cell types.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellBody, CellGraph, CellGraphBuilder, CellTypeId, DagBuilder, ElementType, Operand,
    Precision, Program, RowSpec, Rows, Sink, SinkTime,
};

use crate::rng::Rng;

/// A tree of about `size` leaves whose inner nodes have `arity` children each. Which nodes are
/// joined is drawn, so some are deep and some are flat.
pub(crate) fn tree(
    [leaf, inner]: [CellTypeId; 2],
    arity: u32,
    size: u32,
    rng: &mut Rng,
) -> CellGraph {
    let nodes = if arity == 1 { size } else { (size - 1).div_ceil(arity - 1) };
    let leaves = nodes * (arity - 1) + 1;
    let is_deep = rng.chance(30);
    let mut open: Vec<u32> = (0..leaves).collect();
    let mut children: Vec<Vec<u32>> = vec![Vec::new(); arity as usize];
    for node in leaves..leaves + nodes {
        for (child, of_child) in children.iter_mut().enumerate() {
            let last = open.len() - 1;
            let chosen = if is_deep && child == 0 { last } else { rng.index(open.len()) };
            of_child.push(open.remove(chosen));
        }
        open.push(node);
    }
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), leaves);
    let values = [graph.value(row(), leaves + nodes), graph.value(row(), leaves + nodes)];
    let sinks = |first: u32| {
        let sink = |(port, &value)| Sink {
            port,
            time: SinkTime::Every,
            rows: Rows::strided(value, first, 1),
        };
        values.iter().enumerate().map(sink).collect::<Vec<_>>()
    };
    graph.rows(leaf, leaves, vec![Rows::all(x)], sinks(0));
    if nodes > 0 {
        let reads =
            children.iter().flat_map(|rows| values.map(|value| Rows::listed(value, rows.clone())));
        graph.nodes(inner, nodes, reads.collect(), sinks(leaves));
    }
    values.into_iter().for_each(|value| graph.output(value));
    graph.finish().unwrap()
}

/// A graph of `size` nodes of `cells`, each of which reads rows of nodes before it or of the request's
/// input.
pub(crate) fn dag(cells: &[CellTypeId], size: u32, rng: &mut Rng) -> CellGraph {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), size);
    let mut dag = DagBuilder::new();
    let mut nodes = Vec::new();
    let reach = rng.within(1..=20) as usize;
    for number in 0..size {
        let operands: Vec<Operand> = (0..rng.within(1..=3))
            .map(|_| match nodes.len() {
                before if before > 0 && !rng.chance(15) => {
                    let near = before - 1 - rng.index(before.min(reach));
                    Operand::Output(nodes[near], rng.index(2))
                }
                _ => Operand::Row(x, number),
            })
            .collect();
        nodes.push(dag.node(*rng.pick(cells), &cell(operands.len()), &operands));
    }
    let placed = dag.add_to(&mut graph);
    graph.output(placed.output(nodes[0], 0).0);
    graph.finish().unwrap()
}

/// A cell type of a number of input ports.
fn cell(inputs: usize) -> Cell {
    let program = Program { bytes: Arc::from([]), summary: String::new(), has_products: false };
    Cell {
        body: CellBody::Program(program),
        precision: Precision::F32,
        inputs: vec![row(); inputs],
        states: Vec::new(),
        outputs: vec![row(); 2],
    }
}

fn row() -> RowSpec {
    RowSpec::new(ElementType::F32, [1])
}
