//! Steps that run on cores of idle workers too have the bits of those that run on one core, while the other workers come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_device::{Device, LoneWorker};
use batchmaker_graph::{
    Cell, CellGraph, CellGraphBuilder, CellRegistry, CellType, CellTypeId, ElementType, Join,
    ModelId, ModelPriority, RecurrentCell, RecurrentKind, RequestId, RowSpec, Rows, RunIndex, Sink,
    SinkTime, SlotId, Tensor, TensorData, Work, WorkerId,
};

const INPUT: usize = 24;
/// Enough for two cores and more.
const HIDDEN: usize = 240;
const STEPS: u32 = 300;
const STEPS_A_TASK: u32 = 5;
const CELL: CellTypeId = CellTypeId(0);

fn numbers(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|at| ((at + seed) * 7919 % 1013) as f32 / 5064.0 - 0.1).collect()
}

fn cell_type(kind: RecurrentKind, gates: usize) -> CellType {
    let cell = Cell::recurrent(RecurrentCell {
        kind,
        input_size: INPUT,
        hidden_size: HIDDEN,
        w: numbers(gates * HIDDEN * INPUT, 0).into(),
        r: numbers(gates * HIDDEN * HIDDEN, 1).into(),
        b: None,
        lookup: None,
    });
    let mut registry = CellRegistry::default();
    registry.add("cell", cell, 64, ModelPriority { model: ModelId(0), priority: 0 });
    registry.cell_types()[0].clone()
}

/// A chain whose last state is kept.
fn chain(states: usize) -> CellGraph {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(RowSpec::flat(ElementType::F32, INPUT), STEPS);
    let last = graph.value(RowSpec::flat(ElementType::F32, HIDDEN), 1);
    let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(last, 0) };
    graph.chain(CELL, STEPS, vec![Rows::all(x)], vec![None; states], vec![sink]);
    graph.output(last);
    graph.finish().unwrap()
}

/// The last state of a chain that runs on `worker` alone, as request `index`.
fn last_state(
    device: &Arc<CpuDevice>,
    worker: &mut LoneWorker,
    graph: &Arc<CellGraph>,
    index: u32,
) -> Vec<TensorData> {
    let request = RequestId { index, generation: 0 };
    let x = TensorData::F32(numbers(STEPS as usize * INPUT, 3));
    device
        .admit(request, graph.clone(), vec![Tensor::new(vec![STEPS as usize, INPUT], x)])
        .unwrap();
    for step in (0..STEPS).step_by(STEPS_A_TASK as usize) {
        let slot = SlotId { index, generation: 0 };
        let join = Join { request, run: RunIndex(0), slot, step: 0, moved_from: None };
        let joins = if step == 0 { vec![join] } else { Vec::new() };
        let leaves = Vec::new();
        worker.run(CELL, Work::Roster { leaves, joins, steps: STEPS_A_TASK }).result.unwrap();
    }
    let last = worker.finish(request);
    let leaves = vec![SlotId { index, generation: 0 }];
    worker.run(CELL, Work::Roster { leaves, joins: Vec::new(), steps: 0 }).result.unwrap();
    last
}

#[test]
fn cores_of_others_change_no_bit() {
    let gru = |linear_before_reset| RecurrentKind::Gru { linear_before_reset };
    let lstm = RecurrentKind::Lstm { p: None, bytes: None };
    for (kind, gates, states) in [(lstm, 4, 2), (gru(false), 3, 1), (gru(true), 3, 1)] {
        let (cell, graph) = (cell_type(kind, gates), Arc::new(chain(states)));
        let of_workers = |workers: usize| {
            let config = CpuConfig { workers, ..CpuConfig::default() };
            let device = Arc::new(CpuDevice::new(config).unwrap());
            let materialized = device.materialize(CELL, &cell).unwrap();
            assert_eq!(materialized.workers_of_a_row > 1, workers > 1);
            device
        };
        let one = of_workers(1);
        let mut worker = LoneWorker::new(one.clone(), WorkerId(0)).unwrap();
        let expected = last_state(&one, &mut worker, &graph, 0);

        let three = of_workers(3);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut worker = LoneWorker::new(three.clone(), WorkerId(1)).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(last_state(&three, &mut worker, &graph, 1), expected, "the other");
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let mut worker = LoneWorker::new(three.clone(), WorkerId(0)).unwrap();
            for turn in 0..20 {
                assert_eq!(last_state(&three, &mut worker, &graph, 0), expected, "turn {turn}");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
