//! A subgraph with nodes in flight on one worker is given to no other (section 4.3 of the
//! BatchMaker paper).

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct Pinning;

impl Checker for Pinning {
    fn name(&self) -> &'static str {
        "pinning"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        let Observation::Batch { worker, nodes, .. } = seen else { return Ok(()) };
        for part in *nodes {
            let flights = ledger.run_of(part).map(|(_, run)| &run.flights);
            let elsewhere = flights.into_iter().flatten().find(|flight| flight.worker != *worker);
            if let Some(flight) = elsewhere {
                return Err(format!("{part:?} on {worker}, pinned to {}", flight.worker));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::harness::{Harness, TWO_LAYERS, nodes};

    #[test]
    fn a_pinned_subgraph_elsewhere_is_found() {
        let mut harness = Harness::new(Pinning);
        harness.arrive(0, TWO_LAYERS);
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        let elsewhere = harness.task(1, 0, &[&[nodes(0, 0, 1)]]).unwrap_err();
        assert!(elsewhere.contains("pinned to w0"), "{elsewhere}");
    }

    #[test]
    fn once_complete_it_may_move() {
        let mut harness = Harness::new(Pinning);
        harness.arrive(0, TWO_LAYERS);
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.complete(0).unwrap();
        harness.task(1, 0, &[&[nodes(0, 0, 1)]]).unwrap();
    }
}
