//! The innermost loops over tiles: one or two tiles of rows times some vectors, in registers.

use std::arch::asm;
use std::mem::offset_of;

/// Bytes of a row of a tile.
pub(super) const ROW_BYTES: usize = 64;

/// One or two tiles of rows times one to four vectors, over some tiles of k.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// The inputs of the first tile of rows, and of the second.
    pub(super) inputs: *const u8,
    pub(super) inputs_high: *const u8,
    pub(super) inputs_stride: usize,
    pub(super) weights: *const u8,
    /// The stride from a tile of k to the next.
    pub(super) weights_step: usize,
    /// Weights that are needed soon, `fetch_lines` lines for each tile of k. They need not be readable.
    pub(super) fetch: *const u8,
    pub(super) fetch_lines: usize,
    /// `[row][vector][lane]`, as many vectors as the panel has; of the first tile of rows, and of the
    /// second.
    pub(super) sums: *mut u8,
    pub(super) sums_high: *mut u8,
    pub(super) sums_stride: usize,
    /// Whether sums begin here, or go on.
    pub(super) is_first: bool,
    /// Tiles of k.
    pub(super) turns: usize,
    /// Rows of a tile of rows.
    pub(super) height: usize,
}

/// A loop over k of loads and products, between the sums' beginning and their stores. Where sums lie,
/// and how many lines to fetch, is read from the block: there are not registers for all.
macro_rules! tile_loop {
    ($block:ident, [$($zero:expr),*], [$($load:expr),*], [$($body:expr),*], [$($store:expr),*]) => {
        asm!(
            "cmp byte ptr [{block} + {is_first}], 0",
            "je 2f",
            $($zero,)*
            "jmp 3f",
            "2:",
            "mov {c0}, [{block} + {sums}]",
            "mov {c1}, [{block} + {sums_high}]",
            "mov {c_stride}, [{block} + {sums_stride}]",
            $($load,)*
            "3:",
            "mov {c1}, [{block} + {fetch_lines}]",
            "test {c1}, {c1}",
            "jz 5f",
            "mov {c0}, {fetch}",
            "4:",
            "prefetcht0 [{c0}]",
            "add {c0}, 64",
            "dec {c1}",
            "jnz 4b",
            "add {fetch}, {b_step}",
            "5:",
            $($body,)*
            "add {a0}, 64",
            "add {a1}, 64",
            "add {b}, {b_step}",
            "dec {turns}",
            "jnz 3b",
            "mov {c0}, [{block} + {sums}]",
            "mov {c1}, [{block} + {sums_high}]",
            "mov {c_stride}, [{block} + {sums_stride}]",
            $($store,)*
            block = in(reg) &raw const $block,
            is_first = const offset_of!(Block, is_first),
            sums = const offset_of!(Block, sums),
            sums_high = const offset_of!(Block, sums_high),
            sums_stride = const offset_of!(Block, sums_stride),
            fetch_lines = const offset_of!(Block, fetch_lines),
            fetch = inout(reg) $block.fetch => _,
            a0 = inout(reg) $block.inputs => _,
            a1 = inout(reg) $block.inputs_high => _,
            a_stride = in(reg) $block.inputs_stride,
            b = inout(reg) $block.weights => _,
            b_stride = in(reg) ROW_BYTES,
            b_step = in(reg) $block.weights_step,
            turns = inout(reg) $block.turns => _,
            c0 = out(reg) _,
            c1 = out(reg) _,
            c_stride = out(reg) _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        )
    };
}

/// One tile of rows times some vectors: of each, the register of its sums and of its weights, and where
/// these lie, in bytes, in a row of sums and in a tile of k.
macro_rules! one_by {
    ($block:ident, $dot:literal, $(($sums:literal, $weights:literal, $column:literal, $tile:literal)),*) => {
        tile_loop!(
            $block,
            [$(concat!("tilezero ", $sums)),*],
            [$(concat!("tileloadd ", $sums, ", [{c0} + {c_stride} + ", $column, "]")),*],
            [
                "tileloadd tmm4, [{a0} + {a_stride}]",
                $(
                    concat!("tileloadd ", $weights, ", [{b} + {b_stride} + ", $tile, "]"),
                    concat!($dot, " ", $sums, ", tmm4, ", $weights)
                ),*
            ],
            [$(concat!("tilestored [{c0} + {c_stride} + ", $column, "], ", $sums)),*]
        )
    };
}

