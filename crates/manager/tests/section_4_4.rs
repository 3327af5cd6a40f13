//! Section 4.4 of the BatchMaker paper: complete trees of 16 leaves.

mod common;

use std::collections::BTreeMap;

use batchmaker_graph::{CellGraph, CellTypeId, TaskId, WorkerId};
use batchmaker_manager::{Event, Manager};
use expect_test::expect;

use common::{Roster, arrive, complete_tree, config, tree};

const LEAF: CellTypeId = CellTypeId(0);
const INNER: CellTypeId = CellTypeId(1);
const WORKER: WorkerId = WorkerId(0);

fn complete() -> CellGraph {
    tree([LEAF, INNER], 16, &complete_tree(16))
}

/// The paper's subgraphs: nodes of one type that rows connect. Their sizes, by type.
fn subgraphs(graph: &CellGraph) -> BTreeMap<CellTypeId, Vec<usize>> {
    let mut nodes = Vec::new();
    for run in graph.runs() {
        for node in 0..run.length {
            let row = |rows: &batchmaker_graph::Rows| (rows.value, rows.row(node));
            let reads: Vec<_> = run.inputs.iter().map(row).collect();
            let writes: Vec<_> = run.sinks.iter().map(|sink| row(&sink.rows)).collect();
            nodes.push((run.cell_type, reads, writes));
        }
    }
    let mut group: Vec<usize> = (0..nodes.len()).collect();
    for (reader, (of, reads, _)) in nodes.iter().enumerate() {
        for (writer, (by, _, writes)) in nodes.iter().enumerate() {
            if of == by && reads.iter().any(|row| writes.contains(row)) {
                let (from, to) = (group[reader], group[writer]);
                group.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
            }
        }
    }
    let mut sizes: BTreeMap<CellTypeId, BTreeMap<usize, usize>> = BTreeMap::new();
    for (node, group) in group.into_iter().enumerate() {
        *sizes.entry(nodes[node].0).or_default().entry(group).or_default() += 1;
    }
    sizes.into_iter().map(|(of, sizes)| (of, sizes.into_values().collect())).collect()
}

#[test]
fn a_tree_is_cut_into_17_subgraphs() {
    let subgraphs = subgraphs(&complete());
    assert_eq!(subgraphs[&LEAF], [1; 16]);
    assert_eq!(subgraphs[&INNER], [15]);
}

/// The batches that a worker is given until nothing is left, a line each: when it begins, its
/// type, and how many nodes of each request it holds. A batch takes a unit of time. `arrivals` are
/// such times.
fn play(limits: &[u32], max_tasks: u32, arrivals: &[u64]) -> String {
    let mut manager = Manager::new(config(limits, 1, max_tasks));
    let (mut roster, mut trace) = (Roster::default(), String::new());
    let (mut now, mut arrived) = (0, 0);
    loop {
        while arrived < arrivals.len() && arrivals[arrived] <= now {
            manager.handle(arrivals[arrived], arrive(arrived as u32, complete()));
            arrived += 1;
        }
        let tasks: Vec<_> = std::iter::from_fn(|| manager.next_task(WORKER)).collect();
        if tasks.is_empty() {
            break;
        }
        let first = tasks[0].id.0;
        for task in &tasks {
            for batch in roster.batches(task) {
                let mut counts = BTreeMap::new();
                batch.iter().for_each(|node| *counts.entry(node.0.index).or_insert(0) += 1);
                trace += &format!("{now} {} {counts:?}\n", task.cell_type);
                now += 1;
            }
        }
        for id in (first..).take(tasks.len()).map(TaskId) {
            manager.handle(now, Event::Complete { worker: WORKER, task: id });
        }
    }
    assert_eq!(manager.drain_finished().count(), arrivals.len());
    trace
}

#[test]
fn levels_run_in_successive_tasks() {
    expect![[r"
        0 cell0 {0: 16}
        1 cell1 {0: 8}
        2 cell1 {0: 4}
        3 cell1 {0: 2}
        4 cell1 {0: 1}
    "]]
    .assert_eq(&play(&[64, 64], 5, &[0]));
}

#[test]
fn two_trees_share_tasks() {
    expect![[r"
        0 cell0 {0: 16, 1: 16}
        1 cell1 {0: 8, 1: 8}
        2 cell1 {0: 4, 1: 4}
        3 cell1 {0: 2, 1: 2}
        4 cell1 {0: 1, 1: 1}
    "]]
    .assert_eq(&play(&[64, 64], 5, &[0, 0]));
}

/// The second comes while the first is at its second level. Its leaves fill a batch, which goes first
/// (line 5 of Algorithm 1); then the levels of both share batches.
#[test]
fn a_tree_that_comes_later_joins() {
    expect![[r#"
        0 cell0 {0: 16}
        1 cell1 {0: 8}
        2 cell0 {1: 16}
        3 cell1 {0: 4, 1: 8}
        4 cell1 {0: 2, 1: 4}
        5 cell1 {0: 1, 1: 2}
        6 cell1 {1: 1}
    "#]]
    .assert_eq(&play(&[16, 64], 1, &[0, 2]));
}

/// Where they do not fill one, inner nodes are preferred, and it waits for the first tree's end.
#[test]
fn inner_nodes_go_before_leaves() {
    expect![[r#"
        0 cell0 {0: 16}
        1 cell1 {0: 8}
        2 cell1 {0: 4}
        3 cell1 {0: 2}
        4 cell1 {0: 1}
        5 cell0 {1: 16}
        6 cell1 {1: 8}
        7 cell1 {1: 4}
        8 cell1 {1: 2}
        9 cell1 {1: 1}
    "#]]
    .assert_eq(&play(&[64, 64], 1, &[0, 2]));
}

/// Batches smaller than a level: the next level begins with what is ready of it.
#[test]
fn levels_that_do_not_fit_a_batch() {
    expect![[r#"
        0 cell0 {0: 6}
        1 cell0 {0: 6}
        2 cell0 {0: 4, 1: 2}
        3 cell0 {1: 6}
        4 cell0 {1: 6}
        5 cell1 {0: 6}
        6 cell1 {0: 5}
        7 cell1 {0: 2}
        8 cell1 {0: 1}
        9 cell1 {0: 1}
        10 cell0 {1: 2}
        11 cell1 {1: 6}
        12 cell1 {1: 5}
        13 cell1 {1: 2}
        14 cell1 {1: 1}
        15 cell1 {1: 1}
    "#]]
    .assert_eq(&play(&[6, 6], 5, &[0, 0]));
}
