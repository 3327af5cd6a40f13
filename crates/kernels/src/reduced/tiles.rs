//! Sums by the tiles of AMX: 16 rows of 64 bytes each, eight of them; `tdpbf16ps` and `tdpbusd`
//! multiply a tile of inputs with one of weights into one of sums, 16 words of k at once.
//!
//! Rows of the batch are tiles as they lie in the operand.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use super::Format;
use super::matrix::{ReducedMatrix, TILE_WORDS};
use super::operand::Operand;
use super::vectors::VECTORS_MAX;

/// The proof that this process may use the tiles of AMX, for bfloat16 and bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiles(());

/// Rows of a tile, at most.
const TILE_ROWS: usize = 16;

/// Bytes of a row of a tile, and of a tile of weights.
const ROW_BYTES: usize = 64;
const TILE_BYTES: usize = TILE_WORDS * ROW_BYTES;

impl Tiles {
    /// The token, where the machine has the instructions and the system lets this process use them.
    pub(crate) fn new() -> Option<Self> {
        static ARE_THERE: OnceLock<bool> = OnceLock::new();
        ARE_THERE.get_or_init(|| has_tiles() && may_use_tiles()).then_some(Self(()))
    }

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
        let products = TILE_ROWS * TILE_ROWS * TILE_WORDS * format.in_word();
        (turns.max(1) * DOTS * products * 2) as u64
    }

    /// The sums over k of all rows with a panel: of two tiles of them at a time,
    /// `[row][vector][lane]`, which `combine` is given with the number of the first of its rows, and
    /// how many there are.
    ///
    /// # Safety
    /// The matrix was packed for tiles with `VECTORS` vectors a panel, and has the panel; the operand
    /// has so many rows, made for the matrix.
    pub(super) unsafe fn sums<const VECTORS: usize>(
        self,
        matrix: &ReducedMatrix,
        panel: usize,
        operand: &Operand,
        rows: usize,
        mut combine: impl FnMut(usize, usize, *const u32),
    ) {
        let tiles = rows.div_ceil(TILE_ROWS);
        let height = rows.div_ceil(tiles);
        let mut room = MaybeUninit::<[u32; 2 * TILE_ROWS * VECTORS_MAX * TILE_ROWS]>::uninit();
        let room: *mut u32 = room.as_mut_ptr().cast();
        let config = Config::with_rows(height as u8);
        let run = match matrix.reduced.format {
            Format::Bf16 => bf16_block,
            Format::Int8 => bytes_block,
        };
        // SAFETY: the token proves that tiles may be used; the configuration is valid; blocks read
        // the panel, and rows of the operand, which has room for a multiple of the height past the
        // last row, and write to the room, which has two tiles' rows.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack));
            for first in (0..rows).step_by(2 * height) {
                let two = rows - first > height;
                let at_once = if two { 2 } else { 4 };
                for vector in (0..VECTORS).step_by(at_once) {
                    let block = Block {
                        inputs: operand.row(first).cast(),
                        inputs_stride: operand.stride_bytes(),
                        weights: matrix.panel(panel).cast::<u8>().add(vector * TILE_BYTES),
                        weights_step: VECTORS * TILE_BYTES,
                        sums: room.cast::<u8>().add(vector * ROW_BYTES),
                        sums_stride: VECTORS * ROW_BYTES,
                        turns: matrix.words / TILE_WORDS,
                        height,
                    };
                    run(if two { 2 } else { 1 }, at_once.min(VECTORS - vector), block);
                }
                combine(first, (2 * height).min(rows - first), room);
            }
            asm!("tilerelease", options(nostack, nomem));
        }
    }
}

