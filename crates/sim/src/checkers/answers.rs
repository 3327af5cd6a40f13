//! Every request is answered exactly once, at once when nothing of it is left to wait for (or
//! with its batch), and with the outcome that it had coming: the first cancellation or fault that met it, else
//! success.

use batchmaker_manager::Outcome;

use super::{Checker, Ends};
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
                if finished.outcome != expected {
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
                // A batch that is still running may be its own.
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
    use crate::checkers::stage::{self, Stage, TWO_LAYERS, in_slot, nodes};

    fn stage() -> Stage {
        let mut stage = Stage::new(Answers::new(Ends::Alone));
        stage.arrive(0, TWO_LAYERS);
        stage
    }

    #[test]
    fn a_second_answer_is_found() {
        let mut stage = stage();
        stage.cancel(0).unwrap();
        stage.finish(0, Outcome::Cancelled).unwrap();
        assert!(stage.finish(0, Outcome::Cancelled).unwrap_err().contains("not in flight"));
    }

    #[test]
    fn success_after_a_cancellation_is_found() {
        let mut stage = stage();
        stage.cancel(0).unwrap();
        assert!(stage.finish(0, Outcome::Succeeded).unwrap_err().contains("expected Cancelled"));
    }

    #[test]
    fn failure_without_a_fault_is_found() {
        let failed = |reason: &str| Outcome::Failed(Failure::Task(reason.into()));
        assert!(stage().finish(0, failed(stage::REASON)).is_err());
        let mut stage = stage();
        stage.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        stage.fail(0).unwrap();
        assert!(stage.finish(0, failed("another reason")).is_err());
        stage.finish(0, failed(stage::REASON)).unwrap();
    }

    #[test]
    fn a_late_answer_is_found() {
        let mut stage = stage();
        stage.settled(1, &[0, 0]).unwrap();
        stage.cancel(0).unwrap();
        assert!(stage.settled(1, &[0, 0]).unwrap_err().contains("unanswered"));
    }

    #[test]
    fn an_answer_while_in_flight_is_found() {
        let mut stage = stage();
        stage.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        stage.cancel(0).unwrap();
        stage.settled(1, &[1, 0]).unwrap();
        assert!(stage.finish(0, Outcome::Cancelled).unwrap_err().contains("in flight"));
    }

    #[test]
    fn a_lost_worker_fails_whom_it_ran() {
        let mut stage = stage();
        stage.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        stage.worker_down(0).unwrap();
        assert!(stage.finish(0, Outcome::Succeeded).is_err());
    }

    /// The first of three chunks runs.
    fn stage_of_chunks() -> Stage {
        let mut stage = Stage::with_states(StatePlacement::PerWorker, Answers::new(Ends::Alone));
        (0..3).for_each(|request| stage.arrive_in(0, request, TWO_LAYERS));
        stage.task(0, 0, &[&[in_slot(nodes(0, 0, 0), 5, 0)]]).unwrap();
        stage
    }

    const LOST: Outcome = Outcome::Failed(Failure::SessionLost);

    #[test]
    fn chunks_after_one_given_up_are_lost_when_it_has_ended() {
        assert!(stage_of_chunks().finish(1, LOST).is_err(), "nothing was given up");
        let mut stage = stage_of_chunks();
        stage.cancel(0).unwrap();
        stage.settled(3, &[1, 0]).unwrap();
        assert!(stage.finish(1, LOST).is_err(), "before the one that was given up");
        let mut stage = stage_of_chunks();
        stage.cancel(0).unwrap();
        stage.complete(0).unwrap();
        stage.finish(0, Outcome::Cancelled).unwrap();
        assert!(stage.settled(2, &[0, 0]).unwrap_err().contains("unanswered"));
        (1..3).for_each(|request| stage.finish(request, LOST).unwrap());
        stage.settled(0, &[0, 0]).unwrap();
        stage.arrive_in(0, 3, TWO_LAYERS);
        assert!(stage.settled(1, &[0, 0]).unwrap_err().contains("unanswered"));
        stage.finish(3, LOST).unwrap();
    }

    #[test]
    fn a_piece_cancelled_before_its_turn_ends_at_once_and_breaks_its_session() {
        let mut stage = stage_of_chunks();
        stage.cancel(1).unwrap();
        assert!(stage.settled(3, &[1, 0]).unwrap_err().contains("unanswered"));
        stage.finish(1, Outcome::Cancelled).unwrap();
        assert!(stage.settled(2, &[1, 0]).unwrap_err().contains("unanswered"));
        stage.finish(2, LOST).unwrap();
        stage.settled(1, &[1, 0]).unwrap();
        assert!(stage.finish(0, LOST).is_err(), "it runs on");
    }

    #[test]
    fn a_piece_is_lost_with_the_worker_that_kept_its_state() {
        for worker in [0, 1] {
            let mut stage = stage_of_chunks();
            (1..3).for_each(|step| {
                stage.complete(0).unwrap();
                stage.task(0, 0, &[&[in_slot(nodes(0, 0, step), 5, 0)]]).unwrap();
            });
            stage.complete(0).unwrap();
            stage.finish(0, Outcome::Succeeded).unwrap();
            stage.worker_down(worker).unwrap();
            let is_lost =
                stage.finish(1, Outcome::Failed(Failure::WorkerLost(stage::REASON.into()))).is_ok();
            assert_eq!(is_lost, worker == 0);
        }
    }

    #[test]
    fn a_wrong_count_is_found() {
        assert!(stage().settled(2, &[0, 0]).unwrap_err().contains("counted"));
    }
}
