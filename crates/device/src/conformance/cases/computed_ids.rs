//! Ids that one cell computes and the next one looks up in its table. A task with an id that the table lacks
//! fails; what was submitted behind it runs.

use std::sync::Arc;

use batchmaker_graph::{
    Cell, CellGraphBuilder, CellTypeId, Item, Join, RecurrentKind, RequestId, Rows, RunIndex, Sink,
    SinkTime, SlotId, Tensor, TensorData, ValueIndex, Work,
};

use crate::conformance::case::{Case, Check, ensure};
use crate::conformance::cases::failures::check_second_failed;
use crate::conformance::cells::{
    CHOICES, IDS, TREE_SIZES, choice, embedded, id, recurrent, step_over_embedding, tree,
};
use crate::conformance::graphs::Request;
use crate::conformance::harness::Harness;
use crate::conformance::subject::Subject;

/// Computes an id for each row of x.
const CHOICE: CellTypeId = CellTypeId(0);
/// Looks the ids up.
const CONSUMER: CellTypeId = CellTypeId(1);
/// The inner nodes of a tree over the consumer's nodes.
const INNER: CellTypeId = CellTypeId(2);

pub(super) fn cases() -> Vec<Case> {
    let rows = |name: &str, consumer: fn() -> Cell| {
        let name = format!("computed ids/{name}");
        Case::new(name, move |subject| rows(subject, consumer()))
    };
    vec![
        Case::new("computed ids/chains on a roster", roster),
        rows("chains as items", lstm),
        rows("leaves of a tree", || {
            let [leaf, _] = tree(true, TREE_SIZES[0]);
            leaf
        }),
        rows("a composite cell", step_over_embedding),
        Case::new("computed ids/trees after one whose leaves failed", trees_after_failed_leaves),
    ]
}

fn lstm() -> Cell {
    Cell::recurrent(embedded(recurrent(
        RecurrentKind::Lstm { p: None, bytes: None },
        TREE_SIZES[0],
    )))
}

/// A request whose first cell computes `ids`, which the second one looks up, in a chain or in rows as the
/// cell has states or not. Outputs: the first output port of each node.
fn request(consumer: &Cell, ids: &[i64]) -> Request {
    let length = ids.len() as u32;
    let mut graph = CellGraphBuilder::new();
    let (chosen, inputs) = choices(&mut graph, ids);
    let y = graph.value(consumer.outputs[0].clone(), length);
    let reads = vec![Rows::all(chosen)];
    match consumer.states.len() {
        0 => graph.rows(CONSUMER, length, reads, every(y)),
        states => graph.chain(CONSUMER, length, reads, vec![None; states], every(y)),
    };
    graph.output(y);
    Request { graph: Arc::new(graph.finish().unwrap()), inputs }
}

/// Adds the run that computes `ids`. Returns their value, and the inputs of the request.
fn choices(graph: &mut CellGraphBuilder, ids: &[i64]) -> (ValueIndex, Vec<Tensor>) {
    let length = ids.len() as u32;
    let mut x = vec![0.0; ids.len() * CHOICES];
    for (row, &id) in x.chunks_exact_mut(CHOICES).zip(ids) {
        row[id as usize] = 1.0;
    }
    let given = graph.input(choice().inputs[0].clone(), length);
    let chosen = graph.value(id(), length);
    graph.rows(CHOICE, length, vec![Rows::all(given)], every(chosen));
    (chosen, vec![Tensor::new(vec![ids.len(), CHOICES], TensorData::F32(x))])
}

/// A sink of the first output port into all rows of a value.
fn every(value: ValueIndex) -> Vec<Sink> {
    vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(value) }]
}

/// A request of a tree of two leaves, whose ids a cell computes. Outputs: h and c of the leaves, then of the
/// inner node.
fn tree_request(leaf: &Cell, ids: [i64; 2]) -> Request {
    let mut graph = CellGraphBuilder::new();
    let (chosen, inputs) = choices(&mut graph, &ids);
    let states = [0, 1].map(|port: usize| graph.value(leaf.outputs[port].clone(), 3));
    let sinks = |first: u32| {
        let rows = |port: usize| Rows::strided(states[port], first, 1);
        [0, 1].map(|port| Sink { port, time: SinkTime::Every, rows: rows(port) }).to_vec()
    };
    graph.rows(CONSUMER, 2, vec![Rows::all(chosen)], sinks(0));
    let reads = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(state, row)| Rows::one(states[state], row));
    graph.nodes(INNER, 1, reads.to_vec(), sinks(2));
    states.into_iter().for_each(|value| graph.output(value));
    Request { graph: Arc::new(graph.finish().unwrap()), inputs }
}

