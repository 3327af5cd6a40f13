//! Symbolic dimensions: lengths that are known only when a request comes.

/// A length that is not a plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Symbol(pub(crate) u32);

/// The number of sequences.
pub(crate) const BATCH: Symbol = Symbol(0);

/// How many windows fit an axis: `floor((length + extra) / stride) + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    /// What padding adds and a window takes.
    pub(crate) extra: i64,
    pub(crate) stride: i64,
}

impl Windows {
    /// None: not one fits.
    pub(crate) fn count(self, length: usize) -> Option<usize> {
        let room = i64::try_from(length).ok()?.checked_add(self.extra)?;
        (room >= 0).then(|| (room / self.stride) as usize + 1)
    }
}
