//! Waits: where clients send one request after the other, so that there is always work, no small request
//! waits for ever. Once it is so old that it goes before all priorities, a few times as many nodes of its
//! model are served before it ends as the model had in flight at most: whoever starves waits until the other
//! clients are done.
//!
//! It knows no time: what other models are served is the concern of `shares`.

use std::collections::BTreeMap;

use batchmaker_graph::{ModelId, RequestId};
use batchmaker_manager::Config;

use crate::checkers::checker::Checker;
use crate::ledger::{Ledger, Request};
use crate::observation::Observation;

/// The most nodes that are served before an old request ends, in nodes in flight.
const TURNS: u64 = 4;

pub(crate) struct Waits {
    /// None where requests do not age.
    aging_ns: Option<u64>,
    models: BTreeMap<ModelId, Nodes>,
    requests: BTreeMap<RequestId, Waiting>,
}

/// The nodes of a model.
#[derive(Default)]
struct Nodes {
    served: u64,
    in_flight: u64,
    in_flight_max: u64,
}

struct Waiting {
    old_from_ns: u64,
    /// The nodes of the model that were served before it was old.
    served_before: u64,
}

impl Waits {
    pub(crate) fn new(config: &Config) -> Self {
        let aging_ns = config.fairness.as_ref().and_then(|fairness| fairness.aging_ns);
        Self { aging_ns, models: BTreeMap::new(), requests: BTreeMap::new() }
    }
}

impl Checker for Waits {
    fn name(&self) -> &'static str {
        "waits"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        let Some(aging_ns) = self.aging_ns else { return Ok(()) };
        match *seen {
            Observation::Arrived { request, model, graph, .. } => {
                let of_model = self.models.entry(model).or_default();
                of_model.in_flight += graph.nodes();
                of_model.in_flight_max = of_model.in_flight_max.max(of_model.in_flight);
                let old_from_ns = ledger.now_ns + aging_ns;
                let waiting = Waiting { old_from_ns, served_before: of_model.served };
                self.requests.insert(request, waiting);
            }
            Observation::Batch { nodes, .. } => {
                for part in nodes {
                    if let Some(request) = ledger.requests.get(&part.request) {
                        let of_model = self.models.entry(request.model).or_default();
                        of_model.served += u64::from(part.count);
                    }
                }
            }
            Observation::Finished { finished } => {
                self.requests.remove(&finished.request);
                if let Some(Request { model, graph, .. }) = ledger.requests.get(&finished.request) {
                    self.models.entry(*model).or_default().in_flight -= graph.nodes();
                }
            }
            Observation::Settled { .. } | Observation::Drained => {
                for (id, waiting) in &mut self.requests {
                    let Some(request) = ledger.requests.get(id) else { continue };
                    let of_model = &self.models[&request.model];
                    if ledger.now_ns <= waiting.old_from_ns || request.is_large() {
                        waiting.served_before = of_model.served;
                        continue;
                    }
                    let served = of_model.served - waiting.served_before;
                    if served > TURNS * of_model.in_flight_max {
                        let nodes = format!("{served} nodes of {} were served", request.model);
                        return Err(format!(
                            "{id:?} is old, {nodes}, {} in flight at most",
                            of_model.in_flight_max
                        ));
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_manager::{Fairness, Outcome};

    use super::*;
    use crate::checkers::harness::{self, Harness, ONE_LAYER, nodes};

    #[test]
    fn a_request_that_starves_is_found() {
        let fairness = Fairness { aging_ns: Some(10), ..Fairness::default() };
        let config = Config { fairness: Some(fairness), ..harness::config() };
        let mut harness = Harness::new(Waits::new(&config));
        harness.arrive(0, ONE_LAYER);
        // Two requests of three nodes are in flight, and 10 ns are those of ten of the others.
        let found = (1..40).find(|&request| {
            harness.arrive(request, ONE_LAYER);
            for step in 0..3 {
                harness.task(0, 0, &[&[nodes(request, 0, step)]]).unwrap();
                harness.complete(0).unwrap();
            }
            harness.finish(request, Outcome::Succeeded).unwrap();
            harness.advance(u64::from(request));
            harness.settled(1, &[]).is_err()
        });
        assert_eq!(found, Some(10 + 4 * 2 + 1));
    }
}
