//! Symbolic dimensions: lengths that are known only when a request comes.

/// A length that is known only when a request comes: the number of sequences, or a number of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Symbol(pub(crate) u32);

/// The number of sequences.
pub(crate) const BATCH: Symbol = Symbol(0);

/// The number of windows that fit an axis, each element of which is `multiple` elements:
/// `floor((multiple * length + extra) / stride) + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Windows {
    /// At least 1.
    pub(crate) multiple: i64,
    /// The number of elements that padding adds, less the number that one window covers.
    pub(crate) extra: i64,
    pub(crate) stride: i64,
    /// The number of elements that an axis may lack for its first window, which then covers what there is. Below 0: the
    /// number that it must have beyond that window.
    pub(crate) lacking: i64,
}

impl Windows {
    /// Windows over an axis as it is.
    pub(crate) const fn new(extra: i64, stride: i64) -> Self {
        Self { multiple: 1, extra, stride, lacking: 0 }
    }

    /// These windows over others, as windows over the axis of those; none if no windows are as many.
    pub(crate) fn over(self, inner: Self) -> Option<Self> {
        // floor((floor((m l + x) / s) + 1 + e) / t) + 1 = floor((m l + x + s (1 + e)) / (s t)) + 1
        let more = inner.stride.checked_mul(self.extra.checked_add(1)?)?;
        let enough = inner.stride.checked_mul(self.lacking)?;
        // Where the axis lacks elements for one of the others, there is one of them.
        let lacking = match (inner.lacking, self.extra + 1) {
            (lacking @ ..=0, _) => enough.min(lacking.checked_sub(more)?),
            (lacking, 0) if self.lacking >= 0 => lacking,
            (_, 1..) => return None,
            (lacking, missing) if -missing <= self.lacking => lacking.checked_sub(more)?,
            _ => enough,
        };
        (self.multiple == 1).then_some(Self {
            multiple: inner.multiple,
            extra: inner.extra.checked_add(more)?,
            stride: inner.stride.checked_mul(self.stride)?,
            lacking,
        })
    }

    /// The number of windows over an axis of `length` elements; none if not even one fits.
    pub(crate) fn count(self, length: usize) -> Option<usize> {
        let room = self.room(length)?;
        (room >= -self.lacking).then(|| (room.max(0) / self.stride) as usize + 1)
    }

    /// The number of windows that lie in the first `length` elements of an axis that goes on; none if not even one does.
    pub(crate) fn count_whole(self, length: usize) -> Option<usize> {
        Self { lacking: 0, ..self }.count(length)
    }

    /// The elements between the first window's end and that of the axis.
    fn room(self, length: usize) -> Option<i64> {
        i64::try_from(length).ok()?.checked_mul(self.multiple)?.checked_add(self.extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_as_wide_as_its_stride_covers_what_there_is() {
        let pool = Windows { lacking: 3, ..Windows::new(-4, 4) };
        let counts = (1..10).map(|length| pool.count(length)).collect::<Vec<_>>();
        assert_eq!(counts, [1, 1, 1, 1, 1, 1, 1, 2, 2].map(Some));
        assert_eq!([3, 4].map(|length| pool.count_whole(length)), [None, Some(1)]);
    }

    #[test]
    fn windows_over_windows_are_as_many_as_one_after_the_other() {
        let mut all = Vec::new();
        for (extra, stride) in
            [(3, 2), (-6, 2), (-3, 2), (-3, 3), (-2, 2), (-1, 3), (0, 2), (-9, 2)]
        {
            all.extend(
                [0, 1, stride - 1]
                    .map(|lacking| Windows { lacking, ..Windows::new(extra, stride) }),
            );
        }
        let mut joined = 0;
        for inner in all.iter().copied() {
            for outer in all.iter().copied() {
                let Some(both) = outer.over(inner) else { continue };
                joined += 1;
                for length in 1..40 {
                    let count = inner.count(length).and_then(|count| outer.count(count));
                    assert_eq!(both.count(length), count, "{outer:?} over {inner:?}, {length}");
                }
            }
        }
        assert!(joined > 300, "{joined} of {}", all.len() * all.len());
    }
}
