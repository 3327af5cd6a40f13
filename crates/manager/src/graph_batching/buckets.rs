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
    /// The bucket of each model that was served last, where the model is chosen first.
    served_last_of: Vec<Option<u32>>,
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
        let next = self.after(self.served_last);
        let bucket = next.or_else(|| self.after(None))?;
        self.served_last = Some(bucket);
        Some(bucket)
    }

    /// Round robin among the buckets of `model`.
    pub(super) fn next_turn_of(&mut self, model: ModelId) -> Option<Bucket> {
        let is_own = |bucket: &Bucket| bucket.0 == model;
        let position = model.index();
        if self.served_last_of.len() <= position {
            self.served_last_of.resize(position + 1, None);
        }
        let last = self.served_last_of[position].map_or(0, |last| last + 1);
        let next = self.first_from((model, last)).filter(is_own);
        let bucket = next.or_else(|| self.first_from((model, 0)).filter(is_own))?;
        self.served_last_of[position] = Some(bucket.1);
        Some(bucket)
    }

    /// The models with requests that wait.
    pub(super) fn models(&self) -> impl Iterator<Item = ModelId> + '_ {
        let first = self.after(None);
        let next = |bucket: &Bucket| self.first_from((ModelId(bucket.0.0 + 1), 0));
        std::iter::successors(first, next).map(|bucket| bucket.0)
    }

    fn after(&self, bucket: Option<Bucket>) -> Option<Bucket> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = bucket.map_or(Unbounded, Excluded);
        self.waiting.range((after, Unbounded)).next().map(|(&bucket, _)| bucket)
    }

    fn first_from(&self, bucket: Bucket) -> Option<Bucket> {
        self.waiting.range(bucket..).next().map(|(&bucket, _)| bucket)
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

    #[test]
    fn the_buckets_of_a_model_take_turns() {
        let mut buckets = Buckets::default();
        for (index, bucket) in [(0, 2), (1, 4), (0, 7), (3, 1)].into_iter().enumerate() {
            let request = RequestId { index: index as u32, generation: 0 };
            buckets.insert((ModelId(bucket.0), bucket.1), (0, index as u64), request);
        }
        let models: Vec<u32> = buckets.models().map(|model| model.0).collect();
        assert_eq!(models, [0, 1, 3]);
        let mut turn = |model| buckets.next_turn_of(ModelId(model)).map(|bucket| bucket.1);
        assert_eq!([turn(0), turn(1), turn(0), turn(0)], [Some(2), Some(4), Some(7), Some(2)]);
        assert_eq!(turn(2), None);
    }
}
