//! The requests in flight under a policy, from their arrival to their end.

use std::sync::Arc;

use batchmaker_graph::{CellGraph, RequestId};

use crate::deadlines::Deadlines;
use crate::discarded::Discarded;
use crate::event::{Finished, Outcome};

/// A request in flight, with what its policy keeps of it.
#[derive(Debug)]
pub(crate) struct LiveRequest<T> {
    pub(crate) id: RequestId,
    pub(crate) graph: Arc<CellGraph>,
    pub(crate) arrived_ns: u64,
    /// When its first batch began; none while it waits.
    pub(crate) batched_ns: Option<u64>,
    /// The outcome of a request that cannot succeed any more.
    pub(crate) ending: Option<Outcome>,
    pub(crate) of_policy: T,
    deadline_ns: Option<u64>,
}

/// The requests in flight.
#[derive(Debug)]
pub(crate) struct LiveRequests<T> {
    /// The requests by the index of their ids.
    requests: Vec<Option<LiveRequest<T>>>,
    live: usize,
    deadlines: Deadlines,
    pub(crate) finished: Vec<Finished>,
    pub(crate) discarded: Discarded,
}

impl<T> Default for LiveRequests<T> {
    fn default() -> Self {
        Self {
            requests: Vec::new(),
            live: 0,
            deadlines: Deadlines::default(),
            finished: Vec::new(),
            discarded: Discarded::default(),
        }
    }
}

/// A request that arrives, with what its policy keeps of it.
pub(crate) struct Arrival<T> {
    pub(crate) id: RequestId,
    pub(crate) graph: Arc<CellGraph>,
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) of_policy: T,
}

impl<T> LiveRequests<T> {
    pub(crate) fn insert(&mut self, now_ns: u64, arrival: Arrival<T>) {
        let Arrival { id, graph, deadline_ns, of_policy } = arrival;
        assert!(!graph.runs().is_empty(), "{id:?} has nothing to run");
        let index = id.index as usize;
        let (arrived_ns, batched_ns, ending) = (now_ns, None, None);
        let request =
            LiveRequest { id, graph, arrived_ns, batched_ns, ending, of_policy, deadline_ns };
        if self.requests.len() <= index {
            self.requests.resize_with(index + 1, || None);
        }
        let before = self.requests[index].replace(request);
        assert!(before.is_none(), "{id:?} arrived while its position was in use");
        self.live += 1;
        if let Some(deadline_ns) = deadline_ns {
            self.deadlines.insert(deadline_ns, id);
        }
    }

    /// The request, if it is in flight.
    pub(crate) fn get(&self, id: RequestId) -> Option<&LiveRequest<T>> {
        self.requests.get(id.index as usize)?.as_ref().filter(|request| request.id == id)
    }

    /// The request, if it is in flight.
    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut LiveRequest<T>> {
        self.requests.get_mut(id.index as usize)?.as_mut().filter(|request| request.id == id)
    }

    /// The requests in flight that are as `is_one` says.
    pub(crate) fn those(&self, is_one: impl Fn(&LiveRequest<T>) -> bool) -> Vec<RequestId> {
        let live = self.requests.iter().flatten();
        live.filter(|request| is_one(request)).map(|request| request.id).collect()
    }

    /// The number of requests in flight.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Notes how a request will end, unless that is known. It has no deadline any more.
    pub(crate) fn give_up(&mut self, id: RequestId, outcome: Outcome) {
        self.forget_deadline(id);
        if let Some(request) = self.get_mut(id) {
            request.ending.get_or_insert(outcome);
        }
    }

    fn forget_deadline(&mut self, id: RequestId) {
        let deadline_ns = self.get_mut(id).and_then(|request| request.deadline_ns.take());
        if let Some(deadline_ns) = deadline_ns {
            self.deadlines.remove(deadline_ns, id);
        }
    }

    /// Ends a request in flight, as it was given up or else with success.
    pub(crate) fn finish(&mut self, now_ns: u64, id: RequestId) {
        self.forget_deadline(id);
        let request = self.requests[id.index as usize].take().expect("a request finishes once");
        self.live -= 1;
        let begun_ns = request.batched_ns.unwrap_or(now_ns);
        self.finished.push(Finished {
            request: id,
            outcome: request.ending.unwrap_or(Outcome::Succeeded),
            queue_ns: begun_ns - request.arrived_ns,
            total_ns: now_ns - request.arrived_ns,
        });
        self.discarded.add_graph(request.graph);
    }

    /// Takes a request whose deadline is reached.
    pub(crate) fn take_overdue(&mut self, now_ns: u64) -> Option<RequestId> {
        self.deadlines.take_reached(now_ns)
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.next()
    }
}
