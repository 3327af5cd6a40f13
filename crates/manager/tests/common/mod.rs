//! Graphs and configurations that the scheduling tests share.
#![allow(dead_code, reason = "each test binary uses some of it")]

pub(crate) mod fair_reference;
pub(crate) mod reference;

use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, ElementType, ModelId, ModelPriority,
    RequestId, RowSpec, Rows, RunIndex, Sink, SinkTime, Work,
};
use batchmaker_manager::{CellTypeConfig, Config, Event, Policy, Stages, StatePlacement, TaskForm};

/// Cell types of one model, later ones with a higher priority.
pub(crate) fn config(limits: &[u32], workers: u16, max_tasks_to_submit: u32) -> Config {
    let cell_types = limits.iter().zip(0..).map(|(&limit, priority)| {
        CellTypeConfig::up_to(limit, vec![ModelPriority { model: ModelId(0), priority }])
    });
    Config {
        cell_types: cell_types.collect(),
        workers,
        lookahead: 0,
        fairness: None,
        stages: Stages::default(),
        staged_models: Vec::new(),
        policy: Policy::Cellular,
        max_tasks_to_submit,
        rounds_of_a_turn: 1,
        submission_window_ns: None,
        task_form: TaskForm::Roster,
        state_placement: StatePlacement::Shared,
    }
}

/// A stack of `layers` chains of `length` (cell types 0, 1, …) and, if asked for, a
/// row-wise head on every step of the last (the next cell type).
pub(crate) fn stack(layers: u32, length: u32, with_head: bool) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let mut x = graph.input(row(), length);
    for layer in 0..layers {
        let y = graph.value(row(), length);
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
        let initial = vec![None, None];
        graph.chain(CellTypeId(layer), length, vec![Rows::all(x)], initial, vec![sink]);
        x = y;
    }
    if with_head {
        let y = graph.value(row(), length);
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) };
        graph.rows(CellTypeId(layers), length, vec![Rows::all(x)], vec![sink]);
    }
    graph.finish().unwrap()
}

/// A tree of leaves of one cell type and inner nodes of another: nodes are the leaves, then
/// `children` of each inner node, the last of which is the root.
pub(crate) fn tree(
    [leaf, inner]: [CellTypeId; 2],
    leaves: u32,
    children: &[[u32; 2]],
) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::new();
    let x = graph.input(row(), leaves);
    let h = graph.value(row(), leaves + children.len() as u32);
    let every = |rows| vec![Sink { port: 0, time: SinkTime::Every, rows }];
    graph.rows(leaf, leaves, vec![Rows::all(x)], every(Rows::all(h)));
    if !children.is_empty() {
        let child = |side: usize| {
            let rows: Vec<u32> = children.iter().map(|children| children[side]).collect();
            Rows::listed(h, rows)
        };
        let of_inner = every(Rows::strided(h, leaves, 1));
        graph.nodes(inner, children.len() as u32, vec![child(0), child(1)], of_inner);
    }
    graph.finish().unwrap()
}

/// The children of the complete tree, level by level; `leaves` is a power of two.
pub(crate) fn complete_tree(leaves: u32) -> Vec<[u32; 2]> {
    (0..leaves - 1).map(|node| [2 * node, 2 * node + 1]).collect()
}

/// The children of a tree that arises as two of the nodes without a parent are joined, which ones
/// being chosen by `choices`.
pub(crate) fn joined_at_random(leaves: u32, choices: &[u32]) -> Vec<[u32; 2]> {
    let mut open: Vec<u32> = (0..leaves).collect();
    let mut choices = choices.iter().cycle();
    let mut choose = |open: &mut Vec<u32>| {
        let choice = *choices.next().expect("there are choices") as usize;
        open.swap_remove(choice % open.len())
    };
    (leaves..2 * leaves - 1)
        .map(|node| {
            let children = [choose(&mut open), choose(&mut open)];
            open.push(node);
            children
        })
        .collect()
}

pub(crate) fn request(index: u32) -> RequestId {
    RequestId { index, generation: 0 }
}

pub(crate) fn arrive(index: u32, graph: CellGraph) -> Event {
    Event::Arrive {
        request: request(index),
        model: ModelId(0),
        priority: 0,
        deadline_ns: None,
        graph: Arc::new(graph),
        session: None,
    }
}

/// A node: (request, run, position in the run).
pub(crate) type Node = (RequestId, RunIndex, u32);

/// The roster of one worker and cell type, as a device keeps it, from which the nodes of each batch
/// follow.
#[derive(Default)]
pub(crate) struct Roster {
    members: Vec<batchmaker_graph::Join>,
}

impl Roster {
    /// The batches of `task`, each with its nodes in order.
    pub(crate) fn batches(&mut self, task: &BatchedTask) -> Vec<Vec<Node>> {
        let mut batches = Vec::new();
        match &task.work {
            Work::Rows(items) => {
                let nodes = items.iter().flat_map(|item| {
                    (item.first..item.first + item.count).map(|i| (item.request, item.run, i))
                });
                batches.push(nodes.collect::<Vec<_>>());
            }
            Work::Roster { leaves, joins, steps } => {
                let before = self.members.len();
                self.members.retain(|member| !leaves.contains(&member.slot));
                assert_eq!(before - self.members.len(), leaves.len(), "a stranger left");
                for join in joins {
                    assert!(self.members.iter().all(|member| member.slot != join.slot));
                    self.members.push(*join);
                }
                for _ in 0..*steps {
                    let node = |member: &mut batchmaker_graph::Join| {
                        member.step += 1;
                        (member.request, member.run, member.step - 1)
                    };
                    batches.push(self.members.iter_mut().map(node).collect());
                }
            }
        }
        for batch in &mut batches {
            batch.sort_unstable();
        }
        batches
    }
}
