//! Graphs that are described node by node: any acyclic one, of any cells.

use std::collections::BTreeMap;

use crate::{Cell, CellGraphBuilder, CellTypeId, RowSpec, Rows, Sink, SinkTime, ValueIndex};

/// A node of a [`DagBuilder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

/// The row or output that feeds an input port of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A row of a value of the graph.
    Row(ValueIndex, u32),
    /// An output port of a node.
    Output(NodeId, usize),
}

/// Describes nodes of row-wise cells one by one, then adds them to a graph as runs.
///
/// A run becomes what the BatchMaker paper calls a subgraph (section 4.3), but that nodes of one
/// type which nothing connects may share one. No two runs depend on each other in a circle: a run
/// holds nodes of one cell type with equally many changes of type on the longest way to them.
#[derive(Clone, Debug, Default)]
pub struct DagBuilder {
    nodes: Vec<Node>,
    /// For each kind of row that nodes give, and the port that gives it, the number of rows.
    given: Vec<((RowSpec, usize), u32)>,
    /// The first mistake.
    error: Option<String>,
}

#[derive(Clone, Debug)]
struct Node {
    cell_type: CellTypeId,
    operands: Vec<Operand>,
    /// For each output port, a kind of row and its number among them.
    outputs: Vec<(usize, u32)>,
}

/// The rows that the outputs of nodes have once the nodes are part of a graph.
#[derive(Clone, Debug)]
pub struct PlacedNodes {
    outputs: Vec<Vec<(ValueIndex, u32)>>,
}

impl PlacedNodes {
    /// The value, and its row, that a node's output port writes. For a node or port that does not exist,
    /// a value that does not exist either, which the graph's builder refuses.
    pub fn output(&self, node: NodeId, port: usize) -> (ValueIndex, u32) {
        let outputs = self.outputs.get(node.0 as usize);
        let output = outputs.and_then(|outputs| outputs.get(port)).copied();
        output.unwrap_or((ValueIndex(u32::MAX), 0))
    }
}

/// Nodes of one run: their cell type, and the value that each port reads.
type Key = (CellTypeId, Vec<ValueIndex>);

