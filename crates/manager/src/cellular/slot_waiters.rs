//! Which chains get slots where a device has only so many ([`crate::CellTypeConfig::slots_max`]).
//!
//! A chain lines up for a slot when its first node is ready; free slots go to the first in the order
//! of the queues. A chain must not hold a slot while it waits for another chain that gets none, so it
//! takes its slot only once all chains that it depends on have theirs or have ended. Then every
//! chain with a slot can run to its end without another slot being given out, and frees its own.
//!
//! A session does not free its slots at the end of a chunk. If sessions took theirs one by one, two
//! of them that lack one each could wait for each other for ever. So a session takes the slots of all
//! its chains together, when any of them is ready. While it waits for slots that requests without
//! sessions are going to free, nobody behind it in the order takes these. For slots that other
//! sessions hold, which may be for long, nobody waits along with it: a session of many chains may
//! wait for as long as sessions of fewer keep coming.

use std::collections::BTreeMap;

use batchmaker_graph::{CellTypeId, RequestId, RunKind, SlotId};

use crate::cellular::Cellular;
use crate::cellular::subgraph::{Place, QueueKey, SubgraphIndex};

/// Chains that have all they need but a slot.
#[derive(Debug)]
pub(crate) struct SlotWaiters {
    /// In the order of the queues.
    waiting: BTreeMap<QueueKey, SubgraphIndex>,
    cell_types: Vec<OfType>,
    /// Scratch space: a mark for each run of a request.
    marks: Vec<bool>,
    /// Whether anything happened since slots were last given out that may let a chain have one.
    is_changed: bool,
}

#[derive(Clone, Debug, Default)]
struct OfType {
    /// Chains that wait for a slot of the type.
    waiting: usize,
    /// Slots that sessions hold.
    of_sessions: usize,
    /// Slots that the session being looked at needs.
    needed: usize,
    /// Whether a session waits for slots of the type, so that those behind it must not take them.
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

    /// Whether the subgraph is a chain of a type with bounded slots, and has none yet.
    pub(crate) fn lacks_slot(&self, index: SubgraphIndex) -> bool {
        let subgraph = self.subgraph(index);
        subgraph.slot.is_none()
            && subgraph.kind == RunKind::Chain
            && subgraph.place != Place::Ended
            && self.is_bounded(subgraph.cell_type)
    }

    /// Lines up a chain that is ready but has no slot.
    pub(crate) fn line_up_for_slot(&mut self, index: SubgraphIndex) {
        let (key, cell_type) = (self.subgraph(index).key, self.subgraph(index).cell_type);
        if self.slot_waiters.waiting.insert(key, index).is_none() {
            self.slot_waiters.cell_types[cell_type.index()].waiting += 1;
            self.slot_waiters.is_changed = true;
        }
    }

    /// Takes out a chain that has got its slot, or that ends.
    #[inline]
    pub(crate) fn leave_slot_waiters(&mut self, index: SubgraphIndex) {
        if !self.slot_waiters.waiting.is_empty() {
            self.take_from_slot_waiters(index);
        }
    }

    #[cold]
    fn take_from_slot_waiters(&mut self, index: SubgraphIndex) {
        let (key, cell_type) = (self.subgraph(index).key, self.subgraph(index).cell_type);
        if self.slot_waiters.waiting.remove(&key).is_some() {
            self.slot_waiters.cell_types[cell_type.index()].waiting -= 1;
        }
        // Chains that depend on it may have waited for this.
        self.slot_waiters.is_changed = true;
    }

    #[inline]
    pub(crate) fn release_slot(&mut self, cell_type: CellTypeId, slot: SlotId, of_session: bool) {
        let slots = &mut self.queues[cell_type.index()].slots;
        slots.release(slot);
        if slots.max().is_some() {
            self.note_free_slot(cell_type, of_session);
        }
    }

    #[cold]
    fn note_free_slot(&mut self, cell_type: CellTypeId, of_session: bool) {
        let of_type = &mut self.slot_waiters.cell_types[cell_type.index()];
        of_type.of_sessions -= usize::from(of_session);
        self.slot_waiters.is_changed = true;
    }

    /// # Panics
    /// If a chunk of a session has more chains of a type than there are slots: it could never run.
    pub(crate) fn check_slots(&mut self, chunk: RequestId) {
        for position in 0..self.processor.request(chunk).subgraphs.len() {
            let cell_type =
                self.subgraph(self.processor.request(chunk).subgraphs[position]).cell_type;
            let Some(max) = self.queues[cell_type.index()].slots.max() else { continue };
            let needed = self.slots_needed(chunk, cell_type);
            assert!(
                needed <= max as usize,
                "{chunk:?}, of a session, has {needed} chains of {cell_type}, which has {max} slots"
            );
        }
    }

    /// Chains of the type that the request has without a slot.
    fn slots_needed(&self, request: RequestId, cell_type: CellTypeId) -> usize {
        let subgraphs = self.processor.request(request).subgraphs.iter();
        let of_type = subgraphs.filter(|&&sub| self.subgraph(sub).cell_type == cell_type);
        of_type.filter(|&&sub| self.lacks_slot(sub)).count()
    }

    /// Gives free slots to the chains that may have them, in order.
    #[inline]
    pub(crate) fn give_slots(&mut self) {
        if self.slot_waiters.is_changed {
            self.give_all_slots();
        }
    }

    #[cold]
    fn give_all_slots(&mut self) {
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

    /// The first chain that may have its slot now. One of a session stands for all of them.
    fn next_for_slot(&mut self) -> Option<SubgraphIndex> {
        let mut waiters = std::mem::replace(&mut self.slot_waiters, SlotWaiters::new(0));
        waiters.cell_types.iter_mut().for_each(|of_type| of_type.is_reserved = false);
        let SlotWaiters { waiting, cell_types, marks, .. } = &mut waiters;
        let has_free = |cell_types: &[OfType], cell_type: CellTypeId| {
            self.queues[cell_type.index()].slots.left() > 0
                && !cell_types[cell_type.index()].is_reserved
        };
        let may_have = |index: SubgraphIndex, cell_types: &mut [OfType], marks: &mut Vec<bool>| {
            let request = self.subgraph(index).request;
            match self.processor.request(request).session {
                Some(_) => self.all_fit(request, cell_types),
                None => {
                    has_free(cell_types, self.subgraph(index).cell_type)
                        && self.producers_have_slots(index, marks)
                }
            }
        };
        let all = || (0..self.queues.len() as u32).map(CellTypeId);
        let is_wanted = |cell_types: &[OfType], ct: CellTypeId| cell_types[ct.index()].waiting > 0;
        let next = waiting
            .values()
            .copied()
            // No further once nothing is left to give.
            .map_while(|index| {
                let mut wanted = all().filter(|&ct| is_wanted(cell_types, ct));
                let is_any_free = wanted.any(|ct| has_free(cell_types, ct));
                is_any_free.then(|| may_have(index, cell_types, marks).then_some(index))
            })
            .flatten()
            .next();
        self.slot_waiters = waiters;
        next
    }

    /// Whether all chains of a session's chunk can have their slots now. If they cannot, but could
    /// without any other session ending, their types are reserved for it.
    fn all_fit(&self, chunk: RequestId, cell_types: &mut [OfType]) -> bool {
        cell_types.iter_mut().for_each(|of_type| of_type.needed = 0);
        for &index in &self.processor.request(chunk).subgraphs {
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

    /// Whether all chains that the subgraph depends on have slots, or have ended. `marks` is
    /// scratch space.
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
