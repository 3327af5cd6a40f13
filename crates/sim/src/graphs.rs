//! The models of a scenario, and the cell graphs of their requests.
//!
//! A model has trees, other acyclic graphs, or a stack of layers over a batch of sequences. A stack may
//! have what real networks have: row-wise cells before, heads on every step or on the last state,
//! initial states computed by another run, backward and bidirectional layers, layers that skip rows,
//! lag behind or follow two producers in turn, open chains that begin with the last state. Its layers
//! may share one cell type. A stack of forward layers takes sequences in chunks as well.

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellTypeId, Chunk, ElementType, ModelId, RowSpec, Rows, RunKind,
    Sink, SinkTime, Stop, ValueIndex,
};

use crate::rng::Rng;
use crate::stages::StagedModel;
use crate::trees::{dag, tree};

/// The shape of a cell type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellShape {
    pub(crate) id: CellTypeId,
    pub(crate) kind: RunKind,
    /// The number of states of a chain's cell.
    pub(crate) states: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
    /// The second cell runs backwards beside the first.
    Both,
}

/// The rows of the layer below that a layer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// Row `i` for step `i`.
    Each,
    /// Every other row: half as many steps.
    EveryOther,
    /// All but the first rows.
    Later,
    /// The row before: a row-wise cell writes the first, the layer below the others.
    Lagging,
    /// The first half is written by one chain, the rest by another.
    InTurn,
}

#[derive(Clone, Debug)]
struct Layer {
    cell: CellShape,
    other: CellShape,
    direction: Direction,
    reach: Reach,
    /// Reads the request's input as well.
    skips: bool,
    has_initial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    None,
    EveryStep(CellTypeId),
    Last(CellTypeId),
}

/// A model of a scenario.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) id: ModelId,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    Stack(Stack),
    Tree {
        cells: [CellTypeId; 2],
        arity: u32,
    },
    Dag {
        cells: Vec<CellTypeId>,
    },
    /// Cells one after the other, some of which others decide on.
    Decided(StagedModel),
}

#[derive(Clone, Debug)]
struct Stack {
    before: Option<CellTypeId>,
    layers: Vec<Layer>,
    initial: CellTypeId,
    head: Head,
    /// An open chain for each sequence.
    decoder: Option<Decoder>,
}

#[derive(Clone, Copy, Debug)]
struct Decoder {
    cell: CellShape,
    stop: Stop,
    /// The bound of its chains is the sequence's length plus this number.
    plus: u32,
}

impl Model {
    /// A model of some of `cells`, among which are a chain and a row-wise one.
    pub(crate) fn draw(id: ModelId, cells: &[CellShape], rng: &mut Rng) -> Self {
        let rows = cells.iter().filter(|cell| cell.kind == RunKind::Rows);
        let rows: Vec<CellTypeId> = rows.map(|cell| cell.id).collect();
        let shape = match rng.within(0..=11) {
            0 | 1 => {
                let cells = [*rng.pick(&rows), *rng.pick(&rows)];
                Shape::Tree { cells, arity: *rng.pick(&[1, 2, 2, 2, 3]) }
            }
            2 | 3 => Shape::Dag { cells: rows },
            4 | 5 => {
                let cells: Vec<CellTypeId> =
                    (0..rng.within(2..=8)).map(|_| *rng.pick(&rows)).collect();
                Shape::Decided(StagedModel::draw(id, cells.into_iter(), rng))
            }
            _ => Shape::Stack(Stack::draw(cells, rng)),
        };
        Self { id, shape }
    }

    /// The graph of a request of `sequences` sequences of `length` rows, or of a tree or another
    /// graph of about `length` nodes.
    pub(crate) fn unfold(
        &self,
        length: u32,
        sequences: u32,
        layout: Layout,
        rng: &mut Rng,
    ) -> CellGraph {
        match &self.shape {
            Shape::Tree { cells, arity } => tree(*cells, *arity, length, rng),
            Shape::Dag { cells } => dag(cells, length, rng),
            Shape::Decided(model) => model.unfold(length),
            Shape::Stack(stack) => stack.unfold(Chunk::Whole, length, sequences, layout),
        }
    }

    /// Whether a sequence may come in chunks.
    pub(crate) fn takes_chunks(&self) -> bool {
        matches!(self.shape, Shape::Stack(_))
    }

    /// The graph of a chunk of `length` rows. The graphs of one model have the same runs but for
    /// lengths.
    ///
    /// # Panics
    /// If the model takes no chunks.
    pub(crate) fn unfold_chunk(&self, chunk: Chunk, length: u32) -> CellGraph {
        let Shape::Stack(stack) = &self.shape else { panic!("{:?} takes no chunks", self.id) };
        stack.in_chunks().unfold(chunk, length, 1, Layout::TimeFirst)
    }
}

