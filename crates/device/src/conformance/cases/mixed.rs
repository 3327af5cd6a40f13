//! Chains that feed chains, batches of items beside a standing roster, and chains that change from one
//! task form to the other.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellGraphBuilder, CellTypeId, ElementType, Item, Join, RecurrentKind, RowSpec, Rows,
    RunIndex, Sink, SinkTime, Tensor, Work,
};

use crate::conformance::case::{Case, Check};
use crate::conformance::cases::chains::CELL;
use crate::conformance::cells::{ChainCell, embedded, id, recurrent};
use crate::conformance::compare::same_bits;
use crate::conformance::graphs::{Chain, Request};
use crate::conformance::harness::Harness;
use crate::conformance::numbers::Numbers;
use crate::conformance::schedule::{Entry, Form, Schedule};
use crate::conformance::subject::Subject;

pub(super) fn cases() -> Vec<Case> {
    let of_cell = |cell: ChainCell| {
        let name = format!("mixed/{}: a roster and items beside it", cell.name);
        let case = Case::new(name, move |subject| a_roster_and_items(subject, &cell));
        if cell.has_programs { case.with_programs() } else { case }
    };
    let mut cases: Vec<Case> = ChainCell::few().into_iter().map(of_cell).collect();
    cases.push(Case::new("mixed/two layers in lockstep", two_layers));
    cases.push(Case::new("mixed/both directions, then a layer over them", both_directions));
    cases
}

/// Chain 0 stays on the roster; chain 1 begins there, goes on as items, and joins again.
fn a_roster_and_items(subject: &dyn Subject, cell: &ChainCell) -> Check {
    let cell = cell.cell();
    let mut harness = Harness::new(subject, vec![cell.clone()])?;
    let request = |seed| Chain::new(&cell, CELL, 9, seed).request(&cell);
    let requests = [request(1), request(2)];
    let mut alone = Vec::new();
    for request in &requests {
        let id = harness.admit(request)?;
        let entry = Entry { request: id, run: RunIndex(0), length: 9, at: 0 };
        harness.play(0, CELL, &[entry], Schedule::of(Form::Roster))?;
        alone.push(harness.finish(0, id)?);
    }
    let leaves = harness.leave(0, CELL);

    let ids = harness.admit_all(&requests)?;
    let slots = [harness.take_slot(CELL), harness.take_slot(CELL)];
    let join = |at: usize, step| {
        let (request, slot) = (ids[at], slots[at]);
        Join { request, run: RunIndex(0), slot, step, moved_from: None }
    };
    let roster = |leaves, joins, steps| Work::Roster { leaves, joins, steps };
    let items = |step| {
        let (request, slot) = (ids[1], Some(slots[1]));
        let run = RunIndex(0);
        Work::Rows(vec![Item { request, run, first: step, count: 1, slot, moved_from: None }])
    };
    let works = [
        roster(leaves, vec![join(0, 0), join(1, 0)], 3),
        roster(vec![slots[1]], Vec::new(), 1),
        items(3),
        items(4),
        roster(Vec::new(), vec![join(1, 5)], 1),
        roster(Vec::new(), Vec::new(), 3),
        roster(vec![slots[1]], Vec::new(), 1),
    ];
    harness.workers[0].run(works.map(|work| (CELL, work)))?;
    for (at, (id, alone)) in ids.into_iter().zip(&alone).enumerate() {
        same_bits(&format!("chain {at}"), &harness.finish(0, id)?, alone)?;
    }
    Ok(())
}

const SECOND: CellTypeId = CellTypeId(1);

/// A row of h or c.
fn state() -> RowSpec {
    RowSpec::new(ElementType::F32, [19])
}

/// Two layers and their cells, the first over an embedding.
fn layers(subject: &dyn Subject) -> Check<Harness> {
    let gru = recurrent(RecurrentKind::Gru { linear_before_reset: true }, (5, 19));
    let lstm = recurrent(RecurrentKind::Lstm { p: None, bytes: None }, (19, 19));
    let cells = [embedded(gru), lstm].map(Cell::recurrent);
    Harness::new(subject, cells.into())
}

