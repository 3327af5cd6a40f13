//! Checks a request's graph against the cells that are to run it: what a device may trust afterwards.

use std::collections::BTreeSet;

use crate::cell::{Cell, CellBody, PortAxes, RowSpec, TreeCell};
use crate::cell_graph::{CellGraph, Run, RunKind, Stop};
use crate::ids::{CellTypeId, ValueIndex};
use crate::rows::Rows;
use crate::tensor::{ElementType, Tensor, TensorData};
use crate::unfold::InvalidGraph;

/// The ports of a cell and what feeds them must be: a cell without its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPorts {
    inputs: Vec<Port>,
    states: Vec<RowSpec>,
    outputs: Vec<Port>,
}

/// A port of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    row: RowSpec,
    /// Whether it has an axis of steps, and so may have a span of several rows.
    has_steps: bool,
    /// The rows of the table that its ids look up, if they do.
    table: Option<usize>,
}

impl CellPorts {
    /// The ports of `cell`.
    pub fn of(cell: &Cell) -> Self {
        let axes = |axes: &[PortAxes], port: usize| axes.get(port).is_some_and(|axes| axes.steps);
        let table = match &cell.body {
            CellBody::Recurrent(cell) => cell.lookup.as_ref(),
            CellBody::Tree(TreeCell::Leaf { lookup, .. }) => lookup.as_ref(),
            _ => None,
        };
        let table = table.map(|lookup| lookup.rows());
        let port = |(number, row): (usize, &RowSpec), is_input: bool| {
            let has_steps = match &cell.body {
                CellBody::Sequence(cell) if is_input => axes(&cell.inputs, number),
                CellBody::Sequence(cell) => axes(&cell.outputs, number),
                _ => false,
            };
            let table = table.filter(|_| is_input && number == 0);
            Port { row: row.clone(), has_steps, table }
        };
        Self {
            inputs: cell.inputs.iter().enumerate().map(|row| port(row, true)).collect(),
            states: cell.states.clone(),
            outputs: cell.outputs.iter().enumerate().map(|row| port(row, false)).collect(),
        }
    }
}

/// Checks that the cells of a graph exist and fit it, and that `inputs` fit its input values: each port
/// and state is fed by rows of its elements, and each id of the request that looks up a table is within
/// the table. Together with the checks of [`CellGraphBuilder`](crate::CellGraphBuilder) this is all that
/// a device trusts; ids that cells compute it checks itself.
///
/// # Errors
/// The first thing that does not fit.
pub fn check_request<'a>(
    graph: &CellGraph,
    inputs: &[Tensor],
    cell_of: impl Fn(CellTypeId) -> Option<&'a CellPorts>,
) -> Result<(), InvalidGraph> {
    check_inputs(graph, inputs).map_err(InvalidGraph)?;
    // Ids are checked once, however many runs read them.
    let mut checked_ids = BTreeSet::new();
    for (index, run) in graph.runs().iter().enumerate() {
        let cell_type = run.cell_type;
        let cell = cell_of(cell_type).ok_or_else(|| format!("there is no {cell_type}"));
        let checked = cell.and_then(|cell| check_run(graph, inputs, run, cell, &mut checked_ids));
        checked.map_err(|reason| InvalidGraph(format!("run{index}: {reason}")))?;
    }
    Ok(())
}

fn check_inputs(graph: &CellGraph, inputs: &[Tensor]) -> Result<(), String> {
    let values = graph.inputs();
    expect_count("tensors for input values", values.len(), inputs.len())?;
    for (value, tensor) in values.iter().zip(inputs) {
        let spec = &graph.values()[value.index()];
        let (expected, found) = (spec.row.element, tensor.element());
        if expected != found {
            return Err(format!("{value} holds {expected}, its tensor {found}"));
        }
        let (most, found) = (spec.rows as usize * spec.row.elements(), tensor.data().len());
        if found > most {
            return Err(format!("{value} holds {most} elements, its tensor {found}"));
        }
    }
    Ok(())
}

