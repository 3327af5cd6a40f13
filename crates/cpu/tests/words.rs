//! What a device remembers of words changes no bit: trees over an embedding, on a device that has
//! met their words and on one that sees each row of the embedding as numbers.

use std::sync::Arc;

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_device::{Device, Progress, TaskQueue};
use batchmaker_graph::{
    BatchedTask, Cell, CellGraph, CellGraphBuilder, CellRegistry, CellTypeId, ElementType, Item,
    Lookup, ModelId, ModelPriority, RequestId, RowSpec, Rows, RunIndex, Sink, SinkTime, TaskId,
    Tensor, TensorData, TreeCell, Work, WorkerId,
};

const INPUT: usize = 7;
const HIDDEN: usize = 70;
const WORDS: usize = 9;
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

/// The words of the leaves, and the children of inner nodes, `[inner, 2]`; leaves come first.
struct Tree {
    words: Vec<usize>,
    children: Vec<[u32; 2]>,
}

impl Tree {
    fn random(random: &mut Random, leaves: usize) -> Self {
        let words = (0..leaves).map(|_| random.below(WORDS)).collect();
        let mut spans: Vec<u32> = (0..leaves as u32).collect();
        let mut children = Vec::new();
        while spans.len() > 1 {
            let at = random.below(spans.len() - 1);
            let right = spans.remove(at + 1);
            children.push([spans[at], right]);
            spans[at] = (leaves + children.len() - 1) as u32;
        }
        Self { words, children }
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
        let table = random.floats(WORDS * INPUT, 1.0);
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
        let mut registry = CellRegistry::default();
        let rank = |priority| ModelPriority { model: ModelId(0), priority };
        registry.add("leaf", Cell::tree(self.leaf.clone()), 64, rank(0));
        registry.add("inner", Cell::tree(self.inner.clone()), 64, rank(1));
        let config = CpuConfig { threads_per_worker, ..CpuConfig::default() };
        let mut device = CpuDevice::new(config).expect("a device");
        device.materialize(registry.cell_types()).expect("cells fit");
        Arc::new(device)
    }

    /// h of every node, then c.
    fn graph(&self, tree: &Tree) -> (CellGraph, Tensor) {
        let (leaves, inner) = (tree.words.len() as u32, tree.children.len() as u32);
        let mut graph = CellGraphBuilder::new();
        let (row, data) = match &self.leaf {
            TreeCell::Leaf { lookup: Some(_), .. } => {
                let ids = tree.words.iter().map(|&word| word as i64).collect();
                (RowSpec::new(ElementType::I64, []), TensorData::I64(ids))
            }
            _ => {
                let row = |&word: &usize| &self.table[word * INPUT..][..INPUT];
                let x = tree.words.iter().flat_map(row).copied().collect();
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
        (graph.finish(), Tensor::new(vec![data.len()], data))
    }

    /// The bits of h and c of all nodes of each tree; the `n`th nodes of all trees are one batch.
    fn play(&self, device: &Arc<CpuDevice>, trees: &[Tree]) -> Vec<Vec<u32>> {
        let mut queue = device.clone().queue(WorkerId(0)).expect("a queue");
        let request = |index: usize| RequestId { index: index as u32, generation: 1 };
        for (index, tree) in trees.iter().enumerate() {
            let (graph, x) = self.graph(tree);
            device.admit(request(index), Arc::new(graph), vec![x]);
        }
        let mut last_task = 0;
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
                let work = Work::Rows(trees.iter().enumerate().filter(has).map(item).collect());
                last_task += 1;
                let id = TaskId(last_task);
                queue.submit(BatchedTask { id, worker: WorkerId(0), cell_type, work });
                assert_eq!(complete(&mut *queue), Progress::Complete(id));
            }
        };
        run(LEAF, &|tree| tree.words.len());
        run(INNER, &|tree| tree.children.len());
        let bits = |tensor: Tensor| match tensor.into_data() {
            TensorData::F32(data) => data.into_iter().map(f32::to_bits),
            _ => unreachable!("states are f32"),
        };
        (0..trees.len())
            .map(|index| device.retire(request(index)).into_iter().flat_map(bits).collect())
            .collect()
    }
}

fn complete(queue: &mut dyn TaskQueue) -> Progress {
    loop {
        match queue.poll() {
            Progress::None => std::hint::spin_loop(),
            progress => return progress,
        }
    }
}

#[test]
fn words_are_remembered_bit_for_bit() {
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
