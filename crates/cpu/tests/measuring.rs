//! Cells are measured and their plans given back to a device: plans say what they should, and change no bit.

use std::sync::Arc;

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_device::{BatchSize, Device, DeviceError, ExecutionPlan, LoneWorker};
use batchmaker_graph::{
    Cell, CellBody, CellGraph, CellGraphBuilder, CellRegistry, CellType, CellTypeId, ElementType,
    Join, ModelId, ModelPriority, Precision, Program, RecurrentCell, RecurrentKind, RequestId,
    RowSpec, Rows, RunIndex, SequenceCell, Sink, SinkTime, SlotId, Tensor, TensorData, TreeCell,
    Work, WorkerId,
};

const INPUT: usize = 40;
const HIDDEN: usize = 72;
const STEPS: u32 = 6;
const CHAINS: u32 = 5;
const LSTM: CellTypeId = CellTypeId(0);

fn numbers(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|at| ((at + seed) * 7919 % 1013) as f32 / 2532.0 - 0.2).collect()
}

fn lstm() -> Cell {
    Cell::recurrent(RecurrentCell {
        kind: RecurrentKind::Lstm { p: None, bytes: None },
        input_size: INPUT,
        hidden_size: HIDDEN,
        w: numbers(4 * HIDDEN * INPUT, 0).into(),
        r: numbers(4 * HIDDEN * HIDDEN, 1).into(),
        b: None,
        lookup: None,
    })
}

fn cell_type(cell: Cell) -> CellType {
    let mut registry = CellRegistry::default();
    registry.add("cell", cell, 64, ModelPriority { model: ModelId(0), priority: 0 });
    registry.cell_types()[0].clone()
}

fn device() -> Arc<CpuDevice> {
    let config = CpuConfig { threads_per_worker: 2, ..CpuConfig::default() };
    Arc::new(CpuDevice::new(config).unwrap())
}

/// A chain whose last state is kept.
fn chain() -> CellGraph {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(RowSpec::flat(ElementType::F32, INPUT), STEPS);
    let last = graph.value(RowSpec::flat(ElementType::F32, HIDDEN), 1);
    let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(last, 0) };
    graph.chain(LSTM, STEPS, vec![Rows::all(x)], vec![None, None], vec![sink]);
    graph.output(last);
    graph.finish().unwrap()
}

/// The last states of chains that run as one batch, with a change after every second step.
fn states(device: &Arc<CpuDevice>, mut change: impl FnMut(u32)) -> Vec<TensorData> {
    let mut worker = LoneWorker::new(device.clone(), WorkerId(0)).unwrap();
    let request = |index| RequestId { index, generation: 0 };
    let join = |index| {
        let (request, slot) = (request(index), SlotId { index, generation: 0 });
        Join { request, run: RunIndex(0), slot, step: 0, moved_from: None }
    };
    let graph = Arc::new(chain());
    for index in 0..CHAINS {
        let x = TensorData::F32(numbers(STEPS as usize * INPUT, index as usize));
        let x = Tensor::new(vec![STEPS as usize, INPUT], x);
        device.admit(request(index), graph.clone(), vec![x]).unwrap();
    }
    for step in (0..STEPS).step_by(2) {
        let joins = (0..CHAINS).filter(|_| step == 0).map(join).collect();
        let work = Work::Roster { leaves: Vec::new(), joins, steps: 2 };
        worker.run(LSTM, work).result.unwrap();
        change(step);
    }
    (0..CHAINS).flat_map(|index| worker.finish(request(index))).collect()
}

#[test]
fn what_is_measured_is_a_plan_of_the_device() {
    let device = device();
    for precision in Precision::ALL {
        let cell = cell_type(lstm().in_precision(precision));
        for rows in [1, 4, 3] {
            let measured = device.measure(&cell, BatchSize::rows(rows)).unwrap();
            assert!(measured.ns > 0.0 && measured.ns < 1e9, "{measured:?}");
            let plan = measured.plan.expect("there are several strategies");
            let how = device.describe(&plan).unwrap();
            assert!(how.starts_with("one thread") || how.starts_with("by "), "{how}");
            device.plan(cell.identity, &[(rows, plan)]).unwrap();
        }
        let roofs = device.roofs(&cell).expect("a fused kernel runs it");
        assert!(roofs.rows_per_s_max > 1e3 && roofs.ns_min > 0.0, "{roofs:?}");
    }
}

#[test]
fn plans_change_no_bit_whenever_they_come() {
    let cell = cell_type(lstm());
    let plan = |split: &str, ahead: bool| {
        let text = format!(
            r#"{{"split":"{split}","ahead":{ahead},"tiling":{{"rows":2,"by_two":true,"block_kib":8}}}}"#
        );
        [(1, ExecutionPlan::new(text))]
    };
    let tried = device();
    tried.materialize(LSTM, &cell).unwrap();
    let expected = states(&tried, |_| ());

    let planned = device();
    planned.plan(cell.identity, &plan("rows", true)).unwrap();
    planned.materialize(LSTM, &cell).unwrap();
    assert_eq!(states(&planned, |_| ()), expected, "before it is materialised");

    let changing = device();
    changing.materialize(LSTM, &cell).unwrap();
    let changed = states(&changing, |step| {
        let plans = [plan("units", true), plan("none", false), plan("rows", true)];
        changing.plan(cell.identity, &plans[step as usize / 2]).unwrap();
    });
    assert_eq!(changed, expected, "while batches run");
    changing.plan(cell.identity, &[]).unwrap();
    assert_eq!(states(&changing, |_| ()), expected, "none any more");
}

#[test]
fn what_is_no_plan_of_the_device_is_refused() {
    let (device, cell) = (device(), cell_type(lstm()));
    for text in ["{}", "warp", r#"{"split":"blocks","ahead":true}"#] {
        let plan = ExecutionPlan::new(text);
        assert!(matches!(device.describe(&plan), Err(DeviceError::Resources(_))), "{text}");
        let planned = device.plan(cell.identity, &[(1, plan)]);
        assert!(matches!(planned, Err(DeviceError::Resources(_))), "{text}");
    }
}

#[test]
fn cells_without_a_choice_have_times_alone() {
    let device = device();
    let (hidden_size, l, r) = (8, numbers(5 * 64, 0).into(), numbers(5 * 64, 1).into());
    let tree = cell_type(Cell::tree(TreeCell::Inner { hidden_size, l, r, b: None }));
    for rows in [1, 7] {
        let measured = device.measure(&tree, BatchSize::rows(rows)).unwrap();
        assert!(measured.ns > 0.0 && measured.plan.is_none(), "{measured:?}");
    }
    assert_eq!(device.roofs(&tree), None);
    let program = Program { bytes: Vec::new().into(), summary: String::new(), has_products: false };
    let whole = SequenceCell { program, inputs: Vec::new(), outputs: Vec::new() };
    let sequences = cell_type(Cell { body: CellBody::Sequence(whole), ..lstm() });
    let refused = device.measure(&sequences, BatchSize::rows(4));
    assert!(matches!(refused, Err(DeviceError::Cell { .. })), "{refused:?}");
}
