//! A second layer starts while the first still runs, up to the watermark.

mod common;

use std::collections::BTreeMap;

use batchmaker_graph::{CellTypeId, WorkerId};
use batchmaker_manager::{Config, Event, Manager};
use expect_test::expect;

use common::{Roster, arrive, config, stack};

/// The nodes of each batch of two requests of two layers and a head, of 4 and 2 steps. A round has two batches.
fn trace(rounds_of_a_turn: u32) -> String {
    let config = Config { rounds_of_a_turn, ..config(&[8, 8, 8], 1, 2) };
    let mut manager = Manager::new(config);
    let mut rosters: BTreeMap<CellTypeId, Roster> = BTreeMap::new();
    let worker = WorkerId(0);
    manager.handle(0, arrive(0, stack(2, 4, true)));
    manager.handle(0, arrive(1, stack(2, 2, true)));
    let mut trace = String::new();
    while manager.requests() > 0 {
        let mut tasks = Vec::new();
        while let Some(task) = manager.next_task(worker) {
            for batch in rosters.entry(task.cell_type).or_default().batches(&task) {
                let nodes: Vec<String> =
                    batch.iter().map(|(request, _, node)| format!("{request:?}:{node}")).collect();
                trace += &format!("{} {}\n", task.cell_type, nodes.join(" "));
            }
            tasks.push(task.id);
        }
        for task in tasks {
            manager.handle(0, Event::Complete { worker, task });
        }
    }
    trace
}

/// A later cell has priority as soon as it has rows.
#[test]
fn a_second_layer_starts_while_the_first_still_runs() {
    expect![[r"
        cell0 r0:0 r1:0
        cell0 r0:1 r1:1
        cell1 r0:0 r1:0
        cell1 r0:1 r1:1
        cell2 r0:0 r0:1 r1:0 r1:1
        cell0 r0:2
        cell0 r0:3
        cell1 r0:2
        cell1 r0:3
        cell2 r0:2 r0:3
    "]]
    .assert_eq(&trace(1));
}

/// A cell with ready nodes has two rounds before another one has its turn.
#[test]
fn a_turn_is_some_rounds() {
    expect![[r"
        cell0 r0:0 r1:0
        cell0 r0:1 r1:1
        cell0 r0:2
        cell0 r0:3
        cell1 r0:0 r1:0
        cell1 r0:1 r1:1
        cell1 r0:2
        cell1 r0:3
        cell2 r0:0 r0:1 r0:2 r0:3 r1:0 r1:1
    "]]
    .assert_eq(&trace(2));
}
