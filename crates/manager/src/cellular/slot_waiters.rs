//! The chains that wait for slots, where a device bounds their number
//! ([`crate::CellTypeConfig::slots_max`]).
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
//!
//! This file chooses the chain. `subgraph_pool` gives it the slot.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use batchmaker_graph::{CellTypeId, RequestId};

use crate::cellular::readiness::Readiness;
use crate::cellular::subgraph::{QueueKey, SubgraphIndex};

/// The chains that are ready and lack nothing but a slot.
#[derive(Debug)]
pub(super) struct SlotWaiters {
    /// The chains of sessions, in the order of the queues, each with its cell type.
    of_sessions: BTreeMap<QueueKey, (SubgraphIndex, CellTypeId)>,
    /// The demand by cell type.
    cell_types: Vec<SlotsOfType>,
    /// The number of chains that wait.
    waiting: usize,
    /// Scratch space: a mark for each run of a request, and the runs that have one.
    marks: Vec<bool>,
    marked: Vec<usize>,
    /// Whether anything happened since slots were last given out that may let a chain have one.
    is_changed: bool,
}

/// The demand for the slots of one cell type.
#[derive(Clone, Debug, Default)]
struct SlotsOfType {
    /// The chains of requests without a session that wait for a slot of the type, in the order of the
    /// queues.
    chains: BTreeMap<QueueKey, SubgraphIndex>,
    /// The number of chains that wait for a slot of the type, those of sessions included.
    waiting: usize,
    /// Slots that sessions hold.
    held_by_sessions: usize,
    /// Slots that the session under consideration needs.
    needed: usize,
    /// Whether a session waits for slots of the type, so that those behind it must not take them.
    is_reserved: bool,
}

impl SlotWaiters {
    pub(super) fn new(cell_types: usize) -> Self {
        Self {
            of_sessions: BTreeMap::new(),
            cell_types: vec![SlotsOfType::default(); cell_types],
            waiting: 0,
            marks: Vec::new(),
            marked: Vec::new(),
            is_changed: false,
        }
    }

    /// Lines up a chain of `cell_type` that is ready but has no slot.
    pub(super) fn line_up(
        &mut self,
        key: QueueKey,
        cell_type: CellTypeId,
        index: SubgraphIndex,
        is_of_session: bool,
    ) {
        let of_type = &mut self.cell_types[cell_type.index()];
        let is_new = if is_of_session {
            self.of_sessions.insert(key, (index, cell_type)).is_none()
        } else {
            of_type.chains.insert(key, index).is_none()
        };
        if is_new {
            of_type.waiting += 1;
            self.waiting += 1;
            self.is_changed = true;
        }
    }

    /// Takes out a chain of `cell_type` that got its slot, or that ends, if it waits.
    #[inline]
    pub(super) fn remove(&mut self, key: QueueKey, cell_type: CellTypeId) {
        if self.waiting > 0 {
            self.remove_waiting(key, cell_type);
        }
    }

    #[cold]
    fn remove_waiting(&mut self, key: QueueKey, cell_type: CellTypeId) {
        let of_type = &mut self.cell_types[cell_type.index()];
        if of_type.chains.remove(&key).is_some() || self.of_sessions.remove(&key).is_some() {
            of_type.waiting -= 1;
            self.waiting -= 1;
        }
        // Chains that depend on it may have waited for this.
        self.is_changed = true;
    }

    /// Moves a chain in the order of the queues, from `before` to `key`, if it waits.
    pub(super) fn change_key(&mut self, before: QueueKey, key: QueueKey, cell_type: CellTypeId) {
        let of_type = &mut self.cell_types[cell_type.index()];
        if let Some(index) = of_type.chains.remove(&before) {
            of_type.chains.insert(key, index);
            self.is_changed = true;
        } else if let Some(chain) = self.of_sessions.remove(&before) {
            self.of_sessions.insert(key, chain);
            self.is_changed = true;
        }
    }

    /// Notes that a session took a slot.
    pub(super) fn note_session_slot(&mut self, cell_type: CellTypeId) {
        self.cell_types[cell_type.index()].held_by_sessions += 1;
    }

    /// Notes that a slot is free, which a session held or a request without one.
    #[cold]
    pub(super) fn note_free_slot(&mut self, cell_type: CellTypeId, was_of_session: bool) {
        let of_type = &mut self.cell_types[cell_type.index()];
        of_type.held_by_sessions -= usize::from(was_of_session);
        self.is_changed = true;
    }

