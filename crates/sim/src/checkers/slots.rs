//! Slots are conserved. A chain keeps the slot that it was first given, through all chunks of its
//! session if it has one. A slot has one owner until the chain is over, or the session ends or is
//! broken, and then comes back under a higher generation. The manager counts as many slots in use
//! as there are owners (no fewer, where batches keep them to their end). Where the number of slots
//! is bounded, chains get them in turn, and no slot is past the last.

use std::collections::BTreeMap;

use batchmaker_graph::{CellTypeId, RequestId, RunIndex, RunKind, SessionId, SlotId};

use batchmaker_manager::Config;

use crate::checkers::checker::{Checker, Ends};
use crate::ledger::Ledger;
use crate::observation::{Nodes, Observation};

pub(crate) struct Slots {
    slots_max: Vec<Option<u32>>,
    /// For each cell type, the last owner and generation of each slot, by index.
    cell_types: Vec<BTreeMap<u32, (Owner, u32)>>,
    /// Slots by the owners that may still hold them.
    held: BTreeMap<Owner, CellTypeId>,
    ends: Ends,
}

/// A chain that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    OfRequest(RequestId, RunIndex),
    /// A chain of a session, in whichever chunk runs, and between chunks.
    OfSession(SessionId, RunIndex),
}

impl Slots {
    pub(crate) fn new(config: &Config, ends: Ends) -> Self {
        let cell_types = config.cell_types.iter().map(|_| BTreeMap::new()).collect();
        let slots_max = config.cell_types.iter().map(|cell| cell.slots_max).collect();
        Self { slots_max, cell_types, held: BTreeMap::new(), ends }
    }

    fn check_nodes(
        &mut self,
        ledger: &Ledger,
        cell_type: CellTypeId,
        part: &Nodes,
    ) -> Result<(), String> {
        let Some((request, run)) = ledger.run_of(part) else { return Ok(()) };
        let kind = request.graph.runs()[part.run.index()].kind;
        match (kind, part.slot, run.slot) {
            (RunKind::Rows | RunKind::Nodes, None, _) => Ok(()),
            (RunKind::Chain, Some(slot), None) => self.acquire(ledger, cell_type, part, slot),
            (RunKind::Chain, Some(slot), Some(known)) if slot == known => Ok(()),
            (RunKind::Chain, _, Some(known)) => Err(format!("{part:?}, whose slot is {known:?}")),
            _ => Err(format!("{part:?}: chains have slots, rows have none")),
        }
    }

    fn acquire(
        &mut self,
        ledger: &Ledger,
        cell_type: CellTypeId,
        part: &Nodes,
        slot: SlotId,
    ) -> Result<(), String> {
        let &Nodes { request, run, .. } = part;
        let lacks_slot = |request: &crate::ledger::Request| request.run(run).lacks_slot;
        if ledger.requests.get(&request).is_some_and(lacks_slot) {
            return Err(format!("{part:?} has a slot before its turn"));
        }
        if self.slots_max[cell_type.index()].is_some_and(|max| slot.index >= max) {
            return Err(format!("{part:?} is past the last slot of {cell_type}"));
        }
        let session = ledger.requests.get(&request).and_then(|request| request.session);
        let owner = match session {
            None => Owner::OfRequest(request, run),
            Some(session) => Owner::OfSession(session, run),
        };
        let slots = &mut self.cell_types[cell_type.index()];
        let last = slots.insert(slot.index, (owner, slot.generation));
        if let Some((last, last_generation)) = last {
            if holds(ledger, last) {
                return Err(format!("{part:?} takes the slot of {last:?}"));
            }
            if last_generation >= slot.generation {
                return Err(format!("{part:?} after generation {last_generation}"));
            }
        }
        self.held.insert(owner, cell_type);
        Ok(())
    }
}

/// Whether the chain still needs its slot.
fn holds(ledger: &Ledger, owner: Owner) -> bool {
    match owner {
        Owner::OfRequest(id, run) => {
            ledger.requests.get(&id).is_some_and(|request| request.holds(run))
        }
        Owner::OfSession(id, run) => ledger.session_holds(id, run),
    }
}

