//! The cell graph of one request, in compact form.
//!
//! A graph is a list of **runs** over **values**. A value is a matrix of rows that a
//! request brings, that stands between cells, or that becomes part of the reply.
//! A run is many nodes in one record: a *chain* of steps of one cell, each
//! fed by the one before, or independent *rows* through one cell. A run reads and
//! writes rows at a regular stride ([`Rows`]), so a chain of 330 steps costs as much to
//! describe as one of 3.
//!
//! A run is one subgraph in the sense of section 4.3 of the BatchMaker paper: connected
//! nodes (or one splittable node) of one cell type. Where the paper releases a subgraph
//! once all that it depends on has run, an [`Edge`] releases its nodes one by one, as the
//! producer makes progress.

use crate::{CellTypeId, RowSpec, RunIndex, ValueIndex};

/// A matrix of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSpec {
    /// One row.
    pub row: RowSpec,
    /// The number of rows.
    pub rows: u32,
}

/// Rows of a value at a regular stride: node `i` of a run uses row `first + i * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The value.
    pub value: ValueIndex,
    /// The row of node 0.
    pub first: u32,
    /// Rows from one node to the next; 0: all nodes use one row, below 0: backwards.
    pub stride: i32,
}

impl Rows {
    /// The same row for all nodes.
    pub fn one(value: ValueIndex, row: u32) -> Self {
        Self { value, first: row, stride: 0 }
    }

    /// Row `i` for node `i`.
    pub fn all(value: ValueIndex) -> Self {
        Self { value, first: 0, stride: 1 }
    }

    /// The row of `node`.
    pub fn row(self, node: u32) -> usize {
        (i64::from(self.first) + i64::from(node) * i64::from(self.stride)) as usize
    }
}

/// When a run writes an output port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkTime {
    /// After every node, into that node's row.
    Every,
    /// After the last node, into the row of node 0.
    Last,
}

/// Where an output port of a run goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sink {
    /// The cell's output port.
    pub port: usize,
    /// When it is written.
    pub time: SinkTime,
    /// Where.
    pub rows: Rows,
}

/// How the nodes of a run depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunKind {
    /// Node `i + 1` takes the state that node `i` leaves.
    Chain,
    /// No node depends on another: one splittable node of `length` rows.
    Rows,
}

/// How much of a producer a node of a consumer needs: the watermark's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Node `i` needs the first `i + 1 + offset` nodes (as many as there are).
    Lockstep {
        /// Nodes that the producer must be ahead.
        offset: i64,
    },
    /// Every node needs the first `nodes` nodes.
    First {
        /// That many.
        nodes: u32,
    },
}

/// A dependency of a run on another run of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The run that must make progress.
    pub producer: RunIndex,
    /// How far.
    pub need: Need,
}

impl Need {
    /// How many of the consumer's `length` nodes may run when the producer has run the first
    /// `progress` of its `producer_length`: the watermark.
    pub fn available(self, progress: u32, producer_length: u32, length: u32) -> u32 {
        match self {
            _ if progress >= producer_length => length,
            Need::Lockstep { offset } => {
                (i64::from(progress) - offset).clamp(0, i64::from(length)) as u32
            }
            Need::First { nodes } if progress >= nodes => length,
            Need::First { .. } => 0,
        }
    }
}

/// Many nodes of one cell type in one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The type of the nodes.
    pub cell_type: CellTypeId,
    /// How they depend on each other.
    pub kind: RunKind,
    /// How many they are; at least 1.
    pub length: u32,
    /// What feeds each input port.
    pub inputs: Vec<Rows>,
    /// A chain's first state for each state of the cell: a row, or zeros.
    pub initial: Vec<Option<Rows>>,
    /// What becomes of the output ports.
    pub sinks: Vec<Sink>,
    /// What must have run before.
    pub edges: Vec<Edge>,
}

/// The graph of one request. Acyclic: every edge points to an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellGraph {
    values: Vec<ValueSpec>,
    inputs: Vec<ValueIndex>,
    outputs: Vec<ValueIndex>,
    runs: Vec<Run>,
}

impl CellGraph {
    /// All values.
    pub fn values(&self) -> &[ValueSpec] {
        &self.values
    }

    /// The values that the request brings.
    pub fn inputs(&self) -> &[ValueIndex] {
        &self.inputs
    }

    /// The values that the reply reads.
    pub fn outputs(&self) -> &[ValueIndex] {
        &self.outputs
    }

    /// The runs, producers before consumers.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Chains that hold a state slot while they run.
    pub fn chains(&self) -> usize {
        self.runs.iter().filter(|run| run.kind == RunKind::Chain).count()
    }

    /// Bytes of all values.
    pub fn bytes(&self) -> usize {
        let bytes = |value: &ValueSpec| {
            value.rows as usize * value.row.elements() * value.row.element.bytes()
        };
        self.values.iter().map(bytes).sum()
    }

    /// The number of nodes: cells to run.
    pub fn nodes(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.length)).sum()
    }
}

