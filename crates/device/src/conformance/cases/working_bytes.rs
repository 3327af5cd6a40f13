//! The bytes that nodes take while they run are known before a request is admitted.

use batchmaker_graph::{CellGraph, CellGraphBuilder, CellTypeId, Rows, Sink, SinkTime};

use crate::conformance::case::{Case, Check, ensure};
use crate::conformance::cells;
use crate::conformance::graphs::Chain;
use crate::conformance::harness::Harness;
use crate::conformance::subject::Subject;

const CELL: CellTypeId = CellTypeId(0);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("working bytes/a fused cell takes none", fused),
        Case::new(
            "working bytes/they grow with steps, and with sequences up to one a worker",
            sequences,
        )
        .with_programs(),
    ]
}

fn fused(subject: &dyn Subject) -> Check {
    for cell in cells::ChainCell::recurrent().iter().map(cells::ChainCell::cell) {
        let harness = Harness::new(subject, vec![cell.clone()])?;
        let request = Chain::new(&cell, CELL, 1000, 1).request(&cell);
        let bytes = harness.device.working_bytes(&request.graph, 64);
        ensure!(bytes == 0, "{:?} takes {bytes} bytes", cell.body);
    }
    Ok(())
}

/// `sequences` sequences of `length` steps.
fn graph(sequences: u32, length: u32) -> CellGraph {
    let row = cells::sums().inputs[0].clone();
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row.clone(), sequences * length);
    let (sums, totals) =
        (graph.value(row.clone(), sequences * length), graph.value(row, sequences));
    for b in 0..sequences {
        let sink = |port, rows| Sink { port, time: SinkTime::Every, rows };
        let sinks = vec![
            sink(0, Rows::spanning(sums, b * length, length)),
            sink(1, Rows::spanning(totals, b, 1)),
        ];
        graph.rows(CELL, 1, vec![Rows::spanning(x, b * length, length)], sinks);
    }
    graph.finish().expect("spans are within their values")
}

fn sequences(subject: &dyn Subject) -> Check {
    let harness = Harness::new(subject, vec![cells::sums()])?;
    let standing = harness.device.capabilities().working_bytes;
    let on = |workers, sequences, length| {
        harness.device.working_bytes(&graph(sequences, length), workers)
    };
    let bytes = |sequences, length| on(1, sequences, length);
    let short = bytes(1, 3);
    ensure!(short == 0, "three steps take {short} bytes beyond {standing}");
    let [half, long] = [1 << 20, 1 << 21].map(|length| bytes(1, length));
    ensure!(half <= long, "{half} bytes, of twice the steps {long}");
    let many = bytes(4, 1 << 20);
    ensure!(many == half, "a sequence takes {half} bytes, one of four {many}");
    let [one, three] = [1, 3].map(|sequences| on(3, sequences, 1 << 20));
    ensure!(one == half, "a sequence takes {half} bytes, on one of three workers {one}");
    ensure!(three == 3 * half, "a sequence takes {half} bytes, three at once {three}");
    let unknown = {
        let mut graph = CellGraphBuilder::new();
        let x = graph.input(cells::sums().inputs[0].clone(), 9);
        graph.rows(CellTypeId(7), 1, vec![Rows::spanning(x, 0, 9)], Vec::new());
        graph.rows(CELL, 1, Vec::new(), Vec::new());
        graph.finish().map_err(|error| error.to_string())?
    };
    let unknown = harness.device.working_bytes(&unknown, 2);
    ensure!(unknown == 0, "what fits no cell takes {unknown} bytes");
    Ok(())
}
