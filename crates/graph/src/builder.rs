//! Builds cell graphs, and finds what depends on what from the rows that runs write and read.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{
    CellGraph, CellTypeId, Chunk, Edge, Need, RowOrder, RowSpec, Rows, Run, RunIndex, RunKind,
    Sink, SinkTime, Stop, ValueIndex, ValueSpec,
};

/// Builds a [`CellGraph`], run by run, producers before consumers.
///
/// What a graph cannot be (a row that does not exist, or is written twice; nodes that depend on
/// each other in a circle) is a mistake of the caller and panics: requests are checked before.
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
    /// Per row, the position in `writers` and the writer's node; empty while there is none.
    by_row: Vec<Option<(u32, u32)>>,
}

#[derive(Clone, Debug)]
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

    /// An empty graph for a chunk of a sequence.
    pub fn of_chunk(chunk: Chunk) -> Self {
        let mut builder = Self::new();
        builder.graph.chunk = chunk;
        builder
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

    /// Adds a chain of `length` steps. `initial` has an entry for each state of the cell; of a
    /// [`Chunk::Next`] none has a row.
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

    /// Adds a chain as [`Self::chain`] does, of at most `bound` nodes: it ends with the first whose
    /// output says stop. No run may depend on it.
    pub fn chain_until(
        &mut self,
        cell_type: CellTypeId,
        bound: u32,
        inputs: Vec<Rows>,
        initial: Vec<Option<Rows>>,
        sinks: Vec<Sink>,
        stop: Stop,
    ) -> RunIndex {
        let run = self.chain(cell_type, bound, inputs, initial, sinks);
        self.graph.runs[run.index()].stop = Some(stop);
        run
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

    /// Adds `length` nodes of a row-wise cell, which may read what others of them write, in any
    /// acyclic way: a tree's inner nodes, for one.
    ///
    /// In the graph the nodes are numbered anew, in the order in which they become ready when each
    /// node is submitted as soon as it can be.
    pub fn nodes(
        &mut self,
        cell_type: CellTypeId,
        length: u32,
        mut inputs: Vec<Rows>,
        mut sinks: Vec<Sink>,
    ) -> RunIndex {
        for rows in inputs.iter().chain(sinks.iter().map(|sink| &sink.rows)) {
            self.check_bounds(rows, length);
        }
        let producers = own_producers(length, &inputs, &sinks);
        if producers.iter().all(Vec::is_empty) {
            return self.rows(cell_type, length, inputs, sinks);
        }
        assert!(sinks.iter().all(|sink| sink.time == SinkTime::Every), "nodes have no last one");
        let (order, precedence) = order_of_readiness(&producers);
        let is_renumbered = !order.is_sorted();
        if is_renumbered {
            inputs.iter_mut().for_each(|rows| *rows = rows.renumbered(&order));
            sinks.iter_mut().for_each(|sink| sink.rows = sink.rows.renumbered(&order));
        }
        let run = self.run(cell_type, RunKind::Nodes, length, inputs, Vec::new(), sinks);
        self.graph.runs[run.index()].precedence = precedence.into();
        run
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
        let is_begun = self.graph.chunk == Chunk::Next;
        assert!(!is_begun || initial.iter().all(Option::is_none), "a later chunk begins anew");
        let run = RunIndex(self.graph.runs.len() as u32);
        let mut edges = Vec::new();
        for rows in &inputs {
            self.check_bounds(rows, length);
            self.add_edges(rows, length, &mut edges);
        }
        for rows in initial.iter().flatten() {
            self.check_bounds(rows, 1);
            self.add_edges(rows, 1, &mut edges);
        }
        for sink in &sinks {
            let written = if sink.time == SinkTime::Every { length } else { 1 };
            self.check_bounds(&sink.rows, written);
            let writer = Writer { run, time: sink.time, rows: sink.rows.clone(), length };
            let rows = self.graph.values[sink.rows.value.index()].rows as usize;
            self.written[sink.rows.value.index()].add(writer, written, rows);
        }
        let precedence = Arc::default();
        self.graph.runs.push(Run {
            cell_type,
            kind,
            length,
            inputs,
            initial,
            sinks,
            edges,
            precedence,
            stop: None,
        });
        run
    }

    fn check_bounds(&self, rows: &Rows, length: u32) {
        let count = self.graph.values[rows.value.index()].rows as usize;
        assert!(rows.span > 0 && (rows.span == 1 || length == 1), "a span is of one node");
        let check = |row| {
            let last = row + rows.span as usize - 1;
            assert!(last < count, "row {last} of {:?}, which has {count}", rows.value);
        };
        match &rows.order {
            RowOrder::Strided { .. } => {
                [0, length - 1].into_iter().for_each(|node| check(rows.row(node)))
            }
            RowOrder::Listed(listed) => {
                assert_eq!(listed.len(), length as usize, "as many rows as nodes");
                listed.iter().for_each(|&row| check(row as usize));
            }
        }
    }

    /// Adds what reading `rows` (`length` of them) depends on.
    fn add_edges(&self, rows: &Rows, length: u32, edges: &mut Vec<Edge>) {
        let written = &self.written[rows.value.index()];
        if written.writers.is_empty() {
            return;
        }
        if rows.span > 1 {
            return self.add_edges_of_span(rows, written, edges);
        }
        let mut last = None;
        let is_one = matches!(rows.order, RowOrder::Strided { stride: 0, .. });
        let read = if is_one { 1 } else { length };
        for row in (0..read).map(|node| rows.row(node)) {
            let Some((writer, node)) = written.by_row[row] else { continue };
            let is_listed = matches!(rows.order, RowOrder::Listed(_));
            if !is_listed && last == Some(writer) {
                continue;
            }
            last = Some(writer);
            let writer = &written.writers[writer as usize];
            let is_open = self.graph.runs[writer.run.index()].stop.is_some();
            assert!(!is_open, "a run depends on one whose end is not known");
            add_edge(edges, Edge { producer: writer.run, need: need(rows, length, writer, node) });
        }
    }
}

impl CellGraphBuilder {
    /// Adds what reading all of a span depends on.
    fn add_edges_of_span(&self, rows: &Rows, written: &Written, edges: &mut Vec<Edge>) {
        let mut last = None;
        let first = rows.row(0);
        for (writer, node) in written.by_row[first..first + rows.span as usize].iter().flatten() {
            let writer = &written.writers[*writer as usize];
            assert!(self.graph.runs[writer.run.index()].stop.is_none(), "its end is not known");
            let nodes = match writer.time {
                SinkTime::Every => node + 1,
                SinkTime::Last => writer.length,
            };
            let edge = Edge { producer: writer.run, need: Need::First { nodes } };
            if last != Some(edge) {
                add_edge(edges, edge);
                last = Some(edge);
            }
        }
    }
}

/// Adds an edge. Of two that wait for first nodes of one producer, the later says it all.
fn add_edge(edges: &mut Vec<Edge>, edge: Edge) {
    if let Need::First { nodes } = edge.need {
        for known in edges.iter_mut().filter(|known| known.producer == edge.producer) {
            if let Need::First { nodes: known } = &mut known.need {
                *known = nodes.max(*known);
                return;
            }
        }
    }
    if !edges.contains(&edge) {
        edges.push(edge);
    }
}

impl Written {
    /// Notes that `writer` writes the first `written` of its rows, of `rows` in all.
    fn add(&mut self, writer: Writer, written: u32, rows: usize) {
        self.by_row.resize(rows, None);
        let position = self.writers.len() as u32;
        let span = writer.rows.span as usize;
        for node in 0..written {
            let first = writer.rows.row(node);
            for row in first..first + span {
                let before = self.by_row[row].replace((position, node));
                assert!(before.is_none(), "row {row} of {:?} is written twice", writer.rows.value);
            }
        }
        self.writers.push(writer);
    }
}

/// What the reader of `rows` needs of `writer`, whose node `node` writes one of them.
fn need(rows: &Rows, length: u32, writer: &Writer, node: u32) -> Need {
    let whole = Need::First { nodes: writer.length };
    if writer.time == SinkTime::Last {
        return whole;
    }
    match (&rows.order, &writer.rows.order) {
        (RowOrder::Listed(_), _) => Need::First { nodes: node + 1 },
        (RowOrder::Strided { stride, .. }, _) if *stride == 0 || length == 1 => {
            Need::First { nodes: node + 1 }
        }
        (
            RowOrder::Strided { first, stride },
            RowOrder::Strided { first: written_first, stride: written_stride },
        ) if stride == written_stride => {
            let apart = i64::from(*first) - i64::from(*written_first);
            Need::Lockstep { offset: apart / i64::from(*stride) }
        }
        _ => whole,
    }
}

/// For each node of a run, those of the same run whose rows it reads.
fn own_producers(length: u32, inputs: &[Rows], sinks: &[Sink]) -> Vec<Vec<u32>> {
    let mut writers: Vec<(ValueIndex, Vec<(usize, u32)>)> = Vec::new();
    for Sink { rows, .. } in sinks {
        let mut by_row: Vec<_> = (0..length).map(|node| (rows.row(node), node)).collect();
        by_row.sort_unstable();
        writers.push((rows.value, by_row));
    }
    let of = |node| {
        let mut producers = Vec::new();
        for rows in inputs {
            let row = rows.row(node);
            for (_, by_row) in writers.iter().filter(|(value, _)| *value == rows.value) {
                let found = by_row.binary_search_by_key(&row, |&(row, _)| row);
                producers.extend(found.map(|position| by_row[position].1));
            }
        }
        producers.sort_unstable();
        producers.dedup();
        producers
    };
    (0..length).map(of).collect()
}

/// The nodes in the order in which they become ready if each is taken as soon as it is: Kahn's
/// topological order with a first-in-first-out queue. And for each, in that order, how many must
/// come before it, which so never falls.
fn order_of_readiness(producers: &[Vec<u32>]) -> (Vec<u32>, Vec<u32>) {
    let mut consumers = vec![Vec::new(); producers.len()];
    for (node, producers) in (0..).zip(producers) {
        producers.iter().for_each(|&producer| consumers[producer as usize].push(node));
    }
    let mut pending: Vec<usize> = producers.iter().map(Vec::len).collect();
    let ready = (0..).zip(&pending).filter(|&(_, &pending)| pending == 0);
    let mut ready: VecDeque<(u32, u32)> = ready.map(|(node, _)| (node, 0)).collect();
    let (mut order, mut precedence) = (Vec::new(), Vec::new());
    while let Some((node, before)) = ready.pop_front() {
        order.push(node);
        precedence.push(before);
        for &consumer in &consumers[node as usize] {
            pending[consumer as usize] -= 1;
            if pending[consumer as usize] == 0 {
                ready.push_back((consumer, order.len() as u32));
            }
        }
    }
    assert_eq!(order.len(), producers.len(), "nodes depend on each other in a circle");
    (order, precedence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    fn row() -> RowSpec {
        RowSpec::new(ElementType::F32, [2])
    }

    fn every(value: ValueIndex, first: u32, stride: i32) -> Sink {
        Sink { port: 0, time: SinkTime::Every, rows: Rows::strided(value, first, stride) }
    }

    /// A chain of 4 writes rows 0 to 3; what must a reader of them wait for?
    fn edges_of_reader(length: u32, first: u32, stride: i32) -> Vec<Edge> {
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(row(), 4);
        let y = graph.value(row(), 4);
        graph.chain(CellTypeId(0), 4, vec![Rows::all(x)], vec![None], vec![every(y, 0, 1)]);
        let read = Rows::strided(y, first, stride);
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
    fn a_reader_of_a_span_waits_for_all_who_write_in_it() {
        let mut graph = CellGraphBuilder::new();
        let (x, y) = (graph.input(row(), 4), graph.value(row(), 4));
        for first in [0, 2] {
            let read = vec![Rows::strided(x, first, 1)];
            graph.chain(CellTypeId(0), 2, read, vec![None], vec![every(y, first, 1)]);
        }
        let pooled = graph.value(row(), 3);
        let sinks =
            vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::spanning(pooled, 0, 3) }];
        graph.rows(CellTypeId(1), 1, vec![Rows::spanning(y, 0, 3)], sinks);
        graph.rows(CellTypeId(2), 1, vec![Rows::one(pooled, 2)], vec![]);
        let graph = graph.finish();
        let need = |run, nodes| Edge { producer: RunIndex(run), need: Need::First { nodes } };
        assert_eq!(graph.runs()[2].edges, [need(0, 2), need(1, 1)]);
        assert_eq!(graph.runs()[3].edges, [need(2, 1)]);
    }

    #[test]
    fn sequences_of_one_request_do_not_wait_for_each_other() {
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(row(), 6);
        let y = graph.value(row(), 6);
        for b in 0..2 {
            let rows = |value| Rows::strided(value, b, 2);
            let sinks = vec![every(y, b, 2)];
            graph.chain(CellTypeId(0), 3, vec![rows(x)], vec![None], sinks);
        }
        for b in 0..2 {
            let rows = Rows::strided(y, b, 2);
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

    /// Two values of a tree of `leaves` leaves and the given inner nodes, whose rows are the nodes.
    fn tree(leaves: u32, children: &[[u32; 2]]) -> CellGraph {
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(row(), leaves);
        let h = graph.value(row(), leaves + children.len() as u32);
        graph.rows(CellTypeId(0), leaves, vec![Rows::all(x)], vec![every(h, 0, 1)]);
        let child = |side: usize| {
            let rows: Vec<u32> = children.iter().map(|children| children[side]).collect();
            Rows::listed(h, rows)
        };
        let sinks = vec![every(h, leaves, 1)];
        graph.nodes(CellTypeId(1), children.len() as u32, vec![child(0), child(1)], sinks);
        graph.finish()
    }

    #[test]
    fn nodes_are_numbered_as_they_become_ready() {
        // Depth first: the root's left child is a chain of two, its right child one node.
        let graph = tree(5, &[[0, 1], [5, 2], [3, 4], [6, 7]]);
        let inner = &graph.runs()[1];
        assert_eq!(inner.kind, RunKind::Nodes);
        assert_eq!(*inner.precedence, [0, 0, 1, 3]);
        let rows = |rows: &Rows| (0..4).map(|node| rows.row(node)).collect::<Vec<_>>();
        assert_eq!(rows(&inner.inputs[0]), [0, 3, 5, 6]);
        assert_eq!(rows(&inner.sinks[0].rows), [5, 7, 6, 8]);
        let reach: Vec<u32> = (0..=4).map(|submitted| inner.reach(submitted)).collect();
        assert_eq!(reach, [2, 3, 3, 4, 4]);
        assert_eq!(inner.edges, one(Need::First { nodes: 5 }));
    }

    #[test]
    fn nodes_that_read_nothing_of_their_own_are_rows() {
        let graph = tree(2, &[[0, 1]]);
        assert_eq!(graph.runs()[1].kind, RunKind::Rows);
    }

    #[test]
    #[should_panic(expected = "in a circle")]
    fn a_circle_is_refused() {
        tree(1, &[[2, 0], [1, 0]]);
    }
}
