//! The product of rows with a panel of weights: register tiles, blocks of k, and the order of
//! sums.
//!
//! ```text
//! sums(row)[vector] = start(row)[vector] + sum over k of input(row)[k] * panel[k][vector]
//! ```
//! **Order.** Every sum takes one fused multiply-add for each k, ascending, in a chain of its own.
//! Tiles and blocks only choose which chains run side by side and when a chain rests in memory, so
//! they change no bit. Two products one after the other, the second starting from the sums of the
//! first, are one longer chain.
//!
//! **Tile.** `rows x VECTORS` vectors of sums stay in registers while k runs. Beside them live
//! either one element of each row and one vector of weights, or all vectors of weights and one
//! element, whichever takes fewer registers. One row alone runs through two panels at once: the
//! four chains of one panel would not fill the latency of a multiply-add.
//!
//! **Blocks.** Where there is more than one tile, k runs in blocks of weights that stay in the
//! first-level cache while all rows go over them. Where the matrix is larger than a second-level
//! cache, the next block is fetched there meanwhile, a line now and then.

#![expect(clippy::needless_range_loop, reason = "one index into several arrays of registers")]

use std::ops::Range;

use crate::panel_matrix::PanelMatrix;
use crate::simd::{Simd, prefetch};

/// Rows that go over a panel together.
pub(crate) const ROWS_MAX: usize = 128;

/// Bytes of weights in a block: half of a first-level data cache of 32 KiB.
const BLOCK_BYTES: usize = 16 << 10;

/// Matrices larger than this are fetched ahead: they do not stay in a second-level cache.
const FETCH_AHEAD_BYTES: usize = 768 << 10;

/// Values of k in one turn of the inner loop.
const UNROLL: usize = 4;

/// Where the rows of a product lie.
pub(crate) trait ProductRows: Copy {
    /// The row's elements, as many as the matrix has inputs.
    ///
    /// # Safety
    /// The row is one of the product's.
    unsafe fn input(self, row: usize) -> *const f32;

    /// The vector that the row's sum of this vector of this panel starts from.
    ///
    /// # Safety
    /// The row and the panel are the product's.
    unsafe fn start(self, panel: usize, row: usize, vector: usize) -> *const f32;

    /// Where the row's sums of this panel go, all vectors of them. May be where they start from.
    ///
    /// # Safety
    /// The row and the panel are the product's.
    unsafe fn sums(self, panel: usize, row: usize) -> *mut f32;
}

/// Calls `f` with small enough pieces: one panel and at most [`ROWS_MAX`] rows, or two panels and
/// one row.
#[inline(always)]
pub(crate) fn for_each_piece(
    rows: usize,
    panels: Range<usize>,
    mut f: impl FnMut(Range<usize>, Range<usize>),
) {
    let at_once = if rows == 1 { 2 } else { 1 };
    let mut panel = panels.start;
    while panel < panels.end {
        let next = (panel + at_once).min(panels.end);
        let mut row = 0;
        while row < rows {
            let end = (row + ROWS_MAX).min(rows);
            f(panel..next, row..end);
            row = end;
        }
        panel = next;
    }
}

/// Rows of a tile: as many as leave room in the registers for the operands.
const fn tile_rows_max<S: Simd, const VECTORS: usize>() -> usize {
    let mut rows = 1;
    while rows < 8 {
        let next = rows + 1;
        let operands = 1 + if next < VECTORS { next } else { VECTORS };
        if next * VECTORS + operands > S::REGISTERS {
            break;
        }
        rows = next;
    }
    rows
}

