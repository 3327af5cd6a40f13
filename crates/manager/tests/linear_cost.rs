//! A request of many subgraphs costs time in proportion to their number.

mod common;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellTypeId, Chunk, ElementType, ModelId, RowSpec, Rows, SessionId,
    Sink, SinkTime, TaskId, ValueIndex, WorkerId,
};
use batchmaker_manager::{
    Config, Event, Fairness, Manager, PadTo, Padding, Policy, StatePlacement, TaskForm,
};

use common::{config, request};

const ROWS: CellTypeId = CellTypeId(0);
const FIRST: CellTypeId = CellTypeId(1);
const SECOND: CellTypeId = CellTypeId(2);
const HEAD: CellTypeId = CellTypeId(3);
const STEPS: u32 = 2;

fn row() -> RowSpec {
    RowSpec::new(ElementType::F32, [1])
}

fn every(rows: Rows) -> Vec<Sink> {
    vec![Sink { port: 0, time: SinkTime::Every, rows }]
}

/// Sequences of two steps: rows of one run, two layers of chains, a head over the last states of all
/// sequences.
fn sequences(chunk: Chunk, sequences: u32) -> CellGraph {
    let mut graph = CellGraphBuilder::of_chunk(chunk);
    let rows = sequences * STEPS;
    let x = graph.input(row(), rows);
    let [embedded, first, last, head] =
        [rows, rows, sequences, sequences].map(|rows| graph.value(row(), rows));
    graph.rows(ROWS, rows, vec![Rows::all(x)], every(Rows::all(embedded)));
    let steps = |value: ValueIndex, sequence| Rows::strided(value, sequence * STEPS, 1);
    for s in 0..sequences {
        let sinks = every(steps(first, s));
        graph.chain(FIRST, STEPS, vec![steps(embedded, s)], vec![None], sinks);
    }
    for s in 0..sequences {
        let sink = Sink { port: 0, time: SinkTime::Last, rows: Rows::one(last, s) };
        graph.chain(SECOND, STEPS, vec![steps(first, s)], vec![None], vec![sink]);
    }
    if chunk == Chunk::Whole {
        graph.rows(HEAD, sequences, vec![Rows::all(last)], every(Rows::all(head)));
    }
    graph.finish().unwrap()
}

