//! The last part of a step, after the products of a cell: activations over places (rows of panels) side by
//! side, and stores of vectors of units to rows.

use std::ops::Range;

use super::recurrence::StepRow;
use crate::packing::lines::LINE_LEN;
use crate::products::register_tile::load_vectors;
use crate::simd::operations::{Simd, prefetch};

/// Rows that are finished side by side. From a row's sums to its new state is one long chain of
/// operations, each of which waits for the one before.
const SIDE_BY_SIDE: usize = 4;

/// A row of a panel.
#[derive(Clone, Copy, Default)]
pub(crate) struct Place {
    pub(crate) panel: usize,
    pub(crate) row: usize,
}

/// The last part of a piece of a step, after its products: activations, and the new state.
pub(crate) trait Finish<S: Simd>: Copy {
    /// Finishes some rows of panels, [side by side](crate::simd::side_by_side::SideBySide).
    ///
    /// # Safety
    /// The places are the piece's, and their sums are complete. What the piece's rows point to is readable
    /// and writable as their cell's step asks for, and nobody else accesses the units of these places that
    /// are written.
    unsafe fn finish<const N: usize>(self, simd: S, places: [Place; N]);

    /// Finishes all rows of a piece: `rows` rows of each of `panels`.
    ///
    /// # Safety
    /// Panels and rows are the piece's, and all their sums are complete. What the piece's rows point to is
    /// readable and writable as their cell's step asks for, and nobody else accesses the units of `panels`
    /// that are written.
    #[inline(always)]
    unsafe fn finish_all(self, simd: S, panels: Range<usize>, rows: usize) {
        let mut waiting = [Place::default(); SIDE_BY_SIDE];
        let mut count = 0;
        // SAFETY: each place is one of the piece's panels and rows, finished once.
        unsafe {
            for panel in panels {
                for row in 0..rows {
                    let place = Place { panel, row };
                    if !S::IS_TUNED {
                        self.finish(simd, [place]);
                        continue;
                    }
                    waiting[count] = place;
                    count += 1;
                    if count == SIDE_BY_SIDE {
                        count = 0;
                        self.finish(simd, waiting);
                    }
                }
            }
            if S::IS_TUNED {
                let (pairs, last) = waiting[..count].as_chunks::<2>();
                for &pair in pairs {
                    self.finish(simd, pair);
                }
                for &place in last {
                    self.finish(simd, [place]);
                }
            }
        }
    }
}

/// The sums of some places, each of one row of `VECTORS` vectors at an address: `[vector][place]`.
///
/// # Safety
/// At the address of each place `VECTORS * LANES` elements are readable, and nobody writes them meanwhile.
#[inline(always)]
pub(crate) unsafe fn load_sums<S: Simd, const VECTORS: usize, const N: usize>(
    simd: S,
    places: [Place; N],
    address: impl Fn(Place) -> *const f32,
) -> [[S::Vector; N]; VECTORS] {
    let mut sums = [[simd.splat(0.0); N]; VECTORS];
    for at in 0..N {
        // SAFETY: `VECTORS` vectors are readable at the address.
        let of_place: [S::Vector; VECTORS] = unsafe { load_vectors(simd, address(places[at])) };
        for vector in 0..VECTORS {
            sums[vector][at] = of_place[vector];
        }
    }
    sums
}

/// The units of one vector of a panel.
#[derive(Clone, Copy)]
pub(crate) struct Units {
    first: usize,
    /// At most `LANES`; 0 past the last unit.
    count: usize,
}

impl Units {
    /// Group `group` of a panel with `groups` groups, of a cell with `units` units.
    #[inline(always)]
    pub(crate) fn of<S: Simd>(units: usize, panel: usize, groups: usize, group: usize) -> Self {
        let first = (panel * groups + group) * S::LANES;
        Self { first, count: units.saturating_sub(first).min(S::LANES) }
    }

    /// The units' elements of the row at `from`.
    ///
    /// # Safety
    /// The row at `from` has an element for each unit of the cell; those of these units are readable, and
    /// nobody writes them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd>(self, simd: S, from: *const f32) -> S::Vector {
        let from = from.wrapping_add(self.first);
        // SAFETY: `count` elements from the first unit's on, at most `LANES`, are the row's.
        unsafe {
            if self.count == S::LANES {
                simd.load(from)
            } else {
                simd.load_partial(from, self.count)
            }
        }
    }

    /// Writes the units' elements of the row at `to`.
    ///
    /// # Safety
    /// The row at `to` has an element for each unit of the cell; those of these units are writable, and nobody
    /// else accesses them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd>(self, simd: S, to: *mut f32, vector: S::Vector) {
        let to = to.wrapping_add(self.first);
        // SAFETY: `count` elements from the first unit's on, at most `LANES`, are the row's.
        unsafe {
            if self.count == S::LANES {
                simd.store(to, vector);
            } else {
                simd.store_partial(to, vector, self.count);
            }
        }
    }

    /// Writes the hidden state after a step, once or twice.
    ///
    /// # Safety
    /// `row.h_out` and, unless it is null, `row.y` have an element for each unit of the cell; those of these
    /// units are writable, and nobody else accesses them meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn store_h<S: Simd>(self, simd: S, row: &StepRow, h: S::Vector) {
        // SAFETY: both are rows whose elements the caller vouches for.
        unsafe {
            self.store(simd, row.h_out, h);
            if !row.y.is_null() {
                self.store(simd, row.y, h);
                // Nobody has been there yet, nor goes on from there to the next row.
                prefetch(row.y.wrapping_add(self.first + LINE_LEN));
            }
        }
    }
}
