//! Summaries of pairs of figures: medians, the median of their ratios, and the ratios' extremes.

use crate::batchmaker::median;

/// Which of two figures is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// A throughput.
    More,
    /// A time.
    Less,
}

/// The figures of one turn: the base's and those of the build that is compared with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    pub(crate) base: f64,
    pub(crate) now: f64,
}

impl Pair {
    /// The speed now over the speed before; above 1, it is better. 0 if nothing was answered now.
    pub(crate) fn ratio(self, better: Better) -> f64 {
        match better {
            _ if self.now <= 0.0 => 0.0,
            Better::More => self.now / self.base,
            Better::Less => self.base / self.now,
        }
    }
}

/// The summary of all turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) base: f64,
    pub(crate) now: f64,
    /// The median of the turns' ratios; `least` and `most` are their extremes.
    pub(crate) ratio: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Summary {
    /// Summarises the turns; all zeros if there are none.
    pub(crate) fn of(pairs: &[Pair], better: Better) -> Self {
        if pairs.is_empty() {
            return Self { base: 0.0, now: 0.0, ratio: 0.0, least: 0.0, most: 0.0 };
        }
        let ratios = || pairs.iter().map(|pair| pair.ratio(better));
        Self {
            base: median(pairs.iter().map(|pair| pair.base)),
            now: median(pairs.iter().map(|pair| pair.now)),
            ratio: median(ratios()),
            least: ratios().fold(f64::INFINITY, f64::min),
            most: ratios().fold(0.0, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(f64, f64)]) -> Vec<Pair> {
        pairs.iter().map(|&(base, now)| Pair { base, now }).collect()
    }

    #[test]
    fn ratios_are_of_turns_not_of_medians() {
        // A machine that slows down slows both of a turn.
        let pairs = pairs(&[(100.0, 110.0), (50.0, 55.0), (200.0, 100.0)]);
        let more = Summary::of(&pairs, Better::More);
        let wanted = Summary { base: 100.0, now: 100.0, ratio: 1.1, least: 0.5, most: 1.1 };
        assert_eq!(more, wanted);
        let less = Summary::of(&pairs, Better::Less);
        assert_eq!((less.ratio, less.least, less.most), (100.0 / 110.0, 100.0 / 110.0, 2.0));
    }
}
