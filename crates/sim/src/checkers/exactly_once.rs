//! A node is submitted at most once, in its run's order, while its request is wanted; exactly
//! once if the request succeeds.

use batchmaker_manager::Outcome;

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct ExactlyOnce;

impl Checker for ExactlyOnce {
    fn name(&self) -> &'static str {
        "exactly once"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        match seen {
            Observation::Batch { nodes, .. } => {
                for (position, part) in nodes.iter().enumerate() {
                    let Some((request, run)) = ledger.run_of(part) else {
                        return Err(format!("{part:?} of a request that is not in flight"));
                    };
                    if let Some(outcome) = &request.given_up {
                        return Err(format!("{part:?} of a request that is {outcome:?}"));
                    }
                    let expected = run.submitted;
                    if part.first != expected {
                        return Err(format!("{part:?} where node {expected} is the next"));
                    }
                    let length = request.run(part.run).length;
                    if part.first + part.count > length {
                        return Err(format!("{part:?} of a run of {length}"));
                    }
                    let others = &nodes[..position];
                    if others
                        .iter()
                        .any(|other| (other.request, other.run) == (part.request, part.run))
                    {
                        return Err(format!("{part:?} is in the batch twice"));
                    }
                }
                Ok(())
            }
            Observation::Finished { finished } if finished.outcome == Outcome::Succeeded => {
                let request = ledger.requests.get(&finished.request);
                match request.map_or(0, |request| request.unfinished) {
                    0 => Ok(()),
                    runs => Err(format!("{:?} succeeded with {runs} runs to go", finished.request)),
                }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::harness::{Harness, TWO_LAYERS, nodes};

    fn harness() -> Harness {
        let mut harness = Harness::new(ExactlyOnce);
        harness.arrive(0, TWO_LAYERS);
        harness
    }

    #[test]
    fn a_run_in_order_passes() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)], &[nodes(0, 0, 1)]]).unwrap();
        harness.complete(0).unwrap();
    }

    #[test]
    fn a_node_again_is_found() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        let again = harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap_err();
        assert!(again.contains("node 1 is the next"), "{again}");
    }

    #[test]
    fn a_node_twice_in_a_batch_is_found() {
        assert!(harness().task(0, 0, &[&[nodes(0, 0, 0), nodes(0, 0, 0)]]).is_err());
    }

    #[test]
    fn nodes_of_strangers_and_of_those_given_up_are_found() {
        assert!(harness().task(0, 0, &[&[nodes(1, 0, 0)]]).is_err());
        let mut harness = harness();
        harness.cancel(0).unwrap();
        assert!(harness.task(0, 0, &[&[nodes(0, 0, 0)]]).is_err());
    }

    #[test]
    fn success_with_nodes_to_go_is_found() {
        let mut harness = harness();
        assert!(harness.finish(0, Outcome::Succeeded).is_err());
    }
}
