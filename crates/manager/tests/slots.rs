//! Devices with a bounded number of slots: which chains get them.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, CellGraphBuilder, CellTypeId, Chunk, ElementType, ModelId, RowSpec, Rows, SessionId,
    Sink, SinkTime, TaskId, WorkerId,
};
use batchmaker_manager::{Config, Event, Manager, Merging, Outcome, Policy};
use expect_test::expect;

use common::{Roster, arrive, config, request, stack};

const WORKER: WorkerId = WorkerId(0);
const CELL: CellTypeId = CellTypeId(0);

/// A [`config`] with a bound on the slots of each type.
fn bounded(limits: &[u32], slots: &[u32], max_tasks_to_submit: u32) -> Config {
    let mut config = config(limits, 1, max_tasks_to_submit);
    for (cell, &slots) in config.cell_types.iter_mut().zip(slots) {
        cell.slots_max = Some(slots);
    }
    config
}

/// Plays what has arrived to its end, a round at a time: a line a batch. At most `slots` slots of
/// cell type 0 are in use.
fn drain(manager: &mut Manager, slots: usize) -> String {
    drain_after(manager, slots, &mut BTreeMap::new())
}

/// The same of a worker with `rosters`.
fn drain_after(
    manager: &mut Manager,
    slots: usize,
    rosters: &mut BTreeMap<CellTypeId, Roster>,
) -> String {
    let mut trace = String::new();
    for _ in 0..1_000 {
        let mut tasks: Vec<TaskId> = Vec::new();
        while let Some(task) = manager.next_task(WORKER) {
            for batch in rosters.entry(task.cell_type).or_default().batches(&task) {
                let node =
                    |node: &common::Node| format!(" r{}.{}:{}", node.0.index, node.1.0, node.2);
                let nodes: String = batch.iter().map(node).collect();
                trace += &format!("{}{nodes}\n", task.cell_type);
            }
            assert!(manager.statistics(CELL).slots_in_use <= slots);
            tasks.push(task.id);
        }
        if tasks.is_empty() {
            return trace;
        }
        for task in tasks {
            manager.handle(0, Event::Complete { worker: WORKER, task });
            assert!(manager.statistics(CELL).slots_in_use <= slots);
        }
    }
    panic!("no end of\n{trace}")
}

