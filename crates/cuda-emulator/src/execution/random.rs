//! Random numbers of a schedule.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Random numbers that a seed determines.
pub(super) struct Random(Pcg64Mcg);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    pub(super) fn bits(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// The accesses until the next one at which another thread goes on.
    pub(super) fn until(&mut self, probability: f64) -> u64 {
        if probability <= 0.0 {
            return u64::MAX;
        }
        let uniform = 1.0 - self.0.random::<f64>();
        1 + (uniform.ln() / (-probability).ln_1p()) as u64
    }
}
