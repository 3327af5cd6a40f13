//! The cost of the manager itself: one thread drives it, and tasks are complete at once.
//!
//! `cargo bench -p batchmaker-manager`. An item is a node in `node` and `tree_node`, a request in the
//! others. `TREES=FILE cargo bench -p batchmaker-manager tree_node` takes the trees of a file, one
//! in labelled brackets a line.

use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, ElementType, ModelId, ModelPriority,
    RequestId, RowSpec, Rows, Sink, SinkTime, WorkerId,
};
use batchmaker_manager::{
    CellTypeConfig, Config, Event, Manager, Policy, Stages, StatePlacement, TaskForm,
};
use divan::Bencher;
use divan::counter::ItemsCount;

const WORKER: WorkerId = WorkerId(0);
const MAX_TASKS_TO_SUBMIT: u32 = Config::MAX_TASKS_TO_SUBMIT;

fn main() {
    divan::main();
}

/// A manager with one cell type, and a null device.
struct Bench {
    manager: Manager,
    now_ns: u64,
    /// Ids that no request has.
    free: Vec<RequestId>,
}

impl Bench {
    fn new(limit: u32, max_tasks_to_submit: u32) -> Self {
        Self::with_cells(1, limit, max_tasks_to_submit)
    }

    /// Later cell types have a higher priority.
    fn with_cells(cells: i32, limit: u32, max_tasks_to_submit: u32) -> Self {
        let cell_types = (0..cells).map(|priority| {
            CellTypeConfig::up_to(limit, vec![ModelPriority { model: ModelId(0), priority }])
        });
        let manager = Manager::new(Config {
            cell_types: cell_types.collect(),
            workers: 1,
            lookahead: 0,
            fairness: None,
            stages: Stages::default(),
            staged_models: Vec::new(),
            policy: Policy::Cellular,
            max_tasks_to_submit,
            rounds_of_a_turn: 1,
            submission_window_ns: None,
            task_form: TaskForm::Roster,
            state_placement: StatePlacement::Shared,
        });
        let free = (0..4 * limit).rev().map(|index| RequestId { index, generation: 0 }).collect();
        Self { manager, now_ns: 0, free }
    }

    fn arrive(&mut self, graph: &Arc<CellGraph>) {
        let request = self.free.pop().expect("more ids than requests in flight");
        let (model, graph) = (ModelId(0), graph.clone());
        self.now_ns += 1;
        let event =
            Event::Arrive { request, model, priority: 0, deadline_ns: None, graph, session: None };
        self.manager.handle(self.now_ns, event);
    }

    /// A round: all tasks that the worker is given, complete at once.
    fn round(&mut self) {
        let mut last: Option<BatchedTask> = None;
        let mut tasks = 0;
        while let Some(task) = self.manager.next_task(WORKER) {
            tasks += 1;
            last = Some(task);
        }
        let last = last.expect("there is work").id.0;
        for id in last + 1 - tasks..=last {
            self.now_ns += 1;
            let task = batchmaker_graph::TaskId(id);
            self.manager.handle(self.now_ns, Event::Complete { worker: WORKER, task });
        }
        let next = |id: RequestId| RequestId { generation: id.generation + 1, ..id };
        self.free.extend(self.manager.drain_finished().map(|finished| next(finished.request)));
    }
}

/// The graph of one LSTM over `length` steps, whose output is the last h. Its rows do not matter here.
fn chain(length: u32) -> Arc<CellGraph> {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), 1), graph.value(row(), 1));
    let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(y, 0) };
    graph.chain(CellTypeId(0), length, vec![Rows::one(x, 0)], vec![None, None], vec![sink]);
    Arc::new(graph.finish().unwrap())
}

/// A steady roster: nobody joins or leaves.
#[divan::bench(args = [64, 128, 256, 512], sample_size = 1000)]
fn node(bencher: Bencher<'_, '_>, roster: u32) {
    let mut bench = Bench::new(roster, MAX_TASKS_TO_SUBMIT);
    let forever = chain(u32::MAX);
    (0..roster).for_each(|_| bench.arrive(&forever));
    bench.round();
    let nodes = u64::from(roster * MAX_TASKS_TO_SUBMIT);
    bencher.counter(ItemsCount::new(nodes)).bench_local(|| bench.round());
}

/// Requests arrive and wait.
#[divan::bench(args = [64, 512])]
fn arrival(bencher: Bencher<'_, '_>, roster: u32) {
    let graph = chain(MAX_TASKS_TO_SUBMIT);
    let arrive_all = |bench: &mut Bench| (0..roster).for_each(|_| bench.arrive(&graph));
    bencher
        .counter(ItemsCount::new(roster))
        .with_inputs(|| warm(roster, &graph))
        .bench_local_refs(arrive_all);
}

/// A full batch of requests joins, runs its only task, leaves and is answered.
#[divan::bench(args = [64, 512])]
fn join_and_leave(bencher: Bencher<'_, '_>, roster: u32) {
    let graph = chain(MAX_TASKS_TO_SUBMIT);
    let arrived = || {
        let mut bench = warm(roster, &graph);
        (0..roster).for_each(|_| bench.arrive(&graph));
        bench
    };
    bencher.counter(ItemsCount::new(roster)).with_inputs(arrived).bench_local_refs(Bench::round);
}

