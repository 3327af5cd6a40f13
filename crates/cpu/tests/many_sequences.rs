//! The time of a request grows with its sequences as their number does, not as its square.

use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_device::LoneWorker;
use batchmaker_graph::{
    Cell, CellGraph, CellGraphBuilder, CellType, CellTypeId, ElementType, Join, Lookup,
    RecurrentCell, RecurrentKind, RequestId, RowSpec, Rows, RunIndex, Sink, SinkTime, SlotId,
    Tensor, TensorData, Work,
};

const HIDDEN: usize = 8;
const IDS: usize = 50;
/// Chains on the roster at a time.
const ROSTER: u32 = 64;
const REQUEST: RequestId = RequestId { index: 0, generation: 0 };

/// An LSTM over token ids.
fn lstm() -> CellType {
    let cell = Cell::recurrent(RecurrentCell {
        kind: RecurrentKind::Lstm { p: None, bytes: None },
        input_size: HIDDEN,
        hidden_size: HIDDEN,
        w: vec![0.1; 4 * HIDDEN * HIDDEN].into(),
        r: vec![0.2; 4 * HIDDEN * HIDDEN].into(),
        b: None,
        lookup: Some(Lookup { table: vec![0.5; IDS * HIDDEN].into(), width: HIDDEN }),
    });
    CellType {
        name: "lstm".to_owned(),
        identity: cell.identity(),
        stage: 0,
        cell: Arc::new(cell),
        max_batch_size: ROSTER,
        priorities: Vec::new(),
    }
}

/// Sequences of one step.
fn graph(sequences: u32) -> CellGraph {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(RowSpec::new(ElementType::I64, []), sequences);
    let y = graph.value(RowSpec::flat(ElementType::F32, HIDDEN), sequences);
    for b in 0..sequences {
        let sinks = vec![Sink { port: 0, time: SinkTime::Last, rows: Rows::one(y, b) }];
        graph.chain(CellTypeId(0), 1, vec![Rows::one(x, b)], vec![None, None], sinks);
    }
    graph.output(y);
    graph.finish().unwrap()
}

/// The time of a request of so many sequences of one token id, from its graph to its reply.
fn time(worker: &mut LoneWorker, sequences: u32) -> Duration {
    let start = Instant::now();
    let ids = (0..i64::from(sequences)).map(|id| id % IDS as i64).collect();
    let inputs = vec![Tensor::new(vec![sequences as usize], TensorData::I64(ids))];
    let graph = Arc::new(graph(sequences));
    assert_eq!(worker.device().working_bytes(&graph, 1), 0);
    worker.device().admit(REQUEST, graph, inputs).unwrap();
    let slots = |count: u32| (0..count).map(|index| SlotId { index, generation: 0 });
    let mut leaves = Vec::new();
    for first in (0..sequences).step_by(ROSTER as usize) {
        let join = |slot: SlotId| Join {
            request: REQUEST,
            run: RunIndex(first + slot.index),
            slot,
            step: 0,
            moved_from: None,
        };
        let joins = slots(ROSTER.min(sequences - first)).map(join).collect();
        let done = worker.run(CellTypeId(0), Work::Roster { leaves, joins, steps: 1 });
        done.result.unwrap();
        leaves = slots(ROSTER.min(sequences - first)).collect();
    }
    worker.run(CellTypeId(0), Work::Roster { leaves, joins: Vec::new(), steps: 1 });
    assert_eq!(worker.finish(REQUEST)[0].len(), sequences as usize * HIDDEN);
    start.elapsed()
}

#[test]
fn four_times_the_sequences_take_about_four_times_the_time() {
    let device = CpuDevice::new(CpuConfig::default()).unwrap();
    let mut worker = LoneWorker::with_cells(device, &[lstm()]).unwrap();
    time(&mut worker, 2048);
    // The best of a few: other programs take the processor at times.
    let mut best = |sequences| (0..4).map(|_| time(&mut worker, sequences)).min().unwrap();
    let (few, many) = (best(8192), best(32_768));
    println!("8192 sequences: {few:?}, 32768: {many:?}");
    assert!(many < 8 * few, "8192 sequences: {few:?}, 32768: {many:?}");
}
