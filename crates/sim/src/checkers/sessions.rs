//! The chunks of a session run one after the other, in the order in which they arrived; the end of a
//! session is reported once, as soon as no chunk of it is left.

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct Sessions;

impl Checker for Sessions {
    fn name(&self) -> &'static str {
        "sessions"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        match *seen {
            Observation::Batch { nodes, .. } => {
                for part in nodes {
                    if ledger.run_of(part).is_some_and(|(request, _)| request.is_waiting()) {
                        return Err(format!("{part:?} before the chunk before has ended"));
                    }
                }
                Ok(())
            }
            Observation::SessionEnded { session: id } => {
                let Some(session) = ledger.sessions.get(id) else {
                    return Err(format!("{id:?} ended, which is not open"));
                };
                let mut requests = ledger.requests.iter();
                let left = requests.find(|(_, request)| request.session == Some(id));
                match left {
                    Some((chunk, _)) => Err(format!("{id:?} ended before its {chunk:?}")),
                    None if !session.is_over() => Err(format!("{id:?} ended, unasked")),
                    None => Ok(()),
                }
            }
            Observation::Settled { .. } => {
                match ledger.sessions.iter().find(|(_, session)| session.is_over()) {
                    Some((id, _)) => Err(format!("{id:?} is over, unreported")),
                    None => Ok(()),
                }
            }
            Observation::Drained => match ledger.sessions.iter().next() {
                Some((id, _)) => Err(format!("{id:?} is left")),
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
    use crate::checkers::harness::{Harness, TWO_LAYERS, nodes};

    /// The first of two chunks runs.
    fn harness() -> Harness {
        let mut harness = Harness::new(Sessions);
        (0..2).for_each(|request| harness.arrive_in(0, request, TWO_LAYERS));
        harness.task(0, 0, &[&[nodes(0, 0, 0)]]).unwrap();
        harness
    }

    /// Both chunks are answered.
    fn harness_with_answered() -> Harness {
        let mut harness = harness();
        (0..2).for_each(|request| harness.finish(request, Outcome::Succeeded).unwrap());
        harness
    }

    #[test]
    fn a_chunk_before_its_turn_is_found() {
        let early = harness().task(0, 0, &[&[nodes(1, 0, 0)]]).unwrap_err();
        assert!(early.contains("before the chunk before has ended"), "{early}");
        let mut harness = harness();
        harness.finish(0, Outcome::Succeeded).unwrap();
        harness.task(0, 0, &[&[nodes(1, 0, 0)]]).unwrap();
    }

    #[test]
    fn an_end_too_early_unasked_or_reported_again_is_found() {
        let mut harness = harness();
        harness.end_session(0).unwrap();
        assert!(harness.session_ended(0).unwrap_err().contains("before its r0"));
        assert!(harness_with_answered().session_ended(0).unwrap_err().contains("unasked"));
        let mut harness = harness_with_answered();
        harness.end_session(0).unwrap();
        harness.session_ended(0).unwrap();
        assert!(harness.session_ended(0).unwrap_err().contains("not open"));
    }

    #[test]
    fn a_late_end_is_found() {
        let mut harness = harness_with_answered();
        harness.settled(0, &[0, 0]).unwrap();
        harness.end_session(0).unwrap();
        assert!(harness.settled(0, &[0, 0]).unwrap_err().contains("unreported"));
    }

    #[test]
    fn a_session_left_at_the_end_is_found() {
        assert!(harness_with_answered().drained().unwrap_err().contains("is left"));
    }
}