impl Stack {
    fn unfold(&self, chunk: Chunk, length: u32, sequences: u32, layout: Layout) -> CellGraph {
        let graph = CellGraphBuilder::of_chunk(chunk);
        let mut unfolding = Unfolding { graph, chunk, sequences, layout, last: None };
        unfolding.model(self, length);
        unfolding.graph.finish().unwrap()
    }

    /// The stack with forward layers that are as long as their chunk.
    fn in_chunks(&self) -> Self {
        let layer = |layer: &Layer| Layer {
            direction: Direction::Forward,
            reach: match layer.reach {
                Reach::Lagging => Reach::Lagging,
                _ => Reach::Each,
            },
            ..layer.clone()
        };
        let layers = self.layers.iter().map(layer).collect();
        Self { layers, decoder: None, ..self.clone() }
    }

    fn draw(cells: &[CellShape], rng: &mut Rng) -> Self {
        let of = |kind| cells.iter().copied().filter(|cell| cell.kind == kind).collect::<Vec<_>>();
        let (chains, rows) = (of(RunKind::Chain), of(RunKind::Rows));
        let is_plain = rng.chance(40);
        let layers = (0..rng.within(1..=4)).map(|_| Layer {
            cell: *rng.pick(&chains),
            other: *rng.pick(&chains),
            direction: match rng.within(0..=9) {
                0 if !is_plain => Direction::Backward,
                1 | 2 if !is_plain => Direction::Both,
                _ => Direction::Forward,
            },
            reach: match rng.within(0..=15) {
                0 if !is_plain => Reach::EveryOther,
                1 if !is_plain => Reach::Later,
                2 | 3 if !is_plain => Reach::Lagging,
                4 if !is_plain => Reach::InTurn,
                _ => Reach::Each,
            },
            skips: rng.chance(15),
            has_initial: rng.chance(20),
        });
        let layers = layers.collect();
        let head = rng.pick(&rows).id;
        let decoder = rng.chance(25).then(|| Decoder {
            cell: *rng.pick(&chains),
            stop: Stop { port: 0, value: rng.within(0..=7) as i64 },
            plus: rng.within(0..=12) as u32,
        });
        Self {
            decoder,
            before: rng.chance(30).then(|| rng.pick(&rows).id),
            layers,
            initial: rng.pick(&rows).id,
            head: match rng.within(0..=2) {
                0 => Head::None,
                1 => Head::EveryStep(head),
                _ => Head::Last(head),
            },
        }
    }
}

/// The order of a value's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    TimeFirst,
    SequenceFirst,
}

/// A sequence of rows for each sequence of the batch.
#[derive(Clone, Copy)]
struct Sequences {
    value: ValueIndex,
    length: u32,
}

struct Unfolding {
    graph: CellGraphBuilder,
    chunk: Chunk,
    sequences: u32,
    layout: Layout,
    /// The last outputs of the last layer, a row for each sequence.
    last: Option<ValueIndex>,
}

impl Unfolding {
    fn model(&mut self, model: &Stack, length: u32) {
        let input = self.graph.input(row(), length * self.sequences);
        let input = Sequences { value: input, length };
        let mut below = vec![input];
        if let Some(cell) = model.before {
            below = vec![self.rows(cell, input)];
        }
        for layer in &model.layers {
            below = self.layer(model, layer, input, below);
        }
        match (model.head, self.last) {
            (Head::EveryStep(cell), _) => {
                let output = self.rows(cell, below[0]);
                self.graph.output(output.value);
            }
            (Head::Last(cell), Some(last)) => {
                let output = self.rows(cell, Sequences { value: last, length: 1 });
                self.graph.output(output.value);
            }
            _ => {}
        }
        for sequences in below {
            self.graph.output(sequences.value);
        }
        if let Some(last) = self.last {
            self.graph.output(last);
            if let Some(decoder) = model.decoder {
                self.open_chains(decoder, last, length);
            }
        }
    }

    /// Adds an open chain for each sequence, which begins with the sequence's last state.
    fn open_chains(&mut self, decoder: Decoder, last: ValueIndex, length: u32) {
        let Decoder { cell, stop, plus } = decoder;
        let bound = length + plus;
        let value = self.graph.value(row(), bound * self.sequences);
        for b in 0..self.sequences {
            let mut states = vec![None; cell.states];
            states[0] = Some(Rows::one(last, b));
            let sinks = vec![every(Rows::strided(value, b * bound, 1))];
            self.graph.chain_until(cell.id, bound, Vec::new(), states, sinks, stop);
        }
        self.graph.output(value);
    }

    /// A row-wise cell over all rows, in one run.
    fn rows(&mut self, cell: CellTypeId, over: Sequences) -> Sequences {
        let count = over.length * self.sequences;
        let value = self.graph.value(row(), count);
        let sinks = vec![every(Rows::all(value))];
        self.graph.rows(cell, count, vec![Rows::all(over.value)], sinks);
        Sequences { value, ..over }
    }

