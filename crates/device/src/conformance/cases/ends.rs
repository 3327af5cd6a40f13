//! Open chains end when their output says so, and a task reports each end once.

use batchmaker_graph::{Cell, Item, Join, RequestId, RunIndex, SlotId, Stop, TensorData, Work};

use crate::conformance::case::{Case, Check, ensure};
use crate::conformance::cases::chains::CELL;
use crate::conformance::cells::{counter, decoder};
use crate::conformance::graphs::{Chain, Request};
use crate::conformance::harness::{Harness, ends_of};
use crate::conformance::oracle::evaluate;
use crate::conformance::schedule::{Entry, Form, Schedule};
use crate::conformance::subject::Subject;
use crate::reference::Row;

/// A token that no decoder puts out.
const NEVER: i64 = 99;

pub(super) fn cases() -> Vec<Case> {
    let of_decoder = |name: &str, body: fn(&dyn Subject, Open) -> Check| {
        Case::new(format!("ends/decoder: {name}"), move |subject| body(subject, open(decoder())))
    };
    let of_counter = |name: &str, body: fn(&dyn Subject, Open) -> Check| {
        let body = move |subject: &dyn Subject| body(subject, open(counter()));
        Case::new(format!("ends/counter: {name}"), body).with_programs()
    };
    let of_two = |name: &str, make: fn() -> Cell| {
        let name = format!("two workers/{name}: a chain ends with its first node there");
        Case::new(name, move |subject| moves(subject, open(make()))).with_workers(2)
    };
    vec![
        of_decoder("in the middle of a task", |subject, open| ends(subject, &open, Form::Roster)),
        of_decoder("of explicit rows", |subject, open| ends(subject, &open, Form::Rows)),
        of_decoder("joins again before anybody knows", joins_again),
        of_decoder("padding ends nothing", padding_ends_nothing),
        of_counter("in the middle of a task", |subject, open| ends(subject, &open, Form::Roster)),
        of_counter("of explicit rows", |subject, open| ends(subject, &open, Form::Rows)),
        of_counter("joins again before anybody knows", joins_again),
        of_counter("padding ends nothing", padding_ends_nothing),
        of_two("decoder", decoder),
        of_two("counter", counter).with_programs(),
    ]
}

/// A cell with open chains of it.
struct Open {
    cell: Cell,
    chains: Vec<Chain>,
    /// For each chain, the node that ends it, if one does.
    ends: Vec<Option<u32>>,
}

const LENGTH: u32 = 14;

/// Chains that end after a few nodes, with the first, with the last and with none. The stop of a
/// chain is an id that the reference puts out at that node for the first time.
fn open(cell: Cell) -> Open {
    // Seeds differ in inputs and first states; not all chains put out a new id at the wanted node.
    let find = |wanted: u32| {
        let end_of = |seed: u32| {
            let chain = Chain::new(&cell, CELL, LENGTH, seed);
            let ids = ids_of(&cell, &chain);
            let is_new = !ids[..wanted as usize].contains(&ids[wanted as usize]);
            is_new.then(|| {
                let stop = Some(Stop { port: 0, value: ids[wanted as usize] });
                Chain { stop, ..chain }
            })
        };
        (1..200).step_by(2).find_map(end_of).expect("one of them does")
    };
    let ends = [Some(3), Some(2), Some(0), Some(1), None, Some(4)];
    let mut chains: Vec<Chain> = ends.iter().map(|end| find(end.unwrap_or(0))).collect();
    chains[3] = chains[3].chunk(&cell, chains[3].chunk, 0..2);
    chains[4].stop = Some(Stop { port: 0, value: NEVER });
    Open { cell, chains, ends: ends.into() }
}

/// The ids that a chain puts out if nothing ends it.
fn ids_of(cell: &Cell, chain: &Chain) -> Vec<i64> {
    let request = Chain { stop: None, ..chain.clone() }.request(cell);
    let evaluation = evaluate(std::slice::from_ref(cell), &request).expect("it has a reference");
    match &evaluation.values[request.graph.outputs()[0].index()] {
        Row::Int(ids) => ids.clone(),
        Row::Float(_) => unreachable!("the first port is an id"),
    }
}

impl Open {
    fn requests(&self) -> Vec<Request> {
        self.chains.iter().map(|chain| chain.request(&self.cell)).collect()
    }
}

/// Runs chains to their bounds, like a manager to which no end was reported yet.
fn ends(subject: &dyn Subject, open: &Open, form: Form) -> Check {
    let mut harness = Harness::new(subject, vec![open.cell.clone()])?;
    let requests = open.requests();
    let ids = harness.admit_all(&requests)?;
    let entry = |(at, request): (usize, &Request)| Entry {
        request: ids[at],
        run: RunIndex(0),
        length: request.graph.runs()[0].length,
        at: at as u32 / 2,
    };
    let entries: Vec<Entry> = requests.iter().enumerate().map(entry).collect();
    let schedule = Schedule { steps: &[2, 7, 3], ..Schedule::of(form) };
    let reported = harness.play(0, CELL, &entries, schedule)?;
    for (at, (&id, request)) in ids.iter().zip(&requests).enumerate() {
        let expected = evaluate(&harness.cells, request)?.ends;
        let nodes = expected.first().map(|&(_, nodes)| nodes - 1);
        ensure!(nodes == open.ends[at], "the reference ends chain {at} at {nodes:?}");
        let ends = ends_of(id, &reported);
        ensure!(ends == expected, "chain {at} ends as {ends:?}, not as {expected:?}");
        let outputs = harness.finish(0, id)?;
        harness.check(request, &outputs).map_err(|reason| format!("chain {at}: {reason}"))?;
    }
    Ok(())
}

