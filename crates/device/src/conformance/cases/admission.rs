//! A device refuses requests that its memory has no room for, until others are retired.

use std::sync::Arc;

use batchmaker_graph::{
    CellGraphBuilder, CellTypeId, ElementType, RowSpec, Rows, Sink, SinkTime, Tensor, TensorData,
    Work,
};

use crate::conformance::case::{Case, Check, Outcome, ensure};
use crate::conformance::cases::row_wise;
use crate::conformance::cells;
use crate::conformance::graphs::Request;
use crate::conformance::harness::Harness;
use crate::conformance::subject::Subject;
use crate::contract::DeviceError;

/// Bounds above this number of bytes are not tested, as they take too long to fill.
const FILLED_MAX: usize = 1 << 28;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::skippable("admission/what does not fit is refused, and fits later", full),
        Case::new("admission/a graph that does not fit its cells is refused", unfit),
    ]
}

/// A request that computes one row, and whose values have about `bytes` bytes.
fn request(bytes: usize) -> Request {
    let cell = cells::arg_max(cells::random_linear());
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(cell.inputs[0].clone(), 1);
    let y = graph.value(cell.outputs[0].clone(), (bytes / 8) as u32);
    let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::one(y, 0) }];
    graph.rows(CellTypeId(0), 1, vec![Rows::all(x)], sinks);
    graph.output(y);
    let inputs = vec![Tensor::new(vec![40], TensorData::F32(vec![0.5; 40]))];
    Request { graph: Arc::new(graph.finish().unwrap()), inputs }
}

fn full(subject: &dyn Subject) -> Check<Outcome> {
    let mut harness = Harness::new(subject, vec![cells::arg_max(cells::random_linear())])?;
    let Some(bytes) = harness.device.capabilities().bytes_max else {
        return Ok(Outcome::Skipped("no bound".to_owned()));
    };
    if bytes > FILLED_MAX {
        return Ok(Outcome::Skipped(format!("a bound of {bytes} bytes is not filled")));
    }
    let request = request(bytes / 4 + 8);
    let mut admitted = Vec::new();
    let refused = loop {
        let id = harness.next_id();
        match harness.device.admit(id, request.graph.clone(), request.inputs.clone()) {
            Ok(()) => admitted.push(id),
            Err(error) => break error,
        }
        ensure!(admitted.len() < 4, "the device takes more bytes than it says");
    };
    ensure!(matches!(refused, DeviceError::Full { .. }), "refused: {refused}");
    let first = *admitted.first().ok_or("nothing fits")?;
    harness.device.retire(first);
    let again = harness.admit(&request)?;
    let work = Work::Rows(vec![row_wise::item(again, 0, 1)]);
    harness.workers[0].run([(CellTypeId(0), work)])?;
    let outputs = harness.finish(0, again)?;
    harness.check(&request, &outputs)?;
    Ok(Outcome::Passed)
}

/// Requests that a device which trusts them would compute out of bounds.
fn unfit(subject: &dyn Subject) -> Check {
    let mut harness = Harness::new(subject, vec![cells::arg_max(cells::random_linear())])?;
    let good = request(8);
    let row = cells::arg_max(cells::random_linear()).inputs[0].clone();
    let graph_of = |row: &RowSpec, cell_type: u32, result: ElementType| {
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(row.clone(), 1);
        let y = graph.value(RowSpec::flat(result, 1), 1);
        let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::one(y, 0) }];
        graph.rows(CellTypeId(cell_type), 1, vec![Rows::all(x)], sinks);
        graph.output(y);
        graph.finish().map(Arc::new).map_err(|error| error.to_string())
    };
    let narrow = RowSpec::flat(row.element, row.elements() - 1);
    let floats = |count: usize| vec![Tensor::new(vec![count], TensorData::F32(vec![0.5; count]))];
    let integers = |count: usize| vec![Tensor::new(vec![count], TensorData::I64(vec![0; count]))];
    let (all, i64) = (row.elements(), ElementType::I64);
    let table = [
        ("narrow rows", graph_of(&narrow, 0, i64)?, floats(all - 1)),
        ("rows of another type", graph_of(&row, 0, ElementType::F32)?, floats(all)),
        ("an unknown cell", graph_of(&row, 7, i64)?, floats(all)),
        ("too many elements", good.graph.clone(), floats(all + 1)),
        ("elements of another type", good.graph.clone(), integers(all)),
        ("no tensors", good.graph.clone(), Vec::new()),
    ];
    for (what, graph, inputs) in table {
        let id = harness.next_id();
        let admitted = harness.device.admit(id, graph, inputs);
        let is_refused = matches!(admitted, Err(DeviceError::Graph(_)));
        ensure!(is_refused, "{what}: {admitted:?}");
    }
    let id = harness.admit(&good)?;
    harness.workers[0].run([(CellTypeId(0), Work::Rows(vec![row_wise::item(id, 0, 1)]))])?;
    let outputs = harness.finish(0, id)?;
    harness.check(&good, &outputs)
}