impl Checker for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Batch { cell_type, nodes, .. } => {
                nodes.iter().try_for_each(|part| self.check_nodes(ledger, *cell_type, part))
            }
            Observation::Settled { statistics, requests, .. } => {
                self.held.retain(|&owner, _| holds(ledger, owner));
                for (counts, cell_type) in statistics.iter().zip((0..).map(CellTypeId)) {
                    let held = self.held.values().filter(|&&held| held == cell_type).count();
                    // Where the number is bounded, a chain has a slot before it runs.
                    let held = ledger.slots_in_use(cell_type).unwrap_or(held);
                    let is_kept = self.ends == Ends::WithItsBatch && *requests > 0;
                    let most = if is_kept { usize::MAX } else { held };
                    if !(held..=most).contains(&counts.slots_in_use) {
                        let said = counts.slots_in_use;
                        return Err(format!("{said} slots of {cell_type} in use, {held} held"));
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_manager::{Outcome, StatePlacement};

    use super::*;
    use crate::checkers::harness::{self, Harness, TWO_LAYERS, in_slot, nodes};

    fn harness() -> Harness {
        let mut harness = Harness::new(Slots::new(&harness::config(), Ends::Alone));
        (0..2).for_each(|request| harness.arrive(request, TWO_LAYERS));
        harness.task(0, 0, &[&[in_slot(nodes(0, 0, 0), 5, 0)]]).unwrap();
        harness
    }

    #[test]
    fn another_slot_for_the_same_chain_is_found() {
        assert!(harness().task(0, 0, &[&[in_slot(nodes(0, 0, 1), 6, 0)]]).is_err());
        assert!(harness().task(0, 0, &[&[in_slot(nodes(0, 0, 1), 5, 1)]]).is_err());
        harness().task(0, 0, &[&[in_slot(nodes(0, 0, 1), 5, 0)]]).unwrap();
    }

    #[test]
    fn a_slot_in_use_is_not_given_again() {
        let taken = harness().task(0, 0, &[&[in_slot(nodes(1, 0, 0), 5, 1)]]).unwrap_err();
        assert!(taken.contains("takes the slot of OfRequest(r0, run0)"), "{taken}");
    }

    #[test]
    fn a_generation_comes_once() {
        for generation in [0, 1] {
            let mut harness = harness();
            harness.complete(0).unwrap();
            harness.cancel(0).unwrap();
            let again = harness.task(0, 0, &[&[in_slot(nodes(1, 0, 0), 5, generation)]]);
            assert_eq!(again.is_ok(), generation == 1);
        }
    }

    /// Both chains of the first of `chunks` chunks ran to their ends. A request of no session is in
    /// flight as well.
    fn harness_with_first_chunk(placement: StatePlacement, chunks: u32) -> Harness {
        let mut harness =
            Harness::with_states(placement, Slots::new(&harness::config(), Ends::Alone));
        (0..chunks).for_each(|request| harness.arrive_in(0, request, TWO_LAYERS));
        harness.arrive(2, TWO_LAYERS);
        run_layer(&mut harness, 0, 0, 5);
        run_layer(&mut harness, 0, 1, 6);
        harness
    }

    /// The first chunk is not answered yet, and the second waits.
    fn harness_with_chunks(placement: StatePlacement) -> Harness {
        harness_with_first_chunk(placement, 2)
    }

    /// The first chunk was answered, and no other came yet.
    fn harness_between_chunks(placement: StatePlacement) -> Harness {
        let mut harness = harness_with_first_chunk(placement, 1);
        harness.finish(0, Outcome::Succeeded).unwrap();
        harness
    }

    /// All steps of one chain of a chunk.
    fn run_layer(harness: &mut Harness, request: u32, run: u32, slot: u32) {
        for step in 0..3 {
            let node = in_slot(nodes(request, run, step), slot, 0);
            harness.task(0, run, &[&[node]]).unwrap();
            harness.complete(0).unwrap();
        }
    }

    #[test]
    fn a_slot_of_a_session_is_not_given_again() {
        let taking = in_slot(nodes(2, 0, 0), 5, 1);
        let mut harness = harness_with_chunks(StatePlacement::Shared);
        let taken = harness.task(0, 0, &[&[taking]]).unwrap_err();
        assert!(taken.contains("takes the slot of OfSession(session0'0, run0)"), "{taken}");
        // Not between two chunks either, but after the last one.
        for is_ending in [false, true] {
            let mut harness = harness_between_chunks(StatePlacement::Shared);
            if is_ending {
                harness.end_session(0).unwrap();
            }
            assert_eq!(harness.task(0, 0, &[&[taking]]).is_ok(), is_ending);
        }
    }

    #[test]
    fn another_slot_in_a_later_chunk_is_found() {
        for (slot, generation) in [(5, 0), (6, 0), (5, 1), (7, 0)] {
            let mut harness = harness_with_chunks(StatePlacement::Shared);
            harness.finish(0, Outcome::Succeeded).unwrap();
            let goes_on = harness.task(0, 0, &[&[in_slot(nodes(1, 0, 0), slot, generation)]]);
            assert_eq!(goes_on.is_ok(), (slot, generation) == (5, 0));
        }
    }

    #[test]
    fn slots_are_kept_until_the_session_ends() {
        let mut harness = harness_between_chunks(StatePlacement::Shared);
        harness.settled(1, &[1, 1]).unwrap();
        assert!(harness.settled(1, &[0, 1]).unwrap_err().contains("1 held"));
        harness.end_session(0).unwrap();
        harness.settled(1, &[0, 0]).unwrap();
    }

    #[test]
    fn a_chunk_given_up_frees_at_once_what_did_not_run_to_its_end() {
        let mut harness = harness_with_chunks(StatePlacement::Shared);
        harness.finish(0, Outcome::Succeeded).unwrap();
        run_layer(&mut harness, 1, 0, 5);
        harness.settled(2, &[1, 1]).unwrap();
        harness.cancel(1).unwrap();
        harness.settled(2, &[1, 0]).unwrap();
        harness.finish(1, Outcome::Cancelled).unwrap();
        harness.settled(1, &[0, 0]).unwrap();
    }

    #[test]
    fn a_chunk_given_up_frees_what_runs_to_its_end_only_then() {
        let mut harness = harness_with_chunks(StatePlacement::Shared);
        harness.finish(0, Outcome::Succeeded).unwrap();
        run_layer(&mut harness, 1, 0, 5);
        let steps = [0, 1, 2].map(|step| [in_slot(nodes(1, 1, step), 6, 0)]);
        harness.task(0, 1, &[&steps[0], &steps[1], &steps[2]]).unwrap();
        harness.cancel(1).unwrap();
        harness.settled(2, &[1, 1]).unwrap();
        harness.complete(0).unwrap();
        harness.settled(2, &[1, 0]).unwrap();
    }

    #[test]
    fn a_break_while_a_chunk_runs_frees_when_it_has_ended() {
        let mut harness = harness_with_chunks(StatePlacement::Shared);
        harness.cancel(1).unwrap();
        harness.settled(3, &[1, 1]).unwrap();
        harness.finish(0, Outcome::Succeeded).unwrap();
        harness.settled(1, &[0, 0]).unwrap();
    }

    #[test]
    fn what_is_kept_is_lost_with_its_worker() {
        for (placement, kept) in [(StatePlacement::Shared, 1), (StatePlacement::PerWorker, 0)] {
            let mut harness = harness_between_chunks(placement);
            harness.worker_down(1).unwrap();
            harness.settled(1, &[1, 1]).unwrap();
            harness.worker_down(0).unwrap();
            harness.settled(1, &[kept, kept]).unwrap();
        }
    }

    #[test]
    fn a_wrong_count_is_found() {
        harness().settled(2, &[1, 0]).unwrap();
        assert!(harness().settled(2, &[0, 0]).unwrap_err().contains("1 held"));
        assert!(harness().settled(2, &[1, 1]).is_err());
    }

    /// Two chains with a slot for one of them.
    #[test]
    fn a_slot_out_of_turn_or_past_the_last_is_found() {
        let mut config = harness::config();
        config.cell_types[0].slots_max = Some(1);
        let harness = || {
            let mut harness = Harness::of(&config, Slots::new(&config, Ends::Alone));
            (0..2).for_each(|request| harness.arrive(request, TWO_LAYERS));
            harness
        };
        harness().settled(2, &[1, 0]).unwrap();
        let early = harness().task(0, 0, &[&[in_slot(nodes(1, 0, 0), 0, 0)]]).unwrap_err();
        assert!(early.contains("before its turn"), "{early}");
        let past = harness().task(0, 0, &[&[in_slot(nodes(0, 0, 0), 1, 0)]]).unwrap_err();
        assert!(past.contains("past the last"), "{past}");
        let mut harness = harness();
        harness.task(0, 0, &[&[in_slot(nodes(0, 0, 0), 0, 0)]]).unwrap();
        harness.cancel(0).unwrap();
        harness.complete(0).unwrap();
        harness.task(0, 0, &[&[in_slot(nodes(1, 0, 0), 0, 1)]]).unwrap();
    }

    #[test]
    fn rows_have_no_slot_and_chains_have_one() {
        assert!(harness().task(0, 0, &[&[nodes(1, 0, 0)]]).is_err());
    }
}
