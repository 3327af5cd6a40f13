//! Patience: where a cell type that has ready nodes for the worker got no batch for longer than it must
//! wait, the round runs such a type, the one that has waited longest. Rounds of a model whose turn it is
//! are left out.

use batchmaker_graph::{CellTypeId, RequestId, RunIndex, WorkerId};
use batchmaker_manager::{Config, Fairness};

use crate::checkers::checker::Checker;
use crate::ledger::{Ledger, Request};
use crate::observation::Observation;

pub(crate) struct Patience {
    /// None where models have shares.
    fairness: Option<Fairness>,
    /// When each cell type had its last batch or, if that is later, came to have ready nodes.
    since_ns: Vec<u64>,
    /// A run of each cell type that had a ready node at the observation before.
    ready: Vec<Option<(RequestId, RunIndex)>>,
    /// Whether the cell type may have had no ready node for a moment, as its ready run went and another came in one event:
    /// then it is not known since when it has waited.
    is_unsure: Vec<bool>,
    /// The time of the observation before.
    last_ns: u64,
    /// By worker, whether its next task begins a round.
    begins_round: Vec<bool>,
}

impl Patience {
    pub(crate) fn new(config: &Config) -> Self {
        let fairness = config.fairness.as_ref().filter(|fairness| fairness.shares.is_none());
        let cell_types = config.cell_types.len();
        Self {
            fairness: fairness.cloned(),
            since_ns: vec![0; cell_types],
            ready: vec![None; cell_types],
            is_unsure: vec![false; cell_types],
            last_ns: 0,
            begins_round: vec![true; usize::from(config.workers)],
        }
    }

    /// The patience of now; none: without bound.
    fn bound_ns(&self, ledger: &Ledger) -> Option<u64> {
        let fairness = self.fairness.as_ref()?;
        let has_filler = || ledger.requests.values().any(Request::fills_batches);
        let of_large = fairness.large_patience_ns.filter(|_| has_filler());
        fairness.patience_ns.into_iter().chain(of_large).min()
    }

    /// A run of the cell type that has a ready node for some worker.
    fn ready_run_of_any(&self, ledger: &Ledger, cell_type: usize) -> Option<(RequestId, RunIndex)> {
        let mut workers = (0..self.begins_round.len() as u32).map(WorkerId);
        workers.find_map(|worker| ready_run(ledger, cell_type, worker))
    }

    /// Enters which cell types have ready nodes after the observation before.
    fn note_ready_nodes(&mut self, ledger: &Ledger) {
        let workers = || (0..self.begins_round.len() as u32).map(WorkerId);
        for cell_type in 0..self.since_ns.len() {
            let before = self.ready[cell_type];
            let is_still_ready = before.is_some_and(|(id, run)| {
                let request = ledger.requests.get(&id).filter(|of| of.given_up.is_none());
                request.is_some_and(|of| workers().any(|worker| of.ready(run, worker) > 0))
            });
            if is_still_ready {
                continue;
            }
            let now = self.ready_run_of_any(ledger, cell_type);
            if before.is_none() && now.is_some() {
                self.since_ns[cell_type] = self.last_ns;
            }
            self.is_unsure[cell_type] = before.is_some() && now.is_some();
            self.ready[cell_type] = now;
        }
        self.last_ns = ledger.now_ns;
    }
}

/// A run of the cell type that has a ready node for the worker.
fn ready_run(ledger: &Ledger, cell_type: usize, worker: WorkerId) -> Option<(RequestId, RunIndex)> {
    let mut open = ledger.open[cell_type].iter();
    let is_ready = |run: RunIndex, id| ledger.requests[id].ready(run, worker) > 0;
    open.find(|(place, id)| is_ready(place.run, id)).map(|(place, &id)| (id, place.run))
}

impl Checker for Patience {
    fn name(&self) -> &'static str {
        "patience"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        if self.fairness.is_none() {
            return Ok(());
        }
        self.note_ready_nodes(ledger);
        match *seen {
            Observation::Refused { worker } | Observation::WorkerDown { worker, .. } => {
                self.begins_round[worker.index()] = true;
            }
            Observation::Batch { cell_type, .. } => {
                let cell_type = cell_type.index();
                self.since_ns[cell_type] = ledger.now_ns;
                self.is_unsure[cell_type] = false;
                self.ready[cell_type] = self.ready_run_of_any(ledger, cell_type);
            }
            Observation::Submitted { task } => {
                if !std::mem::take(&mut self.begins_round[task.worker.index()]) {
                    return Ok(());
                }
                let Some(bound_ns) = self.bound_ns(ledger) else { return Ok(()) };
                let overdue = (0..self.since_ns.len()).filter(|&ct| {
                    !self.is_unsure[ct]
                        && ledger.now_ns - self.since_ns[ct] > bound_ns
                        && ready_run(ledger, ct, task.worker).is_some()
                });
                let first = overdue.min_by_key(|&ct| (self.since_ns[ct], ct));
                let chosen = task.cell_type.index();
                if let Some(first) = first.filter(|&first| first != chosen)
                    && !self.is_unsure[chosen]
                {
                    let since_ns = self.since_ns[first];
                    let (first, chosen) = (CellTypeId(first as u32), task.cell_type);
                    return Err(format!("{chosen} runs, {first} has waited since {since_ns}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::harness::{self, Harness, ONE_LAYER, TWO_LAYERS, nodes};

    #[test]
    fn a_cell_type_that_waits_for_too_long_is_found() {
        for (now_ns, is_good) in [(10, true), (11, false)] {
            let fairness = Fairness { patience_ns: Some(10), ..Fairness::default() };
            let config = Config { fairness: Some(fairness), ..harness::config() };
            let mut harness = Harness::new(Patience::new(&config));
            harness.arrive(0, TWO_LAYERS);
            harness.arrive(1, ONE_LAYER);
            harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
            harness.complete(0).unwrap();
            // The second layer's first node is ready since 0.
            harness.refuse(0).unwrap();
            harness.advance(5);
            harness.task(0, 0, &[&[nodes(1, 0, 0)]]).unwrap();
            harness.refuse(0).unwrap();
            harness.advance(now_ns);
            assert_eq!(harness.task(0, 0, &[&[nodes(0, 0, 1)]]).is_ok(), is_good);
        }
    }
}