fn check_run(
    graph: &CellGraph,
    inputs: &[Tensor],
    run: &Run,
    cell: &CellPorts,
    checked_ids: &mut BTreeSet<(ValueIndex, usize)>,
) -> Result<(), String> {
    if (run.kind == RunKind::Chain) == cell.states.is_empty() {
        return Err("a cell with states makes chains, and no other cell does".to_owned());
    }
    expect_count("input ports", cell.inputs.len(), run.inputs.len())?;
    expect_count("states", cell.states.len(), run.initial.len())?;
    for (number, (rows, port)) in run.inputs.iter().zip(&cell.inputs).enumerate() {
        let checked = check_rows(graph, rows, &port.row, port.has_steps);
        let checked = checked.and_then(|()| match port.table {
            Some(table) if checked_ids.insert((rows.value, table)) => {
                check_ids(graph, inputs, rows.value, table)
            }
            _ => Ok(()),
        });
        checked.map_err(|why| format!("input port {number}: {why}"))?;
    }
    for (state, (rows, spec)) in run.initial.iter().zip(&cell.states).enumerate() {
        let Some(rows) = rows else { continue };
        check_rows(graph, rows, spec, false).map_err(|why| format!("state {state}: {why}"))?;
    }
    for sink in &run.sinks {
        let number = sink.port;
        let port = cell.outputs.get(number);
        let port = port.ok_or_else(|| format!("there is no output port {number}"))?;
        check_rows(graph, &sink.rows, &port.row, port.has_steps)
            .map_err(|why| format!("output port {number}: {why}"))?;
    }
    run.stop.map_or(Ok(()), |stop| check_stop(stop, run, cell))
}

/// Checks that rows of a value are what a port takes. `has_steps` says whether the port may have a span
/// of several rows.
fn check_rows(
    graph: &CellGraph,
    rows: &Rows,
    port: &RowSpec,
    has_steps: bool,
) -> Result<(), String> {
    let row = &graph.values()[rows.value.index()].row;
    if row.element != port.element || row.elements() != port.elements() {
        let (value, found) = (rows.value, format!("{} {:?}", row.element, row.shape));
        return Err(format!("{value} has rows of {found}, not {} {:?}", port.element, port.shape));
    }
    match rows.span > 1 && !has_steps {
        true => Err(format!("it takes one row, not {}", rows.span)),
        false => Ok(()),
    }
}

fn check_stop(stop: Stop, run: &Run, cell: &CellPorts) -> Result<(), String> {
    let port = cell.outputs.get(stop.port);
    let is_id =
        port.is_some_and(|Port { row, .. }| row.element == ElementType::I64 && row.elements() == 1);
    match is_id && run.kind == RunKind::Chain {
        true => Ok(()),
        false => Err(format!("output port {} is not one INT64 that could end it", stop.port)),
    }
}

/// Checks the ids of a request, in `value`, that look up a table of `table` rows.
fn check_ids(
    graph: &CellGraph,
    inputs: &[Tensor],
    value: ValueIndex,
    table: usize,
) -> Result<(), String> {
    let brought = graph.inputs().iter().position(|brought| *brought == value);
    let Some(TensorData::I64(ids)) = brought.map(|position| inputs[position].data()) else {
        return Ok(());
    };
    let is_outside = |id: &&i64| !usize::try_from(**id).is_ok_and(|id| id < table);
    match ids.iter().find(is_outside) {
        Some(id) => Err(format!("{value} holds id {id}, the table {table} rows")),
        // Rows that the request does not bring are zeros.
        None if table == 0 => Err("the table has no rows".to_owned()),
        None => Ok(()),
    }
}

