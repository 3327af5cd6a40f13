//! Cells over whole sequences: a node reads and writes spans of rows.

use std::sync::Arc;

use batchmaker_graph::{CellGraphBuilder, CellTypeId, Rows, Sink, SinkTime, Tensor, Work};

use crate::conformance::case::{Case, Check};
use crate::conformance::cases::row_wise::item;
use crate::conformance::cells;
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::Request;
use crate::conformance::harness::Harness;
use crate::conformance::numbers::Numbers;
use crate::conformance::subject::Subject;

const CELL: CellTypeId = CellTypeId(0);

pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("sequence-level/spans of several lengths in a batch", spans).with_programs()]
}

/// A request of one sequence, which begins after two rows of its value; its outputs begin within values
/// too.
fn request(length: u32, seed: u32) -> Request {
    let row = cells::sums().inputs[0].clone();
    let mut graph = CellGraphBuilder::new();
    let data = Numbers::new(seed).rows(&row, length + 3, 1);
    let x = graph.input(row.clone(), length + 3);
    let (sums, total) = (graph.value(row.clone(), length + 2), graph.value(row, 2));
    let sink = |port, rows| Sink { port, time: SinkTime::Every, rows };
    let sinks =
        vec![sink(0, Rows::spanning(sums, 1, length)), sink(1, Rows::spanning(total, 1, 1))];
    graph.rows(CELL, 1, vec![Rows::spanning(x, 2, length)], sinks);
    [sums, total].into_iter().for_each(|value| graph.output(value));
    Request {
        graph: Arc::new(graph.finish().unwrap()),
        inputs: vec![Tensor::new(vec![data.len()], data)],
    }
}

fn spans(subject: &dyn Subject) -> Check {
    let mut harness = Harness::new(subject, vec![cells::sums()])?;
    let requests: Vec<Request> = [3, 5, 1, 3, 4, 5, 5]
        .iter()
        .zip(20..)
        .map(|(&length, seed)| request(length, seed))
        .collect();
    let ids = harness.admit_all(&requests)?;
    let mut items: Vec<_> = ids.iter().map(|&id| item(id, 0, 1)).collect();
    // Padding: a second node of a run of one.
    items.push(item(ids[0], 1, 1));
    harness.workers[0].run([(CELL, Work::Rows(items))])?;
    let together = harness.finish_all(&ids)?;
    for (at, (request, outputs)) in requests.iter().zip(&together).enumerate() {
        harness.check(request, outputs).map_err(|reason| format!("sequence {at}: {reason}"))?;
        let id = harness.admit(request)?;
        harness.workers[0].run([(CELL, Work::Rows(vec![item(id, 0, 1)]))])?;
        same_bits(&format!("sequence {at} alone"), &harness.finish(0, id)?, outputs)?;
    }
    Ok(())
}
