//! The caches of rows by token id change no bit: trees and chains over an embedding, on a device that has
//! computed their token ids before and on one that reads each row of the embedding as numbers.

use std::sync::Arc;

use batchmaker_cpu::{CpuConfig, CpuDevice, InputProjection};
use batchmaker_device::{Device, LoneWorker};
use batchmaker_graph::{
    Cell, CellGraph, CellGraphBuilder, CellRegistry, CellTypeId, ElementType, Item, Join, Lookup,
    ModelId, ModelPriority, RecurrentCell, RecurrentKind, RequestId, RowSpec, Rows, RunIndex, Sink,
    SinkTime, SlotId, Tensor, TensorData, TreeCell, Work, WorkerId,
};

const INPUT: usize = 7;
const HIDDEN: usize = 70;
const TOKEN_IDS: usize = 9;
const LEAF: CellTypeId = CellTypeId(0);
const INNER: CellTypeId = CellTypeId(1);

/// A generator of numbers that look random.
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 >> 8
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound
    }

    fn floats(&mut self, count: usize, scale: f32) -> Arc<[f32]> {
        (0..count).map(|_| (self.next() as f32 / (1 << 23) as f32 - 1.0) * scale).collect()
    }
}

/// The token ids of the leaves, and the children of inner nodes, `[inner, 2]`; leaves come first.
struct Tree {
    token_ids: Vec<usize>,
    children: Vec<[u32; 2]>,
}

impl Tree {
    fn random(random: &mut Random, leaves: usize) -> Self {
        let token_ids = (0..leaves).map(|_| random.below(TOKEN_IDS)).collect();
        let mut spans: Vec<u32> = (0..leaves as u32).collect();
        let mut children = Vec::new();
        while spans.len() > 1 {
            let at = random.below(spans.len() - 1);
            let right = spans.remove(at + 1);
            children.push([spans[at], right]);
            spans[at] = (leaves + children.len() - 1) as u32;
        }
        Self { token_ids, children }
    }
}

/// The weights.
struct Cells {
    table: Arc<[f32]>,
    leaf: TreeCell,
    inner: TreeCell,
}

impl Cells {
    fn new(is_lookup: bool) -> Self {
        let mut random = Random(5);
        let table = random.floats(TOKEN_IDS * INPUT, 1.0);
        let lookup = is_lookup.then(|| Lookup { table: table.clone(), width: INPUT });
        let (input_size, hidden_size) = (INPUT, HIDDEN);
        let w = random.floats(3 * HIDDEN * INPUT, 0.5);
        let b = Some(random.floats(3 * HIDDEN, 0.5));
        let leaf = TreeCell::Leaf { input_size, hidden_size, w, b, lookup };
        let [l, r] = [(); 2].map(|()| random.floats(5 * HIDDEN * HIDDEN, 0.3));
        let b = Some(random.floats(5 * HIDDEN, 0.5));
        Self { table, leaf, inner: TreeCell::Inner { hidden_size, l, r, b } }
    }

    fn device(&self, threads_per_worker: usize) -> Arc<CpuDevice> {
        let cells = [Cell::tree(self.leaf.clone()), Cell::tree(self.inner.clone())];
        device(CpuConfig { threads_per_worker, ..CpuConfig::default() }, cells)
    }

    /// h of every node, then c.
    fn graph(&self, tree: &Tree) -> (CellGraph, Tensor) {
        let (leaves, inner) = (tree.token_ids.len() as u32, tree.children.len() as u32);
        let mut graph = CellGraphBuilder::new();
        let (row, data) = match &self.leaf {
            TreeCell::Leaf { lookup: Some(_), .. } => {
                let ids = tree.token_ids.iter().map(|&token_id| token_id as i64).collect();
                (RowSpec::new(ElementType::I64, []), TensorData::I64(ids))
            }
            _ => {
                let row = |&token_id: &usize| &self.table[token_id * INPUT..][..INPUT];
                let x = tree.token_ids.iter().flat_map(row).copied().collect();
                (RowSpec::new(ElementType::F32, [INPUT]), TensorData::F32(x))
            }
        };
        let x = graph.input(row, leaves);
        let state = || RowSpec::new(ElementType::F32, [HIDDEN]);
        let states = [graph.value(state(), leaves + inner), graph.value(state(), leaves + inner)];
        let sinks = |first: u32| {
            let sink = |port: usize| {
                let rows = Rows::strided(states[port], first, 1);
                Sink { port, time: SinkTime::Every, rows }
            };
            vec![sink(0), sink(1)]
        };
        graph.rows(LEAF, leaves, vec![Rows::all(x)], sinks(0));
        if inner > 0 {
            let rows = |child: usize, state: usize| {
                let of_nodes: Vec<u32> = tree.children.iter().map(|node| node[child]).collect();
                Rows::listed(states[state], of_nodes)
            };
            let reads = vec![rows(0, 0), rows(0, 1), rows(1, 0), rows(1, 1)];
            graph.nodes(INNER, inner, reads, sinks(leaves));
        }
        states.into_iter().for_each(|value| graph.output(value));
        (graph.finish().unwrap(), Tensor::new(vec![data.len()], data))
    }

