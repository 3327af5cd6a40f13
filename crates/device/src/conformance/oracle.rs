//! A whole cell graph by the reference, node by node.

use batchmaker_graph::{Cell, CellGraph, Rows, RunIndex, SinkTime, TensorData, ValueIndex};

use crate::conformance::case::{Check, ensure};
use crate::conformance::compare::{TOLERANCE, close};
use crate::conformance::graphs::Request;
use crate::conformance::programs::run_program;
use crate::reference::{self, Row};

/// The results of a request.
pub(super) struct Evaluation {
    /// The rows of each value, flat.
    pub(super) values: Vec<Row>,
    /// The chains that reached their end of sequence, and the nodes that they ran.
    pub(super) ends: Vec<(RunIndex, u32)>,
    /// The states of each run after its last node.
    pub(super) states: Vec<Vec<Row>>,
}

impl Evaluation {
    /// Checks a request's outputs, each flat.
    pub(super) fn check(&self, request: &Request, outputs: &[TensorData]) -> Check {
        let wanted = request.graph.outputs();
        ensure!(wanted.len() == outputs.len(), "{} outputs, not {}", outputs.len(), wanted.len());
        for (value, output) in wanted.iter().zip(outputs) {
            close(&format!("output {value:?}"), output, &self.values[value.index()], TOLERANCE)?;
        }
        Ok(())
    }
}

/// Evaluates a request.
pub(super) fn evaluate(cells: &[Cell], request: &Request) -> Check<Evaluation> {
    run(cells, request, &[], None)
}

/// Evaluates a chunk of a session, whose chains begin with the states that the chunk before left.
pub(super) fn evaluate_chunk(
    cells: &[Cell],
    request: &Request,
    before: &[Vec<Row>],
) -> Check<Evaluation> {
    run(cells, request, before, None)
}

/// Checks the outputs of a request node by node, each from the rows that the device itself computed
/// before: where numbers are rounded, a difference does not grow from node to node. All values that
/// nodes write must be outputs, and each state of a chain have a sink after every node.
pub(super) fn check_each_node(
    cells: &[Cell],
    request: &Request,
    outputs: &[TensorData],
    tolerance: f64,
) -> Check {
    run(cells, request, &[], Some((outputs, tolerance))).map(|_| ())
}

fn run(
    cells: &[Cell],
    request: &Request,
    before: &[Vec<Row>],
    actual: Option<(&[TensorData], f64)>,
) -> Check<Evaluation> {
    let graph = &*request.graph;
    let mut values = first_values(request);
    let (mut ends, mut last_states) = (Vec::new(), Vec::new());
    for (index, run) in graph.runs().iter().enumerate() {
        let cell = &cells[run.cell_type.index()];
        let initial = |(state, rows): (usize, &Option<Rows>)| match rows {
            Some(rows) => read(graph, &values, rows, 0),
            None => Row::zeros(&cell.states[state], 1),
        };
        let mut states: Vec<Row> = match before.get(index) {
            Some(states) => states.clone(),
            None => run.initial.iter().enumerate().map(initial).collect(),
        };
        for node in 0..run.length {
            let inputs: Vec<Row> =
                run.inputs.iter().map(|rows| read(graph, &values, rows, node)).collect();
            let mut outputs = reference::outputs(cell, &inputs, &states, &run_program)?;
            if run.stop.is_some_and(|stop| outputs[stop.port].ints() == [stop.value]) {
                ends.push((RunIndex(index as u32), node + 1));
                break;
            }
            for sink in &run.sinks {
                let at = match sink.time {
                    SinkTime::Every => node,
                    SinkTime::Last if node + 1 == run.length || run.stop.is_some() => 0,
                    SinkTime::Last => continue,
                };
                let output = &mut outputs[sink.port];
                if let Some((actual, tolerance)) = actual {
                    let row = actual_row(graph, actual, &sink.rows, at);
                    let what = format!("run {index}, node {node}, port {}", sink.port);
                    close(&what, &row, output, tolerance)?;
                    *output = Row::of(&row, 0..row.len());
                }
                write(graph, &mut values, &sink.rows, at, output);
            }
            outputs.truncate(states.len());
            states = outputs;
        }
        last_states.push(states);
    }
    Ok(Evaluation { values, ends, states: last_states })
}

/// The values before the first node: the inputs, and zeros.
fn first_values(request: &Request) -> Vec<Row> {
    let graph = &request.graph;
    let zeros = graph.values().iter().map(|value| Row::zeros(&value.row, value.rows as usize));
    let mut values: Vec<Row> = zeros.collect();
    for (value, input) in graph.inputs().iter().zip(&request.inputs) {
        let data = input.data();
        replace(&mut values[value.index()], 0, &Row::of(data, 0..data.len()));
    }
    values
}

/// The index of the first element of a node's rows in their value, and the number of elements.
fn place(graph: &CellGraph, rows: &Rows, node: u32) -> (usize, usize) {
    let elements = graph.values()[rows.value.index()].row.elements();
    (rows.row(node) * elements, rows.span as usize * elements)
}

fn read(graph: &CellGraph, values: &[Row], rows: &Rows, node: u32) -> Row {
    let (first, count) = place(graph, rows, node);
    match &values[rows.value.index()] {
        Row::Float(elements) => Row::Float(elements[first..first + count].to_vec()),
        Row::Int(elements) => Row::Int(elements[first..first + count].to_vec()),
    }
}

fn write(graph: &CellGraph, values: &mut [Row], rows: &Rows, node: u32, row: &Row) {
    replace(&mut values[rows.value.index()], place(graph, rows, node).0, row);
}

fn replace(value: &mut Row, first: usize, row: &Row) {
    match (value, row) {
        (Row::Float(to), Row::Float(from)) => to[first..first + from.len()].copy_from_slice(from),
        (Row::Int(to), Row::Int(from)) => to[first..first + from.len()].copy_from_slice(from),
        _ => unreachable!("a row of a value is of its kind"),
    }
}

fn actual_row(graph: &CellGraph, actual: &[TensorData], rows: &Rows, node: u32) -> TensorData {
    let output = graph.outputs().iter().position(|&value: &ValueIndex| value == rows.value);
    let (first, count) = place(graph, rows, node);
    actual[output.expect("all values are outputs")].slice(first..first + count)
}
