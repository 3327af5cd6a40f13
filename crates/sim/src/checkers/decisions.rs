//! A node with a guard runs once the decision has fallen for it, and never where it fell otherwise, or where the run that was to decide
//! is left out.

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::Observation;

pub(crate) struct Decisions;

impl Checker for Decisions {
    fn name(&self) -> &'static str {
        "decisions"
    }

    fn check(&mut self, ledger: &Ledger, seen: &Observation<'_>) -> Result<(), String> {
        let Observation::Batch { nodes, .. } = seen else { return Ok(()) };
        let is_early = |part: &&crate::observation::Nodes| {
            let request = ledger.requests.get(&part.request);
            request.is_some_and(|request| !request.is_needed(part.run))
        };
        match nodes.iter().find(is_early) {
            Some(part) => Err(format!("{part:?} was submitted, and no decision needs it")),
            None => Ok(()),
        }
    }
}