    /// The bits of h and c of all nodes of each tree; the `n`th nodes of all trees are one batch.
    fn play(&self, device: &Arc<CpuDevice>, trees: &[Tree]) -> Vec<Vec<u32>> {
        let mut worker = worker(device);
        for (index, tree) in trees.iter().enumerate() {
            let (graph, x) = self.graph(tree);
            device.admit(request(index), Arc::new(graph), vec![x]).expect("the request fits");
        }
        let mut run = |cell_type: CellTypeId, lengths: &dyn Fn(&Tree) -> usize| {
            for first in 0..trees.iter().map(lengths).max().unwrap_or(0) {
                let has = |&(_, tree): &(usize, &Tree)| first < lengths(tree);
                let item = |(index, _): (usize, &Tree)| Item {
                    request: request(index),
                    run: RunIndex(cell_type.0),
                    first: first as u32,
                    count: 1,
                    slot: None,
                    moved_from: None,
                };
                let items = trees.iter().enumerate().filter(has).map(item).collect();
                assert_eq!(worker.run(cell_type, Work::Rows(items)).result, Ok(()));
            }
        };
        run(LEAF, &|tree| tree.token_ids.len());
        run(INNER, &|tree| tree.children.len());
        (0..trees.len()).map(|index| finish(&mut worker, index)).collect()
    }
}

fn device(config: CpuConfig, cells: impl IntoIterator<Item = Cell>) -> Arc<CpuDevice> {
    let mut registry = CellRegistry::default();
    for (cell, priority) in cells.into_iter().zip(0..) {
        let rank = ModelPriority { model: ModelId(0), priority };
        registry.add("cell", cell, 64, rank);
    }
    let device = CpuDevice::new(config).expect("a device");
    for (id, cell) in (0..).zip(registry.cell_types()) {
        device.materialize(CellTypeId(id), cell).expect("cells fit");
    }
    Arc::new(device)
}

fn request(index: usize) -> RequestId {
    RequestId { index: index as u32, generation: 1 }
}

/// A device's only worker.
fn worker(device: &Arc<CpuDevice>) -> LoneWorker {
    LoneWorker::new(device.clone(), WorkerId(0)).expect("a queue")
}

/// The bits of what a request yields.
fn finish(worker: &mut LoneWorker, index: usize) -> Vec<u32> {
    let bits = |data: TensorData| match data {
        TensorData::F32(data) => data.into_iter().map(f32::to_bits),
        _ => unreachable!("states are f32"),
    };
    worker.finish(request(index)).into_iter().flat_map(bits).collect()
}

#[test]
fn trees_over_cached_token_ids_have_the_same_bits() {
    let mut random = Random(77);
    let mut trees = |count: usize| -> Vec<Tree> {
        (0..count).map(|at| Tree::random(&mut random, 1 + at % 12)).collect()
    };
    let (trees, others) = (trees(24), trees(24));
    let as_numbers = Cells::new(false);
    let expected = as_numbers.play(&as_numbers.device(1), &trees);
    let of_words = Cells::new(true);
    for threads in [1, 3] {
        let device = of_words.device(threads);
        for turn in ["fresh", "after these", "after others"] {
            assert_eq!(of_words.play(&device, &trees), expected, "{threads} threads, {turn}");
            of_words.play(&device, &others);
        }
    }
}

/// Too many token ids for a table that is projected as a whole.
const CHAIN_WORDS: usize = 30_000;

/// An LSTM over an embedding, or over its rows.
fn lstm(random: &mut Random, lookup: Option<Lookup>) -> RecurrentCell {
    RecurrentCell {
        kind: RecurrentKind::Lstm { p: None, bytes: None },
        input_size: INPUT,
        hidden_size: HIDDEN,
        w: random.floats(4 * HIDDEN * INPUT, 0.5),
        r: random.floats(4 * HIDDEN * HIDDEN, 0.3),
        b: Some(random.floats(8 * HIDDEN, 0.5)),
        lookup,
    }
}

