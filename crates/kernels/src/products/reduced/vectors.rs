//! Sums by vector instructions: tiles of rows over a panel, generic over how a lane group is multiplied.

#![expect(clippy::needless_range_loop, reason = "one index into several arrays of registers")]

use std::mem::MaybeUninit;

use super::matrix::ReducedMatrix;
use super::operand::Operand;
use crate::packing::lines::LINE_LEN;
use crate::packing::reduced::Format;
use crate::simd::operations::{Simd, SimdOp, prefetch};

/// Vectors of a panel, at most.
pub(super) const VECTORS_MAX: usize = 5;

/// Lane groups from those that are multiplied to those that are fetched.
const FETCH_AHEAD_GROUPS: usize = 16;

/// Lanes of a vector, at most.
pub(super) const LANES_MAX: usize = 16;

/// The multiplication of a lane group of weights with one of an input.
pub(super) trait Dot: Copy {
    /// Words in a vector.
    const LANES: usize;
    /// Vector registers.
    const REGISTERS: usize;
    /// Registers that a vector of weights takes, with what is made of it.
    const WEIGHT_REGISTERS: usize;
    /// u32 of the operand that go with a lane group of weights.
    const INPUT_ELEMENTS: usize;
    /// Lines of memory that are fetched ahead for a lane group of all vectors, at most. One of two is worse than none: it keeps the
    /// processor from fetching the other by itself.
    const FETCHES: usize;
    /// The most lane groups over which sums are exact, or rounded as they should be. Sums over more are
    /// added up from parts.
    const GROUPS_MAX: usize;

    /// A vector of sums.
    type Sums: Copy;
    /// A vector of weights.
    type Weights: Copy;

    /// No sums.
    fn zero(self) -> Self::Sums;

    /// A vector of weights.
    ///
    /// # Safety
    /// `LANES` lane groups at `from` are readable.
    unsafe fn weights(self, from: *const u32) -> Self::Weights;

    /// The sums with the products of weights and the input at `input`, the same in all lanes.
    ///
    /// # Safety
    /// [`Self::INPUT_ELEMENTS`] u32 at `input` are readable.
    unsafe fn dot(self, sums: Self::Sums, weights: Self::Weights, input: *const u32) -> Self::Sums;

    /// Writes sums to `LANES` u32, an f32 or an i32 each, as the format has them; or, where lane groups
    /// beyond the first [`Self::GROUPS_MAX`] follow, adds them.
    ///
    /// # Safety
    /// `LANES` u32 at `to` are writable, and initialised unless `is_first`; nobody else accesses them
    /// meanwhile.
    unsafe fn store(self, sums: Self::Sums, to: *mut u32, is_first: bool);
}

/// Each number as an f32, on any vector unit.
#[derive(Clone, Copy)]
struct Bf16OnF32<S>(S);

impl<S: Simd> Dot for Bf16OnF32<S> {
    const LANES: usize = S::LANES;
    const REGISTERS: usize = S::REGISTERS;
    const WEIGHT_REGISTERS: usize = 2;
    const INPUT_ELEMENTS: usize = 2;
    const FETCHES: usize = 1;
    const GROUPS_MAX: usize = usize::MAX;

    type Sums = S::Vector;
    type Weights = [S::Vector; 2];

    #[inline(always)]
    fn zero(self) -> S::Vector {
        self.0.splat(0.0)
    }

    #[inline(always)]
    unsafe fn weights(self, from: *const u32) -> [S::Vector; 2] {
        // SAFETY: `LANES` lane groups are readable.
        unsafe { self.0.load_pairs(from) }
    }

    /// In the order of `vdpbf16ps`: the higher of the two first.
    #[inline(always)]
    unsafe fn dot(
        self,
        mut sums: S::Vector,
        weights: [S::Vector; 2],
        input: *const u32,
    ) -> S::Vector {
        for at in [1, 0] {
            // SAFETY: the input has an f32 for each number of the lane group.
            let input = self.0.splat(unsafe { *input.cast::<f32>().add(at) });
            sums = self.0.mul_add(weights[at], input, sums);
        }
        sums
    }

    #[inline(always)]
    unsafe fn store(self, sums: S::Vector, to: *mut u32, _: bool) {
        // SAFETY: `LANES` elements are writable.
        unsafe { self.0.store(to.cast(), sums) }
    }
}

