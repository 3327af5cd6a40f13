//! Every request is answered exactly once, as soon as nothing of it is left to wait for (or with its
//! batch), and with the right outcome: that of its first cancellation or fault, else success.

use batchmaker_manager::Outcome;

use crate::checkers::checker::{Checker, Ends};
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct Answers(Ends);

impl Answers {
    pub(crate) fn new(ends: Ends) -> Self {
        Self(ends)
    }
}

impl Checker for Answers {
    fn name(&self) -> &'static str {
        "answers"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        match *seen {
            Observation::Finished { finished } => {
                let id = finished.request;
                let Some(request) = ledger.requests.get(&id) else {
                    return Err(format!("{finished:?}, which is not in flight"));
                };
                let expected = request.given_up.clone().unwrap_or(Outcome::Succeeded);
                // Whether it could have been met is another checker's question.
                let is_refused = finished.outcome == Outcome::Unmeetable
                    && request.given_up.is_none()
                    && request.deadline_ns.is_some()
                    && finished.total_ns == 0;
                if !is_refused && finished.outcome != expected {
                    return Err(format!("{id:?} {:?}, expected {expected:?}", finished.outcome));
                }
                if request.in_flight > 0 {
                    return Err(format!("{finished:?} with {} runs in flight", request.in_flight));
                }
                if finished.queue_ns > finished.total_ns {
                    return Err(format!("{finished:?} waited longer than it took"));
                }
                Ok(())
            }
            Observation::Settled { requests, .. } => {
                let owing = ledger.requests.iter().find(|(_, request)| request.is_over());
                // A batch that is still running may hold it.
                let is_running = ledger.workers.iter().any(|worker| !worker.tasks.is_empty());
                let is_held = self.0 == Ends::WithItsBatch && is_running;
                if let (Some((id, request)), false) = (owing, is_held) {
                    return Err(format!("{id:?} is over, {:?}, unanswered", request.given_up));
                }
                if requests != ledger.requests.len() {
                    let known = ledger.requests.len();
                    return Err(format!("{requests} requests counted, {known} are in flight"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_manager::{Failure, StatePlacement};

    use super::*;
    use crate::checkers::harness::{self, Harness, TWO_LAYERS, in_slot, nodes};

    fn harness() -> Harness {
        let mut harness = Harness::new(Answers::new(Ends::Alone));
        harness.arrive(0, TWO_LAYERS);
        harness
    }

    #[test]
    fn a_second_answer_is_found() {
        let mut harness = harness();
        harness.cancel(0).unwrap();
        harness.finish(0, Outcome::Cancelled).unwrap();
        assert!(harness.finish(0, Outcome::Cancelled).unwrap_err().contains("not in flight"));
    }

    #[test]
    fn success_after_a_cancellation_is_found() {
        let mut harness = harness();
        harness.cancel(0).unwrap();
        assert!(harness.finish(0, Outcome::Succeeded).unwrap_err().contains("expected Cancelled"));
    }

    #[test]
    fn failure_without_a_fault_is_found() {
        let failed = |reason: &str| Outcome::Failed(Failure::Task(reason.into()));
        assert!(harness().finish(0, failed(harness::REASON)).is_err());
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.fail(0).unwrap();
        assert!(harness.finish(0, failed("another reason")).is_err());
        harness.finish(0, failed(harness::REASON)).unwrap();
    }

    #[test]
    fn a_late_answer_is_found() {
        let mut harness = harness();
        harness.settled(1, &[0, 0]).unwrap();
        harness.cancel(0).unwrap();
        assert!(harness.settled(1, &[0, 0]).unwrap_err().contains("unanswered"));
    }

    #[test]
    fn an_answer_while_in_flight_is_found() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.cancel(0).unwrap();
        harness.settled(1, &[1, 0]).unwrap();
        assert!(harness.finish(0, Outcome::Cancelled).unwrap_err().contains("in flight"));
    }

    #[test]
    fn a_lost_worker_fails_whom_it_ran() {
        let mut harness = harness();
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness.worker_down(0).unwrap();
        assert!(harness.finish(0, Outcome::Succeeded).is_err());
    }

    /// The first of three chunks runs.
    fn harness_with_chunks() -> Harness {
        let mut harness =
            Harness::with_states(StatePlacement::PerWorker, Answers::new(Ends::Alone));
        (0..3).for_each(|request| harness.arrive_in(0, request, TWO_LAYERS));
        harness.task(0, 0, &[&[in_slot(nodes(0, 0, 0), 5, 0)]]).unwrap();
        harness
    }

    const LOST: Outcome = Outcome::Failed(Failure::SessionLost);

    #[test]
    fn chunks_after_one_given_up_are_lost_when_it_has_ended() {
        assert!(harness_with_chunks().finish(1, LOST).is_err(), "nothing was given up");
        let mut harness = harness_with_chunks();
        harness.cancel(0).unwrap();
        harness.settled(3, &[1, 0]).unwrap();
        assert!(harness.finish(1, LOST).is_err(), "before the one that was given up");
        let mut harness = harness_with_chunks();
        harness.cancel(0).unwrap();
        harness.complete(0).unwrap();
        harness.finish(0, Outcome::Cancelled).unwrap();
        assert!(harness.settled(2, &[0, 0]).unwrap_err().contains("unanswered"));
        (1..3).for_each(|request| harness.finish(request, LOST).unwrap());
        harness.settled(0, &[0, 0]).unwrap();
        harness.arrive_in(0, 3, TWO_LAYERS);
        assert!(harness.settled(1, &[0, 0]).unwrap_err().contains("unanswered"));
        harness.finish(3, LOST).unwrap();
    }

    #[test]
    fn a_chunk_cancelled_before_its_turn_ends_at_once_and_breaks_its_session() {
        let mut harness = harness_with_chunks();
        harness.cancel(1).unwrap();
        assert!(harness.settled(3, &[1, 0]).unwrap_err().contains("unanswered"));
        harness.finish(1, Outcome::Cancelled).unwrap();
        assert!(harness.settled(2, &[1, 0]).unwrap_err().contains("unanswered"));
        harness.finish(2, LOST).unwrap();
        harness.settled(1, &[1, 0]).unwrap();
        assert!(harness.finish(0, LOST).is_err(), "it runs on");
    }

    #[test]
    fn a_chunk_is_lost_with_the_worker_that_kept_its_state() {
        for worker in [0, 1] {
            let mut harness = harness_with_chunks();
            (1..3).for_each(|step| {
                harness.complete(0).unwrap();
                harness.task(0, 0, &[&[in_slot(nodes(0, 0, step), 5, 0)]]).unwrap();
            });
            harness.complete(0).unwrap();
            harness.finish(0, Outcome::Succeeded).unwrap();
            harness.worker_down(worker).unwrap();
            let is_lost = harness
                .finish(1, Outcome::Failed(Failure::WorkerLost(harness::REASON.into())))
                .is_ok();
            assert_eq!(is_lost, worker == 0);
        }
    }

    #[test]
    fn a_wrong_count_is_found() {
        assert!(harness().settled(2, &[0, 0]).unwrap_err().contains("counted"));
    }
}
