//! Who gets a slot where a device has only so many ([`crate::CellTypeConfig::slots_max`]).
//!
//! A chain that is ready lines up, and is given a slot of its type in the order of the queue. It
//! must not hold one while it waits for a chain that gets none: so it takes its slot only once all
//! chains that it depends on have theirs, or have ended. Then whoever has a slot can run to its end
//! with the slots that are given out already, and frees its own.
//!
//! Sessions do not free theirs at the end of a chunk. If they took them one by one, two that lack
//! their last could wait for each other for ever; so a session takes those of all its chains at once, when
//! any of them is ready. While it waits for that, those behind it in the order take none of the
//! slots that it needs, unless slots of other sessions are what it waits for: these may stay for
//! long.

use std::collections::BTreeMap;

use batchmaker_graph::{CellTypeId, RequestId, RunKind, SlotId};

use crate::cellular::Cellular;
use crate::cellular::subgraph::{Place, QueueKey, SubgraphIndex};

/// Chains that are ready but for a slot.
#[derive(Debug)]
pub(crate) struct SlotWaiters {
    /// In the order of the queues.
    waiting: BTreeMap<QueueKey, SubgraphIndex>,
    cell_types: Vec<OfType>,
    /// Room for a mark on each run of a request.
    marks: Vec<bool>,
    /// Whether anything happened since the last look that may let one of them have its slot.
    is_changed: bool,
}

#[derive(Clone, Debug, Default)]
struct OfType {
    waiting: usize,
    /// Slots of sessions.
    of_sessions: usize,
    /// Chains without a slot of the session that is looked at.
    needed: usize,
    /// Whether a session waits for slots of the type that nobody behind it may take.
    is_reserved: bool,
}

impl SlotWaiters {
    pub(crate) fn new(cell_types: usize) -> Self {
        let cell_types = vec![OfType::default(); cell_types];
        Self { waiting: BTreeMap::new(), cell_types, marks: Vec::new(), is_changed: false }
    }
}

impl Cellular {
    fn is_bounded(&self, cell_type: CellTypeId) -> bool {
        self.queues[cell_type.index()].slots.max().is_some()
    }

    /// Whether the subgraph is a chain that needs one of so many slots, and has none yet.
    pub(crate) fn lacks_slot(&self, index: SubgraphIndex) -> bool {
        let subgraph = self.subgraph(index);
        subgraph.slot.is_none()
            && subgraph.kind == RunKind::Chain
            && subgraph.place != Place::Ended
            && self.is_bounded(subgraph.cell_type)
    }

    /// A chain without a slot is ready.
    pub(crate) fn line_up_for_slot(&mut self, index: SubgraphIndex) {
        let (key, cell_type) = (self.subgraph(index).key, self.subgraph(index).cell_type);
        if self.slot_waiters.waiting.insert(key, index).is_none() {
            self.slot_waiters.cell_types[cell_type.index()].waiting += 1;
            self.slot_waiters.is_changed = true;
        }
    }

    /// It has a slot, or ends without one.
    pub(crate) fn leave_slot_waiters(&mut self, index: SubgraphIndex) {
        let (key, cell_type) = (self.subgraph(index).key, self.subgraph(index).cell_type);
        // Those that depend on it may have waited for it to have one, or to end.
        self.slot_waiters.is_changed |= !self.slot_waiters.waiting.is_empty();
        if self.is_bounded(cell_type) && self.slot_waiters.waiting.remove(&key).is_some() {
            self.slot_waiters.cell_types[cell_type.index()].waiting -= 1;
        }
    }

    pub(crate) fn release_slot(&mut self, cell_type: CellTypeId, slot: SlotId, of_session: bool) {
        let slots = &mut self.queues[cell_type.index()].slots;
        slots.release(slot);
        if slots.max().is_some() {
            let of_type = &mut self.slot_waiters.cell_types[cell_type.index()];
            of_type.of_sessions -= usize::from(of_session);
            self.slot_waiters.is_changed = true;
        }
    }

    /// # Panics
    /// If a piece of a session has more chains of a type than there are slots: it could never run.
    pub(crate) fn check_slots(&mut self, piece: RequestId) {
        for position in 0..self.processor.request(piece).subgraphs.len() {
            let cell_type =
                self.subgraph(self.processor.request(piece).subgraphs[position]).cell_type;
            let Some(max) = self.queues[cell_type.index()].slots.max() else { continue };
            let needed = self.slots_needed(piece, cell_type);
            assert!(
                needed <= max as usize,
                "{piece:?}, of a session, has {needed} chains of {cell_type}, which has {max} slots"
            );
        }
    }