/// Whether the processor has them and the system saves them.
fn has_tiles() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const BF16_TILE_INT8: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    const TILE_CONFIG_AND_DATA: u64 = 3 << 17;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    if __cpuid_count(7, 0).edx & BF16_TILE_INT8 != BF16_TILE_INT8 {
        return false;
    }
    // SAFETY: the system has turned on what the instruction belongs to.
    let saved = unsafe { saved_state() };
    is_x86_feature_detected!("avx512f") && saved & TILE_CONFIG_AND_DATA == TILE_CONFIG_AND_DATA
}

/// The parts of the processor's state that the system saves (XCR0).
#[target_feature(enable = "xsave")]
fn saved_state() -> u64 {
    // SAFETY: register 0 is there where the instruction is.
    unsafe { _xgetbv(0) }
}

/// Asks the system to let the threads of this process use tiles (Linux: `arch_prctl`, 5.16 and
/// later).
#[cfg(all(target_os = "linux", not(miri)))]
fn may_use_tiles() -> bool {
    const SYS_ARCH_PRCTL: usize = 158;
    const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
    const XFEATURE_XTILEDATA: usize = 18;
    let mut result = SYS_ARCH_PRCTL;
    // SAFETY: a system call that changes nothing but a permission, and what `syscall` itself changes.
    unsafe {
        asm!(
            "syscall",
            inout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn may_use_tiles() -> bool {
    false
}

/// The shapes of the tiles, as `ldtilecfg` reads them: 0 to 3 are sums, 4 and 5 inputs, or 4 inputs
/// and 5 to 7 weights.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Config {
    /// Inputs and sums of so many rows, weights of 16. The tile that is either has 16: inputs past
    /// the height are read, and their sums are not kept.
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

/// One or two tiles of rows times one to four vectors.
#[derive(Clone, Copy)]
struct Block {
    inputs: *const u8,
    inputs_stride: usize,
    weights: *const u8,
    /// From a tile of k to the next.
    weights_step: usize,
    /// `[row][vector][lane]`, as many vectors as the panel has.
    sums: *mut u8,
    sums_stride: usize,
    /// Tiles of k.
    turns: usize,
    height: usize,
}

/// A loop over k of loads and products, between zeros in the sums and their stores.
macro_rules! tile_loop {
    ($block:ident, [$($zero:expr),*], [$($body:expr),*], [$($store:expr),*]) => {
        asm!(
            $($zero,)*
            "2:",
            $($body,)*
            "add {a0}, 64",
            "add {a1}, 64",
            "add {b}, {b_step}",
            "dec {turns}",
            "jnz 2b",
            $($store,)*
            "/* {c1} is for two tiles of rows */",
            a0 = inout(reg) $block.inputs => _,
            a1 = inout(reg) $block.inputs.wrapping_add($block.height * $block.inputs_stride) => _,
            a_stride = in(reg) $block.inputs_stride,
            b = inout(reg) $block.weights => _,
            b_stride = in(reg) ROW_BYTES,
            b_step = in(reg) $block.weights_step,
            turns = inout(reg) $block.turns => _,
            c0 = in(reg) $block.sums,
            c1 = in(reg) $block.sums.wrapping_add($block.height * $block.sums_stride),
            c_stride = in(reg) $block.sums_stride,
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
        /// So many tiles of rows times so many vectors.
        ///
        /// # Safety
        /// The tiles are configured for the block's height, and what the block names is readable and
        /// writable.
        unsafe fn $name(row_tiles: usize, vectors: usize, block: Block) {
            if block.turns == 0 {
                // SAFETY: the caller's promise: these rows are the block's.
                return unsafe { zero_rows(block, row_tiles * block.height, vectors) };
            }
            // SAFETY: the caller's promises.
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

/// The sums of no inputs.
///
/// # Safety
/// As for the blocks.
unsafe fn zero_rows(block: Block, rows: usize, vectors: usize) {
    for row in 0..rows {
        // SAFETY: the caller's promise.
        unsafe {
            let to = block.sums.add(row * block.sums_stride);
            to.write_bytes(0, vectors * ROW_BYTES);
        }
    }
}
