//! Intervals of integers.

use crate::data::int::Int;
use crate::data::literal::Literal;

/// All integers from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntRange {
    pub(crate) low: i64,
    pub(crate) high: i64,
}

impl IntRange {
    /// All integers of 32 bits.
    pub(crate) const ALL: Self = Self { low: i32::MIN as i64, high: i32::MAX as i64 };

    /// All integers of 64 bits.
    pub(crate) const ALL_64: Self = Self { low: i64::MIN, high: i64::MAX };

    /// The INT64 that a request may bring to a program of a whole file: those of 31 bits, so that one more or less has 32.
    pub(crate) const OF_INPUT: Self = Self { low: -(1 << 30), high: (1 << 30) - 1 };

    /// The integers from 0 to `count` - 1.
    pub(crate) fn below(count: usize) -> Self {
        Self::from([0, i64::try_from(count).unwrap_or(i64::MAX).saturating_sub(1)])
    }

    /// Whether it lies within another one.
    pub(crate) fn is_within(self, other: Self) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Its integers of 32 bits; all of these if it has none.
    pub(crate) fn within_32_bits(self) -> Self {
        let Self { low, high } = Self::ALL;
        let range = Self { low: self.low.max(low), high: self.high.min(high) };
        if range.low <= range.high { range } else { Self::ALL }
    }

    /// The least range that holds `f` of each end of this one with each end of another; `all` where it passes that, as
    /// integers wrap.
    pub(crate) fn combined(self, other: Self, all: Self, f: fn(i128, i128) -> i128) -> Self {
        let of = |range: Self| [range.low, range.high].map(i128::from);
        let ends = of(self).map(|a| of(other).map(|b| f(a, b)));
        let ends = ends.as_flattened().iter().copied();
        let fits = |end: i128| i64::try_from(end).ok().filter(|n| (all.low..=all.high).contains(n));
        let range = ends.clone().min().and_then(fits).zip(ends.max().and_then(fits));
        range.map_or(all, |(low, high)| Self { low, high })
    }

    /// Whether it says more than what every input may hold.
    pub(crate) fn is_known(self) -> bool {
        self.low > Self::OF_INPUT.low || self.high < Self::OF_INPUT.high
    }

    /// The least range of all products.
    pub(crate) fn times(self, other: Self) -> Self {
        let ends =
            [self.low, self.high].map(|a| [other.low, other.high].map(|b| a.saturating_mul(b)));
        let ends = ends.as_flattened().iter().copied();
        Self { low: ends.clone().min().unwrap_or(0), high: ends.max().unwrap_or(0) }
    }

    /// The integers of a constant, in which lengths are at most `longest`; below [`Self::ALL`] and beyond, too.
    pub(crate) fn of_numbers(literal: &Literal, longest: i64) -> Self {
        let of = |int: &Int| int.as_number().map_or([-longest, longest], |n| [n, n]);
        let ends = literal.as_ints().map(|ints| ints.data.iter().map(of).collect::<Vec<_>>());
        let ends = ends.unwrap_or_default();
        let (low, high) = (ends.iter().map(|e| e[0]).min(), ends.iter().map(|e| e[1]).max());
        low.zip(high).map_or(Self::ALL, |(low, high)| Self { low, high })
    }

    /// The integers of a constant.
    pub(crate) fn of_literal(literal: &Literal) -> Self {
        let ints = literal.as_ints().map(|ints| &ints.data[..]);
        let numbers = ints.and_then(|ints| ints.iter().map(Int::as_number).collect());
        let Some(numbers): Option<Vec<i64>> = numbers else { return Self::ALL };
        match (numbers.iter().min(), numbers.iter().max()) {
            (Some(&low), Some(&high)) => Self::from([low, high]),
            _ => Self::ALL,
        }
    }
}

impl From<[i64; 2]> for IntRange {
    /// The range between two ends; all integers where it passes 32 bits, as a sum then wraps.
    fn from([low, high]: [i64; 2]) -> Self {
        let range = Self { low, high };
        if range.is_within(Self::ALL) { range } else { Self::ALL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_follow_their_operators_and_wrap() {
        let range = |low, high| IntRange::from([low, high]);
        let all = IntRange::ALL;
        assert_eq!(range(-3, 4).combined(range(2, 5), all, |a, b| a * b), range(-15, 20));
        let large = range(0, i64::from(i32::MAX));
        assert_eq!(large.combined(range(1, 1), all, |a, b| a + b), all);
        let wide = large.combined(range(1, 1), IntRange::ALL_64, |a, b| a + b);
        assert_eq!(wide, IntRange { low: 1, high: 1 << 31 });
        assert_eq!(wide.within_32_bits(), range(1, i64::from(i32::MAX)));
        let any = IntRange::ALL_64;
        assert_eq!(any.combined(range(1, 1), any, |a, b| a + b), any);
        assert!(IntRange::below(4).is_within(range(-4, 3)));
        assert!(!IntRange::below(5).is_within(range(-4, 3)));
    }
}
