//! The precision that weights are kept in.

use super::reduced::FEW_ROWS;
use crate::simd::isa::Isa;

/// In which precision the weights of a cell's products are kept and multiplied. Biases, peepholes,
/// sums, activations and states as they are stored are f32 in all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// Weights as they are given.
    #[default]
    F32,
    /// Weights, inputs and states of a product rounded to bfloat16 (8 bits of fraction), to nearest
    /// even; products and sums in f32.
    Bf16,
    /// Weights as signed bytes with a scale for each row of the operator's matrix (the largest magnitude is 127), inputs and states as
    /// unsigned bytes with a scale and a byte of 0 for each row of the batch (the least and the greatest of its elements and 0 are 255
    /// apart); sums are exact.
    Int8,
}

impl Precision {
    /// Every precision, the most precise first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::Int8];
}

/// The instructions and the precision that the weights of a cell are packed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// The instructions that the cell is computed with.
    pub isa: Isa,
    /// The precision of its weights.
    pub precision: Precision,
}

impl Packing {
    /// Whether products of `rows` rows are computed by tiles, not by vectors.
    pub fn is_tiled(self, rows: usize) -> bool {
        self.isa == Isa::Amx
            && match self.precision {
                Precision::F32 => false,
                Precision::Bf16 => true,
                Precision::Int8 => rows > FEW_ROWS,
            }
    }
}

impl From<Isa> for Packing {
    /// Weights as they came.
    fn from(isa: Isa) -> Self {
        Self { isa, precision: Precision::F32 }
    }
}
