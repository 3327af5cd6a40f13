//! Requests with deadlines: given up when these are reached, or refused.

mod common;

use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellTypeId, Chunk, ElementType, ModelId, RowSpec, Rows, SessionId,
    Sink, SinkTime, TaskId, WorkerId,
};
use batchmaker_manager::{
    Config, Event, Failure, Manager, Merging, Outcome, PadTo, Padding, Policy,
};

use common::{config, request};

const WORKER: WorkerId = WorkerId(0);
const SESSION: SessionId = SessionId { index: 0, generation: 0 };

fn chain(chunk: Chunk, length: u32) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::of_chunk(chunk);
    let (x, y) = (graph.input(row(), length), graph.value(row(), length));
    let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
    graph.chain(CellTypeId(0), length, vec![Rows::all(x)], vec![None], vec![sink]);
    graph.finish().unwrap()
}

fn arrive(manager: &mut Manager, now_ns: u64, index: u32, length: u32, deadline_ns: u64) {
    arrive_in(manager, now_ns, index, length, Some(deadline_ns), None);
}

fn arrive_in(
    manager: &mut Manager,
    now_ns: u64,
    index: u32,
    length: u32,
    deadline_ns: Option<u64>,
    chunk: Option<Chunk>,
) {
    let event = Event::Arrive {
        request: request(index),
        model: ModelId(0),
        priority: 0,
        deadline_ns,
        graph: Arc::new(chain(chunk.unwrap_or(Chunk::Whole), length)),
        session: chunk.map(|_| SESSION),
    };
    manager.handle(now_ns, event);
}

fn complete(manager: &mut Manager, now_ns: u64, task: u64) {
    manager.handle(now_ns, Event::Complete { worker: WORKER, task: TaskId(task) });
}

fn ended(manager: &mut Manager) -> Vec<(u32, Outcome)> {
    manager.drain_finished().map(|finished| (finished.request.index, finished.outcome)).collect()
}

/// Who waits leaves at once; who runs leaves with its tasks in flight, and nothing more is submitted.
#[test]
fn requests_leave_at_their_deadlines() {
    let mut manager = Manager::new(config(&[1], 1, 2));
    arrive(&mut manager, 0, 0, 9, 30);
    arrive(&mut manager, 0, 1, 9, 20);
    arrive_in(&mut manager, 0, 2, 1, None, None);
    assert_eq!(manager.next_deadline(), Some(20));
    assert!(manager.next_task(WORKER).is_some());
    manager.advance(19);
    assert!(ended(&mut manager).is_empty());
    manager.advance(20);
    assert_eq!(ended(&mut manager), [(1, Outcome::TimedOut)]);
    assert_eq!(manager.next_deadline(), Some(30));
    manager.advance(35);
    assert_eq!((ended(&mut manager), manager.next_deadline()), (Vec::new(), None));
    complete(&mut manager, 40, 1);
    assert_eq!(ended(&mut manager), [(0, Outcome::TimedOut)]);
    assert!(manager.next_task(WORKER).is_some());
    complete(&mut manager, 50, 2);
    assert_eq!(ended(&mut manager), [(2, Outcome::Succeeded)]);
    assert_eq!(manager.statistics(CellTypeId(0)).slots_in_use, 0);
}

/// A deadline that is not reached is forgotten with its request; one that is over on arrival is not
/// met.
#[test]
fn a_request_that_ends_in_time_has_no_deadline_any_more() {
    let mut manager = Manager::new(config(&[1], 1, 2));
    arrive(&mut manager, 0, 0, 1, 30);
    assert!(manager.next_task(WORKER).is_some());
    complete(&mut manager, 10, 1);
    assert_eq!(ended(&mut manager), [(0, Outcome::Succeeded)]);
    assert_eq!(manager.next_deadline(), None);
    arrive(&mut manager, 20, 0, 1, 20);
    assert_eq!(ended(&mut manager), [(0, Outcome::TimedOut)]);
    assert_eq!((manager.requests(), manager.next_deadline()), (0, None));
}