/// Each byte as an f32. Products are at most 255 * 128, so 512 of them add up exactly.
#[derive(Clone, Copy)]
struct Int8OnF32<S>(S);

impl<S: Simd> Dot for Int8OnF32<S> {
    const LANES: usize = S::LANES;
    const REGISTERS: usize = S::REGISTERS;
    const WEIGHT_REGISTERS: usize = 4;
    const INPUT_ELEMENTS: usize = 4;
    const FETCHES: usize = 1;
    const GROUPS_MAX: usize = 512 / 4;

    type Sums = S::Vector;
    type Weights = [S::Vector; 4];

    #[inline(always)]
    fn zero(self) -> S::Vector {
        self.0.splat(0.0)
    }

    #[inline(always)]
    unsafe fn weights(self, from: *const u32) -> [S::Vector; 4] {
        // SAFETY: `LANES` lane groups are readable.
        unsafe { self.0.load_quads(from) }
    }

    #[inline(always)]
    unsafe fn dot(
        self,
        mut sums: S::Vector,
        weights: [S::Vector; 4],
        input: *const u32,
    ) -> S::Vector {
        for at in 0..4 {
            // SAFETY: the input has an f32 for each number of the lane group.
            let input = self.0.splat(unsafe { *input.cast::<f32>().add(at) });
            sums = self.0.mul_add(weights[at], input, sums);
        }
        sums
    }

    #[inline(always)]
    unsafe fn store(self, sums: S::Vector, to: *mut u32, is_first: bool) {
        let mut floats = [0.0; LANES_MAX];
        // SAFETY: a vector has at most `LANES_MAX` lanes, and `LANES` elements at `to` are writable, and
        // initialised unless these are the first sums.
        unsafe {
            self.0.store(floats.as_mut_ptr(), sums);
            for lane in 0..S::LANES {
                let to = to.add(lane).cast::<i32>();
                let before = if is_first { 0 } else { *to };
                // Whole numbers of less than 2^24.
                *to = before + floats[lane].to_int_unchecked::<i32>();
            }
        }
    }
}

/// The sums of a panel's rows by widening; `combine` receives them as from [`sums`]. Whoever runs it vouches
/// that the matrix has the panel, and that the operand was filled for the matrix with `rows` rows.
pub(super) struct WidenedSums<'a, F, const VECTORS: usize> {
    pub(super) matrix: &'a ReducedMatrix,
    pub(super) panel: usize,
    pub(super) operand: &'a Operand,
    pub(super) rows: usize,
    pub(super) combine: F,
}

impl<F: FnMut(usize, usize, *const u32), const VECTORS: usize> SimdOp
    for WidenedSums<'_, F, VECTORS>
{
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { matrix, panel, operand, rows, combine } = self;
        let (panel, groups) = (matrix.panel(panel), matrix.groups);
        // SAFETY: the matrix has the panel, and the operand was filled for the matrix with the rows.
        unsafe {
            match matrix.reduced.format {
                Format::Bf16 => {
                    sums::<_, VECTORS, 1>(Bf16OnF32(simd), panel, groups, operand, rows, combine);
                }
                Format::Int8 => {
                    sums::<_, VECTORS, 1>(Int8OnF32(simd), panel, groups, operand, rows, combine);
                }
            }
        }
    }
}

/// Rows of a tile, at most.
const fn tile_rows_max<D: Dot, const VECTORS: usize>() -> usize {
    let mut rows = 1;
    while rows < 6 && (rows + 1) * VECTORS + D::WEIGHT_REGISTERS < D::REGISTERS {
        rows += 1;
    }
    rows
}

