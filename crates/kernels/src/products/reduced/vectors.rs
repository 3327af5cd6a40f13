//! Sums by vector instructions: tiles of rows over a panel, generic over how a word is multiplied.

#![expect(clippy::needless_range_loop, reason = "one index into several arrays of registers")]

use std::mem::MaybeUninit;

use super::matrix::ReducedMatrix;
use super::operand::Operand;
use crate::packing::reduced::Format;
use crate::simd::operations::{Simd, SimdOp, prefetch};

/// Vectors of a panel, at most.
pub(super) const VECTORS_MAX: usize = 5;

/// Lanes of a vector, at most.
pub(super) const LANES_MAX: usize = 16;

/// How a word of weights is multiplied with one of an input.
pub(super) trait Dot: Copy {
    /// Words in a vector.
    const LANES: usize;
    /// Vector registers.
    const REGISTERS: usize;
    /// Registers that a vector of weights takes, with what is made of it.
    const WEIGHT_REGISTERS: usize;
    /// u32 of the operand that go with a word of weights.
    const INPUT_WORDS: usize;
    /// Sums are exact, or rounded as they should be, over so many words; then they are added to.
    const WORDS_MAX: usize;

    /// A vector of sums.
    type Sums: Copy;
    /// A vector of weights.
    type Weights: Copy;

    /// No sums.
    fn zero(self) -> Self::Sums;

    /// A vector of weights.
    ///
    /// # Safety
    /// `LANES` words are readable.
    unsafe fn weights(self, from: *const u32) -> Self::Weights;

    /// The sums with the products of weights and the input at `input`, the same in all lanes.
    ///
    /// # Safety
    /// [`Self::INPUT_WORDS`] are readable.
    unsafe fn dot(self, sums: Self::Sums, weights: Self::Weights, input: *const u32) -> Self::Sums;

    /// Writes sums to `LANES` u32, an f32 or an i32 each, as the format has them; or, where words
    /// beyond the first [`Self::WORDS_MAX`] follow, adds them.
    ///
    /// # Safety
    /// They are writable, and initialised unless `is_first`.
    unsafe fn store(self, sums: Self::Sums, to: *mut u32, is_first: bool);
}

/// Each number as an f32, on any vector unit.
#[derive(Clone, Copy)]
struct Bf16OnF32<S>(S);

impl<S: Simd> Dot for Bf16OnF32<S> {
    const LANES: usize = S::LANES;
    const REGISTERS: usize = S::REGISTERS;
    const WEIGHT_REGISTERS: usize = 2;
    const INPUT_WORDS: usize = 2;
    const WORDS_MAX: usize = usize::MAX;

    type Sums = S::Vector;
    type Weights = [S::Vector; 2];

    #[inline(always)]
    fn zero(self) -> S::Vector {
        self.0.splat(0.0)
    }

    #[inline(always)]
    unsafe fn weights(self, from: *const u32) -> [S::Vector; 2] {
        // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            let input = self.0.splat(unsafe { *input.cast::<f32>().add(at) });
            sums = self.0.mul_add(weights[at], input, sums);
        }
        sums
    }

    #[inline(always)]
    unsafe fn store(self, sums: S::Vector, to: *mut u32, _: bool) {
        // SAFETY: the caller's promise.
        unsafe { self.0.store(to.cast(), sums) }
    }
}

/// Each byte as an f32. Products are at most 127 * 127, so 1024 of them add up exactly.
#[derive(Clone, Copy)]
struct Int8OnF32<S>(S);

impl<S: Simd> Dot for Int8OnF32<S> {
    const LANES: usize = S::LANES;
    const REGISTERS: usize = S::REGISTERS;
    const WEIGHT_REGISTERS: usize = 4;
    const INPUT_WORDS: usize = 4;
    const WORDS_MAX: usize = 1024 / 4;

    type Sums = S::Vector;
    type Weights = [S::Vector; 4];

    #[inline(always)]
    fn zero(self) -> S::Vector {
        self.0.splat(0.0)
    }

