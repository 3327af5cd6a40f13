//! Patience: where a cell type that has ready nodes for the worker got no batch for longer than it must
//! wait, the round runs such a type, the one that has waited longest. Rounds of a model whose turn it is
//! are left out.

use batchmaker_graph::{CellTypeId, RunIndex, WorkerId};
use batchmaker_manager::{Config, Fairness};

use crate::checkers::checker::Checker;
use crate::ledger::{Ledger, Request};
use crate::observation::Observation;

pub(crate) struct Patience {
    /// None where models have shares.
    fairness: Option<Fairness>,
    /// When each cell type had its last batch or, if that is later, came to have ready nodes.
    since_ns: Vec<u64>,
    has_ready_nodes: Vec<bool>,
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
            has_ready_nodes: vec![false; cell_types],
            last_ns: 0,
            begins_round: vec![true; usize::from(config.workers)],
        }
    }

    /// The patience of now; none: without bound.
    fn bound_ns(&self, ledger: &Ledger) -> Option<u64> {
        let fairness = self.fairness.as_ref()?;
        let has_large = || ledger.requests.values().any(Request::is_large);
        let of_large = fairness.large_patience_ns.filter(|_| has_large());
        fairness.patience_ns.into_iter().chain(of_large).min()
    }

    /// Enters which cell types have ready nodes after the observation before.
    fn note_ready_nodes(&mut self, ledger: &Ledger) {
        for cell_type in 0..self.since_ns.len() {
            let mut workers = (0..self.begins_round.len() as u32).map(WorkerId);
            let is_ready = workers.any(|worker| has_ready_node(ledger, cell_type, worker));
            if is_ready && !self.has_ready_nodes[cell_type] {
                self.since_ns[cell_type] = self.last_ns;
            }
            self.has_ready_nodes[cell_type] = is_ready;
        }
        self.last_ns = ledger.now_ns;
    }
}

fn has_ready_node(ledger: &Ledger, cell_type: usize, worker: WorkerId) -> bool {
    let is_ready = |run: RunIndex, id| ledger.requests[id].ready(run, worker) > 0;
    ledger.open[cell_type].iter().any(|(place, id)| is_ready(place.run, id))
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
                self.since_ns[cell_type.index()] = ledger.now_ns;
                self.has_ready_nodes[cell_type.index()] = true;
            }
            Observation::Submitted { task } => {
                if !std::mem::take(&mut self.begins_round[task.worker.index()]) {
                    return Ok(());
                }
                let Some(bound_ns) = self.bound_ns(ledger) else { return Ok(()) };
                let overdue = (0..self.since_ns.len()).filter(|&ct| {
                    ledger.now_ns - self.since_ns[ct] > bound_ns
                        && has_ready_node(ledger, ct, task.worker)
                });
                let first = overdue.min_by_key(|&ct| (self.since_ns[ct], ct));
                if let Some(first) = first.filter(|&first| first != task.cell_type.index()) {
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