/// The sums over k of `rows` rows with a panel. `combine` receives them a tile of rows at a time: the first
/// row, the number of rows, and their sums, `[row][vector][lane]`.
///
/// `RUN` lane groups of k of each vector lie together: `[run][vector][group of the run][lane]`.
///
/// # Safety
/// `groups * VECTORS * LANES` lane groups are readable at `panel`, in whole runs of `RUN`. `operand` has `rows` rows
/// of `groups * INPUT_ELEMENTS` u32 each. Both are in the format that `dot` multiplies, and nobody writes them
/// meanwhile.
#[inline(always)]
pub(super) unsafe fn sums<D: Dot, const VECTORS: usize, const RUN: usize>(
    dot: D,
    panel: *const u32,
    groups: usize,
    operand: &Operand,
    rows: usize,
    mut combine: impl FnMut(usize, usize, *const u32),
) {
    let rows_max = const { tile_rows_max::<D, VECTORS>() };
    let mut buffer = [MaybeUninit::<u32>::uninit(); 6 * VECTORS_MAX * LANES_MAX];
    let buffer: *mut u32 = buffer.as_mut_ptr().cast();
    let tiles = rows.div_ceil(rows_max);
    let mut first = 0;
    for tile in 0..tiles {
        // Tiles have nearly equal heights.
        let end = rows * (tile + 1) / tiles;
        // SAFETY: the tile's rows are the operand's; the buffer has space for the highest tile.
        unsafe {
            match end - first {
                1 => tile_sums::<D, 1, VECTORS, RUN>(dot, panel, groups, operand, first, buffer),
                2 if rows_max >= 2 => {
                    tile_sums::<D, 2, VECTORS, RUN>(dot, panel, groups, operand, first, buffer);
                }
                3 if rows_max >= 3 => {
                    tile_sums::<D, 3, VECTORS, RUN>(dot, panel, groups, operand, first, buffer);
                }
                4 if rows_max >= 4 => {
                    tile_sums::<D, 4, VECTORS, RUN>(dot, panel, groups, operand, first, buffer);
                }
                5 if rows_max >= 5 => {
                    tile_sums::<D, 5, VECTORS, RUN>(dot, panel, groups, operand, first, buffer);
                }
                6 if rows_max >= 6 => {
                    tile_sums::<D, 6, VECTORS, RUN>(dot, panel, groups, operand, first, buffer);
                }
                height => unreachable!("no tile of {height} rows"),
            }
        }
        combine(first, end - first, buffer);
        first = end;
    }
}

/// The sums of `ROWS` rows from `first` on, to `to`, `[row][vector][lane]`.
///
/// # Safety
/// `groups * VECTORS * LANES` lane groups are readable at `panel`, in whole runs of `RUN`. `operand` has the rows, of
/// `groups * INPUT_ELEMENTS` u32 each. `ROWS * VECTORS * LANES` u32 are writable at `to`, and nobody else accesses
/// them meanwhile.
#[inline(always)]
unsafe fn tile_sums<D: Dot, const ROWS: usize, const VECTORS: usize, const RUN: usize>(
    dot: D,
    panel: *const u32,
    groups: usize,
    operand: &Operand,
    first: usize,
    to: *mut u32,
) {
    let inputs: [*const u32; ROWS] = std::array::from_fn(|row| operand.row(first + row));
    let mut begin = 0_usize;
    // SAFETY: the runs are the panel's and the inputs', and the sums lie within those at `to`.
    unsafe {
        loop {
            let end = groups.min(begin.saturating_add(D::GROUPS_MAX));
            let mut sums = [[dot.zero(); VECTORS]; ROWS];
            for run in (begin..end).step_by(RUN) {
                let from = panel.add(run * VECTORS * D::LANES);
                for group in 0..RUN {
                    let from = from.add(group * D::LANES);
                    let ahead = from.wrapping_add(FETCH_AHEAD_GROUPS * VECTORS * D::LANES);
                    for line in (0..VECTORS * D::LANES).step_by(LINE_LEN).take(D::FETCHES) {
                        prefetch(ahead.wrapping_add(line).cast());
                    }
                    for vector in 0..VECTORS {
                        let weights = dot.weights(from.add(vector * RUN * D::LANES));
                        for row in 0..ROWS {
                            let input = inputs[row].add((run + group) * D::INPUT_ELEMENTS);
                            sums[row][vector] = dot.dot(sums[row][vector], weights, input);
                        }
                    }
                }
            }
            for row in 0..ROWS {
                for vector in 0..VECTORS {
                    let to = to.add((row * VECTORS + vector) * D::LANES);
                    dot.store(sums[row][vector], to, begin == 0);
                }
            }
            begin = end;
            if begin >= groups {
                break;
            }
        }
    }
}