    #[inline(always)]
    unsafe fn weights(self, from: *const u32) -> [S::Vector; 4] {
        // SAFETY: the caller's promise.
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
            // SAFETY: the caller's promise.
            let input = self.0.splat(unsafe { *input.cast::<f32>().add(at) });
            sums = self.0.mul_add(weights[at], input, sums);
        }
        sums
    }

    #[inline(always)]
    unsafe fn store(self, sums: S::Vector, to: *mut u32, is_first: bool) {
        let mut floats = [0.0; LANES_MAX];
        // SAFETY: a vector has at most that many lanes; the caller's promise.
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

/// The sums of a panel's rows by widening; `combine` takes them, of some rows at a time.
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
        let (panel, words) = (matrix.panel(panel), matrix.words);
        // SAFETY: the contract of `Product::multiply`.
        unsafe {
            match matrix.reduced.format {
                Format::Bf16 => {
                    sums::<_, VECTORS, 1>(Bf16OnF32(simd), panel, words, operand, rows, combine);
                }
                Format::Int8 => {
                    sums::<_, VECTORS, 1>(Int8OnF32(simd), panel, words, operand, rows, combine);
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

/// The sums over k of all rows with a panel: of a tile of them at a time, `[row][vector][lane]`, which
/// `combine` is given with the number of the first of its rows, and how many there are.
///
/// Of each vector, `RUN` words of k lie together: `[run][vector][word of the run][lane]`.
///
/// # Safety
/// The panel has so many words of k, in whole runs, the operand so many rows of as many, and the dot
/// was made for both.
#[inline(always)]
pub(super) unsafe fn sums<D: Dot, const VECTORS: usize, const RUN: usize>(
    dot: D,
    panel: *const u32,
    words: usize,
    operand: &Operand,
    rows: usize,
    mut combine: impl FnMut(usize, usize, *const u32),
) {
    let rows_max = const { tile_rows_max::<D, VECTORS>() };
    let mut room = [MaybeUninit::<u32>::uninit(); 6 * VECTORS_MAX * LANES_MAX];
    let room: *mut u32 = room.as_mut_ptr().cast();
    let tiles = rows.div_ceil(rows_max);
    let mut first = 0;
    for tile in 0..tiles {
        // Of nearly equal heights.
        let end = rows * (tile + 1) / tiles;
        // SAFETY: the caller's promises.
        unsafe {
            match end - first {
                1 => tile_sums::<D, 1, VECTORS, RUN>(dot, panel, words, operand, first, room),
                2 if rows_max >= 2 => {
                    tile_sums::<D, 2, VECTORS, RUN>(dot, panel, words, operand, first, room);
                }
                3 if rows_max >= 3 => {
                    tile_sums::<D, 3, VECTORS, RUN>(dot, panel, words, operand, first, room);
                }
                4 if rows_max >= 4 => {
                    tile_sums::<D, 4, VECTORS, RUN>(dot, panel, words, operand, first, room);
                }
                5 if rows_max >= 5 => {
                    tile_sums::<D, 5, VECTORS, RUN>(dot, panel, words, operand, first, room);
                }
                6 if rows_max >= 6 => {
                    tile_sums::<D, 6, VECTORS, RUN>(dot, panel, words, operand, first, room);
                }
                height => unreachable!("no tile of {height} rows"),
            }
        }
        combine(first, end - first, room);
        first = end;
    }
}

/// The sums of `ROWS` rows from `first` on.
///
/// # Safety
/// As for [`sums`]; there is room at `to`.
#[inline(always)]
unsafe fn tile_sums<D: Dot, const ROWS: usize, const VECTORS: usize, const RUN: usize>(
    dot: D,
    panel: *const u32,
    words: usize,
    operand: &Operand,
    first: usize,
    to: *mut u32,
) {
    let inputs: [*const u32; ROWS] = std::array::from_fn(|row| operand.row(first + row));
    let mut begin = 0_usize;
    // SAFETY: the caller's promises.
    unsafe {
        loop {
            let end = words.min(begin.saturating_add(D::WORDS_MAX));
            let mut sums = [[dot.zero(); VECTORS]; ROWS];
            for run in (begin..end).step_by(RUN) {
                let from = panel.add(run * VECTORS * D::LANES);
                for word in 0..RUN {
                    let from = from.add(word * D::LANES);
                    prefetch(from.wrapping_add(16 * VECTORS * D::LANES).cast());
                    for vector in 0..VECTORS {
                        let weights = dot.weights(from.add(vector * RUN * D::LANES));
                        for row in 0..ROWS {
                            let input = inputs[row].add((run + word) * D::INPUT_WORDS);
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
            if begin >= words {
                break;
            }
        }
    }
}
