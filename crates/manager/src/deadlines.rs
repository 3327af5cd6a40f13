//! The deadlines of requests in flight.

use std::collections::BTreeSet;

use batchmaker_graph::RequestId;

/// The requests that have a deadline, by deadline in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeSet<(u64, RequestId)>);

impl Deadlines {
    pub(crate) fn insert(&mut self, deadline_ns: u64, request: RequestId) {
        self.0.insert((deadline_ns, request));
    }

    /// Forgets the deadline of a request that ended.
    pub(crate) fn remove(&mut self, deadline_ns: u64, request: RequestId) {
        self.0.remove(&(deadline_ns, request));
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        self.0.first().map(|&(deadline_ns, _)| deadline_ns)
    }

    /// Takes out a request whose deadline is reached at `now_ns`, earliest first.
    pub(crate) fn take_reached(&mut self, now_ns: u64) -> Option<RequestId> {
        let &(deadline_ns, request) = self.0.first()?;
        if deadline_ns > now_ns {
            return None;
        }
        self.0.remove(&(deadline_ns, request));
        Some(request)
    }
}
