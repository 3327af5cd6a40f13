//! The positions of windows along an axis.

use std::ops::Range;

/// The windows along one axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Elements of a window; at least 1.
    pub kernel: usize,
    /// Elements from a window to the next; at least 1.
    pub stride: usize,
    /// Elements from one element of a window to the next; at least 1.
    pub dilation: usize,
    /// Elements of padding before the axis.
    pub before: usize,
    /// Elements of padding after the axis.
    pub after: usize,
}

impl Window {
    /// Every element is a window.
    pub const POINT: Self = Self { kernel: 1, stride: 1, dilation: 1, before: 0, after: 0 };

    /// The number of windows over `length` elements; none if not even one fits.
    pub fn count(&self, length: usize) -> Option<usize> {
        let reach = self.dilation * (self.kernel - 1) + 1;
        let room = (length + self.before + self.after).checked_sub(reach)?;
        Some(room / self.stride + 1)
    }

    /// The part of window `at` that lies within `length` elements, and the element where that part begins.
    pub(crate) fn inside(&self, at: usize, length: usize) -> (Range<usize>, usize) {
        let first = at * self.stride;
        let skip = self.before.saturating_sub(first).div_ceil(self.dilation).min(self.kernel);
        let room = (length + self.before).saturating_sub(first);
        let end = room.div_ceil(self.dilation).clamp(skip, self.kernel);
        (skip..end, (first + skip * self.dilation).saturating_sub(self.before))
    }

    /// Whether every window lies within any axis.
    pub(crate) fn is_inside(&self) -> bool {
        (self.before, self.after) == (0, 0)
    }
}
