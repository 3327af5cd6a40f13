//! What the manager itself costs: one thread drives it, and tasks are complete at once.
//!
//! `cargo bench -p batchmaker-manager`. An item is a node in `node`, a request in the others.

use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, ElementType, ModelId, ModelPriority,
    RequestId, RowSpec, Rows, Sink, SinkTime, WorkerId,
};
use batchmaker_manager::{
    BatchSizes, CellTypeConfig, Config, Event, Manager, Policy, StatePlacement, TaskForm,
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
        let manager = Manager::new(Config {
            cell_types: vec![CellTypeConfig {
                batch_sizes: BatchSizes::up_to(limit),
                priorities: vec![ModelPriority { model: ModelId(0), priority: 0 }],
            }],
            workers: 1,
            policy: Policy::Cellular,
            max_tasks_to_submit,
            task_form: TaskForm::Roster,
            state_placement: StatePlacement::Shared,
        });
        let free = (0..2 * limit).rev().map(|index| RequestId { index, generation: 0 }).collect();
        Self { manager, now_ns: 0, free }
    }

    fn arrive(&mut self, graph: &Arc<CellGraph>) {
        let request = self.free.pop().expect("twice as many ids as the roster has room");
        let (model, graph) = (ModelId(0), graph.clone());
        self.now_ns += 1;
        self.manager.handle(self.now_ns, Event::Arrive { request, model, priority: 0, graph });
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

/// One LSTM over `length` steps that gives its last h. Its rows are of no concern here.
fn chain(length: u32) -> Arc<CellGraph> {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let (x, y) = (graph.input(row(), 1), graph.value(row(), 1));
    let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(y, 0) };
    graph.chain(CellTypeId(0), length, vec![Rows::one(x, 0)], vec![None, None], vec![sink]);
    Arc::new(graph.finish())
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