/// h after every step of a sequence.
fn chain(x: TensorData, row: RowSpec, length: u32) -> (CellGraph, Tensor) {
    let mut graph = CellGraphBuilder::new();
    let x_value = graph.input(row, length);
    let y = graph.value(RowSpec::new(ElementType::F32, [HIDDEN]), length);
    let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
    graph.chain(CellTypeId(0), length, vec![Rows::all(x_value)], vec![None, None], vec![sink]);
    graph.output(y);
    (graph.finish().unwrap(), Tensor::new(vec![x.len()], x))
}

/// Sequences of one length, as one batch, on a device that may have run others.
fn play_chains(
    worker: &mut LoneWorker,
    device: &CpuDevice,
    graphs: Vec<(CellGraph, Tensor)>,
    length: u32,
) -> Vec<Vec<u32>> {
    let count = graphs.len();
    for (index, (graph, x)) in graphs.into_iter().enumerate() {
        device.admit(request(index), Arc::new(graph), vec![x]).expect("the request fits");
    }
    let slot = |index: usize| SlotId { index: index as u32, generation: 0 };
    let join = |index: usize| Join {
        request: request(index),
        run: RunIndex(0),
        slot: slot(index),
        step: 0,
        moved_from: None,
    };
    let joins = (0..count).map(join).collect();
    let cell_type = CellTypeId(0);
    assert_eq!(
        worker.run(cell_type, Work::Roster { leaves: Vec::new(), joins, steps: 5 }).result,
        Ok(())
    );
    let (leaves, joins) = (Vec::new(), Vec::new());
    assert_eq!(
        worker.run(cell_type, Work::Roster { leaves, joins, steps: length - 5 }).result,
        Ok(())
    );
    let leaves = (0..count).map(slot).collect();
    assert_eq!(
        worker.run(cell_type, Work::Roster { leaves, joins: Vec::new(), steps: 0 }).result,
        Ok(())
    );
    (0..count).map(|index| finish(worker, index)).collect()
}

#[test]
fn chains_over_cached_token_ids_have_the_same_bits() {
    let length = 40;
    let mut random = Random(99);
    let table = random.floats(CHAIN_WORDS * INPUT, 1.0);
    let mut sentences = |count: usize| -> Vec<Vec<usize>> {
        let token_id = |random: &mut Random| match random.below(3) {
            0 => random.below(CHAIN_WORDS),
            _ => random.below(40),
        };
        (0..count).map(|_| (0..length).map(|_| token_id(&mut random)).collect()).collect()
    };
    let (sentences, others) = (sentences(24), sentences(24));
    let as_numbers = |sentence: &Vec<usize>| {
        let row = |&token_id: &usize| &table[token_id * INPUT..][..INPUT];
        let x = TensorData::F32(sentence.iter().flat_map(row).copied().collect());
        chain(x, RowSpec::new(ElementType::F32, [INPUT]), length)
    };
    let as_ids = |sentence: &Vec<usize>| {
        let x = TensorData::I64(sentence.iter().map(|&token_id| token_id as i64).collect());
        chain(x, RowSpec::new(ElementType::I64, []), length)
    };

    let cell = lstm(&mut Random(3), None);
    let numbers = device(CpuConfig::default(), [Cell::recurrent(cell)]);
    let graphs = sentences.iter().map(as_numbers).collect();
    let expected = play_chains(&mut worker(&numbers), &numbers, graphs, length);
    let lookup = Lookup { table: table.clone(), width: INPUT };
    let cell = lstm(&mut Random(3), Some(lookup));
    use InputProjection::{Always, Measured, Never};
    for (input_projection, threads_per_worker) in [(Measured, 1), (Always, 3), (Never, 1)] {
        let config = CpuConfig { input_projection, threads_per_worker, ..CpuConfig::default() };
        let device = device(config, [Cell::recurrent(cell.clone())]);
        let worker = &mut worker(&device);
        for turn in ["fresh", "after these", "after others", "after others, again"] {
            let graphs = sentences.iter().map(as_ids).collect();
            let actual = play_chains(worker, &device, graphs, length);
            assert!(actual == expected, "{input_projection:?}, {turn}");
            play_chains(worker, &device, others.iter().map(as_ids).collect(), length);
        }
    }
}