/// The product of a piece (see [`for_each_piece`]), whose rows are counted from 0.
///
/// # Safety
/// The matrix was packed for `simd` with `VECTORS` vectors a panel and has these panels. For each
/// panel and row of the piece, inputs and starts are readable and sums are writable; nobody else
/// accesses the sums, and no sums overlap an input, or a start other than their own.
#[inline(always)]
pub(crate) unsafe fn multiply<S: Simd, const VECTORS: usize>(
    simd: S,
    matrix: &PanelMatrix,
    panels: Range<usize>,
    row_count: usize,
    rows: impl ProductRows,
) {
    let (panel, inputs) = (panels.start, matrix.inputs());
    let piece = Piece { weights: matrix.panel(panel), panel, rows };
    // SAFETY: the caller's promises; tiles cover each row once in each block.
    unsafe {
        if panels.len() == 2 {
            debug_assert_eq!(row_count, 1);
            let next = matrix.panel(panel + 1);
            return piece.two_panels::<S, VECTORS>(simd, next, inputs);
        }
        let tiles = row_count.div_ceil(const { tile_rows_max::<S, VECTORS>() });
        let row_bytes = VECTORS * S::LANES * size_of::<f32>();
        let blocks = match tiles {
            1 => 1,
            _ => (inputs * row_bytes).div_ceil(BLOCK_BYTES).max(1),
        };
        for block in 0..blocks {
            let k = inputs * block / blocks..inputs * (block + 1) / blocks;
            if tiles > 1 && matrix.bytes() > FETCH_AHEAD_BYTES {
                piece.tiles::<S, VECTORS, true>(simd, k, row_count, tiles);
            } else {
                piece.tiles::<S, VECTORS, false>(simd, k, row_count, tiles);
            }
        }
    }
}

/// One panel and the rows that go over it.
#[derive(Clone, Copy)]
struct Piece<R> {
    weights: *const f32,
    panel: usize,
    rows: R,
}

/// One tile of one block.
#[derive(Clone)]
struct Tile {
    k: Range<usize>,
    first_row: usize,
    /// Which of how many.
    index: usize,
    count: usize,
}

