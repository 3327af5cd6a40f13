//! The reply that a request must have: its graph is evaluated alone, run by run, node by node, without what its decisions
//! leave out. A later
//! chunk begins with the states that the chunk before it ends with.

use batchmaker_graph::{CellGraph, Chunk, RunKind, SinkTime};
use batchmaker_simulated::{Datum, cell_output, is_end, is_true};

use crate::rng::scramble;

/// The rows of the graph's inputs: numbers that no other request has.
pub(crate) fn inputs(graph: &CellGraph, salt: u64) -> Vec<Vec<u64>> {
    let rows = |value: &batchmaker_graph::ValueIndex| {
        let base = scramble(salt ^ (u64::from(value.0) << 32));
        (0..u64::from(graph.values()[value.index()].rows)).map(move |row| scramble(base ^ row))
    };
    graph.inputs().iter().map(|value| rows(value).collect()).collect()
}

/// The states of each run after its last node; none for a run that is no chain.
pub(crate) type States = Vec<Vec<Datum<u64>>>;

/// The rows of the graph's outputs, and its states at the end. `before` is what the chunk before
/// ended with.
pub(crate) fn outputs(
    graph: &CellGraph,
    inputs: &[Vec<u64>],
    before: &States,
) -> (Vec<Vec<Datum<u64>>>, States) {
    let empty = |rows: u32| vec![None; rows as usize];
    let mut values: Vec<Vec<Datum<u64>>> = graph.values().iter().map(|v| empty(v.rows)).collect();
    for (value, input) in graph.inputs().iter().zip(inputs) {
        values[value.index()] = input.iter().map(|&datum| Some(datum)).collect();
    }
    let mut ends = Vec::with_capacity(graph.runs().len());
    let mut left_out = vec![false; graph.runs().len()];
    for (index, run) in graph.runs().iter().enumerate() {
        left_out[index] = run.guard.is_some_and(|guard| {
            let decision = graph.decisions()[guard.decision.index()];
            let row = values[decision.value.index()][decision.row as usize];
            left_out[decision.run.index()] || row.map(is_true) != Some(guard.when)
        });
        if left_out[index] {
            ends.push(Vec::new());
            continue;
        }
        let first = |rows: &Option<batchmaker_graph::Rows>| match rows {
            Some(rows) => values[rows.value.index()][rows.row(0)],
            None => Some(0),
        };
        let mut states: Vec<Datum<u64>> = match graph.chunk() {
            Chunk::Whole | Chunk::First => run.initial.iter().map(first).collect(),
            Chunk::Next => before[index].clone(),
        };
        for node in 0..run.length {
            // Who reads rows of a run that was left out reads zeros.
            let read = |rows: &batchmaker_graph::Rows| {
                let row = values[rows.value.index()][rows.row(node)];
                row.or(left_out.contains(&true).then_some(0))
            };
            let input = run.inputs.iter().map(read);
            let input: Vec<Datum<u64>> = input.collect();
            let output = |port| {
                let states = states.iter().copied();
                cell_output(run.cell_type, input.iter().copied(), states, port)
            };
            // It ends before it writes anything.
            if run.stop.is_some_and(|stop| is_end(stop, output(stop.port))) {
                break;
            }
            for sink in &run.sinks {
                let rows = &mut values[sink.rows.value.index()];
                match sink.time {
                    SinkTime::Every => rows[sink.rows.row(node)] = output(sink.port),
                    // The chain may end at the next node, so that this one is the last.
                    SinkTime::Last if node + 1 == run.length || run.stop.is_some() => {
                        rows[sink.rows.row(0)] = output(sink.port);
                    }
                    SinkTime::Last => {}
                }
            }
            if run.kind == RunKind::Chain {
                states = (0..states.len()).map(output).collect();
            }
        }
        ends.push(states);
    }
    let outputs = graph.outputs().iter().map(|value| values[value.index()].clone());
    (outputs.collect(), ends)
}