/// The manager frees neither a graph that nobody else owns nor the tables of a large request: it hands
/// them out.
#[test]
fn large_requests_are_freed_elsewhere() {
    let policies = [Policy::Cellular, Policy::Padded(Padding { width: 10, to: PadTo::Longest })];
    for policy in policies {
        let mut manager = Manager::new(Config { policy, ..plain(1) });
        let graph = Arc::new(sequences(Chunk::Whole, 5_000));
        let watched = Arc::downgrade(&graph);
        let (request, model) = (request(0), ModelId(0));
        let (priority, deadline_ns, session) = (0, None, None);
        let event = Event::Arrive { request, model, priority, deadline_ns, graph, session };
        manager.handle(0, event);
        manager.handle(0, Event::Cancel { request });
        assert_eq!(manager.drain_finished().count(), 1);
        assert!(watched.upgrade().is_some());
        let discarded = manager.take_discarded();
        assert!(!discarded.is_empty());
        drop(discarded);
        assert!(watched.upgrade().is_none() && manager.take_discarded().is_empty());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It runs to its end.
    Runs,
    /// It is cancelled after some rounds, with tasks in flight.
    Cancelled,
    /// A worker is lost after some rounds.
    WorkerLost,
}

/// The time, in seconds, that the manager takes for a request of that many sequences.
fn seconds(config: &Config, chunk: Chunk, count: u32, end: End) -> f64 {
    let graph = Arc::new(sequences(chunk, count));
    let mut manager = Manager::new(config.clone());
    let session = (chunk != Chunk::Whole).then_some(SessionId { index: 0, generation: 0 });
    let (request, model, deadline_ns) = (request(0), ModelId(0), Some(u64::MAX));
    let begun = Instant::now();
    let graph = graph.clone();
    let event = Event::Arrive { request, model, priority: 0, deadline_ns, graph, session };
    manager.handle(0, event);
    let mut in_flight: Vec<VecDeque<TaskId>> = vec![VecDeque::new(); config.workers.into()];
    let mut now_ns = 0;
    for round in 0.. {
        if manager.requests() == 0 {
            break;
        }
        let ends = round == count / 256;
        for (worker, in_flight) in (0..).map(WorkerId).zip(&mut in_flight) {
            while let Some(task) = manager.next_task(worker) {
                in_flight.push_back(task.id);
            }
            if ends && end == End::Cancelled {
                manager.handle(now_ns, Event::Cancel { request });
            }
            if ends && end == End::WorkerLost {
                manager.handle(now_ns, Event::WorkerDown { worker, reason: "lost".into() });
                in_flight.clear();
            }
            for task in in_flight.drain(..) {
                now_ns += 10;
                manager.handle(now_ns, Event::Complete { worker, task });
            }
        }
    }
    begun.elapsed().as_secs_f64()
}

/// Eight times the sequences may cost no more than sixteen times as much: quadratic would be 64 times.
fn check(what: &str, config: &Config, chunk: Chunk, end: End) {
    // Again if somebody else had the processor or its caches: the shortest runs take a millisecond.
    let mut times = (0.0, f64::MAX);
    for _ in 0..10 {
        times = (seconds(config, chunk, 8 << 10, end), seconds(config, chunk, 64 << 10, end));
        println!("{what:40} {:6.3} s {:6.3} s {:5.1} times", times.0, times.1, times.1 / times.0);
        if times.1 < 16.0 * times.0 {
            return;
        }
    }
    panic!("{what}: {times:?} s for 8k and 64k sequences");
}

fn plain(workers: u16) -> Config {
    config(&[256, 256, 256, 256], workers, 5)
}

fn bounded() -> Config {
    let mut config = plain(2);
    config.cell_types.iter_mut().for_each(|cell| cell.slots_max = Some(300));
    config
}

#[test]
fn a_request_that_runs() {
    check("runs", &plain(1), Chunk::Whole, End::Runs);
    check("runs on two workers", &plain(2), Chunk::Whole, End::Runs);
    let rows = Config { task_form: TaskForm::Rows, ..plain(1) };
    check("runs as rows", &rows, Chunk::Whole, End::Runs);
}

#[test]
fn a_request_under_rules_of_fairness() {
    let fairness = Fairness {
        shares: Some(vec![1]),
        credit_ns: 0,
        aging_ns: Some(1_000),
        patience_ns: Some(100),
        large_patience_ns: None,
        round_ns: None,
        large_rows: Some(100),
    };
    let config = Config { fairness: Some(fairness), ..plain(1) };
    check("runs, large and promoted", &config, Chunk::Whole, End::Runs);
}

#[test]
fn a_request_in_bounded_slots() {
    check("runs in bounded slots", &bounded(), Chunk::Whole, End::Runs);
    check("is cancelled in bounded slots", &bounded(), Chunk::Whole, End::Cancelled);
}

#[test]
fn a_request_that_is_given_up() {
    check("is cancelled", &plain(2), Chunk::Whole, End::Cancelled);
    check("is lost with its worker", &plain(2), Chunk::Whole, End::WorkerLost);
    let placement = StatePlacement::PerWorker;
    let config = Config { state_placement: placement, ..plain(2) };
    check("is lost with its worker's memory", &config, Chunk::Whole, End::WorkerLost);
}

#[test]
fn a_chunk_of_a_session() {
    check("a chunk", &plain(1), Chunk::First, End::Runs);
    let mut config = plain(1);
    config.cell_types.iter_mut().for_each(|cell| cell.slots_max = Some(1 << 20));
    check("a chunk in bounded slots", &config, Chunk::First, End::Runs);
}

#[test]
fn a_closed_batch() {
    let padded = Policy::Padded(Padding { width: 10, to: PadTo::Longest });
    check("padded", &Config { policy: padded, ..plain(1) }, Chunk::Whole, End::Runs);
}