impl<R: ProductRows> Piece<R> {
    /// All rows over one block of k.
    #[inline(always)]
    unsafe fn tiles<S: Simd, const VECTORS: usize, const AHEAD: bool>(
        self,
        simd: S,
        k: Range<usize>,
        rows: usize,
        tiles: usize,
    ) {
        let rows_max = const { tile_rows_max::<S, VECTORS>() };
        let mut first_row = 0;
        for index in 0..tiles {
            // As few tiles as there can be, of nearly equal heights: a tile of one row costs
            // almost as much as a tile of two.
            let height = (rows - first_row).div_ceil(tiles - index);
            let tile = Tile { k: k.clone(), first_row, index, count: tiles };
            // SAFETY: the caller's promises; the tile's rows are within `rows`.
            unsafe {
                match height {
                    1 => self.tile::<S, 1, VECTORS, AHEAD>(simd, tile),
                    2 => self.tile::<S, 2, VECTORS, AHEAD>(simd, tile),
                    3 if rows_max >= 3 => self.tile::<S, 3, VECTORS, AHEAD>(simd, tile),
                    4 if rows_max >= 4 => self.tile::<S, 4, VECTORS, AHEAD>(simd, tile),
                    5 if rows_max >= 5 => self.tile::<S, 5, VECTORS, AHEAD>(simd, tile),
                    6 if rows_max >= 6 => self.tile::<S, 6, VECTORS, AHEAD>(simd, tile),
                    7 if rows_max >= 7 => self.tile::<S, 7, VECTORS, AHEAD>(simd, tile),
                    8 if rows_max >= 8 => self.tile::<S, 8, VECTORS, AHEAD>(simd, tile),
                    _ => unreachable!("no tile of {height} rows"),
                }
            }
            first_row += height;
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Simd, const ROWS: usize, const VECTORS: usize, const AHEAD: bool>(
        self,
        simd: S,
        tile: Tile,
    ) {
        let Tile { k, first_row, index, count } = tile;
        let row_len = VECTORS * S::LANES;
        let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
        let mut inputs = [std::ptr::null(); ROWS];
        // SAFETY: the caller's promises; sums rest where they go, from the block before.
        unsafe {
            for at in 0..ROWS {
                let row = first_row + at;
                for vector in 0..VECTORS {
                    sums[at][vector] = simd.load(match k.start {
                        0 => self.rows.start(self.panel, row, vector),
                        _ => self.rows.sums(self.panel, row).add(vector * S::LANES),
                    });
                }
                inputs[at] = self.rows.input(row).add(k.start);
            }
            let weights = self.weights.add(k.start * row_len);
            // Together the tiles of this block fetch the next, of about the same length.
            let stride = row_len.div_ceil(count);
            let from = weights.wrapping_add(k.len() * (row_len + index * stride));
            let ahead = Ahead { from, stride };
            let sums =
                accumulate::<S, ROWS, VECTORS, AHEAD>(simd, sums, weights, inputs, k.len(), ahead);
            for (at, sums) in sums.into_iter().enumerate() {
                let to = self.rows.sums(self.panel, first_row + at);
                for (vector, sum) in sums.into_iter().enumerate() {
                    simd.store(to.add(vector * S::LANES), sum);
                }
            }
        }
    }

    /// The piece's only row over this panel and the next, whose weights are `next`.
    #[inline(always)]
    unsafe fn two_panels<S: Simd, const VECTORS: usize>(
        self,
        simd: S,
        next: *const f32,
        inputs: usize,
    ) {
        let row_len = VECTORS * S::LANES;
        let mut sums = [[simd.splat(0.0); VECTORS]; 2];
        // SAFETY: the caller's promises.
        unsafe {
            let input = self.rows.input(0);
            for (at, sums) in sums.iter_mut().enumerate() {
                for (vector, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.load(self.rows.start(self.panel + at, 0, vector));
                }
            }
            for k in 0..inputs {
                let element = simd.splat(*input.add(k));
                for (sums, weights) in sums.iter_mut().zip([self.weights, next]) {
                    let weights = weights.add(k * row_len);
                    for (vector, sum) in sums.iter_mut().enumerate() {
                        let weight = simd.load(weights.add(vector * S::LANES));
                        *sum = simd.mul_add(weight, element, *sum);
                    }
                }
            }
            for (at, sums) in sums.into_iter().enumerate() {
                let to = self.rows.sums(self.panel + at, 0);
                for (vector, sum) in sums.into_iter().enumerate() {
                    simd.store(to.add(vector * S::LANES), sum);
                }
            }
        }
    }
}

/// Weights to fetch while a tile runs: `stride` elements for each k.
#[derive(Clone, Copy)]
struct Ahead {
    from: *const f32,
    stride: usize,
}

/// `sums[row][vector] += weights[k][vector] * inputs[row][k]` for k = 0, 1, .. in this order, one
/// fused multiply-add each.
///
/// # Safety
/// `weights` points to `count` rows of `VECTORS * LANES` elements, each input to `count` elements.
#[inline(always)]
unsafe fn accumulate<S: Simd, const ROWS: usize, const VECTORS: usize, const AHEAD: bool>(
    simd: S,
    mut sums: [[S::Vector; VECTORS]; ROWS],
    mut weights: *const f32,
    inputs: [*const f32; ROWS],
    count: usize,
    ahead: Ahead,
) -> [[S::Vector; VECTORS]; ROWS] {
    let mut fetch = ahead.from;
    let mut k = 0;
    // SAFETY: `k < count` at each turn.
    unsafe {
        while k + UNROLL <= count {
            for _ in 0..UNROLL {
                if AHEAD {
                    prefetch(fetch);
                    fetch = fetch.wrapping_add(ahead.stride);
                }
                sums = accumulate_one(simd, sums, weights, inputs, k);
                weights = weights.add(VECTORS * S::LANES);
                k += 1;
            }
        }
        while k < count {
            sums = accumulate_one(simd, sums, weights, inputs, k);
            weights = weights.add(VECTORS * S::LANES);
            k += 1;
        }
    }
    sums
}

/// One k of [`accumulate`], whose weights are at `weights`.
///
/// # Safety
/// As there, and the inputs have an element k.
#[inline(always)]
unsafe fn accumulate_one<S: Simd, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    mut sums: [[S::Vector; VECTORS]; ROWS],
    weights: *const f32,
    inputs: [*const f32; ROWS],
    k: usize,
) -> [[S::Vector; VECTORS]; ROWS] {
    // SAFETY: the caller's promises.
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
