//! The graph that an unfolding function builds: values, and the cells that read and write them.

use batchmaker_graph::{
    CellGraphBuilder, CellTypeId, DagBuilder, ElementType, InvalidGraph, NodeId, OutputTensor,
    Parameters, PlacedNodes, RowSpec, Rows, Sink, SinkTime, Tensor, UnfoldError, Unfolded,
    ValueIndex,
};

use crate::cell_handle::CellHandle;

/// Rows that the request brings, or that cells write and read.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    index: ValueIndex,
    rows: u32,
}

/// A node: one call of a cell without states.
#[derive(Clone, Copy, Debug)]
pub struct Node(NodeId);

/// The row or output that feeds an input port of a node.
#[derive(Clone, Copy, Debug)]
pub enum Operand {
    /// A row of a value.
    Row(Value, usize),
    /// An output port of a node that was added before.
    Output(Node, usize),
}

/// Some rows of a value, one for each step or row that reads or writes them.
#[derive(Clone, Debug)]
pub struct ValueRows(Rows);

/// The cell graph of one request, as an unfolding function builds it. A mistake (a row that does not
/// exist, a cell of another model, a value that is read before it is written) fails the request with a
/// text that names it.
#[derive(Debug)]
pub struct Graph {
    builder: CellGraphBuilder,
    nodes: DagBuilder,
    cells: Vec<CellHandle>,
    inputs: Vec<Tensor>,
    outputs: Vec<(String, Source, Vec<usize>)>,
    error: Option<String>,
}

/// The rows that an output tensor is read from.
#[derive(Debug)]
enum Source {
    Value(Value),
    Nodes(Vec<Node>, usize),
}

impl Value {
    /// The number of rows.
    pub fn rows(self) -> usize {
        self.rows as usize
    }

    /// The same row for each step.
    pub fn row(self, row: usize) -> ValueRows {
        ValueRows(Rows::one(self.index, index(row)))
    }

    /// The rows from `first` on, in order.
    pub fn from_row(self, first: usize) -> ValueRows {
        ValueRows(Rows::strided(self.index, index(first), 1))
    }

    /// The rows in reverse order: the last one first.
    pub fn reversed(self) -> ValueRows {
        ValueRows(Rows::strided(self.index, self.rows.saturating_sub(1), -1))
    }

    /// The rows in any order.
    pub fn listed(self, rows: impl IntoIterator<Item = usize>) -> ValueRows {
        ValueRows(Rows::listed(self.index, rows.into_iter().map(index).collect::<Vec<u32>>()))
    }
}

impl From<Value> for ValueRows {
    /// All rows, in order.
    fn from(value: Value) -> Self {
        value.from_row(0)
    }
}

