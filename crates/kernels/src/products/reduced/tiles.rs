//! Sums by the tiles of AMX: 16 rows of 64 bytes each, eight of them; `tdpbf16ps` and `tdpbusd`
//! multiply a tile of inputs with one of weights into one of sums, 16 lane groups of k at once.
//!
//! Rows of the batch are tiles as they lie in the operand.

use std::arch::asm;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::matrix::{ReducedMatrix, TILE_GROUPS};
use super::operand::Operand;
use super::tile_blocks::{Block, ROW_BYTES, bf16_block, bytes_block};
use super::vectors::{LANES_MAX, VECTORS_MAX};
use crate::packing::reduced::{FEW_ROWS, Format};
use crate::products::tiling::ROWS_MAX;
use crate::simd::tokens::Tiles;

/// Rows of a tile, at most.
const TILE_ROWS: usize = 16;

/// Bytes of a tile of weights.
const TILE_BYTES: usize = TILE_GROUPS * ROW_BYTES;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Matrices that are larger come from beyond the second-level cache. Going over them in blocks, with
/// the next one fetched, was a tenth to a fifth faster; smaller ones were slower so.
const FAR_BYTES: usize = if cfg!(test) { 32 << 10 } else { 6 << 20 };

impl Tiles {
    /// Runs `turns` turns of four instructions on full tiles; how many multiplications and additions
    /// that was.
    pub(super) fn peak(self, format: Format, turns: usize) -> u64 {
        const DOTS: usize = 4;
        let config = Config::with_rows(TILE_ROWS as u8);
        macro_rules! dots {
            ($dot:literal) => {
                asm!(
                    "ldtilecfg [{config}]",
                    "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
                    "2:",
                    concat!($dot, " tmm0, tmm4, tmm6"),
                    concat!($dot, " tmm1, tmm4, tmm7"),
                    concat!($dot, " tmm2, tmm5, tmm6"),
                    concat!($dot, " tmm3, tmm5, tmm7"),
                    "dec {turns}",
                    "jnz 2b",
                    "tilerelease",
                    config = in(reg) &raw const config,
                    turns = inout(reg) turns.max(1) => _,
                    out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                    out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                    options(nostack),
                )
            };
        }
        // SAFETY: the token proves that tiles may be used; the configuration is valid.
        unsafe {
            match format {
                Format::Bf16 => dots!("tdpbf16ps"),
                Format::Int8 => dots!("tdpbusd"),
            }
        }
        let products = TILE_ROWS * TILE_ROWS * TILE_GROUPS * format.group_len();
        (turns.max(1) * DOTS * products * 2) as u64
    }

    /// The sums over k of `rows` rows with `panels`. `combine` receives them some rows at a time: the index
    /// of the panel among `panels`, the first row, the number of rows, and their sums,
    /// `[row][vector][lane]`.
    ///
    /// All rows go over a block of k before the next. Where the weights come from far, the block after
    /// it is fetched meanwhile, a part by each of the rows' tiles.
    ///
    /// # Safety
    /// The matrix was packed for tiles with `VECTORS` vectors a panel, and has `panels`. `operand` was filled
    /// for the matrix with `rows` rows, at least 1 and at most [`ROWS_MAX`], and nobody fills it meanwhile.
    pub(super) unsafe fn sums<const VECTORS: usize>(
        self,
        matrix: &ReducedMatrix,
        panels: Range<usize>,
        operand: &Operand,
        rows: usize,
        mut combine: impl FnMut(usize, usize, usize, *const u32),
    ) {
        let panels = panels.enumerate();
        if matrix.reduced.format == Format::Int8 && rows <= FEW_ROWS {
            for (index, panel) in panels {
                let (first, groups) = (matrix.panel(panel), matrix.groups);
                let combine = |row, count, sums| combine(index, row, count, sums);
                // SAFETY: the panel has `groups` lane groups of k, the operand `rows` rows of as many; tiles are runs
                // of their lane groups.
                unsafe {
                    self.vectors()
                        .sums::<VECTORS, TILE_GROUPS>(first, groups, operand, rows, combine);
                }
            }
            return;
        }
        let tiles = rows.div_ceil(TILE_ROWS);
        let height = rows.div_ceil(tiles);
        let config = Config::with_rows(height as u8);
        // SAFETY: the token proves that tiles may be used; the configuration is valid, and its height that
        // of the rows' tiles. Panels and operand are those that the caller vouches for.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack));
            for (index, panel) in panels {
                let combine = |row, count, sums| combine(index, row, count, sums);
                if tiles > 1 && matrix.bytes() > FAR_BYTES {
                    let plan = Plan::far(rows, tiles);
                    all_sums::<VECTORS, ROWS_MAX>(
                        matrix, panel, operand, rows, height, plan, combine,
                    );
                } else {
                    let plan = Plan::near(matrix, height);
                    all_sums::<VECTORS, NEAR_ROWS>(
                        matrix, panel, operand, rows, height, plan, combine,
                    );
                }
            }
            asm!("tilerelease", options(nostack, nomem));
        }
    }
}

/// Rows that go over weights that are near, at most.
const NEAR_ROWS: usize = 2 * TILE_ROWS;

