//! Figure 5 of the BatchMaker paper: eight requests, batches of four, one unit a step.
//!
//! The figure draws the lengths 2, 3, 3, 5 of the first four requests; those of the others
//! and the arrivals are fixed here such that the tasks are the figure's.

mod common;

use batchmaker_graph::WorkerId;
use batchmaker_manager::{Config, Event, Manager, PadTo, Padding, Policy};
use expect_test::expect;

use common::{Roster, arrive, config, stack};

const UNIT_NS: u64 = 1_000;
const LENGTHS: [u32; 8] = [2, 3, 3, 5, 4, 7, 3, 1];
const ARRIVALS_NS: [u64; 8] = [0, 0, 0, 0, 1_500, 2_200, 2_800, 4_500];

#[test]
fn cellular_batching() {
    let mut manager = Manager::new(config(&[4], 1, 1));
    let (trace, ends) = play(&mut manager);
    assert_eq!(ends, [2, 3, 3, 5, 6, 10, 6, 6]);
    expect![[r"
        0 [1, 2, 3, 4]
        1 [1, 2, 3, 4]
        2 [2, 3, 4, 5]
        3 [4, 5, 6, 7]
        4 [4, 5, 6, 7]
        5 [5, 6, 7, 8]
        6 [6]
        7 [6]
        8 [6]
        9 [6]
    "]]
    .assert_eq(&trace);
}

/// Graph batching of the same requests, all in one bucket.
#[test]
fn graph_batching() {
    let policy = Policy::Padded(Padding { width: 10, to: PadTo::Longest });
    let mut manager = Manager::new(Config { policy, ..config(&[4], 1, 1) });
    assert_eq!(play(&mut manager).1, [5, 5, 5, 5, 12, 12, 12, 12]);
}

/// Plays the requests; the trace of batches, and when each request ended.
fn play(manager: &mut Manager) -> (String, [u64; 8]) {
    let mut roster = Roster::default();
    let worker = WorkerId(0);
    let (mut now, mut arrived, mut trace) = (0, 0, String::new());
    let mut ends = [0; 8];
    loop {
        while arrived < 8 && ARRIVALS_NS[arrived] <= now {
            let graph = stack(1, LENGTHS[arrived], false);
            manager.handle(ARRIVALS_NS[arrived], arrive(arrived as u32, graph));
            arrived += 1;
        }
        let Some(task) = manager.next_task(worker) else { break };
        assert_eq!(manager.next_task(worker), None, "one task a round");
        for batch in roster.batches(&task) {
            let names: Vec<u32> = batch.iter().map(|node| node.0.index + 1).collect();
            trace += &format!("{} {names:?}\n", now / UNIT_NS);
            now += UNIT_NS;
        }
        manager.handle(now, Event::Complete { worker, task: task.id });
        for finished in manager.drain_finished() {
            ends[finished.request.index as usize] = now / UNIT_NS;
        }
    }
    (trace, ends)
}
