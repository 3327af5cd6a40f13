//! `FormBatchedTask` of Algorithm 1: a batch holds the first ready nodes of its type that the
//! worker may run, in the order of the queue (priority, arrival, run), as many as fit. A chunk of a
//! session takes its place in the queue when the chunk before has ended. A chain without a slot has
//! no ready node.
//!
//! Where models have shares and several use the type, this holds for the nodes of each, and the seats of
//! the batch are dealt by the weights: none has more, for its weight, than another one that has nodes
//! left would have with one more.

use std::collections::BTreeMap;

use batchmaker_graph::{CellTypeId, ModelId, RequestId, RunIndex, WorkerId};
use batchmaker_manager::{CellTypeConfig, Config};

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::{Nodes, Observation};

pub(crate) struct QueueOrder {
    cell_types: Vec<CellTypeConfig>,
    weights: Option<Vec<u32>>,
    models: BTreeMap<RequestId, ModelId>,
}

impl QueueOrder {
    pub(crate) fn new(config: &Config) -> Self {
        let fairness = config.fairness.as_ref();
        let weights = fairness.and_then(|fairness| fairness.shares.clone());
        Self { cell_types: config.cell_types.clone(), weights, models: BTreeMap::new() }
    }

    /// The first `room` nodes of the type, of one model or of all.
    fn expected(
        &self,
        ledger: &Ledger,
        (cell_type, model): (CellTypeId, Option<ModelId>),
        worker: WorkerId,
        mut room: u32,
    ) -> Vec<(RequestId, RunIndex, u32)> {
        let mut batch = Vec::new();
        for (place, &id) in &ledger.open[cell_type.index()] {
            if room == 0 {
                break;
            }
            if model.is_some_and(|model| self.models.get(&id) != Some(&model)) {
                continue;
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
        if let Observation::Arrived { request, model, .. } = *seen {
            self.models.insert(request, model);
        }
        let &Observation::Batch { worker, cell_type, nodes, .. } = seen else { return Ok(()) };
        let part = |part: &Nodes| (part.request, part.run, part.count);
        let mut batch: Vec<_> = nodes.iter().map(part).collect();
        batch.sort_unstable();
        let limit = ledger.batch_max[cell_type.index()];
        let expected = match &self.weights {
            Some(weights) if self.cell_types[cell_type.index()].priorities.len() > 1 => {
                self.check_seats(ledger, cell_type, worker, weights, &batch)?
            }
            _ => self.expected(ledger, (cell_type, None), worker, limit),
        };
        if batch != expected {
            return Err(format!("{batch:?} of {cell_type} for {worker}, expected {expected:?}"));
        }
        Ok(())
    }
}

impl QueueOrder {
    /// Checks how many nodes of each model a batch has, and returns those that it should have.
    fn check_seats(
        &self,
        ledger: &Ledger,
        cell_type: CellTypeId,
        worker: WorkerId,
        weights: &[u32],
        batch: &[(RequestId, RunIndex, u32)],
    ) -> Result<Vec<(RequestId, RunIndex, u32)>, String> {
        let count =
            |nodes: &[(RequestId, RunIndex, u32)]| nodes.iter().map(|part| part.2).sum::<u32>();
        let mut models = Vec::new();
        let mut expected = Vec::new();
        for rank in &self.cell_types[cell_type.index()].priorities {
            let is_own = |part: &&(RequestId, _, _)| self.models.get(&part.0) == Some(&rank.model);
            let seats = count(&batch.iter().filter(is_own).copied().collect::<Vec<_>>());
            let own = (cell_type, Some(rank.model));
            let has_more = count(&self.expected(ledger, own, worker, seats + 1)) > seats;
            expected.extend(self.expected(ledger, own, worker, seats));
            let weight = weights.get(rank.model.index()).copied().unwrap_or(1);
            models.push((rank.model, u64::from(seats), u64::from(weight), has_more));
        }
        let limit = ledger.batch_max[cell_type.index()];
        for &(more, seats, weight, _) in &models {
            for &(less, of_less, weight_of_less, _) in models.iter().filter(|model| model.3) {
                if count(batch) < limit
                    || (seats > 0 && (seats - 1) * weight_of_less > of_less * weight)
                {
                    let seats = format!("{more} has {seats} seats and {less} {of_less}");
                    return Err(format!(
                        "{seats} of {limit} in a batch of {cell_type} for {worker}"
                    ));
                }
            }
        }
        expected.sort_unstable();
        Ok(expected)
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
