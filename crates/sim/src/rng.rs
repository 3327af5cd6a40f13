//! The generator of all random draws: SplitMix64 (Steele, Lea and Flood, 2014). It is written out here
//! so that a seed means the same run for as long as this file stays as it is.

use std::ops::RangeInclusive;

/// A stream of draws from one seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A stream of its own, which the draws of this one no longer change.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// Any of `range`, each as likely (but for a bias that does not matter here).
    pub(crate) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (first, last) = range.into_inner();
        first + self.next() % (last - first + 1)
    }

    /// Any of `range`, each order of magnitude as likely.
    pub(crate) fn log_within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let (first, last) = range.into_inner();
        let bits = (last / first.max(1)).max(1).ilog2();
        let shift = self.within(0..=u64::from(bits));
        let low = first.max(1) << shift;
        self.within(low..=(2 * low).min(last.max(low)))
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.within(0..=length as u64 - 1) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// True `percent` times in a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.within(0..=99) < percent
    }
}

/// The finaliser of SplitMix64: a permutation that spreads near numbers apart.
pub(crate) fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_splitmix64() {
        let mut rng = Rng::new(1_234_567);
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([rng.next(), rng.next()], published);
    }

    #[test]
    fn draws_stay_in_their_range() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            assert!((3..=5).contains(&rng.within(3..=5)));
            assert!((7..=900).contains(&rng.log_within(7..=900)));
        }
    }
}
