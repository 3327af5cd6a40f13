//! The queue of one cell type: waiting subgraphs in order, rosters, slots.

use std::collections::BTreeMap;

use batchmaker_graph::WorkerId;

use crate::cellular::roster::Roster;
use crate::cellular::subgraph::{QueueKey, SubgraphIndex};
use crate::config::{BatchSizes, CellTypeConfig};
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
    /// Whether any of its chains may stop before its last node.
    pub(crate) is_open: bool,
    /// What a step of a roster took of late; 0 before the first.
    step_ns: u64,
    /// See [`crate::Config::submission_window_ns`].
    submission_window_ns: Option<u64>,
}

/// How much work to submit, at most, ahead of knowing whether chains stop in it.
const AHEAD_NS: u64 = 1_000_000;

impl Queue {
    pub(crate) fn new(
        config: CellTypeConfig,
        workers: usize,
        submission_window_ns: Option<u64>,
    ) -> Self {
        let slots = SlotTable::with_max(config.slots_max);
        let sizes = config.sizes_with_max(config.batch_sizes.max);
        let mut queue = Self {
            config,
            is_chain: None,
            waiting: BTreeMap::new(),
            waiting_nodes: vec![0; workers],
            rosters: std::iter::repeat_with(Roster::default).take(workers).collect(),
            running_tasks: 0,
            slots,
            tally: Tally::default(),
            is_open: false,
            step_ns: 0,
            submission_window_ns: None,
        };
        queue.set_limits(sizes, submission_window_ns);
        queue
    }

    /// What holds for batches that are handed out from now on.
    pub(crate) fn set_limits(&mut self, sizes: BatchSizes, submission_window_ns: Option<u64>) {
        assert!(0 < sizes.min && sizes.min <= sizes.max, "{sizes:?}");
        (self.config.batch_sizes, self.submission_window_ns) = (sizes, submission_window_ns);
    }

    /// Notes how long some steps of a roster took.
    pub(crate) fn note_time(&mut self, ns: u64, steps: u32) {
        let step_ns = ns / u64::from(steps.max(1));
        self.step_ns = match self.step_ns {
            0 => step_ns,
            known => (3 * known + step_ns) / 4,
        };
    }

    /// How many steps may be submitted at a time: about as many as take the time that is bound, and
    /// where chains may stop in them, no more than take a millisecond.
    pub(crate) fn steps_ahead(&self) -> u32 {
        let of_open = self.is_open.then_some(AHEAD_NS);
        let Some(submission_window_ns) = self.submission_window_ns.into_iter().chain(of_open).min()
        else {
            return u32::MAX;
        };
        match self.step_ns {
            0 => 1,
            step_ns => (submission_window_ns / step_ns).clamp(1, u64::from(u32::MAX)) as u32,
        }
    }

    pub(crate) fn roster(&self, worker: WorkerId) -> &Roster {
        &self.rosters[worker.index()]
    }

    pub(crate) fn roster_mut(&mut self, worker: WorkerId) -> &mut Roster {
        &mut self.rosters[worker.index()]
    }
}
