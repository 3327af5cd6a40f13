//! Requests of the suite.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellGraph, CellGraphBuilder, CellTypeId, Chunk, RowSpec, Rows, Sink, SinkTime, Stop,
    Tensor, TensorData,
};

use crate::conformance::cells::IDS;
use crate::conformance::numbers::Numbers;

/// A graph, with the inputs of its request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) graph: Arc<CellGraph>,
    pub(super) inputs: Vec<Tensor>,
}

/// The order in which the nodes of a run use the rows of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Forward,
    Reversed,
    /// Every other row, from the second on.
    Strided,
    Listed,
    /// The same row for all nodes.
    One,
}

/// The values that outputs are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sinks {
    /// Every port after every node and at the end; the first port to a second place too.
    All,
    /// The first port after every node, all at the end.
    First,
    /// All at the end alone.
    Last,
}

/// A chain, which has a request of its own.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) cell_type: CellTypeId,
    pub(super) chunk: Chunk,
    pub(super) length: u32,
    pub(super) order: Order,
    /// The inputs by port: a row for each node.
    pub(super) inputs: Vec<TensorData>,
    /// The initial states: a row each; zeros where there is none.
    pub(super) initial: Vec<Option<TensorData>>,
    pub(super) sinks: Sinks,
    pub(super) stop: Option<Stop>,
}

impl Chain {
    /// A chain with inputs from a seed. Of odd seeds, the states have initial rows, all or some.
    pub(super) fn new(cell: &Cell, cell_type: CellTypeId, length: u32, seed: u32) -> Self {
        let mut numbers = Numbers::new(seed + 1000);
        let inputs = cell.inputs.iter().map(|row| numbers.rows(row, length, IDS)).collect();
        let has_initial = |state: usize| seed % 2 == 1 && (seed % 4 == 1 || state == 0);
        let states = cell.states.iter().enumerate();
        let initial = states
            .map(|(state, row)| has_initial(state).then(|| numbers.rows(row, 1, IDS)))
            .collect();
        Self {
            cell_type,
            chunk: Chunk::Whole,
            length,
            order: Order::Forward,
            inputs,
            initial,
            sinks: Sinks::All,
            stop: None,
        }
    }

    /// The chunk of the chain that has the given nodes.
    pub(super) fn chunk(&self, cell: &Cell, chunk: Chunk, nodes: std::ops::Range<u32>) -> Self {
        let of_port = |(data, row): (&TensorData, &RowSpec)| {
            let elements = row.elements();
            data.slice(nodes.start as usize * elements..nodes.end as usize * elements)
        };
        let initial = match chunk {
            Chunk::Next => vec![None; self.initial.len()],
            _ => self.initial.clone(),
        };
        Self {
            chunk,
            length: nodes.end - nodes.start,
            inputs: self.inputs.iter().zip(&cell.inputs).map(of_port).collect(),
            initial,
            ..self.clone()
        }
    }

    /// The request: its outputs are all that its sinks write.
    pub(super) fn request(&self, cell: &Cell) -> Request {
        let mut graph = CellGraphBuilder::of_chunk(self.chunk);
        let mut inputs = Vec::new();
        let mut reads = Vec::new();
        for (data, row) in self.inputs.iter().zip(&cell.inputs) {
            let (rows, data) = self.placed(&mut graph, row, data);
            reads.push(rows);
            inputs.push(data);
        }
        let initial = self.initial.iter().zip(&cell.states).map(|(data, row)| {
            let data = data.as_ref()?;
            inputs.push(Tensor::new(vec![data.len()], data.clone()));
            Some(Rows::one(graph.input(row.clone(), 1), 0))
        });
        let initial = initial.collect();
        let sinks = self.sinks(cell, &mut graph);
        let (id, length) = (self.cell_type, self.length);
        match self.stop {
            None => graph.chain(id, length, reads, initial, sinks),
            Some(stop) => graph.chain_until(id, length, reads, initial, sinks, stop),
        };
        Request { graph: Arc::new(graph.finish().unwrap()), inputs }
    }

    /// An input value in which the rows of a port lie in this chain's order.
    fn placed(
        &self,
        graph: &mut CellGraphBuilder,
        row: &RowSpec,
        data: &TensorData,
    ) -> (Rows, Tensor) {
        let (length, elements) = (self.length, row.elements());
        // The node whose row lies at each place.
        let nodes: Vec<u32> = match self.order {
            Order::Forward => (0..length).collect(),
            Order::Reversed => (0..length).rev().collect(),
            Order::Strided => (0..2 * length).map(|at| at / 2).collect(),
            Order::Listed => (0..length).map(|at| (at + 1) % length).collect(),
            Order::One => vec![0],
        };
        let value = graph.input(row.clone(), nodes.len() as u32);
        let rows = match self.order {
            Order::Forward => Rows::all(value),
            Order::Reversed => Rows::strided(value, length - 1, -1),
            Order::Strided => Rows::strided(value, 1, 2),
            Order::Listed => {
                let listed: Vec<u32> =
                    (0..length).map(|node| (node + length - 1) % length).collect();
                Rows::listed(value, listed)
            }
            Order::One => Rows::one(value, 0),
        };
        let row_of =
            |node: &u32| data.slice(*node as usize * elements..(*node as usize + 1) * elements);
        let data = concat(nodes.iter().map(row_of));
        (rows, Tensor::new(vec![data.len()], data))
    }

    fn sinks(&self, cell: &Cell, graph: &mut CellGraphBuilder) -> Vec<Sink> {
        let mut sinks = Vec::new();
        let length = self.length;
        for (port, row) in cell.outputs.iter().enumerate() {
            let mut sink = |time, rows: Rows| sinks.push(Sink { port, time, rows });
            if self.sinks == Sinks::All || (self.sinks == Sinks::First && port == 0) {
                let value = graph.value(row.clone(), length);
                graph.output(value);
                // Backwards too, where inputs are.
                let rows = match self.order {
                    Order::Reversed => Rows::all(value).reversed(length),
                    _ => Rows::all(value),
                };
                sink(SinkTime::Every, rows);
            }
            if self.sinks == Sinks::All && port == 0 {
                let value = graph.value(row.clone(), 2 * length + 1);
                graph.output(value);
                sink(SinkTime::Every, Rows::strided(value, 1, 2));
            }
            let value = graph.value(row.clone(), 3);
            graph.output(value);
            sink(SinkTime::Last, Rows::one(value, 1));
        }
        sinks
    }
}

/// Tensors of one type, one after the other.
pub(super) fn concat(parts: impl IntoIterator<Item = TensorData>) -> TensorData {
    let mut parts = parts.into_iter();
    let mut all = parts.next().expect("at least one");
    for part in parts {
        match (&mut all, part) {
            (TensorData::F32(all), TensorData::F32(part)) => all.extend(part),
            (TensorData::I64(all), TensorData::I64(part)) => all.extend(part),
            (TensorData::I32(all), TensorData::I32(part)) => all.extend(part),
            (TensorData::Bool(all), TensorData::Bool(part)) => all.extend(part),
            _ => unreachable!("tensors of one type"),
        }
    }
    all
}
