//! A request that is retired leaves nothing behind, though its chain is still on a roster.

use std::sync::Arc;

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_device::LoneWorker;
use batchmaker_graph::{
    Cell, CellBody, CellGraphBuilder, CellType, CellTypeId, CompositeCell, ElementType, Join,
    Operation, OperationBody, Precision, RecurrentCell, RecurrentKind, RequestId, RnnActivation,
    RowSpec, Rows, RunIndex, Sink, SinkTime, SlotId, Tensor, TensorData, Work,
};

const SIZE: usize = 4;

fn sum() -> RecurrentCell {
    RecurrentCell {
        kind: RecurrentKind::Rnn { activation: RnnActivation::Relu },
        input_size: SIZE,
        hidden_size: SIZE,
        w: vec![1.0; SIZE * SIZE].into(),
        r: vec![1.0; SIZE * SIZE].into(),
        b: None,
        lookup: None,
    }
}

/// The same as a composite cell.
fn composite_sum() -> Cell {
    let row = RowSpec::flat(ElementType::F32, SIZE);
    let body = OperationBody::Step(sum());
    Cell {
        inputs: vec![row.clone()],
        outputs: vec![row.clone()],
        states: vec![row.clone()],
        precision: Precision::F32,
        body: CellBody::Composite(CompositeCell {
            registers: vec![row; 3],
            operations: vec![Operation { body, reads: vec![Some(0), Some(1)], writes: vec![2] }],
            outputs: vec![2],
        }),
    }
}

#[test]
fn a_roster_keeps_nothing_of_a_retired_request() {
    for cell in [Cell::recurrent(sum()), composite_sum()] {
        let cell_type = CellType {
            name: "sum".to_owned(),
            identity: cell.identity(),
            stage: 0,
            cell: Arc::new(cell),
            max_batch_size: 1,
            priorities: Vec::new(),
        };
        let device = CpuDevice::new(CpuConfig::default()).unwrap();
        let mut worker = LoneWorker::with_cells(device, &[cell_type]).unwrap();
        let row = RowSpec::flat(ElementType::F32, SIZE);
        let mut graph = CellGraphBuilder::new();
        let (x, y) = (graph.input(row.clone(), 1), graph.value(row, 1));
        let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) }];
        graph.chain(CellTypeId(0), 1, vec![Rows::all(x)], vec![None], sinks);
        graph.output(y);
        let graph = Arc::new(graph.finish().unwrap());
        let request = RequestId { index: 0, generation: 0 };
        let x = Tensor::new(vec![1, SIZE], TensorData::F32(vec![1.0; SIZE]));
        worker.device().admit(request, graph.clone(), vec![x]).unwrap();
        let slot = SlotId { index: 0, generation: 0 };
        let join = Join { request, run: RunIndex(0), slot, step: 0, moved_from: None };
        let work = Work::Roster { leaves: Vec::new(), joins: vec![join], steps: 1 };
        worker.run(CellTypeId(0), work).result.unwrap();
        assert_eq!(worker.finish(request), [TensorData::F32(vec![SIZE as f32; SIZE])]);
        assert_eq!(Arc::strong_count(&graph), 1, "the device has its graph");
        let work = Work::Roster { leaves: vec![slot], joins: Vec::new(), steps: 1 };
        worker.run(CellTypeId(0), work).result.unwrap();
    }
}
