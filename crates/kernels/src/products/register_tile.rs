//! The innermost loop of products with weights of f32: a tile of sums in registers, while k runs.

#![expect(clippy::needless_range_loop, reason = "one index into several arrays of registers")]

use super::tiling::tile_rows;
use crate::simd::operations::{Simd, prefetch};

/// Values of k in one turn of the inner loop.
pub(crate) const UNROLL: usize = 4;

/// Weights that are read once are fetched this many values of k before: a few kilobytes.
const DISTANCE: usize = 32;

/// Rows of a tile: as many as leave registers for the operands.
pub(crate) const fn tile_rows_max<S: Simd, const VECTORS: usize>() -> usize {
    tile_rows(S::REGISTERS, VECTORS)
}

/// `VECTORS` vectors from `from` on.
///
/// # Safety
/// `VECTORS * LANES` elements at `from` are readable, and nobody writes them meanwhile.
#[inline(always)]
pub(crate) unsafe fn load_vectors<S: Simd, const VECTORS: usize>(
    simd: S,
    from: *const f32,
) -> [S::Vector; VECTORS] {
    let mut vectors = [simd.splat(0.0); VECTORS];
    for at in 0..VECTORS {
        // SAFETY: the vector lies within what the caller promises to be readable.
        vectors[at] = unsafe { simd.load(from.add(at * S::LANES)) };
    }
    vectors
}

/// Writes `VECTORS` vectors from `to` on.
///
/// # Safety
/// `VECTORS * LANES` elements at `to` are writable, and nobody else accesses them meanwhile.
#[inline(always)]
pub(crate) unsafe fn store_vectors<S: Simd, const VECTORS: usize>(
    simd: S,
    to: *mut f32,
    vectors: [S::Vector; VECTORS],
) {
    for at in 0..VECTORS {
        // SAFETY: the vector lies within what the caller promises to be writable.
        unsafe { simd.store(to.add(at * S::LANES), vectors[at]) };
    }
}

/// Vectors of weights, those of the next k `stride` elements further.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) first: *const f32,
    pub(crate) stride: usize,
}

/// Weights to fetch while tiles run, a line every `stride` elements.
#[derive(Clone, Copy)]
pub(crate) struct PrefetchStream {
    pub(super) from: *const f32,
    pub(super) stride: usize,
}

impl PrefetchStream {
    pub(crate) fn new(from: *const f32, stride: usize) -> Self {
        Self { from, stride }
    }

    /// The weights that are read [`DISTANCE`] values of k later, where they are read once.
    #[inline(always)]
    pub(crate) fn of_weights(weights: Weights) -> Self {
        let from = weights.first.wrapping_add(DISTANCE * weights.stride);
        Self { from, stride: weights.stride }
    }
}

/// `sums[row][vector] += weights[k][vector] * inputs[row][k]` for k = 0, 1, .. in this order, one
/// fused multiply-add each.
///
/// # Safety
/// For each k below `count`, `VECTORS * LANES` elements at `weights.first + k * weights.stride` are readable,
/// and so is element k of each of `inputs`. Nobody writes any of them meanwhile.
#[inline(always)]
pub(crate) unsafe fn accumulate<
    S: Simd,
    const ROWS: usize,
    const VECTORS: usize,
    const FETCHES: usize,
>(
    simd: S,
    mut sums: [[S::Vector; VECTORS]; ROWS],
    weights: Weights,
    inputs: [*const f32; ROWS],
    count: usize,
    stream: &mut PrefetchStream,
) -> [[S::Vector; VECTORS]; ROWS] {
    let (mut fetch, mut at) = (stream.from, weights.first);
    let mut k = 0;
    // SAFETY: `k < count` at each turn.
    unsafe {
        while S::IS_TUNED && k + UNROLL <= count {
            for of_turn in 0..UNROLL {
                if of_turn < FETCHES {
                    prefetch(fetch);
                    fetch = fetch.wrapping_add(stream.stride);
                }
                sums = accumulate_one(simd, sums, at, inputs, k);
                at = at.add(weights.stride);
                k += 1;
            }
        }
        while k < count {
            sums = accumulate_one(simd, sums, at, inputs, k);
            at = at.add(weights.stride);
            k += 1;
        }
    }
    stream.from = fetch;
    sums
}

/// One k of [`accumulate`], whose weights are at `weights`.
///
/// # Safety
/// `VECTORS * LANES` elements at `weights` and element `k` of each of `inputs` are readable, and nobody writes
/// them meanwhile.
#[inline(always)]
unsafe fn accumulate_one<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    mut sums: [[S::Vector; VECTORS]; ROWS],
    weights: *const f32,
    inputs: [*const f32; ROWS],
    k: usize,
) -> [[S::Vector; VECTORS]; ROWS] {
    // SAFETY: the accesses are those that the caller promises to be readable.
    unsafe {
        if ROWS <= VECTORS {
            let mut elements = [simd.splat(0.0); ROWS];
            for row in 0..ROWS {
                elements[row] = simd.splat(*inputs[row].add(k));
            }
            for vector in 0..VECTORS {
                let weight = simd.load(weights.add(vector * S::LANES));
                for row in 0..ROWS {
                    sums[row][vector] = simd.mul_add(weight, elements[row], sums[row][vector]);
                    sums[row][vector] = simd.settled(sums[row][vector]);
                }
            }
        } else {
            let mut row_of_weights = [simd.splat(0.0); VECTORS];
            for vector in 0..VECTORS {
                row_of_weights[vector] = simd.load(weights.add(vector * S::LANES));
            }
            for row in 0..ROWS {
                let element = simd.splat(*inputs[row].add(k));
                for vector in 0..VECTORS {
                    sums[row][vector] =
                        simd.mul_add(row_of_weights[vector], element, sums[row][vector]);
                    sums[row][vector] = simd.settled(sums[row][vector]);
                }
            }
        }
    }
    sums
}