fn expect_count(what: &str, expected: usize, found: usize) -> Result<(), String> {
    match expected == found {
        true => Ok(()),
        false => Err(format!("{found} {what}, expected {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::builder::CellGraphBuilder;
    use crate::cell::{Lookup, RecurrentCell, RecurrentKind};
    use crate::cell_graph::{Sink, SinkTime};

    const HIDDEN: usize = 2;
    const X: usize = 3;

    /// An LSTM over rows of [`X`] elements, or over ids of a table of 4 rows.
    fn lstm(is_lookup: bool) -> Cell {
        let table: Arc<[f32]> = vec![0.0; 4 * X].into();
        Cell::recurrent(RecurrentCell {
            kind: RecurrentKind::Lstm { p: None, bytes: None },
            input_size: X,
            hidden_size: HIDDEN,
            w: vec![0.0; 4 * HIDDEN * X].into(),
            r: vec![0.0; 4 * HIDDEN * HIDDEN].into(),
            b: None,
            lookup: is_lookup.then_some(Lookup { table, width: X }),
        })
    }

    fn floats(elements: usize) -> RowSpec {
        RowSpec::flat(ElementType::F32, elements)
    }

    fn every(port: usize, value: ValueIndex) -> Sink {
        Sink { port, time: SinkTime::Every, rows: Rows::all(value) }
    }

    /// The mistake of a request over an LSTM, whose input value has rows of `row` and holds `tensor`.
    fn mistake(
        cell: &Cell,
        row: RowSpec,
        tensor: TensorData,
        add: impl Fn(&mut CellGraphBuilder, ValueIndex, ValueIndex),
    ) -> String {
        let mut graph = CellGraphBuilder::new();
        let (x, y) = (graph.input(row, 2), graph.value(floats(HIDDEN), 2));
        add(&mut graph, x, y);
        let graph = graph.finish().unwrap();
        let inputs = [Tensor::new(vec![tensor.len()], tensor)];
        let cells = [CellPorts::of(cell)];
        let cell_of = |id: CellTypeId| cells.get(id.index());
        match check_request(&graph, &inputs, cell_of) {
            Ok(()) => String::new(),
            Err(InvalidGraph(reason)) => reason,
        }
    }

    fn chain(
        graph: &mut CellGraphBuilder,
        x: ValueIndex,
        initial: Vec<Option<Rows>>,
        sinks: Vec<Sink>,
    ) {
        graph.chain(CellTypeId(0), 2, vec![Rows::all(x)], initial, sinks);
    }

    /// Adds a mistake to a graph with values x and y.
    type Mistake<'a> = dyn Fn(&mut CellGraphBuilder, ValueIndex, ValueIndex) + 'a;

    #[test]
    fn each_mistake_is_named() {
        let six = || TensorData::F32(vec![0.0; 6]);
        let none = || vec![None, None];
        let of = |add: &Mistake<'_>| mistake(&lstm(false), floats(X), six(), add);
        assert_eq!(of(&|graph, x, y| chain(graph, x, none(), vec![every(0, y),])), "");
        let table: [(&str, &Mistake<'_>); 9] = [
            ("run0: there is no cell9", &|graph, x, _| {
                graph.chain(CellTypeId(9), 2, vec![Rows::all(x)], none(), vec![]);
            }),
            ("run0: a cell with states makes chains, and no other cell does", &|graph, x, _| {
                graph.rows(CellTypeId(0), 2, vec![Rows::all(x)], vec![]);
            }),
            ("run0: 2 input ports, expected 1", &|graph, x, _| {
                let twice = vec![Rows::all(x), Rows::all(x)];
                graph.chain(CellTypeId(0), 2, twice, none(), vec![]);
            }),
            ("run0: 1 states, expected 2", &|graph, x, _| chain(graph, x, vec![None], vec![])),
            ("run0: input port 0: value1 has rows of FP32 [2], not FP32 [3]", &|graph, _, y| {
                chain(graph, y, none(), vec![]);
            }),
            ("run0: state 1: value0 has rows of FP32 [3], not FP32 [2]", &|graph, x, _| {
                chain(graph, x, vec![None, Some(Rows::one(x, 0))], vec![]);
            }),
            ("run0: there is no output port 2", &|graph, x, y| {
                chain(graph, x, none(), vec![every(2, y)]);
            }),
            ("run0: output port 0: value2 has rows of INT64 [2], not FP32 [2]", &|graph, x, _| {
                let ids = graph.value(RowSpec::flat(ElementType::I64, HIDDEN), 2);
                chain(graph, x, none(), vec![every(0, ids)]);
            }),
            ("run0: output port 0 is not one INT64 that could end it", &|graph, x, _| {
                let stop = Stop { port: 0, value: 1 };
                graph.chain_until(CellTypeId(0), 2, vec![Rows::all(x)], none(), vec![], stop);
            }),
        ];
        for (expected, add) in table {
            assert_eq!(of(add), expected);
        }
        let spans = |graph: &mut CellGraphBuilder, x: ValueIndex, _: ValueIndex| {
            graph.chain(CellTypeId(0), 1, vec![Rows::spanning(x, 0, 2)], none(), vec![]);
        };
        assert_eq!(of(&spans), "run0: input port 0: it takes one row, not 2");
    }

    #[test]
    fn inputs_and_ids_are_checked() {
        let none = || vec![None, None];
        let of = |cell: &Cell, row: RowSpec, tensor: TensorData| {
            mistake(cell, row, tensor, |graph, x, _| chain(graph, x, none(), vec![]))
        };
        let ids = |ids: [i64; 2]| {
            let row = RowSpec::flat(ElementType::I64, 1);
            of(&lstm(true), row, TensorData::I64(ids.to_vec()))
        };
        assert_eq!(ids([0, 3]), "");
        assert_eq!(ids([0, 4]), "run0: input port 0: value0 holds id 4, the table 4 rows");
        assert_eq!(ids([-1, 0]), "run0: input port 0: value0 holds id -1, the table 4 rows");
        let wrong = of(&lstm(false), floats(X), TensorData::I32(vec![0; 6]));
        assert_eq!(wrong, "value0 holds FP32, its tensor INT32");
        let long = of(&lstm(false), floats(X), TensorData::F32(vec![0.0; 7]));
        assert_eq!(long, "value0 holds 6 elements, its tensor 7");
        let row = RowSpec::flat(ElementType::I64, X);
        let integers = of(&lstm(false), row, TensorData::I64(vec![0; 6]));
        assert_eq!(integers, "run0: input port 0: value0 has rows of INT64 [3], not FP32 [3]");
    }
}
