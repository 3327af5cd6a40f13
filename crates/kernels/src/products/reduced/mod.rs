//! Products whose weights are kept in fewer than 32 bits.
//!
//! ```text
//! sums(row)[column] = start(row)[column] + sum over k of x[k] w[k]             bfloat16
//!                   = start(row)[column] + s(row) s(column) sum over k of x[k] w[k]   bytes
//! ```
//! where x is the row's input in the precision of the weights, and the sum over k begins with zero.
//!
//! **Words.** Weights of consecutive k that share 32 bits, two or four of them, are a *word*, and
//! words lie as the f32 of a [panel](crate::packing::panel_matrix) do: `[panel][word of k][vector][lane]`, as
//! the instructions `vdpbf16ps` and `vpdpbusd` take them. For the tiles of AMX, 16 words of k of a
//! vector lie together: `[panel][tile of k][vector][word of the tile][lane]`.
//!
//! **The same bits.** A sum's bits depend on its row and column alone. Sums of bytes are exact, so
//! all instructions agree. Sums of bfloat16 are rounded at each term: in order of k with vectors; by
//! tiles, those of even and of odd k apart and added after every 32 (Intel's manual, `TDPBF16PS`).
//! So a machine's results in bfloat16 do not depend on batches or threads, but those of a machine
//! with tiles may differ in the last bits from another's.
//!
//! | file | idea |
//! |---|---|
//! | `matrix.rs` | weights packed in words |
//! | `round.rs` | f32 to bfloat16, and to bytes with a scale |
//! | `operand.rs` | the rows' inputs in the same precision, made once for all panels |
//! | `vectors.rs` | sums by vector instructions, generic over how a word is multiplied; widened to f32 |
//! | `dots.rs` | `vdpbf16ps` and `vpdpbusd` |
//! | `tiles.rs` | sums by the tiles of AMX: which tiles go together, and what is fetched meanwhile |
//! | `tile_blocks.rs` | the innermost loops of that |

#[cfg(target_arch = "x86_64")]
mod dots;
mod matrix;
mod operand;
mod round;
#[cfg(target_arch = "x86_64")]
mod tile_blocks;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod vectors;

#[cfg(target_arch = "x86_64")]
pub(crate) use dots::{Avx512Bf16, Avx512Vnni};
pub(crate) use matrix::{INT8_INPUTS_MAX, ReducedMatrix};
pub(crate) use operand::Operand;
#[cfg(test)]
pub(crate) use round::{bf16, scale_of, to_byte};
#[cfg(target_arch = "x86_64")]
pub(crate) use tiles::Tiles;

/// Rows whose bytes are multiplied in vectors where there are tiles: sums of bytes have the same bits
/// there, and a tile takes long to begin. One row was 1.1 to 2.4 times as fast so, three rows still as
/// fast or faster.
pub(crate) const FEW_ROWS: usize = 3;

/// The format of a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Bf16,
    Int8,
}

impl Format {
    /// Weights in a word.
    pub(crate) const fn in_word(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::Int8 => 4,
        }
    }
}

/// How words are multiplied. The tokens prove that the machine has the instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instructions {
    /// Each number made an f32, on any vector unit.
    Widened,
    /// `vdpbf16ps`
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16(Avx512Bf16),
    /// `vpdpbusd`
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni(Avx512Vnni),
    /// `tdpbf16ps`, `tdpbusd`
    #[cfg(target_arch = "x86_64")]
    Tiles(Tiles),
}

impl Instructions {
    /// Whether inputs are widened when the operand is made.
    fn widens(self) -> bool {
        matches!(self, Self::Widened)
    }

    /// Whether words lie in tiles.
    pub(crate) fn is_tiled(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Tiles(_) => true,
            _ => false,
        }
    }
}

/// A format, and how it is computed with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduced {
    pub(crate) format: Format,
    pub(crate) instructions: Instructions,
}

impl Reduced {
    /// Runs the instruction in registers, so many turns of a loop; how many multiplications and
    /// additions that was. None where there is no such instruction.
    pub(crate) fn peak(self, turns: usize) -> Option<u64> {
        let _ = (turns, self.format);
        match self.instructions {
            Instructions::Widened => None,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512Bf16(dot) => Some(dot.peak(turns)),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512Vnni(dot) => Some(dot.peak(turns)),
            #[cfg(target_arch = "x86_64")]
            Instructions::Tiles(tiles) => Some(tiles.peak(self.format, turns)),
        }
    }
}