#[test]
fn a_member_of_a_closed_batch_times_out_with_it() {
    let policies = [
        Policy::Padded(Padding { width: 10, to: PadTo::Longest }),
        Policy::Merged(Merging { graphs: 1 }),
    ];
    for policy in policies {
        let mut manager = Manager::new(Config { policy, ..config(&[1], 1, 2) });
        arrive(&mut manager, 0, 0, 2, 30);
        let tasks: Vec<_> = std::iter::from_fn(|| manager.next_task(WORKER)).collect();
        arrive(&mut manager, 0, 1, 2, 20);
        arrive(&mut manager, 5, 2, 2, 5);
        assert_eq!(ended(&mut manager), [(2, Outcome::TimedOut)]);
        assert_eq!(manager.next_deadline(), Some(20));
        manager.advance(30);
        assert_eq!(ended(&mut manager), [(1, Outcome::TimedOut)]);
        for task in &tasks {
            complete(&mut manager, 40, task.id.0);
        }
        assert_eq!(ended(&mut manager), [(0, Outcome::TimedOut)], "{policy}");
        assert_eq!((manager.requests(), manager.next_deadline()), (0, None));
    }
}

/// A chunk whose deadline is reached ends its session, whether it runs or waits.
#[test]
fn a_chunk_that_times_out_ends_its_session() {
    let lost = || Outcome::Failed(Failure::SessionLost);
    for is_running in [true, false] {
        let mut manager = Manager::new(config(&[1], 1, 1));
        let (first, second) = if is_running { (Some(10), None) } else { (None, Some(10)) };
        arrive_in(&mut manager, 0, 0, 1, first, Some(Chunk::First));
        arrive_in(&mut manager, 0, 1, 1, second, Some(Chunk::Next));
        arrive_in(&mut manager, 0, 2, 1, None, Some(Chunk::Next));
        manager.advance(10);
        let expected = if is_running {
            vec![(0, Outcome::TimedOut), (1, lost()), (2, lost())]
        } else {
            vec![(1, Outcome::TimedOut), (2, lost())]
        };
        assert_eq!(ended(&mut manager), expected);
        manager.handle(11, Event::EndSession { session: SESSION });
        if !is_running {
            assert!(manager.next_task(WORKER).is_some());
            complete(&mut manager, 12, 1);
            assert_eq!(ended(&mut manager), [(0, Outcome::Succeeded)]);
        }
        assert_eq!(manager.take_ended_sessions(), [SESSION]);
        assert_eq!(manager.statistics(CellTypeId(0)).slots_in_use, 0);
    }
}

/// Once the time of a step is known, a request that has more steps than fit is refused; none is while
/// nothing is known.
#[test]
fn what_cannot_be_met_is_refused() {
    let mut manager = Manager::new(config(&[1], 1, 1));
    arrive(&mut manager, 0, 0, 20, 10_000);
    for task in 1..=20 {
        assert!(manager.next_task(WORKER).is_some());
        complete(&mut manager, task * 10, task);
    }
    assert_eq!(ended(&mut manager), [(0, Outcome::Succeeded)]);
    arrive(&mut manager, 1_000, 1, 10, 1_099);
    assert_eq!(ended(&mut manager), [(1, Outcome::Unmeetable)]);
    arrive(&mut manager, 1_000, 1, 10, 1_100);
    assert_eq!(ended(&mut manager), []);
    arrive_in(&mut manager, 1_000, 2, 10, Some(1_099), Some(Chunk::First));
    assert_eq!(ended(&mut manager), [(2, Outcome::Unmeetable)]);
    manager.handle(1_000, Event::EndSession { session: SESSION });
    assert_eq!(manager.take_ended_sessions(), [SESSION]);
}

/// The first tasks were slow, and all requests must be answered sooner. After a second without a task, one
/// is tried, and those after it are not refused.
#[test]
fn requests_are_tried_again_after_slow_tasks() {
    let mut manager = Manager::new(config(&[1], 1, 1));
    let mut now_ns = 0;
    for request in 0..20 {
        arrive(&mut manager, now_ns, request, 1, now_ns + 100_000);
        assert!(manager.next_task(WORKER).is_some());
        now_ns += 1_000;
        complete(&mut manager, now_ns, u64::from(request) + 1);
    }
    assert_eq!(ended(&mut manager).len(), 20);
    let last_ns = now_ns;
    let mut task = 20;
    let mut outcomes = Vec::new();
    for request in 20..60 {
        // Tasks take 10 ns by now.
        now_ns += 50_000_000;
        arrive(&mut manager, now_ns, request, 1, now_ns + 500);
        while manager.next_task(WORKER).is_some() {
            task += 1;
            complete(&mut manager, now_ns + 10, task);
        }
        outcomes.extend(ended(&mut manager).into_iter().map(|(_, outcome)| (now_ns, outcome)));
    }
    assert_eq!(outcomes.len(), 40);
    for (at_ns, outcome) in outcomes {
        let is_tried = at_ns - last_ns > 1_000_000_000;
        let expected = if is_tried { Outcome::Succeeded } else { Outcome::Unmeetable };
        assert_eq!(outcome, expected, "at {at_ns}");
    }
}