fn join(request: RequestId, slot: SlotId, step: u32) -> Join {
    Join { request, run: RunIndex(0), slot, step, moved_from: None }
}

/// A chain runs up to its last node before the end, and ends with the first that it runs on another worker.
fn moves(subject: &dyn Subject, open: Open) -> Check {
    let mut harness = Harness::new(subject, vec![open.cell.clone()])?;
    let request = open.chains[0].request(&open.cell);
    let end = open.ends[0].expect("it ends");
    let (id, slot) = (harness.admit(&request)?, harness.take_slot(CELL));
    let roster = |leaves, joins, steps| Work::Roster { leaves, joins, steps };
    let before =
        [roster(Vec::new(), vec![join(id, slot, 0)], end), roster(vec![slot], Vec::new(), 1)];
    harness.workers[0].run(before.map(|work| (CELL, work)))?;
    let moved_from = harness.moved_from(0);
    let there = Join { moved_from, ..join(id, slot, end) };
    let done = harness.workers[1].run([(CELL, roster(Vec::new(), vec![there], LENGTH - end))])?;
    let ends = ends_of(id, done.iter().flat_map(|done| &done.ends));
    ensure!(ends == [(RunIndex(0), end + 1)], "the chain ends as {ends:?}");
    let outputs = harness.finish(1, id)?;
    harness.check(&request, &outputs)
}

/// Tasks are submitted before the end in the first of them is reported: chains leave the roster, come
/// back and go on as items.
fn joins_again(subject: &dyn Subject, open: Open) -> Check {
    let mut harness = Harness::new(subject, vec![open.cell.clone()])?;
    let requests: Vec<Request> = [0, 4].map(|at: usize| open.chains[at].request(&open.cell)).into();
    let ids = harness.admit_all(&requests)?;
    let slots = [harness.take_slot(CELL), harness.take_slot(CELL)];
    let end = open.ends[0].expect("it ends");
    let roster = |leaves, joins, steps| Work::Roster { leaves, joins, steps };
    let (request, slot) = (ids[0], Some(slots[0]));
    let item = Item { request, run: RunIndex(0), first: 10, count: 1, slot, moved_from: None };
    let works = [
        roster(Vec::new(), vec![join(ids[0], slots[0], 0), join(ids[1], slots[1], 0)], 9),
        roster(vec![slots[0]], vec![join(ids[0], slots[0], 9)], 1),
        roster(vec![slots[0]], Vec::new(), 1),
        Work::Rows(vec![item]),
        roster(Vec::new(), vec![join(ids[0], slots[0], 11)], 3),
    ];
    let done = harness.workers[0].run(works.map(|work| (CELL, work)))?;
    let ends: Vec<usize> = done.iter().map(|done| done.ends.len()).collect();
    ensure!(ends == [1, 0, 0, 0, 0], "ends are reported by task as {ends:?}");
    let (there, wanted) = (ends_of(ids[0], &done[0].ends), [(RunIndex(0), end + 1)]);
    ensure!(there == wanted, "the chain ends as {there:?}, not as {wanted:?}");
    for (at, (id, request)) in ids.into_iter().zip(&requests).enumerate() {
        let outputs = harness.finish(0, id)?;
        harness.check(request, &outputs).map_err(|reason| format!("chain {at}: {reason}"))?;
    }
    Ok(())
}

/// Padding after a chain's bound puts out the stop, which ends nothing.
fn padding_ends_nothing(subject: &dyn Subject, open: Open) -> Check {
    let mut harness = Harness::new(subject, vec![open.cell.clone()])?;
    let end = open.ends[0].expect("it ends");
    let short = open.chains[0].chunk(&open.cell, open.chains[0].chunk, 0..end);
    // Padding reads the last inputs again: a decoder has none, a counter stands still.
    let request = short.request(&open.cell);
    let id = harness.admit(&request)?;
    let entry = Entry { request: id, run: RunIndex(0), length: end, at: 0 };
    let padded_to = Some(LENGTH + 4);
    let schedule = Schedule { form: Form::Roster, steps: &[18], padded_to };
    let ends = harness.play(0, CELL, &[entry], schedule)?;
    ensure!(ends.is_empty(), "padding ends a chain: {ends:?}");
    let outputs: Vec<TensorData> = harness.finish(0, id)?;
    harness.check(&request, &outputs)
}