impl DagBuilder {
    /// Without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node of `cell`, whose type is `cell_type`, with an operand for each input port. A mistake (a
    /// cell with states, another number of operands, an output that does not exist) is what
    /// [`CellGraphBuilder::finish`] returns.
    pub fn node(&mut self, cell_type: CellTypeId, cell: &Cell, operands: &[Operand]) -> NodeId {
        if let Err(reason) = self.check(cell, operands) {
            self.error.get_or_insert(reason);
            return NodeId(u32::MAX);
        }
        // Rows of one port lie one after the other, so that outputs of several nodes are a range.
        let outputs = cell.outputs.iter().enumerate().map(|(port, row)| {
            let is_kind = |known: &((RowSpec, usize), u32)| known.0.0 == *row && known.0.1 == port;
            let kind = match self.given.iter().position(is_kind) {
                Some(kind) => kind,
                None => {
                    self.given.push(((row.clone(), port), 0));
                    self.given.len() - 1
                }
            };
            self.given[kind].1 += 1;
            (kind, self.given[kind].1 - 1)
        });
        let outputs = outputs.collect();
        self.nodes.push(Node { cell_type, operands: operands.to_vec(), outputs });
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn check(&self, cell: &Cell, operands: &[Operand]) -> Result<(), String> {
        if !cell.states.is_empty() {
            return Err("a cell with states is part of a chain, not a node by itself".to_owned());
        }
        if cell.inputs.len() != operands.len() {
            let (ports, found) = (cell.inputs.len(), operands.len());
            return Err(format!("a node has {found} operands, its cell {ports} input ports"));
        }
        let is_missing = |operand: &&Operand| match operand {
            Operand::Row(..) => false,
            Operand::Output(node, port) => {
                self.nodes.get(node.0 as usize).is_none_or(|node| *port >= node.outputs.len())
            }
        };
        match operands.iter().find(is_missing) {
            Some(_) => Err("an operand is an output that no earlier node has".to_owned()),
            None => Ok(()),
        }
    }

    /// Adds the nodes to `graph`.
    pub fn add_to(self, graph: &mut CellGraphBuilder) -> PlacedNodes {
        if let Some(reason) = self.error {
            graph.fail(reason);
            return PlacedNodes { outputs: Vec::new() };
        }
        let given = self.given.iter().map(|((row, _), count)| graph.value(row.clone(), *count));
        let given: Vec<ValueIndex> = given.collect();
        let place = |&(kind, row): &(usize, u32)| (given[kind], row);
        let outputs = self.nodes.iter().map(|node| node.outputs.iter().map(place).collect());
        let placed = PlacedNodes { outputs: outputs.collect() };
        let read = |operand: &Operand| match *operand {
            Operand::Row(value, row) => (value, row),
            Operand::Output(node, port) => placed.output(node, port),
        };

        let mut depths: Vec<(u32, Key)> = Vec::with_capacity(self.nodes.len());
        let mut runs: BTreeMap<(u32, Key), Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let values = node.operands.iter().map(|operand| read(operand).0);
            let key: Key = (node.cell_type, values.collect());
            let depth = node.operands.iter().filter_map(|operand| match *operand {
                Operand::Row(..) => None,
                Operand::Output(producer, _) => {
                    let (depth, of) = &depths[producer.0 as usize];
                    Some(depth + u32::from(*of != key))
                }
            });
            let depth = depth.max().unwrap_or(0);
            runs.entry((depth, key.clone())).or_default().push(index);
            depths.push((depth, key));
        }
        for ((_, (cell_type, values)), members) in runs {
            let reads = values.iter().enumerate().map(|(port, &value)| {
                let row = |&node: &usize| read(&self.nodes[node].operands[port]).1;
                Rows::listed(value, members.iter().map(row).collect::<Vec<u32>>())
            });
            let ports = 0..self.nodes[members[0]].outputs.len();
            let sinks = ports.map(|port| {
                let at = |&node: &usize| placed.outputs[node][port];
                let rows = members.iter().map(|node| at(node).1).collect::<Vec<u32>>();
                let rows = Rows::listed(at(&members[0]).0, rows);
                Sink { port, time: SinkTime::Every, rows }
            });
            graph.nodes(cell_type, members.len() as u32, reads.collect(), sinks.collect());
        }
        placed
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// What the texts of all mistakes begin with.
    const BEGIN: &str = "the unfolding function built a graph that cannot run: ";
    use crate::{CellBody, ElementType, Program, RunIndex, RunKind};

    fn cell(inputs: usize) -> Cell {
        let row = || RowSpec::new(ElementType::F32, [1]);
        let program = Program {
            bytes: Arc::from([inputs as u8]),
            summary: String::new(),
            has_products: false,
        };
        let inputs = vec![row(); inputs];
        let (states, outputs) = (Vec::new(), vec![row()]);
        Cell {
            body: CellBody::Program(program),
            precision: crate::Precision::F32,
            inputs,
            states,
            outputs,
        }
    }

    /// Two types in turn, where a node of the first type also reads the first node of all.
    #[test]
    fn runs_do_not_wait_for_each_other_in_a_circle() {
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(RowSpec::new(ElementType::F32, [1]), 2);
        let (one, two) = (cell(1), cell(2));
        let (a, b) = (CellTypeId(0), CellTypeId(1));
        let mut dag = DagBuilder::new();
        let first = dag.node(a, &one, &[Operand::Row(x, 0)]);
        let other = dag.node(a, &one, &[Operand::Row(x, 1)]);
        let output = |node| Operand::Output(node, 0);
        let joined = dag.node(b, &two, &[output(first), output(other)]);
        let again = dag.node(b, &two, &[output(joined), output(first)]);
        let back = dag.node(a, &one, &[output(again)]);
        let last = dag.node(b, &two, &[output(back), output(first)]);
        let placed = dag.add_to(&mut graph);
        let (value, row) = placed.output(last, 0);
        assert_eq!((value, row), (ValueIndex(1), 5));
        let graph = graph.finish().unwrap();
        let shape: Vec<_> =
            graph.runs().iter().map(|run| (run.cell_type, run.kind, run.length)).collect();
        let (rows, nodes) = (RunKind::Rows, RunKind::Nodes);
        assert_eq!(shape, [(a, rows, 2), (b, nodes, 2), (a, rows, 1), (b, rows, 1)]);
        let producers = |run: usize| {
            let edges = graph.runs()[run].edges.iter();
            edges.map(|edge| edge.producer).collect::<Vec<RunIndex>>()
        };
        assert_eq!(producers(3), [RunIndex(2), RunIndex(0)]);
    }

    #[test]
    fn each_mistake_is_named() {
        let mistake = |add: &dyn Fn(&mut DagBuilder, ValueIndex)| {
            let mut graph = CellGraphBuilder::new();
            let x = graph.input(RowSpec::new(ElementType::F32, [1]), 2);
            let mut dag = DagBuilder::new();
            add(&mut dag, x);
            let placed = dag.add_to(&mut graph);
            graph.output(placed.output(NodeId(7), 0).0);
            graph.finish().unwrap_err().to_string().replace(BEGIN, "")
        };
        let a = CellTypeId(0);
        assert_eq!(mistake(&|_, _| {}), "there is no value4294967295");
        let few = mistake(&|dag, x| {
            dag.node(a, &cell(2), &[Operand::Row(x, 0)]);
        });
        assert_eq!(few, "a node has 1 operands, its cell 2 input ports");
        let missing = mistake(&|dag, x| {
            let first = dag.node(a, &cell(1), &[Operand::Row(x, 0)]);
            dag.node(a, &cell(1), &[Operand::Output(first, 1)]);
        });
        assert_eq!(missing, "an operand is an output that no earlier node has");
        let beyond = mistake(&|dag, x| {
            dag.node(a, &cell(1), &[Operand::Row(x, 2)]);
        });
        assert_eq!(beyond, "row 2 of value0, which has 2");
        let stateful = mistake(&|dag, x| {
            let states = vec![RowSpec::new(ElementType::F32, [1])];
            dag.node(a, &Cell { states, ..cell(1) }, &[Operand::Row(x, 0)]);
        });
        assert_eq!(stateful, "a cell with states is part of a chain, not a node by itself");
    }
}