/// Builds a [`CellGraph`]; finds the edges from the rows that runs write and read.
#[derive(Clone, Debug, Default)]
pub struct CellGraphBuilder {
    graph: CellGraph,
    /// Per value, what was written where.
    written: Vec<Written>,
}

/// Who writes a value: so that a reader meets the writers of its own rows only.
#[derive(Clone, Debug, Default)]
struct Written {
    writers: Vec<Writer>,
    /// Per row, the position in `writers`; empty while there is none.
    by_row: Vec<Option<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Writer {
    run: RunIndex,
    time: SinkTime,
    rows: Rows,
    length: u32,
}

impl CellGraphBuilder {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// A value that cells write and cells read.
    pub fn value(&mut self, row: RowSpec, rows: u32) -> ValueIndex {
        self.graph.values.push(ValueSpec { row, rows });
        self.written.push(Written::default());
        ValueIndex(self.graph.values.len() as u32 - 1)
    }

    /// A value that the request brings.
    pub fn input(&mut self, row: RowSpec, rows: u32) -> ValueIndex {
        let value = self.value(row, rows);
        self.graph.inputs.push(value);
        value
    }

    /// Marks a value as part of the reply.
    pub fn output(&mut self, value: ValueIndex) {
        if !self.graph.outputs.contains(&value) {
            self.graph.outputs.push(value);
        }
    }

    /// Adds a chain of `length` steps. `initial` has an entry for each state of the cell.
    pub fn chain(
        &mut self,
        cell_type: CellTypeId,
        length: u32,
        inputs: Vec<Rows>,
        initial: Vec<Option<Rows>>,
        sinks: Vec<Sink>,
    ) -> RunIndex {
        self.run(cell_type, RunKind::Chain, length, inputs, initial, sinks)
    }

    /// Adds `length` independent rows through a row-wise cell.
    pub fn rows(
        &mut self,
        cell_type: CellTypeId,
        length: u32,
        inputs: Vec<Rows>,
        sinks: Vec<Sink>,
    ) -> RunIndex {
        self.run(cell_type, RunKind::Rows, length, inputs, Vec::new(), sinks)
    }

    /// The graph.
    pub fn finish(self) -> CellGraph {
        self.graph
    }

    fn run(
        &mut self,
        cell_type: CellTypeId,
        kind: RunKind,
        length: u32,
        inputs: Vec<Rows>,
        initial: Vec<Option<Rows>>,
        sinks: Vec<Sink>,
    ) -> RunIndex {
        assert!(length > 0, "a run of no nodes");
        let run = RunIndex(self.graph.runs.len() as u32);
        let mut edges = Vec::new();
        for &rows in &inputs {
            self.check_bounds(rows, length);
            self.add_edges(rows, length, &mut edges);
        }
        for &rows in initial.iter().flatten() {
            self.check_bounds(rows, 1);
            self.add_edges(rows, 1, &mut edges);
        }
        for sink in &sinks {
            let written = if sink.time == SinkTime::Every { length } else { 1 };
            self.check_bounds(sink.rows, written);
            let writer = Writer { run, time: sink.time, rows: sink.rows, length };
            let rows = self.graph.values[sink.rows.value.index()].rows as usize;
            self.written[sink.rows.value.index()].add(writer, written, rows);
        }
        self.graph.runs.push(Run { cell_type, kind, length, inputs, initial, sinks, edges });
        run
    }

    fn check_bounds(&self, rows: Rows, length: u32) {
        let count = self.graph.values[rows.value.index()].rows as usize;
        for node in [0, length - 1] {
            let row = rows.row(node);
            assert!(row < count, "row {row} of {:?}, which has {count}", rows.value);
        }
    }