/// A chain takes its slot when it is ready; the next one in the order of the queue when one is free,
/// here r3 of a higher priority before r2.
#[test]
fn a_freed_slot_goes_to_the_first_in_the_queue() {
    let mut manager = Manager::new(bounded(&[4], &[2], 1));
    for (index, length) in [(0, 3), (1, 2), (2, 1)] {
        manager.handle(0, arrive(index, stack(1, length, false)));
    }
    let mut urgent = arrive(3, stack(1, 2, false));
    if let Event::Arrive { priority, .. } = &mut urgent {
        *priority = 1;
    }
    manager.handle(0, urgent);
    let statistics = manager.statistics(CELL);
    assert_eq!((statistics.slots_in_use, statistics.waiting), (2, 2), "who waits is not ready");
    expect![[r#"
        cell0 r0.0:0 r1.0:0
        cell0 r0.0:1 r1.0:1
        cell0 r0.0:2 r3.0:0
        cell0 r2.0:0 r3.0:1
    "#]]
    .assert_eq(&drain(&mut manager, 2));
    assert_eq!(manager.requests(), 0);
}

/// Bounds that are never reached change nothing but when slots are taken.
#[test]
fn a_bound_that_is_never_reached_changes_no_batch() {
    let traces = [Some(64), None].map(|slots_max| {
        let mut config = config(&[3, 3, 3], 1, 2);
        config.cell_types.iter_mut().for_each(|cell| cell.slots_max = slots_max);
        let mut manager = Manager::new(config);
        for (index, length) in [(0, 5), (1, 2), (2, 7), (3, 1), (4, 4)] {
            manager.handle(0, arrive(index, stack(2, length, true)));
        }
        drain(&mut manager, 64)
    });
    assert_eq!(traces[0], traces[1]);
}

/// Two layers of one type with one slot: the second takes it after the first.
#[test]
fn layers_share_one_slot() {
    let mut manager = Manager::new(bounded(&[4], &[1], 5));
    manager.handle(0, arrive(0, layers(Chunk::Whole, 2, 3)));
    manager.handle(0, arrive(1, layers(Chunk::Whole, 2, 2)));
    expect![[r#"
        cell0 r0.0:0
        cell0 r0.0:1
        cell0 r0.0:2
        cell0 r0.1:0
        cell0 r0.1:1
        cell0 r0.1:2
        cell0 r1.0:0
        cell0 r1.0:1
        cell0 r1.1:0
        cell0 r1.1:1
    "#]]
    .assert_eq(&drain(&mut manager, 1));
    assert_eq!(manager.requests(), 0);
}

fn row() -> RowSpec {
    RowSpec::new(ElementType::F32, [1])
}

/// Layers of one type.
fn layers(chunk: Chunk, layers: u32, length: u32) -> CellGraph {
    let mut graph = CellGraphBuilder::of_chunk(chunk);
    let mut below = graph.input(row(), length);
    for _ in 0..layers {
        let above = graph.value(row(), length);
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(above) };
        graph.chain(CELL, length, vec![Rows::all(below)], vec![None], vec![sink]);
        below = above;
    }
    graph.finish().unwrap()
}

/// A chain over the outputs of two chains one after the other, of which the second begins only when
/// a row-wise cell of low priority has run.
fn in_turn() -> CellGraph {
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), 4);
    let [late, y, z] = [1, 4, 4].map(|rows| graph.value(row(), rows));
    let every = |rows| vec![Sink { port: 0, time: SinkTime::Every, rows }];
    graph.chain(CELL, 2, vec![Rows::all(x)], vec![None], every(Rows::all(y)));
    graph.rows(CellTypeId(1), 1, vec![Rows::one(x, 3)], every(Rows::one(late, 0)));
    let initial = vec![Some(Rows::one(late, 0))];
    graph.chain(CELL, 2, vec![Rows::strided(x, 2, 1)], initial, every(Rows::strided(y, 2, 1)));
    graph.chain(CELL, 4, vec![Rows::all(y)], vec![None], every(Rows::all(z)));
    graph.finish().unwrap()
}

/// If the last chain took the slot when its first rows were there, the one that writes the others
/// would never run. It waits until that one has had its slot.
#[test]
fn a_chain_does_not_hold_a_slot_that_it_waits_for() {
    let mut config = bounded(&[4, 4], &[1], 1);
    // The row-wise cell comes last.
    config.cell_types[0].priorities[0].priority = 5;
    let mut manager = Manager::new(config);
    (0..2).for_each(|index| manager.handle(0, arrive(index, in_turn())));
    expect![[r#"
        cell0 r0.0:0
        cell0 r0.0:1
        cell0 r1.0:0
        cell0 r1.0:1
        cell1 r0.1:0 r1.1:0
        cell0 r0.2:0
        cell0 r0.2:1
        cell0 r0.3:0
        cell0 r0.3:1
        cell0 r0.3:2
        cell0 r0.3:3
        cell0 r1.2:0
        cell0 r1.2:1
        cell0 r1.3:0
        cell0 r1.3:1
        cell0 r1.3:2
        cell0 r1.3:3
    "#]]
    .assert_eq(&drain(&mut manager, 1));
    assert_eq!(manager.requests(), 0);
}

fn chunk(index: u32, session: u32, graph: CellGraph) -> Event {
    Event::Arrive {
        request: request(index),
        model: ModelId(0),
        priority: 0,
        deadline_ns: None,
        graph: Arc::new(graph),
        session: Some(SessionId { index: session, generation: 0 }),
    }
}

/// Two sessions of two chains each over three slots: the second waits for the first one's end, and
/// does not keep others from the slot that is left. Chunks that follow have theirs.
#[test]
fn a_session_takes_all_its_slots_together() {
    let mut manager = Manager::new(bounded(&[4], &[3], 5));
    manager.handle(0, chunk(0, 0, layers(Chunk::First, 2, 2)));
    manager.handle(0, chunk(1, 1, layers(Chunk::First, 2, 2)));
    assert_eq!(manager.statistics(CELL).slots_in_use, 2);
    manager.handle(0, arrive(2, layers(Chunk::Whole, 2, 1)));
    let mut rosters = BTreeMap::new();
    let trace = drain_after(&mut manager, 3, &mut rosters);
    expect![[r#"
        cell0 r0.0:0 r2.0:0
        cell0 r0.0:1 r0.1:0
        cell0 r0.1:1
        cell0 r2.1:0
    "#]]
    .assert_eq(&trace);
    assert_eq!((manager.requests(), manager.statistics(CELL).slots_in_use), (1, 2));
    manager.handle(0, chunk(3, 0, layers(Chunk::Next, 2, 1)));
    assert!(manager.has_work_for(WORKER));
    manager.handle(0, Event::EndSession { session: SessionId { index: 0, generation: 0 } });
    expect![[r#"
        cell0 r3.0:0
        cell0 r3.1:0
        cell0 r1.0:0
        cell0 r1.0:1 r1.1:0
        cell0 r1.1:1
    "#]]
    .assert_eq(&drain_after(&mut manager, 3, &mut rosters));
    let mut finished = manager.drain_finished();
    assert!(finished.all(|finished| finished.outcome == Outcome::Succeeded));
}

/// A session that waits for those without sessions is not overtaken for ever.
#[test]
fn a_session_that_waits_is_not_overtaken() {
    let mut manager = Manager::new(bounded(&[4], &[2], 1));
    manager.handle(0, arrive(0, stack(1, 2, false)));
    manager.handle(0, chunk(1, 0, layers(Chunk::First, 2, 2)));
    manager.handle(0, arrive(2, stack(1, 2, false)));
    assert_eq!(manager.statistics(CELL).slots_in_use, 1);
    expect![[r#"
        cell0 r0.0:0
        cell0 r0.0:1
        cell0 r1.0:0
        cell0 r1.0:1 r1.1:0
        cell0 r1.1:1
    "#]]
    .assert_eq(&drain(&mut manager, 2));
}

/// A request that is given up while it waits for a slot gives up its place.
#[test]
fn a_cancelled_request_takes_no_slot() {
    let mut manager = Manager::new(bounded(&[4], &[1], 1));
    (0..3).for_each(|index| manager.handle(0, arrive(index, stack(1, 1, false))));
    (0..2).for_each(|index| manager.handle(0, Event::Cancel { request: request(index) }));
    expect![[r#"
        cell0 r2.0:0
    "#]]
    .assert_eq(&drain(&mut manager, 1));
}

#[test]
#[should_panic(expected = "which has 1 slots")]
fn a_session_that_can_never_run_is_refused() {
    let mut manager = Manager::new(bounded(&[4], &[1], 1));
    manager.handle(0, chunk(0, 0, layers(Chunk::First, 2, 2)));
}

#[test]
#[should_panic(expected = "bounded slots need the policy 'cellular'")]
fn closed_batches_have_no_bound() {
    let policy = Policy::Merged(Merging { graphs: 1 });
    Manager::new(Config { policy, ..bounded(&[4], &[1], 1) });
}