/// Three requests, of which the second computes an id that the table lacks, with their ids computed.
fn requests(
    subject: &dyn Subject,
    consumer: Cell,
    ids: [&[i64]; 3],
) -> Check<(Harness, [Request; 3], Vec<RequestId>)> {
    let requests = ids.map(|ids| request(&consumer, ids));
    let mut harness = Harness::new(subject, vec![choice(), consumer])?;
    let admitted = harness.admit_all(&requests)?;
    let choose = |(&request, ids): (&RequestId, &[i64])| Item {
        request,
        run: RunIndex(0),
        first: 0,
        count: ids.len() as u32,
        slot: None,
        moved_from: None,
    };
    let items = admitted.iter().zip(ids).map(choose).collect();
    harness.workers[0].run([(CHOICE, Work::Rows(items))])?;
    Ok((harness, requests, admitted))
}

/// Checks the outputs of the first and of the third request, and retires the second.
fn check_others(mut harness: Harness, requests: &[Request; 3], ids: &[RequestId]) -> Check {
    for at in [0, 2] {
        let outputs = harness.finish(0, ids[at])?;
        harness
            .check(&requests[at], &outputs)
            .map_err(|reason| format!("request {at}: {reason}"))?;
    }
    harness.device.retire(ids[1]);
    Ok(())
}

/// An id that the table lacks.
const UNKNOWN: i64 = IDS as i64;

/// Chain 0 runs to its end. The chain that fails joins in the second task, and stays in the third one,
/// which was submitted before the failure was reported and in which chain 2 joins.
fn roster(subject: &dyn Subject) -> Check {
    let ids: [&[i64]; 3] = [&[3, 1], &[2, UNKNOWN, 5, 4, 0], &[7, 7, 10]];
    let (mut harness, requests, admitted) = requests(subject, lstm(), ids)?;
    let slots: Vec<SlotId> = ids.iter().map(|_| harness.take_slot(CONSUMER)).collect();
    let join = |at: usize| {
        let (request, slot) = (admitted[at], slots[at]);
        vec![Join { request, run: RunIndex(1), slot, step: 0, moved_from: None }]
    };
    let works = [
        (Vec::new(), join(0), 2),
        (vec![slots[0]], join(1), 2),
        (Vec::new(), join(2), 2),
        (vec![slots[1]], Vec::new(), 1),
    ];
    let work = |(leaves, joins, steps)| (CONSUMER, Work::Roster { leaves, joins, steps });
    harness.workers[0].submit(works.map(work))?;
    let done = harness.workers[0].drain()?;
    check_second_failed(&done[..3])?;
    check_others(harness, &requests, &admitted)
}

/// The nodes of request 0, then the first ones of the request that fails, then those of request 2.
fn rows(subject: &dyn Subject, consumer: Cell) -> Check {
    let has_states = !consumer.states.is_empty();
    let (mut harness, requests, admitted) =
        requests(subject, consumer, [&[4], &[UNKNOWN, 1], &[10]])?;
    let tasks = [0, 1, 2].map(|at: usize| {
        let slot = has_states.then(|| harness.take_slot(CONSUMER));
        let (request, run) = (admitted[at], RunIndex(1));
        Work::Rows(vec![Item { request, run, first: 0, count: 1, slot, moved_from: None }])
    });
    harness.workers[0].submit(tasks.map(|work| (CONSUMER, work)))?;
    check_second_failed(&harness.workers[0].drain()?)?;
    check_others(harness, &requests, &admitted)
}

/// The leaves of the first tree fail, one of which has an id that the table has. Its inner node runs behind
/// them, on rows that are undefined. A later tree with that id is right: no cache holds those rows.
fn trees_after_failed_leaves(subject: &dyn Subject) -> Check {
    let [leaf, inner] = tree(true, TREE_SIZES[0]);
    let requests = [[2, UNKNOWN], [2, 3]].map(|ids| tree_request(&leaf, ids));
    let mut harness = Harness::new(subject, vec![choice(), leaf, inner])?;
    let ids = harness.admit_all(&requests)?;
    for (at, &request) in ids.iter().enumerate() {
        let item = |run: u32, count: u32| {
            let run = RunIndex(run);
            Work::Rows(vec![Item { request, run, first: 0, count, slot: None, moved_from: None }])
        };
        let tasks = [(CHOICE, item(0, 2)), (CONSUMER, item(1, 2)), (INNER, item(2, 1))];
        harness.workers[0].submit(tasks)?;
        let done = harness.workers[0].drain()?;
        match at {
            0 => check_second_failed(&done)?,
            _ => ensure!(done.iter().all(|done| done.result.is_ok()), "{done:?}"),
        }
    }
    let outputs = harness.finish(0, ids[1])?;
    harness.check(&requests[1], &outputs)?;
    harness.device.retire(ids[0]);
    Ok(())
}
