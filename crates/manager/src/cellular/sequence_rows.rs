//! The number of rows of whole sequences in one batch of a sequence-level cell type.
//!
//! A sequence is one node, however long it is, so the batch limit alone does not bound how long a batch takes.
//! Where rounds have a bound on their time ([`crate::Fairness::round_ns`]), a batch takes no more sequences
//! than have as many rows as fit that time, by the recent time of a row; a batch of one sequence is not
//! divided.

/// The bound on the time of a batch, and what a row took of late.
#[derive(Debug)]
pub(super) struct SequenceRows {
    /// See [`crate::Fairness::round_ns`].
    bound_ns: Option<u64>,
    /// The moving average of a row's time, in units of 2^-16 ns; none before the first.
    row_time: Option<u64>,
}

impl SequenceRows {
    pub(super) fn new(bound_ns: Option<u64>) -> Self {
        Self { bound_ns, row_time: None }
    }

    /// Notes that a batch of sequences with `rows` rows in all took `ns` nanoseconds.
    pub(super) fn note_time(&mut self, ns: u64, rows: u64) {
        let row_time = (u128::from(ns) << 16) / u128::from(rows.max(1));
        let row_time = u64::try_from(row_time).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        self.row_time = Some(match self.row_time {
            None => row_time,
            Some(known) => (3 * known + row_time) / 4,
        });
    }

    /// The most rows of the sequences of a batch, where up to `batch_max` nodes share one: as many rows as
    /// nodes at least, since the time of a short sequence says little about that of a row.
    pub(super) fn rows_max(&self, batch_max: u32) -> u64 {
        let Some(bound_ns) = self.bound_ns else { return u64::MAX };
        let rows = match self.row_time {
            None => 0,
            Some(row_time) => (u128::from(bound_ns) << 16) / u128::from(row_time.max(1)),
        };
        u64::try_from(rows).unwrap_or(u64::MAX).max(u64::from(batch_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fill_the_bound_by_their_recent_time() {
        let mut rows = SequenceRows::new(Some(2_000_000));
        assert_eq!(rows.rows_max(16), 16, "nothing was measured");
        rows.note_time(1_000_000, 1_000);
        assert_eq!(rows.rows_max(16), 2_000);
        rows.note_time(5_000_000, 1_000);
        assert_eq!(rows.rows_max(16), 1_000, "the average rises to 2 us");
        rows.note_time(u64::MAX, 1);
        assert_eq!(rows.rows_max(16), 16);
        assert_eq!(SequenceRows::new(None).rows_max(16), u64::MAX);
    }
}
