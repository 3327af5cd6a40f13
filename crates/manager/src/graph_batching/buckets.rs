//! Requests that wait, in buckets by model and length, which are served in turn.

use std::collections::BTreeMap;

use batchmaker_graph::{ModelId, RequestId};

/// A model's requests of like length: the model, and the position of the bucket.
pub(super) type Bucket = (ModelId, u32);

/// The order within a bucket: priority, then arrival.
pub(super) type Place = (u32, u64);

/// The buckets with waiting requests.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    /// No bucket is empty.
    waiting: BTreeMap<Bucket, BTreeMap<Place, RequestId>>,
    served_last: Option<Bucket>,
}

impl Buckets {
    pub(super) fn insert(&mut self, bucket: Bucket, place: Place, request: RequestId) {
        let before = self.waiting.entry(bucket).or_default().insert(place, request);
        assert!(before.is_none(), "two requests in one place");
    }

    pub(super) fn remove(&mut self, bucket: Bucket, place: Place) {
        let requests = self.waiting.get_mut(&bucket).expect("a waiting request has a bucket");
        requests.remove(&place).expect("a waiting request is in its place");
        if requests.is_empty() {
            self.waiting.remove(&bucket);
        }
    }

    /// Round robin: the first bucket after the one served last that has requests.
    pub(super) fn next_turn(&mut self) -> Option<Bucket> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = self.served_last.map_or(Unbounded, Excluded);
        let next = self.waiting.range((after, Unbounded)).next();
        let (&bucket, _) = next.or_else(|| self.waiting.iter().next())?;
        self.served_last = Some(bucket);
        Some(bucket)
    }

    /// The requests that wait in `bucket`, in order.
    pub(super) fn requests(&self, bucket: Bucket) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.get(&bucket).into_iter().flat_map(|requests| requests.values().copied())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_take_turns() {
        let mut buckets = Buckets::default();
        let request = |index| RequestId { index, generation: 0 };
        let bucket = |bucket| (ModelId(0), bucket);
        for (index, at) in [(0, 2), (1, 0), (2, 2), (3, 5)] {
            buckets.insert(bucket(at), (u32::MAX, u64::from(index)), request(index));
        }
        let mut turn = || {
            let bucket = buckets.next_turn().unwrap();
            (bucket.1, buckets.requests(bucket).count())
        };
        assert_eq!([turn(), turn(), turn(), turn()], [(0, 1), (2, 2), (5, 1), (0, 1)]);
        buckets.remove(bucket(2), (u32::MAX, 0));
        buckets.remove(bucket(2), (u32::MAX, 2));
        assert_eq!(buckets.next_turn(), Some(bucket(5)));
    }
}
