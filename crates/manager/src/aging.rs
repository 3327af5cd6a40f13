//! The requests that may be promoted, since they have waited for long
//! ([`crate::Fairness::aging_ns`]).
//!
//! A small request is promoted once, as a whole. Of a large one, the slices that are next
//! (`cellular/fair_places.rs`) are promoted, and then it ages again: as a whole it would keep all others waiting for as
//! long as it takes.

use std::collections::VecDeque;

use batchmaker_graph::RequestId;

/// The requests that age, oldest first.
#[derive(Debug)]
pub(crate) struct Aging {
    bound_ns: u64,
    /// Each with the time, in nanoseconds, since which it ages. Requests that ended stay for a while.
    started: VecDeque<(u64, RequestId)>,
}

impl Aging {
    /// No requests, which are promoted once they are older than `bound_ns`.
    pub(crate) fn new(bound_ns: u64) -> Self {
        Self { bound_ns, started: VecDeque::new() }
    }

    /// Notes that a request started at `now_ns`. Now and then those that are not among the `live`
    /// ones any more go.
    pub(crate) fn start(
        &mut self,
        now_ns: u64,
        request: RequestId,
        live: usize,
        is_live: impl Fn(RequestId) -> bool,
    ) {
        self.started.push_back((now_ns, request));
        if self.started.len() > 2 * live + 64 {
            self.started.retain(|&(_, request)| is_live(request));
        }
    }

    /// Notes that a request, which was taken out, ages again from `now_ns` on.
    pub(crate) fn start_again(&mut self, now_ns: u64, request: RequestId) {
        self.started.push_back((now_ns, request));
    }

    /// Takes out a request that is older than the bound at `now_ns`; it may have ended.
    pub(crate) fn take_old(&mut self, now_ns: u64) -> Option<RequestId> {
        let bound_ns = self.bound_ns;
        let is_old = |&mut (start_ns, _): &mut (u64, RequestId)| now_ns - start_ns > bound_ns;
        self.started.pop_front_if(is_old).map(|(_, request)| request)
    }
}
