//! The requests that are in no batch yet.

use std::collections::BTreeMap;

use batchmaker_graph::RequestId;

/// The priority of a request, 1 first, and its number among all that arrived.
pub(super) type Place = (u32, u64);

/// Requests that wait to become members of a batch, by priority and then by arrival.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    requests: BTreeMap<Place, RequestId>,
    /// When they arrived, in nanoseconds, by their numbers.
    since_ns: BTreeMap<u64, u64>,
    arrivals: u64,
}

impl Waiting {
    /// Adds a request that arrives at `now_ns`; without a priority (0) it comes after all that have one. Returns its place.
    pub(super) fn add(&mut self, request: RequestId, priority: u32, now_ns: u64) -> Place {
        let place = (if priority == 0 { u32::MAX } else { priority }, self.arrivals);
        self.arrivals += 1;
        self.requests.insert(place, request);
        self.since_ns.insert(place.1, now_ns);
        place
    }

    /// Removes the request at a place.
    pub(super) fn remove(&mut self, place: Place) {
        self.requests.remove(&place);
        self.since_ns.remove(&place.1);
    }

    /// The first requests, at most `count`.
    pub(super) fn first(&self, count: u32) -> Vec<RequestId> {
        self.requests.values().take(count as usize).copied().collect()
    }

    /// The number of requests.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// When the oldest of them arrived, in nanoseconds.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        self.since_ns.first_key_value().map(|(_, &since_ns)| since_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_by_priority_and_then_by_arrival() {
        let mut waiting = Waiting::default();
        let request = |index| RequestId { index, generation: 0 };
        let priorities = [0, 2, 1, 2];
        let arrivals = priorities.into_iter().zip(0..);
        let places: Vec<Place> = arrivals
            .map(|(priority, index)| waiting.add(request(index), priority, 10 * u64::from(index)))
            .collect();
        assert_eq!(waiting.first(9), [2, 1, 3, 0].map(request));
        assert_eq!(waiting.first(2), [2, 1].map(request));
        assert_eq!(waiting.oldest_ns(), Some(0), "that of no priority");
        waiting.remove(places[0]);
        assert_eq!((waiting.len(), waiting.oldest_ns()), (3, Some(10)));
    }
}
