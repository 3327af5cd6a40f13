//! `FormBatchedTask` of Algorithm 1: a batch holds the first ready nodes of its type that the
//! worker may run, in the order of the queue (priority, arrival, run), as many as fit. A chunk of a
//! session takes its place in the queue when the chunk before has ended. A chain without a slot has
//! no ready node.

use batchmaker_graph::{CellTypeId, RequestId, RunIndex, WorkerId};
use batchmaker_manager::{CellTypeConfig, Config};

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::{Nodes, Observation};

pub(crate) struct QueueOrder {
    cell_types: Vec<CellTypeConfig>,
    limits: Vec<u32>,
}

impl QueueOrder {
    pub(crate) fn new(config: &Config) -> Self {
        let limits = config.cell_types.iter().map(|cell| cell.batch_sizes.max).collect();
        Self { cell_types: config.cell_types.clone(), limits }
    }

    fn expected(
        &self,
        ledger: &Ledger,
        cell_type: CellTypeId,
        worker: WorkerId,
    ) -> Vec<(RequestId, RunIndex, u32)> {
        let mut room = self.limits[cell_type.index()];
        let mut batch = Vec::new();
        for (place, &id) in &ledger.open[cell_type.index()] {
            if room == 0 {
                break;
            }
            let count = ledger.requests[&id].ready(place.run, worker).min(room);
            if count > 0 {
                room -= count;
                batch.push((id, place.run, count));
            }
        }
        batch.sort_unstable();
        batch
    }
}

impl Checker for QueueOrder {
    fn name(&self) -> &'static str {
        "queue order"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        if let Observation::Limits { batch_max } = seen {
            let limits = self.cell_types.iter().zip(*batch_max);
            let limits = limits.map(|(cell, &max)| max.min(cell.rows_max.unwrap_or(max)));
            self.limits = limits.collect();
        }
        let &Observation::Batch { worker, cell_type, nodes, .. } = seen else { return Ok(()) };
        let part = |part: &Nodes| (part.request, part.run, part.count);
        let mut batch: Vec<_> = nodes.iter().map(part).collect();
        batch.sort_unstable();
        let expected = self.expected(ledger, cell_type, worker);
        if batch != expected {
            return Err(format!("{batch:?} of {cell_type} for {worker}, expected {expected:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_manager::Outcome;

    use super::*;
    use crate::checkers::harness::{self, Harness, TWO_LAYERS, nodes};

    fn harness() -> Harness {
        let mut harness = Harness::new(QueueOrder::new(&harness::config()));
        (0..4).for_each(|request| harness.arrive(request, TWO_LAYERS));
        harness
    }

    #[test]
    fn the_first_ready_nodes_pass() {
        let three: Vec<_> = (0..3).map(|request| nodes(request, 0, 0)).collect();
        harness().task(0, 0, &[&three]).unwrap();
    }

    #[test]
    fn overtaking_and_leaving_room_are_found() {
        let overtaking: Vec<_> = (1..4).map(|request| nodes(request, 0, 0)).collect();
        assert!(harness().task(0, 0, &[&overtaking]).is_err());
        assert!(harness().task(0, 0, &[&[nodes(0, 0, 0), nodes(1, 0, 0)]]).is_err());
    }

    #[test]
    fn a_chunk_takes_its_place_when_it_starts() {
        let mut harness = Harness::new(QueueOrder::new(&harness::config()));
        (0..2).for_each(|request| harness.arrive_in(0, request, TWO_LAYERS));
        (2..5).for_each(|request| harness.arrive(request, TWO_LAYERS));
        harness.finish(0, Outcome::Succeeded).unwrap();
        let overtaking: Vec<_> = (1..4).map(|request| nodes(request, 0, 0)).collect();
        assert!(harness.task(0, 0, &[&overtaking]).is_err());
        let others: Vec<_> = (2..5).map(|request| nodes(request, 0, 0)).collect();
        harness.task(1, 0, &[&others]).unwrap();
        harness.task(0, 0, &[&[nodes(1, 0, 0)]]).unwrap();
    }

    #[test]
    fn a_higher_priority_goes_first() {
        let mut harness = harness();
        harness.arrive_with(4, TWO_LAYERS, 1);
        let batch = [nodes(0, 0, 0), nodes(1, 0, 0), nodes(4, 0, 0)];
        harness.task(0, 0, &[&batch]).unwrap();
    }
}
