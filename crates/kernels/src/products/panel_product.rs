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
//! four chains of one panel would not fill the latency of a multiply-add. A few rows more than a
//! tile takes run over two vectors at a time, in narrower and higher tiles, unless the matrix is so
//! large that its lines are better read in their order.
//!
//! **Blocks.** Where there is more than one tile, k runs in blocks of weights that stay in the
//! first-level cache while all rows go over them. Where the matrix is larger than a second-level
//! cache, the next block is fetched there meanwhile, a line now and then. So are the places where
//! the rows' next sums start and go.

#![expect(clippy::needless_range_loop, reason = "one index into several arrays of registers")]

use std::ops::Range;

use super::register_tile::{
    PrefetchStream, UNROLL, Weights, accumulate, load_vectors, store_vectors, tile_rows_max,
};
use super::tiling::Tiling;
use crate::packing::lines::LINE_LEN;
use crate::packing::panel_matrix::{PanelMatrix, PanelRow};
use crate::simd::operations::{Simd, SimdOp, prefetch};

/// Blocks of matrices larger than this are fetched before they are read: they do not stay in a second-level cache.
pub(crate) const FETCH_AHEAD_BYTES: usize = 768 << 10;

/// A row of a product, and where its sums of the product's first panel lie.
#[derive(Clone, Copy)]
pub(crate) struct ProductRow {
    /// The input: an element for each input of the matrix.
    pub(crate) input: *const f32,
    /// The numbers that the sums start from, `[vector][lane]`.
    pub(crate) start: *const f32,
    /// Receives the sums, `[vector][lane]`. It may be the array that they start from.
    pub(crate) sums: *mut f32,
}

/// The [product](crate::products::weights::Product) with weights of f32.
///
/// **Contract**, which whoever runs it holds, for a vector unit with `LANES` elements a vector:
/// - `matrix` was packed with `VECTORS` vectors of `LANES` columns a panel, and has `panels`: one panel,
///   or two where there is one row. `rows` are at most [`ROWS_MAX`](super::tiling::ROWS_MAX).
/// - For each row, `matrix.inputs()` elements of `input` are readable. For panel `i` of `panels`,
///   `VECTORS * LANES` elements are readable at `start + i * start_stride` and writable at
///   `sums + i * sums_stride`.
/// - While it runs nobody else accesses the sums, nobody writes inputs or starts, and no sums overlap an
///   input, other sums, or a start other than their own.
pub(crate) struct PanelProduct<'a, const VECTORS: usize> {
    pub(crate) matrix: &'a PanelMatrix,
    pub(crate) panels: Range<usize>,
    pub(crate) rows: &'a [ProductRow],
    pub(crate) start_stride: usize,
    pub(crate) sums_stride: usize,
    pub(crate) last_start: Option<&'a PanelRow>,
    pub(crate) tiling: Tiling,
}

impl<const VECTORS: usize> SimdOp for PanelProduct<'_, VECTORS> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let inputs = self.matrix.inputs();
        // SAFETY: the contract of `PanelProduct`; tiles cover each row once in each block, and blocks lie
        // within the inputs.
        unsafe {
            if self.panels.len() == 2 {
                return self.two_panels(simd, inputs);
            }
            let rows_max = const { tile_rows_max::<S, VECTORS>() };
            let narrow_rows_max = const { tile_rows_max::<S, 2>() };
            let is_few = self.rows.len() > rows_max && self.rows.len() <= narrow_rows_max;
            if is_few && self.tiling.by_two {
                return self.vectors_by_two(simd, inputs);
            }
            let height_max = rows_max.min(usize::from(self.tiling.rows).max(1));
            let tiles = self.rows.len().div_ceil(height_max);
            if tiles == 1 {
                return self.block::<S, 0>(simd, 0..inputs, 1);
            }
            let row_bytes = VECTORS * S::LANES * size_of::<f32>();
            let block_bytes = usize::from(self.tiling.block_kib.max(1)) << 10;
            let blocks = (inputs * row_bytes).div_ceil(block_bytes).max(1);
            let lines = match self.matrix.bytes() > FETCH_AHEAD_BYTES {
                true => (UNROLL * VECTORS * S::LANES).div_ceil(LINE_LEN * tiles),
                false => 0,
            };
            for block in 0..blocks {
                let k = inputs * block / blocks..inputs * (block + 1) / blocks;
                match lines {
                    1 if S::IS_TUNED => self.block::<S, 1>(simd, k, tiles),
                    2 if S::IS_TUNED => self.block::<S, 2>(simd, k, tiles),
                    3.. if S::IS_TUNED => self.block::<S, 4>(simd, k, tiles),
                    _ => self.block::<S, 0>(simd, k, tiles),
                }
            }
        }
    }
}

