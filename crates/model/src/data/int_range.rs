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

    /// The least range that holds `f` of each end of this one with each end of another.
    pub(crate) fn combined(self, other: Self, f: fn(i64, i64) -> i64) -> Self {
        let ends = [self.low, self.high].map(|a| [other.low, other.high].map(|b| f(a, b)));
        let ends = ends.as_flattened();
        let (low, high) = ends
            .iter()
            .fold((i64::MAX, i64::MIN), |(low, high), &end| (low.min(end), high.max(end)));
        Self::from([low, high])
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
        assert_eq!(range(-3, 4).combined(range(2, 5), |a, b| a * b), range(-15, 20));
        assert_eq!(
            range(0, i64::from(i32::MAX)).combined(range(1, 1), |a, b| a + b),
            IntRange::ALL
        );
        assert!(IntRange::below(4).is_within(range(-4, 3)));
        assert!(!IntRange::below(5).is_within(range(-4, 3)));
    }
}
