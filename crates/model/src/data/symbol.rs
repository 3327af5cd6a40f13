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
}

impl Windows {
    /// Windows over an axis as it is.
    pub(crate) const fn new(extra: i64, stride: i64) -> Self {
        Self { multiple: 1, extra, stride }
    }

    /// These windows over others, as windows over the axis of those; none if they stand for multiples of elements.
    pub(crate) fn over(self, inner: Self) -> Option<Self> {
        // floor((floor((m l + x) / s) + 1 + e) / t) + 1 = floor((m l + x + s (1 + e)) / (s t)) + 1
        let more = inner.stride.checked_mul(self.extra.checked_add(1)?)?;
        (self.multiple == 1).then_some(Self {
            multiple: inner.multiple,
            extra: inner.extra.checked_add(more)?,
            stride: inner.stride.checked_mul(self.stride)?,
        })
    }

    /// The number of windows over an axis of `length` elements; none if not even one fits.
    pub(crate) fn count(self, length: usize) -> Option<usize> {
        let room =
            i64::try_from(length).ok()?.checked_mul(self.multiple)?.checked_add(self.extra)?;
        (room >= 0).then(|| (room / self.stride) as usize + 1)
    }
}