    fn layer(
        &mut self,
        model: &Stack,
        layer: &Layer,
        input: Sequences,
        mut below: Vec<Sequences>,
    ) -> Vec<Sequences> {
        let mut length = input.length.min(below[0].length);
        let (mut first, mut stride) = (0, 1);
        match layer.reach {
            Reach::Each => {}
            Reach::EveryOther => (length, stride) = (length.div_ceil(2), 2),
            Reach::Later => {
                first = length / 3;
                length -= first;
            }
            Reach::Lagging => below = vec![self.lagging(model, layer, below[0])],
            Reach::InTurn if length > 1 => below = vec![self.in_turn(layer, below[0])],
            Reach::InTurn => {}
        }
        let initial = layer.has_initial.then(|| {
            let value = self.graph.value(row(), self.sequences);
            let first_rows = (0..self.sequences).map(|b| self.layout_rows(input, b, 0, 1));
            for (b, rows) in (0..).zip(first_rows.collect::<Vec<_>>()) {
                let sink = every(Rows::one(value, b));
                self.graph.rows(model.initial, 1, vec![rows], vec![sink]);
            }
            value
        });
        let cells = match layer.direction {
            Direction::Forward => vec![(layer.cell, false)],
            Direction::Backward => vec![(layer.cell, true)],
            Direction::Both => vec![(layer.cell, false), (layer.other, true)],
        };
        let mut above = Vec::new();
        for (cell, is_backward) in cells {
            let value = self.graph.value(row(), length * self.sequences);
            let output = Sequences { value, length };
            let last = self.graph.value(row(), self.sequences);
            for b in 0..self.sequences {
                let directed = |rows: Rows| match is_backward {
                    true => rows.reversed(length),
                    false => rows,
                };
                let sources = below.iter().map(|&below| self.layout_rows(below, b, first, stride));
                let mut inputs: Vec<Rows> = sources.map(directed).collect();
                if layer.skips {
                    inputs.push(directed(self.layout_rows(input, b, 0, 1)));
                }
                let mut states = vec![None; cell.states];
                // A later chunk computes it as well, though nothing reads it.
                let initial = initial.filter(|_| self.chunk != Chunk::Next);
                states[0] = initial.map(|value| Rows::one(value, b));
                let sinks = vec![
                    every(directed(self.layout_rows(output, b, 0, 1))),
                    Sink { port: cell.states - 1, time: SinkTime::Last, rows: Rows::one(last, b) },
                ];
                self.graph.chain(cell.id, length, inputs, states, sinks);
            }
            self.last = Some(last);
            above.push(output);
        }
        above
    }

    /// As long as `below`: a row of its own, then the outputs of a chain but for the last one.
    fn lagging(&mut self, model: &Stack, layer: &Layer, below: Sequences) -> Sequences {
        let value = self.graph.value(row(), (below.length + 1) * self.sequences);
        let output = Sequences { value, length: below.length + 1 };
        for b in 0..self.sequences {
            let first = self.layout_row(output, b, 0);
            let input = self.layout_row(below, b, 0);
            self.graph.rows(model.initial, 1, vec![input], vec![every(first)]);
        }
        for b in 0..self.sequences {
            let inputs = vec![self.layout_rows(below, b, 0, 1)];
            let sinks = vec![every(self.layout_rows(output, b, 1, 1))];
            let initial = vec![None; layer.other.states];
            self.graph.chain(layer.other.id, below.length, inputs, initial, sinks);
        }
        output
    }

    /// As long as `below`: one chain writes the first half, another the rest.
    fn in_turn(&mut self, layer: &Layer, below: Sequences) -> Sequences {
        let value = self.graph.value(row(), below.length * self.sequences);
        let output = Sequences { value, ..below };
        let half = below.length / 2;
        for b in 0..self.sequences {
            for (cell, first, length) in
                [(layer.cell, 0, half), (layer.other, half, below.length - half)]
            {
                let inputs = vec![self.layout_rows(below, b, first, 1)];
                let sinks = vec![every(self.layout_rows(output, b, first, 1))];
                self.graph.chain(cell.id, length, inputs, vec![None; cell.states], sinks);
            }
        }
        output
    }

    /// The rows of sequence `b` from its row `first` on, each `every` rows.
    fn layout_rows(&self, of: Sequences, b: u32, first: u32, every: u32) -> Rows {
        let (first, stride) = match self.layout {
            Layout::TimeFirst => (first * self.sequences + b, every * self.sequences),
            Layout::SequenceFirst => (b * of.length + first, every),
        };
        Rows::strided(of.value, first, stride as i32)
    }

    /// One row of sequence `b`.
    fn layout_row(&self, of: Sequences, b: u32, row: u32) -> Rows {
        Rows::one(of.value, self.layout_rows(of, b, row, 1).row(0) as u32)
    }
}

fn every(rows: Rows) -> Sink {
    Sink { port: 0, time: SinkTime::Every, rows }
}

fn row() -> RowSpec {
    RowSpec::new(ElementType::F32, [1])
}