/// The sums of all rows with one panel, some rows at a time, in a scratch buffer for `ROWS` of them.
///
/// # Safety
/// This thread's tiles are configured for `height` rows. The matrix was packed for tiles with `VECTORS`
/// vectors a panel and has `panel`. `operand` was filled for the matrix with `rows` rows, and is long enough
/// for whole tiles of `height` rows; nobody fills it meanwhile.
#[inline(never)] // The larger buffer is not touched where the smaller one does.
unsafe fn all_sums<const VECTORS: usize, const ROWS: usize>(
    matrix: &ReducedMatrix,
    panel: usize,
    operand: &Operand,
    rows: usize,
    height: usize,
    plan: Plan,
    mut combine: impl FnMut(usize, usize, *const u32),
) {
    assert!(plan.rows <= ROWS, "{} rows at a time", plan.rows);
    let mut buffer = MaybeUninit::<[[u32; VECTORS_MAX * LANES_MAX]; ROWS]>::uninit();
    let buffer: *mut u8 = buffer.as_mut_ptr().cast();
    for first in (0..rows).step_by(plan.rows) {
        let rows = Rows { first, count: plan.rows.min(rows - first), height };
        // SAFETY: these rows are the operand's; the buffer has whole tiles of rows.
        unsafe { chunk_sums::<VECTORS>(matrix, panel, operand, rows, plan, buffer) };
        combine(first, rows.count, buffer.cast_const().cast());
    }
}

/// The order in which rows and k are gone over.
#[derive(Clone, Copy)]
struct Plan {
    /// Rows that go over a block of k before the next.
    rows: usize,
    /// Tiles of k in a block.
    turns: usize,
    /// Lines of each tile of the block after this one that two tiles of rows fetch; 0: none.
    fetch_lines: usize,
}

impl Plan {
    /// For weights in the second-level cache: all of k, of two tiles of rows at a time.
    fn near(matrix: &ReducedMatrix, height: usize) -> Self {
        Self { rows: 2 * height, turns: (matrix.groups / TILE_GROUPS).max(1), fetch_lines: 0 }
    }

    /// For weights that come from beyond it: all rows over blocks that the first-level cache holds; of
    /// the next, all tiles of rows together fetch what two vectors have.
    fn far(rows: usize, tiles: usize) -> Self {
        let turns = if tiles <= 4 { 4 } else { 8 };
        let lines = 2 * TILE_BYTES / LINE_BYTES;
        Self { rows, turns, fetch_lines: lines.div_ceil(tiles.div_ceil(2)) }
    }
}

/// Some rows of an operand, and how many of them are a tile.
#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    count: usize,
    height: usize,
}

/// The sums over k of some rows with a panel, `[row][vector][lane]`, in whole tiles of rows.
///
/// # Safety
/// This thread's tiles are configured for `rows.height` rows. The matrix was packed for tiles with `VECTORS`
/// vectors a panel and has `panel`. `operand` was filled for the matrix and has `rows`, in whole tiles of
/// rows. `buffer` is writable for `VECTORS * 64` bytes of each row of these tiles, and nobody else accesses
/// it meanwhile.
unsafe fn chunk_sums<const VECTORS: usize>(
    matrix: &ReducedMatrix,
    panel: usize,
    operand: &Operand,
    rows: Rows,
    plan: Plan,
    buffer: *mut u8,
) {
    let Rows { first, count, height } = rows;
    let run = match matrix.reduced.format {
        Format::Bf16 => bf16_block,
        Format::Int8 => bytes_block,
    };
    let tiles_of_k = matrix.groups / TILE_GROUPS;
    // A tile of rows goes with all vectors, and two with two.
    let vectors_at_once = if count <= height { 4 } else { 2 };
    let (inputs_stride, sums_stride) = (operand.stride_bytes(), VECTORS * ROW_BYTES);
    let weights_step = VECTORS * TILE_BYTES;
    for k in (0..tiles_of_k.max(1)).step_by(plan.turns) {
        let turns = plan.turns.min(tiles_of_k - k);
        for vector in (0..VECTORS).step_by(vectors_at_once) {
            let vectors = vectors_at_once.min(VECTORS - vector);
            let weights = k * weights_step + vector * TILE_BYTES;
            let next = match vector + vectors < VECTORS {
                true => weights + vectors * TILE_BYTES,
                // Tiles of this panel or of the one after it.
                false => (k + turns) * weights_step,
            };
            for (index, row) in (0..count).step_by(2 * height).enumerate() {
                // SAFETY: the addresses are within the panel, the operand and the buffer.
                unsafe {
                    let panel = matrix.panel(panel).cast::<u8>();
                    let inputs = operand.row(first + row).cast::<u8>().add(k * ROW_BYTES);
                    let sums = buffer.add(row * sums_stride + vector * ROW_BYTES);
                    let block = Block {
                        inputs,
                        inputs_high: inputs.wrapping_add(height * inputs_stride),
                        inputs_stride,
                        weights: panel.add(weights),
                        weights_step,
                        fetch: panel.wrapping_add(next + index * plan.fetch_lines * LINE_BYTES),
                        fetch_lines: plan.fetch_lines,
                        sums,
                        sums_high: sums.wrapping_add(height * sums_stride),
                        sums_stride,
                        is_first: k == 0,
                        turns,
                        height,
                    };
                    run(if count - row > height { 2 } else { 1 }, vectors, block);
                }
            }
        }
    }
}

/// The shapes of the tiles, as `ldtilecfg` reads them: 0 to 3 are sums, 4 and 5 inputs, 6 and 7
/// weights.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// The shapes for inputs and sums of `height` rows, and weights of 16.
    fn with_rows(height: u8) -> Self {
        let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
        row_bytes[..8].fill(ROW_BYTES as u16);
        rows[..8].fill(height);
        rows[WEIGHT_TILES_FROM..8].fill(TILE_ROWS as u8);
        Self { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    }
}

/// Tiles from here on are weights.
const WEIGHT_TILES_FROM: usize = 6;