/// Tasks of both layers in one round: the second reads what the first wrote in a task just before.
fn two_layers(subject: &dyn Subject) -> Check {
    let mut harness = layers(subject)?;
    let requests: Vec<Request> = [8, 8].iter().zip(1..).map(|(&n, seed)| stack(n, seed)).collect();
    let ids = harness.admit_all(&requests)?;
    let slots = [CELL, SECOND].map(|cell_type| [(); 2].map(|()| harness.take_slot(cell_type)));
    let work = |layer: usize, is_first: bool, steps| {
        let join = |at: usize| {
            let run = RunIndex(layer as u32);
            Join { request: ids[at], run, slot: slots[layer][at], step: 0, moved_from: None }
        };
        let joins = if is_first { vec![join(0), join(1)] } else { Vec::new() };
        (CellTypeId(layer as u32), Work::Roster { leaves: Vec::new(), joins, steps })
    };
    let steps = [1, 1, 2, 1, 3];
    let tasks = (0..)
        .zip(steps)
        .flat_map(|(turn, steps)| [work(0, turn == 0, steps), work(1, turn == 0, steps)]);
    harness.workers[0].run(tasks)?;
    for (request, id) in requests.iter().zip(ids) {
        let outputs = harness.finish(0, id)?;
        harness.check(request, &outputs)?;
    }
    Ok(())
}

fn stack(length: u32, seed: u32) -> Request {
    let (mut graph, ids) = (CellGraphBuilder::new(), Numbers::new(seed).rows(&id(), length, 11));
    let x = graph.input(id(), length);
    let [between, y] = [(); 2].map(|()| graph.value(state(), length));
    let every = |value| vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(value) }];
    graph.chain(CELL, length, vec![Rows::all(x)], vec![None], every(between));
    graph.chain(SECOND, length, vec![Rows::all(between)], vec![None; 2], every(y));
    graph.output(y);
    Request {
        graph: Arc::new(graph.finish().unwrap()),
        inputs: vec![Tensor::new(vec![ids.len()], ids)],
    }
}

/// Two chains of one cell over the same ids, one of them backwards, into one value; then a chain over
/// the rows of both, every other one.
fn both_directions(subject: &dyn Subject) -> Check {
    let mut harness = layers(subject)?;
    let length = 6;
    let mut graph = CellGraphBuilder::new();
    let ids = Numbers::new(8).rows(&id(), length, 11);
    let x = graph.input(id(), length);
    let (between, y) = (graph.value(state(), 2 * length), graph.value(state(), 2 * length));
    for direction in 0..2 {
        let forward = (Rows::all(x), Rows::strided(between, 0, 2));
        let backward = (Rows::all(x).reversed(length), Rows::strided(between, 2 * length - 1, -2));
        let (reads, rows) = if direction == 0 { forward } else { backward };
        let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows }];
        graph.chain(CELL, length, vec![reads], vec![None], sinks);
    }
    let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) }];
    graph.chain(SECOND, 2 * length, vec![Rows::all(between)], vec![None; 2], sinks);
    [between, y].into_iter().for_each(|value| graph.output(value));
    let inputs = vec![Tensor::new(vec![ids.len()], ids)];
    let request = Request { graph: Arc::new(graph.finish().unwrap()), inputs };
    let id = harness.admit(&request)?;
    let entry = |run, length| Entry { request: id, run: RunIndex(run), length, at: run };
    let schedule = Schedule::of(Form::Roster);
    harness.play(0, CELL, &[entry(0, length), entry(1, length)], schedule)?;
    // Complete values may be read on any worker.
    let last = harness.workers.len() - 1;
    harness.play(last, SECOND, &[entry(2, 2 * length)], schedule)?;
    let outputs = harness.finish(0, id)?;
    harness.check(&request, &outputs)
}