    /// Whether a chain may have a slot now that could not before.
    #[inline]
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Notes that all chains are about to be considered. Returns whether any may have a slot now.
    pub(super) fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// The first chain that may have its slot now. One of a session stands for all of them.
    pub(super) fn first_served(&mut self, state: Readiness<'_>) -> Option<SubgraphIndex> {
        let Self { of_sessions, cell_types, marks, marked, .. } = self;
        cell_types.iter_mut().for_each(|of_type| of_type.is_reserved = false);
        let (mut after, mut last_session) = (None, None);
        loop {
            let is_free = |ct: CellTypeId| {
                let of_type = &cell_types[ct.index()];
                of_type.waiting > 0 && !of_type.is_reserved && state.queues[ct].slots.left() > 0
            };
            let free = state.queues.cell_types().filter(|&ct| is_free(ct));
            free.clone().next()?;
            // Whoever waits for a slot of a type that has none free needs no look, but for sessions,
            // which may reserve.
            let range = (after.map_or(Unbounded, Excluded), Unbounded);
            let first_of = |ct: CellTypeId| cell_types[ct.index()].chains.range(range).next();
            let chain = free.filter_map(first_of).min();
            let of_session = of_sessions.range(range).next();
            let of_session = of_session.map(|(key, (index, _))| (key, index));
            let (&key, &index) = chain.into_iter().chain(of_session).min()?;
            after = Some(key);
            let request = state.requests[index].request;
            let is_served = match of_session == Some((&key, &index)) {
                // The chains of a chunk come one after the other, and wait for the same slots.
                true if last_session == Some(request) => false,
                true => {
                    last_session = Some(request);
                    all_fit(state, request, cell_types)
                }
                false => producers_have_slots(state, index, marks, marked),
            };
            if is_served {
                return Some(index);
            }
        }
    }
}

/// Whether all chains of a session's chunk can have their slots now. If they cannot, but could
/// without any other session ending, their types are reserved for it.
fn all_fit(state: Readiness<'_>, chunk: RequestId, cell_types: &mut [SlotsOfType]) -> bool {
    cell_types.iter_mut().for_each(|of_type| of_type.needed = 0);
    for &index in &state.requests[chunk].subgraphs {
        if state.lacks_slot(index) {
            cell_types[state.requests[index].cell_type.index()].needed += 1;
        }
    }
    let (mut fits, mut will_fit) = (true, true);
    for (queue, of_type) in state.queues.iter().zip(&*cell_types) {
        if let (Some(max), true) = (queue.slots.max(), of_type.needed > 0) {
            fits &= of_type.needed <= queue.slots.left() && !of_type.is_reserved;
            will_fit &= of_type.needed + of_type.held_by_sessions <= max as usize;
        }
    }
    if !fits && will_fit {
        for of_type in cell_types.iter_mut() {
            of_type.is_reserved |= of_type.needed > 0;
        }
    }
    fits
}

/// Whether all chains that the subgraph depends on have slots, or have ended. `marks` and `marked` are
/// scratch space.
fn producers_have_slots(
    state: Readiness<'_>,
    index: SubgraphIndex,
    marks: &mut Vec<bool>,
    marked: &mut Vec<usize>,
) -> bool {
    let subgraphs = &state.requests[state.requests[index].request].subgraphs;
    if marks.len() < subgraphs.len() {
        marks.resize(subgraphs.len(), false);
    }
    let own = state.requests[index].run.index();
    marks[own] = true;
    marked.push(own);
    let (mut next, mut have_slots) = (0, true);
    while let Some(&position) = marked.get(next) {
        next += 1;
        let subgraph = &state.requests[subgraphs[position]];
        // The producers of a chain with a bounded slot have slots, or have ended.
        let has_slot =
            subgraph.slot.is_some() && state.queues[subgraph.cell_type].has_bounded_slots();
        if subgraph.has_ended() || has_slot {
            continue;
        }
        if position != own && state.lacks_slot(subgraphs[position]) {
            have_slots = false;
            break;
        }
        for edge in &subgraph.edges {
            let producer = state.requests[edge.producer].run.index();
            if !std::mem::replace(&mut marks[producer], true) {
                marked.push(producer);
            }
        }
    }
    marked.drain(..).for_each(|position| marks[position] = false);
    have_slots
}

/// # Panics
/// If `chunk`, of a session, has more chains without a slot of a type than the type has slots: it
/// could never run.
pub(super) fn assert_chunk_fits(state: Readiness<'_>, chunk: RequestId) {
    let subgraphs = state.requests[chunk].subgraphs.iter();
    let mut needed = vec![0; state.queues.iter().len()];
    for &index in subgraphs.filter(|&&index| state.lacks_slot(index)) {
        needed[state.requests[index].cell_type.index()] += 1;
    }
    for (cell_type, needed) in state.queues.cell_types().zip(needed) {
        let max = state.queues[cell_type].slots.max().unwrap_or(u32::MAX);
        assert!(
            needed <= max as usize,
            "{chunk:?}, of a session, has {needed} chains of {cell_type}, which has {max} slots"
        );
    }
}
