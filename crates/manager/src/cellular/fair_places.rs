//! The places of small and large requests in the queues ([`crate::Fairness::large_rows`]).
//!
//! Generalised processor sharing (Parekh and Gallager, 1993) is the ideal: all requests in flight
//! progress at one rate. Its *virtual time* is the number of rows that a request which always has
//! work would have been served: a batch of `n` rows adds `n` divided by the number of requests in
//! flight. A request's *tag* is the virtual time at which its next row would be served, and queues are
//! in the order of tags.
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

/// One row in tags.
const ROW: u64 = 1 << 8;

/// The units of virtual time in one of tags.
const UNITS: u128 = 1 << 24;

/// The virtual time, and the bound from which on a request is large.
#[derive(Debug)]
pub(super) struct FairPlaces {
    large_rows: u32,
    /// In units of 2^-32 rows.
    virtual_time: u128,
}

impl FairPlaces {
    /// Requests are large from `large_rows` nodes on.
    pub(super) fn new(large_rows: u32) -> Self {
        assert!(large_rows > 0, "a request of nothing is large");
        Self { large_rows, virtual_time: 0 }
    }

    /// The tag of a request that starts now.
    pub(super) fn tag(&self) -> u64 {
        (self.virtual_time / UNITS) as u64
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

    /// Notes that `batches` of `rows` rows each were formed while `live_requests` were in flight.
    pub(super) fn serve(&mut self, batches: u32, rows: u32, live_requests: usize) {
        let row = u128::from(ROW) * UNITS;
        let share = u128::from(rows) * row / live_requests.max(1) as u128;
        self.virtual_time += u128::from(batches) * share.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_goes_back_by_what_is_served_of_its_request() {
        let mut places = FairPlaces::new(10);
        assert_eq!((places.is_large(9), places.is_large(10)), (false, true));
        let start = places.tag();
        // Of two requests in flight, each is served half: two slices of each.
        places.serve(10, 4, 2);
        assert_eq!(
            [0, 9].map(|node| places.place_of_node(start, 0, node)),
            [(places.tag(), 10); 2]
        );
        // A run before which there are four rows.
        assert_eq!([0, 5].map(|node| places.place_of_node(start, 4, node)), [(places.tag(), 6); 2]);
        places.serve(5, 4, 2);
        assert_eq!(places.place_of_node(start, 0, 10), (places.tag(), 20));
        assert_eq!(places.place_of_node(start, 4, 6), (places.tag(), 16));
    }

    #[test]
    fn virtual_time_never_stalls() {
        let mut places = FairPlaces::new(1);
        let before = places.virtual_time;
        places.serve(1, 1, usize::MAX);
        assert!(places.virtual_time > before);
    }
}
