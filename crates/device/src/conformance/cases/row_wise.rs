//! Cells without states, whose rows are independent of each other: programs, composite cells, a linear
//! layer with an arg-max.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellGraphBuilder, CellTypeId, Item, RequestId, Rows, RunIndex, Sink, SinkTime, Tensor,
    TensorData, Work,
};

use crate::conformance::case::{Case, Check};
use crate::conformance::cells::{self, IDS};
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::Request;
use crate::conformance::harness::Harness;
use crate::conformance::numbers::Numbers;
use crate::conformance::programs::SuiteProgram;
use crate::conformance::subject::Subject;

const CELL: CellTypeId = CellTypeId(0);

pub(super) fn cases() -> Vec<Case> {
    let case = |name: &str, make: fn() -> Cell| {
        Case::new(format!("row-wise/{name}"), move |subject| row_wise(subject, &make()))
    };
    vec![
        case("program of floats", || cells::program(SuiteProgram::Affine)).with_programs(),
        case("program of I64", || cells::program(SuiteProgram::Add)).with_programs(),
        case("program of I32 and Bool", || cells::program(SuiteProgram::Less)).with_programs(),
        case("composite cell", cells::row_wise_composite).with_programs(),
        case("linear layer with arg-max", || cells::arg_max(cells::random_linear())),
        case("arg-max of equal sums is the first", || {
            cells::arg_max(cells::linear_with_equal_sums())
        }),
        Case::new("row-wise/an input of fewer rows is zeros from there on", fewer_rows),
    ]
}

/// A request of rows, which the second input port reads backwards. Outputs: each port's rows
/// backwards, and its last row.
pub(super) fn request(cell: &Cell, cell_type: CellTypeId, length: u32, seed: u32) -> Request {
    let mut graph = CellGraphBuilder::new();
    let mut numbers = Numbers::new(seed);
    let (mut reads, mut inputs) = (Vec::new(), Vec::new());
    for (port, row) in cell.inputs.iter().enumerate() {
        let rows = Rows::all(graph.input(row.clone(), length));
        reads.push(if port == 1 { rows.reversed(length) } else { rows });
        let data = numbers.rows(row, length, IDS);
        inputs.push(Tensor::new(vec![data.len()], data));
    }
    let mut sinks = Vec::new();
    for (port, row) in cell.outputs.iter().enumerate() {
        let (every, last) = (graph.value(row.clone(), length), graph.value(row.clone(), 2));
        let rows = Rows::all(every).reversed(length);
        sinks.push(Sink { port, time: SinkTime::Every, rows });
        sinks.push(Sink { port, time: SinkTime::Last, rows: Rows::one(last, 1) });
        [every, last].into_iter().for_each(|value| graph.output(value));
    }
    graph.rows(cell_type, length, reads, sinks);
    Request { graph: Arc::new(graph.finish().unwrap()), inputs }
}

pub(super) fn item(request: RequestId, first: u32, count: u32) -> Item {
    Item { request, run: RunIndex(0), first, count, slot: None, moved_from: None }
}

/// Runs requests of 1, 4, 7 and 2 rows in batches that cut through them.
pub(super) fn play(harness: &mut Harness, requests: &[Request]) -> Check<Vec<Vec<TensorData>>> {
    let ids = harness.admit_all(requests)?;
    let tasks = [
        vec![item(ids[0], 0, 1), item(ids[1], 0, 3)],
        vec![item(ids[2], 0, 1)],
        // The rest, with padding behind some of the rows.
        vec![item(ids[3], 0, 4), item(ids[1], 3, 1), item(ids[2], 1, 8), item(ids[0], 1, 2)],
    ];
    for (at, items) in tasks.into_iter().enumerate() {
        let worker = harness.worker_of(at);
        harness.workers[worker].run([(CELL, Work::Rows(items))])?;
    }
    harness.finish_all(&ids)
}

pub(super) fn requests(cell: &Cell) -> Vec<Request> {
    let lengths = [1, 4, 7, 2].into_iter().zip(30..);
    lengths.map(|(length, seed)| request(cell, CELL, length, seed)).collect()
}

fn row_wise(subject: &dyn Subject, cell: &Cell) -> Check {
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let requests = requests(cell);
    let together = play(&mut harness, &requests)?;
    for (at, (request, outputs)) in requests.iter().zip(&together).enumerate() {
        harness.check(request, outputs).map_err(|reason| format!("request {at}: {reason}"))?;
    }
    row_by_row(&mut harness, &requests, &together)
}

/// Checks that each row has the same bits alone as in a batch.
pub(super) fn row_by_row(
    harness: &mut Harness,
    requests: &[Request],
    together: &[Vec<TensorData>],
) -> Check {
    for (at, request) in requests.iter().enumerate() {
        let id = harness.admit(request)?;
        for row in 0..request.graph.runs()[0].length {
            harness.workers[0].run([(CELL, Work::Rows(vec![item(id, row, 1)]))])?;
        }
        same_bits(&format!("request {at}, row by row"), &harness.finish(0, id)?, &together[at])?;
    }
    Ok(())
}

fn fewer_rows(subject: &dyn Subject) -> Check {
    let cell = cells::arg_max(cells::random_linear());
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let Request { graph, inputs } = request(&cell, CELL, 4, 5);
    let brought = inputs[0].data().slice(0..40);
    let inputs = vec![Tensor::new(vec![1, 40], brought)];
    let request = Request { graph, inputs };
    let id = harness.admit(&request)?;
    harness.workers[0].run([(CELL, Work::Rows(vec![item(id, 0, 4)]))])?;
    let outputs = harness.finish(0, id)?;
    harness.check(&request, &outputs)
}
