//! The tasks of a stage: the nodes that a part of a batch has there.

use std::collections::{BTreeMap, VecDeque};

use batchmaker_graph::{CellGraph, CellTypeId, Item, RequestId, RunIndex};

use crate::stages::Stages;

/// Nodes of one cell type that run together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StageTask {
    pub(super) cell_type: CellTypeId,
    pub(super) items: Vec<Item>,
}

/// The tasks of `members`, each with the runs that it needs, at `stage`, producers before consumers. Rows of all members share tasks,
/// whatever the lengths of their sequences, up to `limit` rows of a cell type.
pub(super) fn stage_tasks<'a>(
    stages: &Stages,
    stage: usize,
    members: impl Iterator<Item = (RequestId, &'a CellGraph, Vec<RunIndex>)>,
    limit: impl Fn(CellTypeId) -> u32,
) -> VecDeque<StageTask> {
    let mut levels: BTreeMap<(u32, CellTypeId), Vec<Item>> = BTreeMap::new();
    for (request, graph, needed) in members {
        let mut depths: Vec<u32> = Vec::with_capacity(graph.runs().len());
        for (run, index) in graph.runs().iter().zip(0..) {
            let before = run.edges.iter().map(|edge| depths[edge.producer.index()] + 1);
            depths.push(before.max().unwrap_or(0));
            if stages.of(run.cell_type) != stage || needed.binary_search(&RunIndex(index)).is_err()
            {
                continue;
            }
            let (run_index, count) = (RunIndex(index), run.length);
            let item =
                Item { request, run: run_index, first: 0, count, slot: None, moved_from: None };
            let level = levels.entry((depths[index as usize], run.cell_type)).or_default();
            level.push(item);
        }
    }
    let mut tasks = VecDeque::new();
    for ((_, cell_type), items) in levels {
        let limit = limit(cell_type);
        let mut room = 0;
        for mut item in items {
            let end = item.first + item.count;
            while item.first < end {
                if room == 0 {
                    tasks.push_back(StageTask { cell_type, items: Vec::new() });
                    room = limit;
                }
                item.count = (end - item.first).min(room);
                room -= item.count;
                tasks.back_mut().expect("one was just pushed").items.push(item);
                item.first += item.count;
            }
        }
    }
    tasks
}