    /// Adds what reading `rows` (`length` of them) depends on.
    fn add_edges(&self, rows: Rows, length: u32, edges: &mut Vec<Edge>) {
        let written = &self.written[rows.value.index()];
        if written.writers.is_empty() {
            return;
        }
        let mut last = None;
        let read = if rows.stride == 0 { 1 } else { length };
        for row in (0..read).map(|node| rows.row(node)) {
            let writer = written.by_row[row];
            if writer.is_none() || writer == last {
                continue;
            }
            last = writer;
            let writer = &written.writers[writer.expect("it is some") as usize];
            let edge = Edge { producer: writer.run, need: need(rows, length, writer) };
            if !edges.contains(&edge) {
                edges.push(edge);
            }
        }
    }
}

impl Written {
    /// Notes that `writer` writes the first `written` of its rows, of `rows` in all.
    fn add(&mut self, writer: Writer, written: u32, rows: usize) {
        self.by_row.resize(rows, None);
        let position = self.writers.len() as u32;
        for row in (0..written).map(|node| writer.rows.row(node)) {
            let before = self.by_row[row].replace(position);
            assert!(before.is_none(), "row {row} of {:?} is written twice", writer.rows.value);
        }
        self.writers.push(writer);
    }
}

/// What the reader of `rows` needs of `writer`, which writes at least one of them.
fn need(rows: Rows, length: u32, writer: &Writer) -> Need {
    let whole = Need::First { nodes: writer.length };
    if writer.time == SinkTime::Last {
        return whole;
    }
    if rows.stride == 0 || length == 1 {
        let node = node_of(writer.rows, writer.length, rows.row(0));
        return node.map_or(whole, |node| Need::First { nodes: node + 1 });
    }
    if rows.stride == writer.rows.stride {
        let apart = i64::from(rows.first) - i64::from(writer.rows.first);
        return Need::Lockstep { offset: apart / i64::from(rows.stride) };
    }
    whole
}

/// The node that uses `row`, if one of the `length` nodes of `rows` does.
fn node_of(rows: Rows, length: u32, row: usize) -> Option<u32> {
    let apart = row as i64 - i64::from(rows.first);
    let node = match i64::from(rows.stride) {
        0 if apart == 0 => 0,
        0 => return None,
        stride if apart % stride == 0 => apart / stride,
        _ => return None,
    };
    (0..i64::from(length)).contains(&node).then_some(node as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    fn row() -> RowSpec {
        RowSpec::new(ElementType::F32, [2])
    }

    fn every(value: ValueIndex, first: u32, stride: i32) -> Sink {
        Sink { port: 0, time: SinkTime::Every, rows: Rows { value, first, stride } }
    }

    /// A chain of 4 writes rows 0 to 3; what must a reader of them wait for?
    fn edges_of_reader(length: u32, first: u32, stride: i32) -> Vec<Edge> {
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(row(), 4);
        let y = graph.value(row(), 4);
        graph.chain(CellTypeId(0), 4, vec![Rows::all(x)], vec![None], vec![every(y, 0, 1)]);
        let read = Rows { value: y, first, stride };
        graph.chain(CellTypeId(1), length, vec![read], vec![None], vec![]);
        graph.finish().runs()[1].edges.clone()
    }

    fn one(need: Need) -> Vec<Edge> {
        vec![Edge { producer: RunIndex(0), need }]
    }

    #[test]
    fn the_next_layer_follows_in_lockstep() {
        assert_eq!(edges_of_reader(4, 0, 1), one(Need::Lockstep { offset: 0 }));
        assert_eq!(edges_of_reader(2, 2, 1), one(Need::Lockstep { offset: 2 }));
    }

    #[test]
    fn a_reader_of_one_row_waits_for_that_row() {
        assert_eq!(edges_of_reader(1, 3, 0), one(Need::First { nodes: 4 }));
        assert_eq!(edges_of_reader(3, 1, 0), one(Need::First { nodes: 2 }));
    }

    #[test]
    fn the_other_direction_waits_for_the_whole_producer() {
        assert_eq!(edges_of_reader(4, 3, -1), one(Need::First { nodes: 4 }));
    }

    #[test]
    fn sequences_of_one_request_do_not_wait_for_each_other() {
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(row(), 6);
        let y = graph.value(row(), 6);
        for b in 0..2 {
            let rows = |value| Rows { value, first: b, stride: 2 };
            let sinks = vec![every(y, b, 2)];
            graph.chain(CellTypeId(0), 3, vec![rows(x)], vec![None], sinks);
        }
        for b in 0..2 {
            let rows = Rows { value: y, first: b, stride: 2 };
            graph.chain(CellTypeId(1), 3, vec![rows], vec![None], vec![]);
        }
        let graph = graph.finish();
        for b in 0..2 {
            let edge = Edge { producer: RunIndex(b), need: Need::Lockstep { offset: 0 } };
            assert_eq!(graph.runs()[2 + b as usize].edges, [edge]);
        }
    }

    /// Finding edges costs as much as the rows there are: 60,000 sequences in one request.
    #[test]
    fn many_sequences_are_no_more_than_their_rows() {
        let count = 60_000;
        let mut graph = CellGraphBuilder::new();
        let (x, y) = (graph.input(row(), count), graph.value(row(), count));
        for b in 0..count {
            let sinks = vec![every(y, b, 0)];
            graph.chain(CellTypeId(0), 1, vec![Rows::one(x, b)], vec![None], sinks);
        }
        for b in 0..count {
            graph.rows(CellTypeId(1), 1, vec![Rows::one(y, b)], vec![]);
        }
        let graph = graph.finish();
        let last = Edge { producer: RunIndex(count - 1), need: Need::First { nodes: 1 } };
        assert_eq!(graph.runs()[2 * count as usize - 1].edges, [last]);
    }

    #[test]
    fn the_watermark_follows_progress() {
        let edge = |need| Edge { producer: RunIndex(0), need };
        let lockstep = edge(Need::Lockstep { offset: 0 });
        assert_eq!(lockstep.need.available(0, 4, 4), 0);
        assert_eq!(lockstep.need.available(3, 4, 4), 3);
        assert_eq!(Need::Lockstep { offset: 2 }.available(3, 4, 2), 1);
        let first = edge(Need::First { nodes: 3 });
        assert_eq!((first.need.available(2, 4, 7), first.need.available(3, 4, 7)), (0, 7));
    }
}