/// Two tiles of rows times some vectors, likewise, with the registers of both tiles' sums.
macro_rules! two_by {
    ($block:ident, $dot:literal, $(($low:literal, $high:literal, $weights:literal, $column:literal, $tile:literal)),*) => {
        tile_loop!(
            $block,
            [$(concat!("tilezero ", $low), concat!("tilezero ", $high)),*],
            [
                $(
                    concat!("tileloadd ", $low, ", [{c0} + {c_stride} + ", $column, "]"),
                    concat!("tileloadd ", $high, ", [{c1} + {c_stride} + ", $column, "]")
                ),*
            ],
            [
                "tileloadd tmm4, [{a0} + {a_stride}]",
                $(
                    concat!("tileloadd ", $weights, ", [{b} + {b_stride} + ", $tile, "]"),
                    concat!($dot, " ", $low, ", tmm4, ", $weights)
                ),*,
                "tileloadd tmm5, [{a1} + {a_stride}]",
                $(concat!($dot, " ", $high, ", tmm5, ", $weights)),*
            ],
            [
                $(
                    concat!("tilestored [{c0} + {c_stride} + ", $column, "], ", $low),
                    concat!("tilestored [{c1} + {c_stride} + ", $column, "], ", $high)
                ),*
            ]
        )
    };
}

/// Defines a function for the blocks of one instruction.
macro_rules! blocks {
    ($name:ident, $dot:literal) => {
        /// Multiplies `row_tiles` tiles of rows with `vectors` vectors.
        ///
        /// # Safety
        /// - This thread's tiles are configured: sums and inputs with `block.height` rows, weights with 16.
        /// - The numbers of tiles and vectors are one of the block shapes below.
        /// - `block.turns` tiles of k are readable: of each tile of rows `height` rows of 64 bytes,
        ///   `inputs_stride` apart, at `inputs` (the second at `inputs_high`), 64 bytes further for each tile
        ///   of k; of each vector 1024 bytes at `weights`, `weights_step` further for each tile of k.
        /// - Of each tile of rows, `height` rows of `vectors * 64` bytes, `sums_stride` apart, are writable at
        ///   `sums` (the second at `sums_high`), and initialised unless `is_first`. Nobody else accesses them
        ///   meanwhile, and nobody writes inputs or weights.
        pub(super) unsafe fn $name(row_tiles: usize, vectors: usize, block: Block) {
            if block.turns == 0 {
                // SAFETY: these rows are the block's, from its first tile on.
                return unsafe { zero_rows(block, row_tiles * block.height, vectors) };
            }
            // SAFETY: the loops go over what the block names, as the caller vouches.
            unsafe {
                match (row_tiles, vectors) {
                    (1, 1) => one_by!(block, $dot, ("tmm0", "tmm6", 0, 0)),
                    (1, 2) => {
                        one_by!(block, $dot, ("tmm0", "tmm6", 0, 0), ("tmm1", "tmm7", 64, 1024))
                    }
                    (1, 3) => one_by!(
                        block,
                        $dot,
                        ("tmm0", "tmm6", 0, 0),
                        ("tmm1", "tmm7", 64, 1024),
                        ("tmm2", "tmm6", 128, 2048)
                    ),
                    (1, 4) => one_by!(
                        block,
                        $dot,
                        ("tmm0", "tmm6", 0, 0),
                        ("tmm1", "tmm7", 64, 1024),
                        ("tmm2", "tmm6", 128, 2048),
                        ("tmm3", "tmm7", 192, 3072)
                    ),
                    (2, 1) => two_by!(block, $dot, ("tmm0", "tmm2", "tmm6", 0, 0)),
                    (2, 2) => two_by!(
                        block,
                        $dot,
                        ("tmm0", "tmm2", "tmm6", 0, 0),
                        ("tmm1", "tmm3", "tmm7", 64, 1024)
                    ),
                    _ => unreachable!("a block of {row_tiles} by {vectors} tiles"),
                }
            }
        }
    };
}

blocks!(bf16_block, "tdpbf16ps");
blocks!(bytes_block, "tdpbusd");

/// The sums of no inputs: zeros.
///
/// # Safety
/// `rows` rows of `vectors * 64` bytes, `block.sums_stride` apart, are writable at `block.sums`, and nobody
/// else accesses them meanwhile.
unsafe fn zero_rows(block: Block, rows: usize, vectors: usize) {
    for row in 0..rows {
        // SAFETY: the row is one of those that the caller vouches for.
        unsafe {
            let to = block.sums.add(row * block.sums_stride);
            to.write_bytes(0, vectors * ROW_BYTES);
        }
    }
}
