//! A batch that takes more memory than a worker may runs in parts, one for each poll.

use std::sync::Arc;

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_device::{Bell, Completion, Device, Read};
use batchmaker_graph::{
    BatchedTask, Cell, CellBody, CellGraphBuilder, CellType, CellTypeId, CompositeCell,
    ElementType, Item, LinearArgMax, Operation, OperationBody, Precision, RequestId, RowSpec, Rows,
    RunIndex, Sink, SinkTime, TaskId, Tensor, TensorData, Work, WorkerId,
};

const CELL: CellTypeId = CellTypeId(0);
const REQUEST: RequestId = RequestId { index: 0, generation: 0 };
const WIDTH: usize = 16;
const ROWS: u32 = 10;

/// The position of the greatest of a row's numbers.
fn greatest() -> CellType {
    let unit = |at: usize| if at.is_multiple_of(WIDTH + 1) { 1.0 } else { 0.0 };
    let linear = LinearArgMax {
        input_size: WIDTH,
        output_size: WIDTH,
        w: (0..WIDTH * WIDTH).map(unit).collect(),
        b: None,
    };
    let registers =
        vec![RowSpec::flat(ElementType::F32, WIDTH), RowSpec::new(ElementType::I64, [])];
    let operation = Operation {
        body: OperationBody::LinearArgMax(linear),
        reads: vec![Some(0)],
        writes: vec![1],
    };
    let cell = Cell {
        inputs: vec![registers[0].clone()],
        outputs: vec![registers[1].clone()],
        states: Vec::new(),
        precision: Precision::F32,
        body: CellBody::Composite(CompositeCell {
            registers,
            operations: vec![operation],
            outputs: vec![1],
        }),
    };
    CellType {
        name: "greatest".to_owned(),
        identity: cell.identity(),
        stage: 0,
        cell: Arc::new(cell),
        max_batch_size: ROWS,
        priorities: Vec::new(),
    }
}

/// The reports of a queue, poll by poll, until the task is over; and the values that it wrote.
fn run(batch_bytes_max: u64) -> (usize, Vec<TensorData>) {
    let config = CpuConfig { batch_bytes_max, ..CpuConfig::default() };
    let device = Arc::new(CpuDevice::new(config).unwrap());
    assert_eq!(device.capabilities().working_bytes, batch_bytes_max);
    device.materialize(CELL, &greatest()).unwrap();
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(RowSpec::flat(ElementType::F32, WIDTH), ROWS);
    let y = graph.value(RowSpec::new(ElementType::I64, []), ROWS);
    let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) }];
    graph.rows(CELL, ROWS, vec![Rows::all(x)], sinks);
    graph.output(y);
    let number = |at: usize| if at % WIDTH == at / WIDTH { 1.0 } else { 0.0 };
    let data = TensorData::F32((0..ROWS as usize * WIDTH).map(number).collect());
    let inputs = vec![Tensor::new(vec![ROWS as usize, WIDTH], data)];
    device.admit(REQUEST, Arc::new(graph.finish().unwrap()), inputs).unwrap();
    let mut queue = device.clone().queue(WorkerId(0), Arc::new(Bell::default())).unwrap();
    let item = Item {
        request: REQUEST,
        run: RunIndex(0),
        first: 0,
        count: ROWS,
        slot: None,
        moved_from: None,
    };
    let (id, work) = (TaskId(1), Work::Rows(vec![item]));
    queue.submit(&mut vec![BatchedTask { id, worker: WorkerId(0), cell_type: CELL, work }]);
    let (mut parts, mut reports) = (1, Vec::new());
    loop {
        queue.poll(&mut reports);
        match &reports[..] {
            [Completion::Part { task }] => assert_eq!(*task, id),
            [Completion::Task(done)] => {
                done.result.as_ref().unwrap();
                break;
            }
            other => panic!("{other:?}"),
        }
        parts += 1;
        reports.clear();
    }
    reports.clear();
    queue.read(Read::Outputs { request: REQUEST });
    queue.poll(&mut reports);
    match reports.pop() {
        Some(Completion::Values { data, .. }) => (parts, data.unwrap()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_poll_runs_no_more_than_a_part() {
    let expected = vec![TensorData::I64((0..i64::from(ROWS)).collect())];
    assert_eq!(run(64 << 20), (1, expected.clone()));
    // A row takes 72 bytes.
    assert_eq!(run(3 * 72), (4, expected.clone()));
    assert_eq!(run(1), (10, expected));
}
