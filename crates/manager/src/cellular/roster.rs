//! The standing batch of one worker and cell type.
//!
//! A roster remembers the last batch formed. The next one differs from it only by those who
//! leave (their nodes are used up, or they reached a watermark, or an older subgraph
//! displaces them) and those who join, so a steady batch costs nothing a node. The
//! roster counts steps; a member's progress follows from the step at which it joined.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use batchmaker_graph::{Join, SlotId};

use crate::cellular::subgraph::{QueueKey, SubgraphIndex};

#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// In the order of the queue. Every member has a ready node for this worker.
    pub(crate) members: BTreeMap<QueueKey, SubgraphIndex>,
    /// Steps at which members may have to stop, soonest first. An entry may
    /// be early (a watermark has risen since) or stale (the member left).
    pub(crate) stops: BinaryHeap<Reverse<(u64, SubgraphIndex)>>,
    /// Members that others depend on.
    pub(crate) producers: Vec<SubgraphIndex>,
    /// Members among `producers` that others of the same cell type depend on.
    pub(crate) producers_of_own_type: usize,
    /// Members that depend on others.
    pub(crate) consumers: usize,
    pub(crate) submitted_steps: u64,
    pub(crate) completed_steps: u64,
    /// Tasks submitted and not complete. While there are any, all members are pinned.
    pub(crate) tasks_in_flight: u32,
    /// Those who left with nodes in flight, by the step before which they left.
    pub(crate) leaving: VecDeque<(u64, SubgraphIndex)>,
    /// What the device has not been told yet.
    pub(crate) untold_leaves: Vec<SlotId>,
    pub(crate) untold_joins: Vec<Join>,
}

impl Roster {
    /// Whether all members are free to run elsewhere.
    pub(crate) fn is_idle(&self) -> bool {
        self.tasks_in_flight == 0
    }

    /// Forgets that the device was to be told of `slot`'s join, or notes its leave.
    pub(crate) fn note_leave(&mut self, slot: SlotId) {
        match self.untold_joins.iter().position(|join| join.slot == slot) {
            Some(position) => {
                self.untold_joins.remove(position);
            }
            None => self.untold_leaves.push(slot),
        }
    }
}
