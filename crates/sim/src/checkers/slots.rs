//! Slots are conserved: a chain keeps the one it was first given, a slot has one owner from
//! then until the chain is over, comes back under a higher generation, and the manager
//! counts as many in use as there are owners (no fewer, where batches keep them to their end).

use std::collections::BTreeMap;

use batchmaker_graph::{CellTypeId, RequestId, RunIndex, RunKind, SlotId};

use super::{Checker, Ends};
use crate::ledger::Ledger;
use crate::observation::{Nodes, Observation};

pub(crate) struct Slots {
    cell_types: Vec<BTreeMap<u32, Owner>>,
    /// Slots by the owners that may still hold them.
    held: BTreeMap<(RequestId, RunIndex), CellTypeId>,
    ends: Ends,
}

/// Whom a slot was given to last.
struct Owner {
    generation: u32,
    request: RequestId,
    run: RunIndex,
}

impl Slots {
    pub(crate) fn new(cell_types: usize, ends: Ends) -> Self {
        let cell_types = (0..cell_types).map(|_| BTreeMap::new()).collect();
        Self { cell_types, held: BTreeMap::new(), ends }
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
        let owner = Owner { generation: slot.generation, request, run };
        if let Some(last) = self.cell_types[cell_type.index()].insert(slot.index, owner) {
            if !is_over(ledger, last.request, last.run) {
                return Err(format!(
                    "{part:?} takes the slot of {:?} {:?}",
                    last.request, last.run
                ));
            }
            if last.generation >= slot.generation {
                return Err(format!("{part:?} after generation {}", last.generation));
            }
        }
        self.held.insert((request, run), cell_type);
        Ok(())
    }
}

/// Whether the chain needs its slot no more.
fn is_over(ledger: &Ledger, request: RequestId, run: RunIndex) -> bool {
    let Some(request) = ledger.requests.get(&request) else { return true };
    let progress = request.run(run);
    let is_complete = progress.completed == progress.length;
    is_complete || (request.given_up.is_some() && progress.flights.is_empty())
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
            Observation::Settled { statistics, requests } => {
                self.held.retain(|&(request, run), _| !is_over(ledger, request, run));
                for (counts, cell_type) in statistics.iter().zip((0..).map(CellTypeId)) {
                    let held = self.held.values().filter(|&&held| held == cell_type).count();
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
    use super::*;
    use crate::checkers::stage::{Stage, TWO_LAYERS, in_slot, nodes};

    fn stage() -> Stage {
        let mut stage = Stage::new(Slots::new(2, Ends::Alone));
        (0..2).for_each(|request| stage.arrive(request, TWO_LAYERS));
        stage.task(0, 0, &[&[in_slot(nodes(0, 0, 0), 5, 0)]]).unwrap();
        stage
    }

    #[test]
    fn another_slot_for_the_same_chain_is_found() {
        assert!(stage().task(0, 0, &[&[in_slot(nodes(0, 0, 1), 6, 0)]]).is_err());
        assert!(stage().task(0, 0, &[&[in_slot(nodes(0, 0, 1), 5, 1)]]).is_err());
        stage().task(0, 0, &[&[in_slot(nodes(0, 0, 1), 5, 0)]]).unwrap();
    }

    #[test]
    fn a_slot_in_use_is_not_given_again() {
        let taken = stage().task(0, 0, &[&[in_slot(nodes(1, 0, 0), 5, 1)]]).unwrap_err();
        assert!(taken.contains("takes the slot of r0 run0"), "{taken}");
    }

    #[test]
    fn a_generation_comes_once() {
        for generation in [0, 1] {
            let mut stage = stage();
            stage.complete(0).unwrap();
            stage.cancel(0).unwrap();
            let again = stage.task(0, 0, &[&[in_slot(nodes(1, 0, 0), 5, generation)]]);
            assert_eq!(again.is_ok(), generation == 1);
        }
    }

    #[test]
    fn a_wrong_count_is_found() {
        stage().settled(2, &[1, 0]).unwrap();
        assert!(stage().settled(2, &[0, 0]).unwrap_err().contains("1 held"));
        assert!(stage().settled(2, &[1, 1]).is_err());
    }

    #[test]
    fn rows_have_no_slot_and_chains_have_one() {
        assert!(stage().task(0, 0, &[&[nodes(1, 0, 0)]]).is_err());
    }
}