    /// Chains of the type that the request has without a slot.
    fn slots_needed(&self, request: RequestId, cell_type: CellTypeId) -> usize {
        let subgraphs = self.processor.request(request).subgraphs.iter();
        let of_type = subgraphs.filter(|&&sub| self.subgraph(sub).cell_type == cell_type);
        of_type.filter(|&&sub| self.lacks_slot(sub)).count()
    }

    /// Gives free slots to those that may have them, in their order.
    pub(crate) fn give_slots(&mut self) {
        while std::mem::take(&mut self.slot_waiters.is_changed) {
            while let Some(index) = self.next_for_slot() {
                let request = self.subgraph(index).request;
                if self.processor.request(request).session.is_none() {
                    self.give_slot(index, false);
                    continue;
                }
                for position in 0..self.processor.request(request).subgraphs.len() {
                    let index = self.processor.request(request).subgraphs[position];
                    if self.lacks_slot(index) {
                        self.give_slot(index, true);
                    }
                }
            }
        }
    }

    fn give_slot(&mut self, index: SubgraphIndex, of_session: bool) {
        let cell_type = self.subgraph(index).cell_type;
        let slot = self.queues[cell_type.index()].slots.acquire();
        let of_type = &mut self.slot_waiters.cell_types[cell_type.index()];
        of_type.of_sessions += usize::from(of_session);
        self.subgraph_mut(index).slot = Some(slot);
        self.leave_slot_waiters(index);
        self.refresh(index);
    }

    /// The first that may have a slot now; of a session, any that stands for all its chains.
    fn next_for_slot(&mut self) -> Option<SubgraphIndex> {
        let has_chance = |(queue, of_type): (&crate::cellular::Queue, &OfType)| {
            of_type.waiting > 0 && queue.slots.left() > 0
        };
        if !self.queues.iter().zip(&self.slot_waiters.cell_types).any(has_chance) {
            return None;
        }
        let mut waiters = std::mem::replace(&mut self.slot_waiters, SlotWaiters::new(0));
        waiters.cell_types.iter_mut().for_each(|of_type| of_type.is_reserved = false);
        let SlotWaiters { waiting, cell_types, marks, .. } = &mut waiters;
        let next = waiting.values().copied().find(|&index| {
            let request = self.subgraph(index).request;
            match self.processor.request(request).session {
                Some(_) => self.all_fit(request, cell_types),
                None => {
                    let cell_type = self.subgraph(index).cell_type;
                    self.queues[cell_type.index()].slots.left() > 0
                        && !cell_types[cell_type.index()].is_reserved
                        && self.producers_have_slots(index, marks)
                }
            }
        });
        self.slot_waiters = waiters;
        next
    }

    /// Whether all chains of a session's piece can have their slots now. If not, reserves those that
    /// it waits for, if it does not wait for sessions.
    fn all_fit(&self, piece: RequestId, cell_types: &mut [OfType]) -> bool {
        cell_types.iter_mut().for_each(|of_type| of_type.needed = 0);
        for &index in &self.processor.request(piece).subgraphs {
            if self.lacks_slot(index) {
                cell_types[self.subgraph(index).cell_type.index()].needed += 1;
            }
        }
        let (mut fits, mut will_fit) = (true, true);
        for (queue, of_type) in self.queues.iter().zip(&*cell_types) {
            if let (Some(max), true) = (queue.slots.max(), of_type.needed > 0) {
                fits &= of_type.needed <= queue.slots.left() && !of_type.is_reserved;
                will_fit &= of_type.needed + of_type.of_sessions <= max as usize;
            }
        }
        if !fits && will_fit {
            for of_type in cell_types.iter_mut() {
                of_type.is_reserved |= of_type.needed > 0;
            }
        }
        fits
    }

    /// Whether all chains that the subgraph depends on have slots, or have ended. `marks` is room for
    /// a mark on each run of its request.
    fn producers_have_slots(&self, index: SubgraphIndex, marks: &mut Vec<bool>) -> bool {
        let own = self.subgraph(index).run.index();
        let subgraphs = &self.processor.request(self.subgraph(index).request).subgraphs;
        marks.clear();
        marks.resize(own + 1, false);
        marks[own] = true;
        // Producers are earlier runs.
        for position in (0..=own).rev() {
            let subgraph = self.subgraph(subgraphs[position]);
            // What a chain with a slot depends on has slots, or has ended.
            let has_slot = subgraph.slot.is_some() && self.is_bounded(subgraph.cell_type);
            let is_settled = subgraph.place == Place::Ended || has_slot;
            if !marks[position] || is_settled {
                continue;
            }
            if position < own && self.lacks_slot(subgraphs[position]) {
                return false;
            }
            for edge in &subgraph.edges {
                marks[self.subgraph(edge.producer).run.index()] = true;
            }
        }
        true
    }
}
