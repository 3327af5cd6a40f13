//! Deadlines: no request is served past its deadline, and the manager asks to be woken for the earliest
//! one of a request in flight; a policy that lets requests wait for others, perhaps earlier. That a request is answered at its deadline follows from `answers`.

use batchmaker_manager::{Config, Outcome};

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct Deadlines {
    may_wake_earlier: bool,
}

impl Deadlines {
    pub(crate) fn new(config: &Config) -> Self {
        Self { may_wake_earlier: config.has_stages() }
    }
}

impl Checker for Deadlines {
    fn name(&self) -> &'static str {
        "deadlines"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        let now_ns = ledger.clock_ns;
        match *seen {
            Observation::Finished { finished } if finished.outcome == Outcome::Succeeded => {
                let request = ledger.requests.get(&finished.request);
                let deadline_ns = request.and_then(|request| request.deadline_ns);
                if deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns) {
                    return Err(format!("{finished:?} at {now_ns}, due by {deadline_ns:?}"));
                }
                Ok(())
            }
            Observation::Settled { deadline_ns, .. } => {
                let known_ns = ledger.first_deadline().map(|(deadline_ns, _)| deadline_ns);
                let is_earlier = deadline_ns.is_some_and(|deadline_ns| {
                    known_ns.is_none_or(|known_ns| deadline_ns < known_ns)
                });
                if deadline_ns != known_ns && !(self.may_wake_earlier && is_earlier) {
                    return Err(format!("the next deadline is {deadline_ns:?}, not {known_ns:?}"));
                }
                if known_ns.is_some_and(|deadline_ns| deadline_ns < now_ns) {
                    return Err(format!("a deadline was reached by {now_ns}: {known_ns:?}"));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::harness::{self, Harness, TWO_LAYERS};

    fn harness() -> Harness {
        let mut harness = Harness::new(Deadlines::new(&harness::config()));
        harness.arrive_until(0, TWO_LAYERS, 10);
        harness
    }

    #[test]
    fn success_past_the_deadline_is_found() {
        let mut harness = harness();
        harness.advance(10);
        assert!(harness.finish(0, Outcome::Succeeded).is_err());
        harness.finish(0, Outcome::TimedOut).unwrap();
    }

    #[test]
    fn a_wrong_next_deadline_is_found() {
        let settled = |deadline_ns| harness().settled_until(1, deadline_ns);
        settled(Some(10)).unwrap();
        assert!(settled(Some(11)).is_err());
        assert!(settled(None).is_err());
    }
}
