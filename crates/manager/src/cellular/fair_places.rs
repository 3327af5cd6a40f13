//! The places of small and large requests in the queues ([`crate::Fairness::large_rows`]).
//!
//! Generalised processor sharing (Parekh and Gallager, 1993) is the ideal: all requests in flight
//! progress at one rate. Its *virtual time* is the number of rows that a request which always has
//! work would have been served: a batch of `n` rows adds `n` divided by the number of requests in
//! flight. A request's *tag* is the virtual time at which its next row would be served, and queues are
//! in the order of tags. Where models have shares, these decide between models, and each model has a
//! virtual time of its own, which grows with its own rows and requests.
//!
//! - A small request keeps the tag of its arrival: small requests are served in order of arrival.
//! - A large request is served in slices of `large_rows` rows. The rows of a slice have the latest tag at
//!   which a fair share would serve it and the next: a row of a cell type after all rows of the other
//!   cell types, in whatever order those are ready. So a small request passes every large one, but
//!   for those that are more than a slice behind their fair share.
//!
//! Virtual time grows with every batch, by a unit at least, and without bound while the number of
//! requests in flight is bounded: every tag is passed after finitely many batches. So a large request
//! ends, however many small ones keep coming.

use batchmaker_graph::ModelId;

use crate::fairness::Fairness;

/// One row in tags.
const ROW: u64 = 1 << 8;

/// The units of virtual time in one of tags.
const UNITS: u128 = 1 << 24;

/// The virtual times, and the bound from which on a request is large.
#[derive(Debug)]
pub(super) struct FairPlaces {
    large_rows: u32,
    has_clock_of_each_model: bool,
    /// The clocks by model, where each has one; else one clock.
    clocks: Vec<Clock>,
}

/// The virtual time of the requests of one model, or of all.
#[derive(Clone, Debug, Default)]
struct Clock {
    /// In units of 2^-32 rows.
    virtual_time: u128,
    /// The number of requests that have started and not ended.
    live_requests: usize,
}

impl FairPlaces {
    /// The places that `fairness` says requests have, if any.
    pub(super) fn of(fairness: &Fairness) -> Option<Self> {
        let has_shares = fairness.shares.is_some();
        fairness.large_rows.map(|large_rows| Self::new(large_rows, has_shares))
    }

    /// Requests are large from `large_rows` nodes on.
    fn new(large_rows: u32, has_clock_of_each_model: bool) -> Self {
        assert!(large_rows > 0, "a request of nothing is large");
        Self { large_rows, has_clock_of_each_model, clocks: Vec::new() }
    }

    /// Notes that a request of `model` starts. Returns its tag.
    ///
    /// The clock of a model that had no requests is put forward to the earliest of those that have: the
    /// models' chains may wait for slots of one cell type, in the order of tags.
    pub(super) fn start(&mut self, model: ModelId) -> u64 {
        let position = self.clock_of(model);
        if self.clocks.len() <= position {
            self.clocks.resize_with(position + 1, Clock::default);
        }
        if self.clocks[position].live_requests == 0 {
            let live = self.clocks.iter().filter(|clock| clock.live_requests > 0);
            let earliest = live.map(|clock| clock.virtual_time).min().unwrap_or(0);
            let own = &mut self.clocks[position].virtual_time;
            *own = earliest.max(*own);
        }
        let clock = &mut self.clocks[position];
        clock.live_requests += 1;
        (clock.virtual_time / UNITS) as u64
    }

    /// Notes that a request of `model`, which started, ends.
    pub(super) fn end(&mut self, model: ModelId) {
        let position = self.clock_of(model);
        self.clocks[position].live_requests -= 1;
    }

    fn clock_of(&self, model: ModelId) -> usize {
        if self.has_clock_of_each_model { model.index() } else { 0 }
    }

    /// Whether a request of that number of `nodes` is large.
    pub(super) fn is_large(&self, nodes: u64) -> bool {
        nodes >= u64::from(self.large_rows)
    }

    /// The tag of node `node` of a run of a large request, and the run's first node with a later one. The
    /// request's own tag is `start`; its other cell types and its earlier runs of the same cell type have
    /// `rows_before` nodes.
    pub(super) fn place_of_node(&self, start: u64, rows_before: u32, node: u32) -> (u64, u32) {
        let (before, slice) = (u64::from(rows_before), u64::from(self.large_rows));
        let end_of_slice = ((before + u64::from(node)) / slice + 1) * slice;
        let place_until = u32::try_from(end_of_slice - before).unwrap_or(u32::MAX);
        (start + (end_of_slice + slice) * ROW, place_until)
    }

    /// Notes that `batches` were formed with `rows` rows of `model` each.
    pub(super) fn serve(&mut self, model: ModelId, batches: u32, rows: u32) {
        let position = self.clock_of(model);
        let clock = &mut self.clocks[position];
        let row = u128::from(ROW) * UNITS;
        let share = u128::from(rows) * row / clock.live_requests.max(1) as u128;
        clock.virtual_time += u128::from(batches) * share.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ModelId = ModelId(0);
    const B: ModelId = ModelId(1);

    #[test]
    fn a_row_goes_back_by_what_is_served_of_its_request() {
        let mut places = FairPlaces::new(10, false);
        assert_eq!((places.is_large(9), places.is_large(10)), (false, true));
        let start = [A, B].map(|model| places.start(model))[0];
        // Of two requests in flight, each is served half: two slices of each.
        places.serve(A, 10, 4);
        let tag = places.start(A);
        places.end(A);
        assert_eq!([0, 9].map(|node| places.place_of_node(start, 0, node)), [(tag, 10); 2]);
        // A run before which there are four rows.
        assert_eq!([0, 5].map(|node| places.place_of_node(start, 4, node)), [(tag, 6); 2]);
        places.serve(B, 5, 4);
        let tag = places.start(A);
        assert_eq!(places.place_of_node(start, 0, 10), (tag, 20));
        assert_eq!(places.place_of_node(start, 4, 6), (tag, 16));
    }

    #[test]
    fn models_with_shares_have_clocks_of_their_own() {
        let mut places = FairPlaces::new(10, true);
        let tags = [A, A, B].map(|model| places.start(model));
        assert_eq!(tags, [0; 3]);
        places.serve(B, 1, 30);
        assert_eq!(places.start(A), 0, "no row of its own was served");
        places.serve(A, 1, 30);
        assert_eq!(places.start(A), 10 * ROW, "three of its requests are in flight");
        // A model without requests begins where the others are.
        let third = ModelId(2);
        assert_eq!(places.start(third), 10 * ROW);
        places.end(third);
        places.serve(A, 1, 40);
        assert_eq!(places.start(third), 20 * ROW);
    }

    #[test]
    fn virtual_time_never_stalls() {
        let mut places = FairPlaces::new(1, false);
        places.start(A);
        places.clocks[0].live_requests = usize::MAX;
        places.serve(A, 1, 1);
        assert!(places.clocks[0].virtual_time > 0);
    }
}