/// Tiles of one height in one block of k.
struct Tiles {
    k: Range<usize>,
    first_row: usize,
    count: usize,
    /// The weights that the first of them fetches; each of the others fetches those after.
    stream: PrefetchStream,
}

impl<const VECTORS: usize> PanelProduct<'_, VECTORS> {
    /// All rows over one block of k, in `tiles` tiles. Together they fetch the next block, with
    /// `FETCHES` fetches in [`UNROLL`] values of k.
    ///
    /// # Safety
    /// The contract of [`PanelProduct`] holds. `k` lies within the matrix's inputs, and all blocks before it
    /// have run. `tiles` is at least 1 and at most the number of rows, and no tile is higher than the
    /// registers allow.
    #[inline(always)]
    unsafe fn block<S: Simd, const FETCHES: usize>(&self, simd: S, k: Range<usize>, tiles: usize) {
        // As few tiles as there can be, of nearly equal heights: a tile of one row costs almost as
        // much as a tile of two.
        let (height, higher) = (self.rows.len() / tiles, self.rows.len() % tiles);
        let row_len = VECTORS * S::LANES;
        let turns = (k.len() / UNROLL).max(1);
        let stride = (k.len() * row_len).div_ceil(tiles * turns * FETCHES.max(1));
        let next = self.matrix.panel(self.panels.start).wrapping_add(k.end * row_len);
        let stream = PrefetchStream { from: next, stride };
        let each = turns * FETCHES * stride;
        let rest = PrefetchStream { from: next.wrapping_add(higher * each), stride };
        let first_row = higher * (height + 1);
        // SAFETY: what this function's caller promises; `higher` tiles of `height + 1` rows and the others
        // of `height` are the product's rows, each once.
        unsafe {
            let high = Tiles { k: k.clone(), first_row: 0, count: higher, stream };
            self.tiles_of_height::<S, FETCHES>(simd, height + 1, high);
            let low = Tiles { k, first_row, count: tiles - higher, stream: rest };
            self.tiles_of_height::<S, FETCHES>(simd, height, low);
        }
    }

    /// Tiles of `height` rows each over their block of k.
    ///
    /// # Safety
    /// The contract of [`PanelProduct`] holds. `tiles.k` lies within the matrix's inputs, and all blocks
    /// before it have run. The product has the rows `first_row..first_row + count * height` of `tiles`.
    #[inline(always)]
    unsafe fn tiles_of_height<S: Simd, const FETCHES: usize>(
        &self,
        simd: S,
        height: usize,
        tiles: Tiles,
    ) {
        let rows_max = const { tile_rows_max::<S, VECTORS>() };
        // SAFETY: what this function's caller promises, with `ROWS` equal to `height`.
        unsafe {
            match height {
                _ if tiles.count == 0 => {}
                1 => self.tiles::<S, 1, FETCHES>(simd, tiles),
                2 => self.tiles::<S, 2, FETCHES>(simd, tiles),
                3 if rows_max >= 3 => self.tiles::<S, 3, FETCHES>(simd, tiles),
                4 if rows_max >= 4 => self.tiles::<S, 4, FETCHES>(simd, tiles),
                5 if rows_max >= 5 => self.tiles::<S, 5, FETCHES>(simd, tiles),
                6 if rows_max >= 6 => self.tiles::<S, 6, FETCHES>(simd, tiles),
                7 if rows_max >= 7 => self.tiles::<S, 7, FETCHES>(simd, tiles),
                8 if rows_max >= 8 => self.tiles::<S, 8, FETCHES>(simd, tiles),
                _ => unreachable!("no tile of {height} rows"),
            }
        }
    }

    /// Tiles of `ROWS` rows each over their block of k.
    ///
    /// # Safety
    /// The contract of [`PanelProduct`] holds. `tiles.k` lies within the matrix's inputs, and all blocks
    /// before it have run. The product has the rows `first_row..first_row + count * ROWS` of `tiles`.
    #[inline(always)]
    unsafe fn tiles<S: Simd, const ROWS: usize, const FETCHES: usize>(
        &self,
        simd: S,
        tiles: Tiles,
    ) {
        let Tiles { k, first_row, count, mut stream } = tiles;
        let row_len = VECTORS * S::LANES;
        // SAFETY: the rows are the product's, and k is within its inputs; sums rest where they go, from the
        // block before.
        unsafe {
            let first = self.matrix.panel(self.panels.start).add(k.start * row_len);
            let weights = Weights { first, stride: row_len };
            let rows = self.rows.get_unchecked(first_row..first_row + ROWS * count);
            for rows in rows.chunks_exact(ROWS) {
                let mut sums = [[simd.splat(0.0); VECTORS]; ROWS];
                let mut inputs = [std::ptr::null(); ROWS];
                for at in 0..ROWS {
                    let row = rows.get_unchecked(at);
                    if k.start == 0 {
                        sums[at] = self.start(simd, row, 0);
                        self.fetch_next_panel::<S>(row);
                    } else {
                        sums[at] = load_vectors(simd, row.sums);
                    }
                    inputs[at] = row.input.add(k.start);
                }
                let sums = accumulate::<S, ROWS, VECTORS, FETCHES>(
                    simd,
                    sums,
                    weights,
                    inputs,
                    k.len(),
                    &mut stream,
                );
                for at in 0..ROWS {
                    store_vectors(simd, rows.get_unchecked(at).sums, sums[at]);
                }
            }
        }
    }

    /// Fetches where the row's sums of the next panel start and go. Rows lie far apart, so the
    /// machine foresees none of it; where it is near already, this is cheap.
    #[inline(always)]
    fn fetch_next_panel<S: Simd>(&self, row: &ProductRow) {
        if S::IS_TUNED {
            for line in (0..VECTORS * S::LANES).step_by(LINE_LEN) {
                prefetch(row.start.wrapping_add(self.start_stride + line));
                prefetch(row.sums.wrapping_add(self.sums_stride + line));
            }
        }
    }

    /// A few rows more than a tile takes: all of them over two vectors of the panel, then the next
    /// two, so that weights are still read once.
    ///
    /// # Safety
    /// The contract of [`PanelProduct`] holds. `inputs` is the matrix's number of inputs, and a register tile
    /// over two vectors takes all rows, at least 3.
    #[inline(always)]
    unsafe fn vectors_by_two<S: Simd>(&self, simd: S, inputs: usize) {
        let rows_max = const { tile_rows_max::<S, 2>() };
        let mut vector = 0;
        while vector < VECTORS {
            // SAFETY: what this function's caller promises, with `ROWS` equal to the number of rows; the
            // panel has `PART` vectors from `vector` on.
            unsafe {
                match (self.rows.len(), VECTORS - vector) {
                    (3, 1) => self.narrow::<S, 3, 1>(simd, inputs, vector),
                    (4, 1) => self.narrow::<S, 4, 1>(simd, inputs, vector),
                    (5, 1) if rows_max >= 5 => self.narrow::<S, 5, 1>(simd, inputs, vector),
                    (6, 1) if rows_max >= 6 => self.narrow::<S, 6, 1>(simd, inputs, vector),
                    (7, 1) if rows_max >= 7 => self.narrow::<S, 7, 1>(simd, inputs, vector),
                    (8, 1) if rows_max >= 8 => self.narrow::<S, 8, 1>(simd, inputs, vector),
                    (3, _) => self.narrow::<S, 3, 2>(simd, inputs, vector),
                    (4, _) => self.narrow::<S, 4, 2>(simd, inputs, vector),
                    (5, _) if rows_max >= 5 => self.narrow::<S, 5, 2>(simd, inputs, vector),
                    (6, _) if rows_max >= 6 => self.narrow::<S, 6, 2>(simd, inputs, vector),
                    (7, _) if rows_max >= 7 => self.narrow::<S, 7, 2>(simd, inputs, vector),
                    (8, _) if rows_max >= 8 => self.narrow::<S, 8, 2>(simd, inputs, vector),
                    (rows, _) => unreachable!("{rows} rows in one tile"),
                }
            }
            vector += 2;
        }
    }

    /// All rows, `ROWS` of them, over the `PART` vectors from `vector` on.
    ///
    /// # Safety
    /// The contract of [`PanelProduct`] holds. The product has `ROWS` rows, a panel has `PART` vectors from
    /// `vector` on, and `inputs` is the matrix's number of inputs.
    #[inline(always)]
    unsafe fn narrow<S: Simd, const ROWS: usize, const PART: usize>(
        &self,
        simd: S,
        inputs: usize,
        vector: usize,
    ) {
        let mut sums = [[simd.splat(0.0); PART]; ROWS];
        let mut elements = [std::ptr::null(); ROWS];
        let at = vector * S::LANES;
        // SAFETY: starts, inputs, weights and sums are accessed within the bounds that the contract gives.
        unsafe {
            for row in 0..ROWS {
                let from = self.rows.get_unchecked(row);
                sums[row] = load_vectors(simd, from.start.add(at));
                if let Some(last) = self.last_start.filter(|_| vector + PART == VECTORS) {
                    sums[row][PART - 1] = simd.load(last.panel(self.panels.start));
                }
                elements[row] = from.input;
                if vector == 0 {
                    self.fetch_next_panel::<S>(from);
                }
            }
            let first = self.matrix.panel(self.panels.start).add(at);
            let weights = Weights { first, stride: VECTORS * S::LANES };
            let mut stream = PrefetchStream::of_weights(weights);
            let sums = accumulate::<S, ROWS, PART, UNROLL>(
                simd,
                sums,
                weights,
                elements,
                inputs,
                &mut stream,
            );
            for row in 0..ROWS {
                store_vectors(simd, self.rows.get_unchecked(row).sums.add(at), sums[row]);
            }
        }
    }

    /// The numbers that a row's sums start from in the product's first panel (`panel` 0) or the one after it (1).
    ///
    /// # Safety
    /// The contract of [`PanelProduct`] holds, `row` is one of its rows, and it has `panel`.
    #[inline(always)]
    unsafe fn start<S: Simd>(
        &self,
        simd: S,
        row: &ProductRow,
        panel: usize,
    ) -> [S::Vector; VECTORS] {
        // SAFETY: `VECTORS` vectors are readable where the row's sums start, and in `last_start`, a row of
        // panels, so is the last vector of each panel.
        unsafe {
            let mut start = load_vectors(simd, row.start.add(panel * self.start_stride));
            if let Some(last) = self.last_start {
                start[VECTORS - 1] = simd.load(last.panel(self.panels.start + panel));
            }
            start
        }
    }

    /// The only row over both panels.
    ///
    /// # Safety
    /// The contract of [`PanelProduct`] holds. There are one row and two panels, and `inputs` is the matrix's
    /// number of inputs.
    #[inline(always)]
    unsafe fn two_panels<S: Simd>(&self, simd: S, inputs: usize) {
        debug_assert_eq!(self.rows.len(), 1);
        let row_len = VECTORS * S::LANES;
        let panels = [0, 1].map(|panel| self.matrix.panel(self.panels.start + panel));
        let row = &self.rows[0];
        // SAFETY: `k` is within the inputs, which both panels and the row's input have.
        unsafe {
            let mut sums = [self.start(simd, row, 0), self.start(simd, row, 1)];
            for k in 0..inputs {
                let element = simd.splat(*row.input.add(k));
                for panel in 0..2 {
                    let weights = panels[panel].add(k * row_len);
                    for vector in 0..VECTORS {
                        let weight = simd.load(weights.add(vector * S::LANES));
                        sums[panel][vector] = simd.mul_add(weight, element, sums[panel][vector]);
                    }
                }
            }
            for panel in 0..2 {
                store_vectors(simd, row.sums.add(panel * self.sums_stride), sums[panel]);
            }
        }
    }
}
