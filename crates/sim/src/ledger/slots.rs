//! Which chains have slots where a device has only so many. The manager gives them out when chains
//! become ready, before any task shows it; so this follows its rules anew, plainly.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker_graph::{CellTypeId, RequestId, RunIndex, RunKind, WorkerId};
use batchmaker_manager::Config;

use super::{Ledger, Place, Request};

/// The slots of all cell types.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// By cell type; none: any number.
    slots_max: Vec<Option<u32>>,
    /// Chains of types with a bound that were given a slot, some of which may not need it any more.
    given: BTreeSet<(RequestId, RunIndex)>,
    /// Chains that were ready and had to wait.
    pub(crate) waits: BTreeSet<(RequestId, RunIndex)>,
}

impl Bounds {
    pub(super) fn new(config: &Config) -> Self {
        let slots_max = config.cell_types.iter().map(|cell| cell.slots_max).collect();
        Self { slots_max, given: BTreeSet::new(), waits: BTreeSet::new() }
    }

    /// A chain goes on with the slot that the chunk before left.
    pub(super) fn keep(&mut self, cell_type: CellTypeId, chain: (RequestId, RunIndex)) {
        if self.slots_max[cell_type.index()].is_some() {
            self.given.insert(chain);
        }
    }

    pub(super) fn is_bounded(&self, run: &batchmaker_graph::Run) -> bool {
        run.kind == RunKind::Chain && self.slots_max[run.cell_type.index()].is_some()
    }
}

/// Slots of one cell type.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    in_use: usize,
    of_sessions: usize,
    is_reserved: bool,
}

impl Ledger {
    /// How many slots of a type with a bound are in use; none of one without.
    pub(crate) fn slots_in_use(&self, cell_type: CellTypeId) -> Option<usize> {
        self.bounds.slots_max[cell_type.index()]?;
        Some(self.slot_counts()[cell_type.index()].in_use)
    }

    fn slot_counts(&self) -> Vec<Counts> {
        let mut counts = vec![Counts::default(); self.bounds.slots_max.len()];
        for &(id, run) in &self.bounds.given {
            let Some(request) = self.requests.get(&id).filter(|request| request.holds(run)) else {
                continue;
            };
            let counts = &mut counts[request.graph.runs()[run.index()].cell_type.index()];
            counts.in_use += 1;
            counts.of_sessions += usize::from(request.session.is_some());
        }
        for kept in self.sessions.values().flat_map(|session| session.kept.values()) {
            // Of types without a bound as well, where nobody asks.
            let counts = &mut counts[kept.cell_type.index()];
            counts.in_use += 1;
            counts.of_sessions += 1;
        }
        counts
    }

    /// Enters who has a slot now that the manager knows all that happened.
    pub(crate) fn give_slots(&mut self) {
        if self.bounds.slots_max.iter().all(Option::is_none) {
            return;
        }
        let requests = &self.requests;
        self.bounds
            .given
            .retain(|(id, run)| requests.get(id).is_some_and(|request| request.holds(*run)));
        let mut waiting = self.waiting_for_slots();
        while let Some(place) = self.next_for_slot(&waiting) {
            let id = waiting[&place];
            let request = self.requests.get_mut(&id).expect("it is open");
            let is_whole = request.session.is_none();
            let runs = 0..request.runs.len() as u32;
            for run in runs.map(RunIndex).filter(|&run| !is_whole || run == place.run) {
                if std::mem::take(&mut request.runs[run.index()].lacks_slot) {
                    self.bounds.given.insert((id, run));
                }
            }
            let requests = &self.requests;
            waiting.retain(|place, id| requests[id].run(place.run).lacks_slot);
        }
        self.bounds.waits.extend(waiting.iter().map(|(place, &id)| (id, place.run)));
    }

    /// Chains that are ready but for a slot, in the order of the queues.
    fn waiting_for_slots(&self) -> BTreeMap<Place, RequestId> {
        let is_bounded = |(_, max): &(_, &Option<u32>)| max.is_some();
        let bounded = self.open.iter().zip(&self.bounds.slots_max).filter(is_bounded);
        let workers = || (0..self.workers.len() as u32).map(WorkerId);
        let is_waiting = |&(place, id): &(&Place, &RequestId)| {
            let request = &self.requests[id];
            request.run(place.run).lacks_slot
                && workers().any(|worker| request.ready_but_for_slot(place.run, worker) > 0)
        };
        let waiting = bounded.flat_map(|(open, _)| open).filter(is_waiting);
        waiting.map(|(&place, &id)| (place, id)).collect()
    }

    /// The first that may have its slot.
    fn next_for_slot(&self, waiting: &BTreeMap<Place, RequestId>) -> Option<Place> {
        if waiting.is_empty() {
            return None;
        }
        let mut counts = self.slot_counts();
        let max = |cell_type: usize| self.bounds.slots_max[cell_type].map(|max| max as usize);
        for (&place, id) in waiting {
            let request = &self.requests[id];
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
                let Counts { in_use, of_sessions, is_reserved } = counts[cell_type];
                let max = max(cell_type).expect("it lacks a slot");
                fits &= in_use + needed <= max && !is_reserved;
                will_fit &= of_sessions + needed <= max;
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
