//! The queue of one cell type: waiting subgraphs in order, rosters, slots.

use std::collections::BTreeMap;

use batchmaker_graph::WorkerId;

use crate::cellular::roster::Roster;
use crate::cellular::subgraph::{QueueKey, SubgraphIndex};
use crate::config::CellTypeConfig;
use crate::slot_table::SlotTable;
use crate::tally::Tally;

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) config: CellTypeConfig,
    /// Whether its runs are chains; known from the first on.
    pub(crate) is_chain: Option<bool>,
    /// Subgraphs outside rosters with a ready node for some worker.
    pub(crate) waiting: BTreeMap<QueueKey, SubgraphIndex>,
    /// Ready nodes of `waiting`, per worker that may run them.
    pub(crate) waiting_nodes: Vec<u64>,
    /// Per worker.
    pub(crate) rosters: Vec<Roster>,
    /// Tasks submitted and not complete, on all workers.
    pub(crate) running_tasks: u32,
    pub(crate) slots: SlotTable,
    pub(crate) tally: Tally,
}

impl Queue {
    pub(crate) fn new(config: CellTypeConfig, workers: usize) -> Self {
        assert!(0 < config.batch_sizes.min && config.batch_sizes.min <= config.batch_sizes.max);
        Self {
            config,
            is_chain: None,
            waiting: BTreeMap::new(),
            waiting_nodes: vec![0; workers],
            rosters: std::iter::repeat_with(Roster::default).take(workers).collect(),
            running_tasks: 0,
            slots: SlotTable::default(),
            tally: Tally::default(),
        }
    }

    pub(crate) fn roster(&self, worker: WorkerId) -> &Roster {
        &self.rosters[worker.index()]
    }

    pub(crate) fn roster_mut(&mut self, worker: WorkerId) -> &mut Roster {
        &mut self.rosters[worker.index()]
    }
}