/// Both: arrival, join, leave and answer of requests that end with their first task.
#[divan::bench(args = [64, 512], sample_size = 20)]
fn request(bencher: Bencher<'_, '_>, roster: u32) {
    let graph = chain(MAX_TASKS_TO_SUBMIT);
    let mut bench = warm(roster, &graph);
    bencher.counter(ItemsCount::new(roster)).bench_local(|| {
        (0..roster).for_each(|_| bench.arrive(&graph));
        bench.round();
    });
}

/// A manager whose tables have grown to what `roster` requests need.
fn warm(roster: u32, graph: &Arc<CellGraph>) -> Bench {
    let mut bench = Bench::new(roster, MAX_TASKS_TO_SUBMIT);
    for _ in 0..3 {
        (0..roster).for_each(|_| bench.arrive(graph));
        bench.round();
    }
    bench
}

/// The same with lengths 1 to 47, where a few join and leave at a time and others wait. Steps are
/// part of the figure.
#[divan::bench(args = [64, 512], sample_size = 20)]
fn request_of_24_steps(bencher: Bencher<'_, '_>, roster: u32) {
    let mut bench = Bench::new(roster, MAX_TASKS_TO_SUBMIT);
    let graphs: Vec<_> = (1..48).map(chain).collect();
    let mut next = 0;
    bencher.counter(ItemsCount::new(roster)).bench_local(|| {
        let mut arrived = 0;
        while arrived < roster {
            while bench.manager.requests() < roster as usize + roster as usize / 2 {
                // 20 has no factor in common with 47.
                next = (next + 20) % graphs.len();
                bench.arrive(&graphs[next]);
                arrived += 1;
            }
            bench.round();
        }
    });
}

/// Trees that arrive, run and leave, as many in flight as four full batches: leaves, then inner nodes
/// level by level. Arrivals and answers are part of the figure.
#[divan::bench(args = [64, 256], sample_size = 5)]
fn tree_node(bencher: Bencher<'_, '_>, limit: u32) {
    let trees = trees();
    let mut bench = Bench::with_cells(2, limit, MAX_TASKS_TO_SUBMIT);
    let nodes: u64 = trees.iter().map(|tree| tree.nodes()).sum();
    bencher.counter(ItemsCount::new(nodes)).bench_local(|| {
        let mut waiting = trees.iter();
        while bench.manager.requests() > 0 || waiting.len() > 0 {
            while bench.manager.requests() < 4 * limit as usize {
                let Some(tree) = waiting.next() else { break };
                bench.arrive(tree);
            }
            bench.round();
        }
    });
}

/// Trees of type 0 leaves and type 1 inner nodes.
fn trees() -> Vec<Arc<CellGraph>> {
    match std::env::var("TREES") {
        Ok(path) => {
            let text = std::fs::read_to_string(&path).expect("TREES names a file");
            text.lines().map(|line| tree(&read_children(line))).collect()
        }
        Err(_) => (0..2_000).map(|seed| tree(&drawn_children(seed))).collect(),
    }
}

/// The inner nodes of a tree in brackets, as they end.
fn read_children(line: &str) -> Vec<[Node; 2]> {
    let (mut children, mut open, mut leaves) = (Vec::new(), Vec::<Vec<Node>>::new(), 0);
    for bracket in line.chars().filter(|c| "()".contains(*c)) {
        if bracket == '(' {
            open.push(Vec::new());
            continue;
        }
        let node = match open.pop().expect("brackets match")[..] {
            [left, right] => {
                children.push([left, right]);
                Node::Inner(children.len() as u32 - 1)
            }
            _ => {
                leaves += 1;
                Node::Leaf(leaves - 1)
            }
        };
        if let Some(parent) = open.last_mut() {
            parent.push(node);
        }
    }
    children
}

#[derive(Clone, Copy)]
enum Node {
    Leaf(u32),
    Inner(u32),
}

/// Neighbours joined at random: 1 to 37 leaves, as deep as parse trees.
fn drawn_children(seed: u32) -> Vec<[Node; 2]> {
    let mut state = (seed + 1).wrapping_mul(2_654_435_761) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as usize % below
    };
    let mut open: Vec<Node> = (0..1 + next(37) as u32).map(Node::Leaf).collect();
    let mut children = Vec::new();
    while open.len() > 1 {
        let left = next(open.len() - 1);
        children.push([open[left], open.remove(left + 1)]);
        open[left] = Node::Inner(children.len() as u32 - 1);
    }
    children
}

fn tree(children: &[[Node; 2]]) -> Arc<CellGraph> {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let (inner, leaves) = (children.len() as u32, children.len() as u32 + 1);
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), leaves);
    let h = graph.value(row(), leaves + inner);
    let every = |first| {
        let rows = Rows::strided(h, first, 1);
        vec![Sink { port: 0, time: SinkTime::Every, rows }]
    };
    graph.rows(CellTypeId(0), leaves, vec![Rows::all(x)], every(0));
    let child = |side: usize| {
        let row = |children: &[Node; 2]| match children[side] {
            Node::Leaf(leaf) => leaf,
            Node::Inner(inner) => leaves + inner,
        };
        Rows::listed(h, children.iter().map(row).collect::<Vec<u32>>())
    };
    if inner > 0 {
        graph.nodes(CellTypeId(1), inner, vec![child(0), child(1)], every(leaves));
    }
    Arc::new(graph.finish().unwrap())
}
