//! Forms a closed batch: its graphs, level by level, as tasks within the batch limits.

use std::collections::BTreeMap;

use batchmaker_graph::{
    CellTypeId, Item, Join, RequestId, RunIndex, RunKind, SlotId, Work, WorkerId,
};

use crate::graph_batching::batch::{Batch, Cell, Worker};
use crate::graph_batching::levels::{Level, RowBatch};
use crate::graph_batching::merged::Nodes;

/// A batch while it is formed for a worker.
pub(super) struct BatchFormer<'a> {
    pub(super) batch: Batch,
    /// The tasks by cell type.
    pub(super) cells: &'a mut [Cell],
    /// The state of `worker`.
    pub(super) state: &'a mut Worker,
    pub(super) worker: WorkerId,
}

impl BatchFormer<'_> {
    /// Forms the batch from levels that are padded, producers before consumers.
    pub(super) fn form_levels(mut self, levels: &[Level]) -> Batch {
        for level in levels {
            match level.kind {
                RunKind::Chain => self.add_chains(level),
                RunKind::Rows | RunKind::Nodes => self.add_rows(level),
            }
        }
        self.batch
    }

    /// Forms the batch from nodes that are merged by depth and cell type, producers before consumers.
    pub(super) fn form_merged(mut self, levels: &[(CellTypeId, Vec<Nodes>)]) -> Batch {
        let mut slots = BTreeMap::new();
        for (cell_type, nodes) in levels {
            self.add_merged(*cell_type, nodes, &mut slots);
        }
        self.batch
    }

    /// Adds tasks for merged nodes, each of as many as the limit allows. `slots` holds the slots of
    /// the chains, each of which gets one with its first node.
    fn add_merged(
        &mut self,
        cell_type: CellTypeId,
        nodes: &[Nodes],
        slots: &mut BTreeMap<(RequestId, RunIndex), SlotId>,
    ) {
        let mut batches: Vec<RowBatch> = Vec::new();
        let cell = &mut self.cells[cell_type.index()];
        for &Nodes { request, run, kind, ref nodes } in nodes {
            let slot = (kind == RunKind::Chain).then(|| {
                *slots.entry((request, run)).or_insert_with(|| {
                    let slot = cell.slots.acquire();
                    self.batch.slots.push((cell_type, slot));
                    slot
                })
            });
            let item = Item { request, run, first: nodes.start, count: 0, slot, moved_from: None };
            RowBatch::cut(&mut batches, cell.limit, item, nodes.len() as u32, u32::MAX);
        }
        self.add_row_batches(cell_type, batches);
    }

    /// Adds tasks for the chains of a level, each of as many as the limit allows.
    fn add_chains(&mut self, level: &Level) {
        let cell = &mut self.cells[level.cell_type.index()];
        let (limit, steps) = (cell.limit as usize, level.length);
        for (runs, lengths) in level.runs.chunks(limit).zip(level.lengths.chunks(limit)) {
            let joins = runs.iter().map(|&(request, run)| {
                let slot = cell.slots.acquire();
                self.batch.slots.push((level.cell_type, slot));
                Join { request, run, slot, step: 0, moved_from: None }
            });
            let joins: Vec<Join> = joins.collect();
            let padding = lengths.iter().map(|&length| u64::from(steps - length)).sum();
            cell.counters.count(u64::from(steps), runs.len(), padding);
            let now_on = joins.iter().map(|join| join.slot).collect();
            let on_roster = &mut self.state.on_roster[level.cell_type.index()];
            let leaves = std::mem::replace(on_roster, now_on);
            let holders = runs.iter().map(|&(request, _)| request).collect();
            let work = Work::Roster { leaves, joins, steps };
            let task = self.state.task(self.worker, level.cell_type, work);
            self.batch.tasks.push_back((task, holders));
        }
    }

    /// Adds tasks for the rows of a level, each of as many as the limit allows.
    fn add_rows(&mut self, level: &Level) {
        let limit = self.cells[level.cell_type.index()].limit;
        for batches in level.row_batches(limit) {
            self.add_row_batches(level.cell_type, batches);
        }
    }

    fn add_row_batches(&mut self, cell_type: CellTypeId, batches: Vec<RowBatch>) {
        let counters = &mut self.cells[cell_type.index()].counters;
        for rows in batches {
            counters.count(1, rows.rows as usize, rows.padding);
            let task = self.state.task(self.worker, cell_type, Work::Rows(rows.items));
            self.batch.tasks.push_back((task, rows.holders));
        }
    }
}
