//! Distributions of times: every time is recorded, and percentiles are those of all times, within a thousandth of the
//! value. There is no sampling and no average of averages.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest time in the histogram, one hour: longer ones count as this.
const LONGEST_NS: u64 = 3600 * 1_000_000_000;
const NS_PER_MS: f64 = 1e6;
/// The steps of a cumulative distribution, one a percent.
const CDF_STEPS: u32 = 100;

/// Times in nanoseconds, as a histogram of 3 significant digits from 1 ns to 1 h; its mean and
/// maximum are exact.
#[derive(Clone, Debug)]
pub struct Recorder {
    histogram: Histogram<u64>,
    sum_ns: u128,
    max_ns: u64,
}

/// The mean, percentiles and maximum of times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The mean, exact.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest, exact.
    pub max: f64,
}

impl Recorder {
    /// A recorder of nothing yet.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are valid");
        Self { histogram, sum_ns: 0, max_ns: 0 }
    }

    /// Adds a time. One over an hour counts in full in the mean and the maximum, and as an hour in
    /// percentiles.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds all times of another recorder.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("all recorders have the same bounds");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the number of recorded times.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The mean, percentiles and maximum; all 0 where nothing was recorded.
    pub fn summary(&self) -> Distribution {
        Distribution {
            mean: self.sum_ns as f64 / self.count().max(1) as f64 / NS_PER_MS,
            p50: self.quantile_ms(0.5),
            p90: self.quantile_ms(0.9),
            p99: self.quantile_ms(0.99),
            max: self.max_ns as f64 / NS_PER_MS,
        }
    }

    /// The cumulative distribution for a plot: 101 points `(ms, share of times no longer)`, one a
    /// percent from 0 to 1; none where nothing was recorded.
    pub fn cdf(&self) -> Vec<(f64, f64)> {
        if self.count() == 0 {
            return Vec::new();
        }
        let share = |step| f64::from(step) / f64::from(CDF_STEPS);
        (0..=CDF_STEPS).map(share).map(|share| (self.quantile_ms(share), share)).collect()
    }

    /// The time that a share of all times does not exceed, in milliseconds.
    fn quantile_ms(&self, share: f64) -> f64 {
        // The histogram answers with the upper end of a bucket.
        self.histogram.value_at_quantile(share).min(self.max_ns) as f64 / NS_PER_MS
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(times_ns: impl IntoIterator<Item = u64>) -> Recorder {
        let mut recorder = Recorder::new();
        times_ns.into_iter().for_each(|ns| recorder.record(ns));
        recorder
    }

    fn assert_near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() <= 1e-3, "{value} for {expected}");
    }

    #[test]
    fn a_summary_has_exact_ends_and_near_percentiles() {
        let summary = recorder((1..=1000).map(|us| us * 1000 + 1)).summary();
        assert_eq!(summary.mean, 0.500501);
        assert_eq!(summary.max, 1.000001);
        assert_near(summary.p50, 0.5);
        assert_near(summary.p90, 0.9);
        assert_near(summary.p99, 0.99);
    }

    #[test]
    fn nothing_recorded_is_zero_and_not_nan() {
        assert_eq!(Recorder::new().summary(), Distribution::default());
        assert_eq!(Recorder::new().cdf(), []);
    }

    #[test]
    fn a_lone_time_is_every_percentile() {
        let summary = recorder([123_456_789]).summary();
        let ms = 123.456789;
        assert_eq!(summary, Distribution { mean: ms, p50: ms, p90: ms, p99: ms, max: ms });
    }

    #[test]
    fn times_out_of_range_still_count() {
        let two_hours_ns = 2 * LONGEST_NS;
        let summary = recorder([0, two_hours_ns, two_hours_ns]).summary();
        assert_near(summary.p50, LONGEST_NS as f64 / NS_PER_MS);
        assert_eq!(summary.max, two_hours_ns as f64 / NS_PER_MS);
        assert_near(summary.mean, summary.max * 2.0 / 3.0);
    }

    #[test]
    fn merged_recorders_are_one() {
        let mut merged = recorder(1..500);
        merged.merge(&recorder(500..=10_000));
        assert_eq!(merged.summary(), recorder(1..=10_000).summary());
        assert_eq!(merged.count(), 10_000);
    }

    #[test]
    fn a_cdf_rises_from_the_shortest_to_the_longest() {
        let cdf = recorder((1..=1000).map(|us| us * 1000)).cdf();
        assert_eq!(cdf.len(), 101);
        assert!(cdf.is_sorted());
        assert_near(cdf[0].0, 0.001);
        assert_eq!(cdf[0].1, 0.0);
        assert_near(cdf[25].0, 0.25);
        assert_eq!(cdf[25].1, 0.25);
        assert_eq!(cdf[100], (1.0, 1.0));
    }
}
