//! The ids of requests: which are in flight, which are free, and which a cancellation names.

use std::collections::BTreeMap;

use batchmaker_graph::RequestId;

use crate::ledger::{Ledger, Request};
use crate::rng::Rng;
use crate::scenario::Target;

/// The requests that were admitted, and the ids of those to come.
#[derive(Debug, Default)]
pub(super) struct Clients {
    admitted: BTreeMap<RequestId, Admitted>,
    /// Ids whose index a request has left, with the generation that comes next.
    free: Vec<RequestId>,
    /// The number of indices that ids have had.
    indices: u32,
    finished: Vec<RequestId>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    pub(super) at_ns: u64,
    /// The number that the rows of its inputs are drawn from.
    pub(super) salt: u64,
}

impl Clients {
    /// Gives a request that arrives an id that none has had before, and the salt of its inputs.
    pub(super) fn admit(&mut self, at_ns: u64, rng: &mut Rng) -> (RequestId, u64) {
        let request = match self.free.len() {
            0 => {
                self.indices += 1;
                RequestId { index: self.indices - 1, generation: 0 }
            }
            free => self.free.swap_remove(rng.index(free)),
        };
        let salt = rng.next();
        self.admitted.insert(request, Admitted { at_ns, salt });
        (request, salt)
    }

    /// Takes out a request that the manager reports as finished.
    pub(super) fn answer(&mut self, request: RequestId) -> Admitted {
        self.admitted.remove(&request).expect("it was admitted")
    }

    /// Frees the index of a request that was answered.
    pub(super) fn free(&mut self, request: RequestId) {
        self.finished.push(request);
        self.free.push(RequestId { generation: request.generation + 1, ..request });
    }

    /// The request that a cancellation names.
    pub(super) fn named(&self, target: Target, ledger: &Ledger, rng: &mut Rng) -> RequestId {
        let is_named = |request: &Request| match target {
            Target::InFlight => true,
            Target::RunningChunk => request.session.is_some() && !request.is_waiting(),
            Target::WaitingChunk => request.is_waiting(),
            Target::Finished | Target::Unknown => false,
        };
        let in_flight = ledger.requests.iter().filter(|(_, request)| is_named(request));
        let in_flight: Vec<RequestId> = in_flight.map(|(&id, _)| id).collect();
        match target {
            Target::Finished if !self.finished.is_empty() => *rng.pick(&self.finished),
            _ if !in_flight.is_empty() => *rng.pick(&in_flight),
            _ => RequestId { index: self.indices + 7, generation: 0 },
        }
    }
}
