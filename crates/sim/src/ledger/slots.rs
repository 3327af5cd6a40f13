//! The books of slots of cell types with a bound. The manager assigns them when chains become ready,
//! before any task shows it; so this file applies the manager's rules once more, in a plain way.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker_graph::{CellTypeId, RequestId, RunIndex, RunKind, WorkerId};
use batchmaker_manager::Config;

use crate::ledger::request::{OpenRuns, Place, Request};
use crate::ledger::sessions::Sessions;

/// The requests and sessions that own slots.
#[derive(Clone, Copy)]
pub(super) struct Owners<'a> {
    pub(super) requests: &'a BTreeMap<RequestId, Request>,
    pub(super) sessions: &'a Sessions,
}

/// The slots of the cell types with a bound.
#[derive(Debug)]
pub(crate) struct BoundedSlots {
    /// The number of slots by cell type; none: any number.
    slots_max: Vec<Option<u32>>,
    /// Chains of types with a bound that were given a slot, some of which may not need it any more.
    given: BTreeSet<(RequestId, RunIndex)>,
    /// Chains that were ready and had to wait.
    waits: BTreeSet<(RequestId, RunIndex)>,
}

impl BoundedSlots {
    pub(super) fn new(config: &Config) -> Self {
        let slots_max = config.cell_types.iter().map(|cell| cell.slots_max).collect();
        Self { slots_max, given: BTreeSet::new(), waits: BTreeSet::new() }
    }

    /// Enters that a chain goes on with the slot that the chunk before left.
    pub(super) fn keep(&mut self, cell_type: CellTypeId, chain: (RequestId, RunIndex)) {
        if self.slots_max[cell_type.index()].is_some() {
            self.given.insert(chain);
        }
    }

    /// Whether the run is a chain of a type with a bound.
    pub(super) fn is_bounded(&self, run: &batchmaker_graph::Run) -> bool {
        run.kind == RunKind::Chain && self.slots_max[run.cell_type.index()].is_some()
    }

    /// The number of slots of a type with a bound that are in use; none for a type without.
    pub(super) fn in_use(&self, owners: Owners<'_>, cell_type: CellTypeId) -> Option<usize> {
        self.slots_max[cell_type.index()]?;
        Some(self.counts(owners)[cell_type.index()].in_use)
    }

    fn counts(&self, owners: Owners<'_>) -> Vec<Counts> {
        let mut counts = vec![Counts::default(); self.slots_max.len()];
        for &(id, run) in &self.given {
            let Some(request) = owners.requests.get(&id).filter(|request| request.holds(run))
            else {
                continue;
            };
            let counts = &mut counts[request.graph.runs()[run.index()].cell_type.index()];
            counts.in_use += 1;
            counts.held_by_sessions += usize::from(request.session.is_some());
        }
        for kept in owners.sessions.kept() {
            // Types without a bound are counted as well, though nobody asks for them.
            let counts = &mut counts[kept.cell_type.index()];
            counts.in_use += 1;
            counts.held_by_sessions += 1;
        }
        counts
    }

    /// Forgets the chains that need their slot no more.
    pub(super) fn release(&mut self, requests: &BTreeMap<RequestId, Request>) {
        let holds = |(id, run): &(RequestId, RunIndex)| {
            requests.get(id).is_some_and(|request| request.holds(*run))
        };
        self.given.retain(holds);
    }

    /// The number of chains that were ready and had to wait.
    pub(super) fn waits(&self) -> usize {
        self.waits.len()
    }

    /// Whether no type has a bound.
    pub(super) fn is_unbounded(&self) -> bool {
        self.slots_max.iter().all(Option::is_none)
    }

    /// Enters that a chain is given a slot.
    pub(super) fn give(&mut self, chain: (RequestId, RunIndex)) {
        self.given.insert(chain);
    }

    /// Enters the chains that are ready and have to wait.
    pub(super) fn note_waits(&mut self, waiting: &OpenRuns) {
        self.waits.extend(waiting.iter().map(|(place, &id)| (id, place.run)));
    }

    /// Chains that are ready but for a slot, in the order of the queues.
    pub(super) fn waiting(
        &self,
        requests: &BTreeMap<RequestId, Request>,
        open: &[OpenRuns],
        workers: usize,
    ) -> OpenRuns {
        let is_bounded = |(_, max): &(_, &Option<u32>)| max.is_some();
        let bounded = open.iter().zip(&self.slots_max).filter(is_bounded);
        let workers = || (0..workers as u32).map(WorkerId);
        let is_waiting = |&(place, id): &(&Place, &RequestId)| {
            let request = &requests[id];
            request.run(place.run).lacks_slot
                && workers().any(|worker| request.ready_but_for_slot(place.run, worker) > 0)
        };
        let waiting = bounded.flat_map(|(open, _)| open).filter(is_waiting);
        waiting.map(|(&place, &id)| (place, id)).collect()
    }

    /// The first of the chains in `waiting` that may have its slot. One of a session stands for all of
    /// its chunk's.
    pub(super) fn first_served(&self, owners: Owners<'_>, waiting: &OpenRuns) -> Option<Place> {
        if waiting.is_empty() {
            return None;
        }
        let mut counts = self.counts(owners);
        let max = |cell_type: usize| self.slots_max[cell_type].map(|max| max as usize);
        for (&place, id) in waiting {
            let request = &owners.requests[id];
            if request.session.is_none() {
                let cell_type = request.graph.runs()[place.run.index()].cell_type.index();
                let Counts { in_use, is_reserved, .. } = counts[cell_type];
                let is_free = max(cell_type).is_none_or(|max| in_use < max);
                if is_free && !is_reserved && !waits_for_slots_of_others(request, place.run) {
                    return Some(place);
                }
                continue;
            }
            let mut needed: BTreeMap<usize, usize> = BTreeMap::new();
            for (run, shape) in request.runs.iter().zip(request.graph.runs()) {
                if run.lacks_slot {
                    *needed.entry(shape.cell_type.index()).or_default() += 1;
                }
            }
            let (mut fits, mut will_fit) = (true, true);
            for (&cell_type, &needed) in &needed {
                let Counts { in_use, held_by_sessions, is_reserved } = counts[cell_type];
                let max = max(cell_type).expect("it lacks a slot");
                fits &= in_use + needed <= max && !is_reserved;
                will_fit &= held_by_sessions + needed <= max;
            }
            if fits {
                return Some(place);
            }
            for &cell_type in needed.keys() {
                counts[cell_type].is_reserved |= will_fit;
            }
        }
        None
    }
}

/// The slots of one cell type that are in use.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    in_use: usize,
    held_by_sessions: usize,
    is_reserved: bool,
}

/// Whether any run that `run` depends on, near or far, lacks a slot.
fn waits_for_slots_of_others(request: &Request, run: RunIndex) -> bool {
    let mut seen = BTreeSet::from([run]);
    let mut open = vec![run];
    while let Some(run) = open.pop() {
        for edge in &request.graph.runs()[run.index()].edges {
            if request.run(edge.producer).lacks_slot {
                return true;
            }
            if seen.insert(edge.producer) {
                open.push(edge.producer);
            }
        }
    }
    false
}