/// A row that is out of range everywhere stands for a number that 32 bits do not hold.
fn index(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

impl Graph {
    pub(crate) fn new(cells: &[CellHandle], parameters: &Parameters) -> Self {
        Self {
            builder: CellGraphBuilder::for_request(parameters),
            nodes: DagBuilder::new(),
            cells: cells.to_vec(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn fail(&mut self, reason: String) {
        self.error.get_or_insert(reason);
    }

    /// Adds the elements of a tensor of the request as rows of shape `row`, in their order.
    pub fn input(&mut self, tensor: Tensor, row: &[usize]) -> Value {
        let spec = RowSpec::new(tensor.element(), row);
        let (elements, all) = (spec.elements(), tensor.data().len());
        if elements == 0 || !all.is_multiple_of(elements) {
            self.fail(format!("{all} elements are no rows of shape {row:?}"));
        }
        let rows = index(all.checked_div(elements).unwrap_or(0));
        let value = self.builder.input(spec, rows);
        self.inputs.push(tensor);
        Value { index: value, rows }
    }

    /// Adds a value of `rows` rows of shape `row` for cells to write. Rows that none writes are zeros.
    pub fn value(&mut self, element: ElementType, row: &[usize], rows: usize) -> Value {
        let rows = index(rows);
        Value { index: self.builder.value(RowSpec::new(element, row), rows), rows }
    }

    /// Adds a chain of `steps` steps of a cell with states, each of which takes the states that the one
    /// before left.
    pub fn chain(&mut self, cell: &CellHandle, steps: usize) -> Run<'_> {
        let states = cell.cell().states.len();
        self.run(cell, steps, Some(vec![None; states]))
    }

    /// Adds `rows` independent calls of a cell without states.
    pub fn rows(&mut self, cell: &CellHandle, rows: usize) -> Run<'_> {
        self.run(cell, rows, None)
    }

    fn run(
        &mut self,
        cell: &CellHandle,
        length: usize,
        initial: Option<Vec<Option<Rows>>>,
    ) -> Run<'_> {
        let cell_type = self.cell_type(cell);
        let (inputs, sinks) = (Vec::new(), Vec::new());
        Run { graph: self, cell_type, length: index(length), inputs, initial, sinks }
    }

    /// Adds one call of a cell without states, with an operand for each of its input ports. Nodes may
    /// read each other in any acyclic way; those of one cell whose operands are ready run together.
    pub fn node(&mut self, cell: &CellHandle, operands: &[Operand]) -> Node {
        let operand = |operand: &Operand| match *operand {
            Operand::Row(value, row) => batchmaker_graph::Operand::Row(value.index, index(row)),
            Operand::Output(node, port) => batchmaker_graph::Operand::Output(node.0, port),
        };
        let operands: Vec<_> = operands.iter().map(operand).collect();
        let cell_type = self.cell_type(cell);
        Node(self.nodes.node(cell_type, cell.cell(), &operands))
    }

    /// Makes an output tensor of all rows of a value, under `shape`.
    pub fn output(&mut self, name: &str, value: Value, shape: &[usize]) {
        self.outputs.push((name.to_owned(), Source::Value(value), shape.to_vec()));
    }

    /// Makes an output tensor of the rows that output `port` of each of `nodes` gives, under `shape`. The
    /// nodes stand in the order in which they were added, with no other node of equal rows between them.
    pub fn output_of(&mut self, name: &str, nodes: &[Node], port: usize, shape: &[usize]) {
        self.outputs.push((name.to_owned(), Source::Nodes(nodes.to_vec(), port), shape.to_vec()));
    }

    fn cell_type(&mut self, cell: &CellHandle) -> CellTypeId {
        let is_own = self.cells.iter().any(|own| own.is(cell));
        match cell.id().filter(|_| is_own) {
            Some(id) => id,
            None => {
                self.fail(format!("cell '{}' is not one of the model's", cell.name()));
                CellTypeId(u32::MAX)
            }
        }
    }

    /// The unfolded request, whose outputs stand in the order of `declared`.
    pub(crate) fn finish(mut self, declared: &[String]) -> Result<Unfolded, UnfoldError> {
        if let Some(reason) = self.error {
            return Err(InvalidGraph(reason).into());
        }
        let placed = self.nodes.add_to(&mut self.builder);
        let mut outputs = Vec::with_capacity(declared.len());
        for name in declared {
            let position = self.outputs.iter().position(|(known, ..)| known == name);
            let missing = || InvalidGraph(format!("there is no output `{name}`"));
            let (name, source, shape) = self.outputs.swap_remove(position.ok_or_else(missing)?);
            let (value, rows) = match source {
                Source::Value(value) => (value.index, None),
                Source::Nodes(nodes, port) => {
                    let (value, rows) = rows_of(&placed, &nodes, port)
                        .map_err(|why| InvalidGraph(format!("output `{name}`: {why}")))?;
                    (value, Some(rows))
                }
            };
            self.builder.output(value);
            let (until, permutation) = (None, None);
            outputs.push(OutputTensor { name, value, rows, shape, until, permutation });
        }
        if let Some((name, ..)) = self.outputs.first() {
            let reason = match declared.contains(name) {
                true => format!("output `{name}` is made twice"),
                false => format!("the model declares no output `{name}`"),
            };
            return Err(InvalidGraph(reason).into());
        }
        Ok(Unfolded {
            graph: self.builder.finish()?,
            inputs: self.inputs,
            outputs,
            checks: Vec::new(),
        })
    }
}

/// The rows that an output port of nodes gives, which must lie one after the other.
fn rows_of(
    placed: &PlacedNodes,
    nodes: &[Node],
    port: usize,
) -> Result<(ValueIndex, std::ops::Range<usize>), String> {
    let places: Vec<(ValueIndex, u32)> =
        nodes.iter().map(|node| placed.output(node.0, port)).collect();
    let &(value, first) = places.first().ok_or("it is made of no nodes")?;
    let is_next = |(place, row): (&(ValueIndex, u32), u32)| *place == (value, row);
    match places.iter().zip(first..).all(is_next) {
        true => Ok((value, first as usize..first as usize + places.len())),
        false => Err("its nodes were not added one after the other".to_owned()),
    }
}

/// A chain, or independent rows, that is being described; [`add`](Self::add) adds it.
#[derive(Debug)]
#[must_use = "a run is part of the graph once it is added"]
pub struct Run<'a> {
    graph: &'a mut Graph,
    cell_type: CellTypeId,
    length: u32,
    inputs: Vec<Rows>,
    /// The first states of a chain.
    initial: Option<Vec<Option<Rows>>>,
    sinks: Vec<Sink>,
}

impl Run<'_> {
    /// Feeds the next input port of the cell: step `i` reads the `i`th of `rows`.
    pub fn input(mut self, rows: impl Into<ValueRows>) -> Self {
        self.inputs.push(rows.into().0);
        self
    }

    /// Sets a first state of a chain, which is zeros otherwise, to the first of `rows`.
    pub fn first_state(mut self, state: usize, rows: impl Into<ValueRows>) -> Self {
        let initial = self.initial.as_mut().and_then(|initial| initial.get_mut(state));
        match initial {
            Some(initial) => *initial = Some(rows.into().0),
            None => self.graph.fail(format!("there is no state {state}")),
        }
        self
    }

    /// Writes an output port after each step: step `i` writes the `i`th of `rows`.
    pub fn each_step(mut self, port: usize, rows: impl Into<ValueRows>) -> Self {
        self.sinks.push(Sink { port, time: SinkTime::Every, rows: rows.into().0 });
        self
    }

    /// Writes an output port after the last step, to the first of `rows`.
    pub fn last_step(mut self, port: usize, rows: impl Into<ValueRows>) -> Self {
        self.sinks.push(Sink { port, time: SinkTime::Last, rows: rows.into().0 });
        self
    }

    /// Adds the run to the graph.
    pub fn add(self) {
        let Self { graph, cell_type, length, inputs, initial, sinks } = self;
        match initial {
            Some(initial) => graph.builder.chain(cell_type, length, inputs, initial, sinks),
            None => graph.builder.nodes(cell_type, length, inputs, sinks),
        };
    }
}
