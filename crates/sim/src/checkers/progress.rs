//! No worker that is up, with no more tasks unfinished than it may have when it is given a round, is
//! refused work while a node is ready for it, unless it lends its cores to the one request that there is.

use batchmaker_graph::WorkerId;
use batchmaker_manager::Config;

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct Progress {
    lookahead: usize,
}

impl Progress {
    pub(crate) fn new(config: &Config) -> Self {
        Self { lookahead: config.lookahead as usize }
    }

    /// Whether `worker` may lend its cores to the one request that there is, which runs elsewhere.
    fn may_lend(ledger: &Ledger, worker: WorkerId) -> bool {
        let mut workers = (0..).map(WorkerId).zip(&ledger.workers);
        let is_elsewhere = workers.any(|(id, other)| id != worker && !other.tasks.is_empty());
        is_elsewhere && ledger.may_be_for_one_worker()
    }
}

impl Checker for Progress {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        match *seen {
            Observation::Refused { worker } => {
                let state = &ledger.workers[worker.index()];
                if state.is_down || state.tasks.len() > self.lookahead {
                    return Ok(());
                }
                if Self::may_lend(ledger, worker) {
                    return Ok(());
                }
                for (place, &id) in ledger.open.iter().flatten() {
                    if ledger.requests[&id].ready(place.run, worker) > 0 {
                        return Err(format!("{worker} idles, {id:?} {:?} is ready", place.run));
                    }
                }
                Ok(())
            }
            Observation::Drained => match ledger.requests.keys().next() {
                Some(request) => Err(format!("{request:?} is left")),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_manager::Outcome;

    use super::*;
    use crate::checkers::harness::{self, Harness, TWO_LAYERS, nodes};

    fn progress() -> Progress {
        Progress::new(&harness::config())
    }

    #[test]
    fn idling_beside_ready_nodes_is_found() {
        let mut harness = Harness::new(progress());
        harness.refuse(0).unwrap();
        harness.arrive(0, TWO_LAYERS);
        assert!(harness.refuse(0).is_err());
    }

    #[test]
    fn a_busy_worker_and_one_from_whom_all_is_pinned_may_be_refused() {
        let mut harness = Harness::new(progress());
        harness.arrive(0, TWO_LAYERS);
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.refuse(0).unwrap();
        harness.refuse(1).unwrap();
        harness.complete(0).unwrap();
        assert!(harness.refuse(1).is_err(), "the second layer's first node is ready");
    }

    #[test]
    fn a_worker_with_few_tasks_is_not_refused() {
        let mut harness = Harness::new(Progress { lookahead: 1 });
        harness.arrive(0, TWO_LAYERS);
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        assert!(harness.refuse(0).is_err(), "the next node is ready for it");
        harness.refuse(1).unwrap();
        harness.task(0, 0, &[&[nodes(0, 0, 1)]]).unwrap();
        harness.refuse(0).unwrap();
    }

    #[test]
    fn a_worker_lends_its_cores_to_a_request_that_is_alone() {
        let mut config = harness::config();
        config.cell_types[0].workers_of_a_row = 2;
        let mut harness = Harness::of(&config, Progress::new(&config));
        harness.arrive(0, TWO_LAYERS);
        assert!(harness.refuse(1).is_err(), "it does not run yet");
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.complete(0).unwrap();
        harness.task(0, 0, &[&[nodes(0, 0, 1)]]).unwrap();
        harness.refuse(1).unwrap();
        harness.arrive(1, TWO_LAYERS);
        assert!(harness.refuse(1).is_err());
    }

    #[test]
    fn a_chunk_that_waits_is_not_ready_and_one_whose_turn_it_is_is() {
        let mut harness = Harness::new(progress());
        (0..2).for_each(|request| harness.arrive_in(0, request, TWO_LAYERS));
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.refuse(1).unwrap();
        harness.complete(0).unwrap();
        harness.finish(0, Outcome::Succeeded).unwrap();
        assert!(harness.refuse(1).is_err());
    }

    #[test]
    fn a_request_left_at_the_end_is_found() {
        let mut harness = Harness::new(progress());
        harness.drained().unwrap();
        harness.arrive(0, TWO_LAYERS);
        assert!(harness.drained().is_err());
    }
}
