//! The faults and delays of a simulated device, drawn from a seed.

use std::time::Duration;

use crate::split_mix::{INCREMENT, mix};

/// Delays and faults of a simulated device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The longest time of a batch.
    pub batch_max: Duration,
    /// The percentage of a task's batches that are reported before the task is over.
    pub reported_percent: u32,
    /// The percentage of tasks that fail.
    pub failed_percent: u32,
    /// The percentage of tasks that are the last of their worker, whose unit is lost in the middle of
    /// them.
    pub lost_percent: u32,
}

/// A stream of numbers drawn from a seed: SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(INCREMENT);
        drawn
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// A time up to `max`.
    pub(crate) fn time(&mut self, max: Duration) -> Duration {
        Duration::from_nanos(self.below(max.as_nanos() as u64 + 1))
    }
}
