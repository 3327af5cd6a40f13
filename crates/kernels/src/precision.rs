//! In which precision weights are kept.

use std::fmt;
use std::str::FromStr;

use crate::{Isa, KernelError};

/// In which precision the weights of a cell's products are kept and multiplied. Biases, peepholes,
/// sums, activations and states as they are stored are f32 in all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Precision {
    /// As they came.
    #[default]
    F32,
    /// Weights, inputs and states of a product rounded to bfloat16 (8 bits of fraction), to nearest
    /// even; products and sums in f32.
    Bf16,
    /// Weights as signed bytes with a scale for each row of the operator's matrix, inputs and states
    /// as signed bytes with a scale for each row of the batch (the largest magnitude is 127 in both);
    /// sums are exact.
    Int8,
}

impl Precision {
    /// Every precision, the most precise first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::Int8];

    /// Bytes of a weight.
    pub fn weight_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 => 2,
            Self::Int8 => 1,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        })
    }
}

impl FromStr for Precision {
    type Err = KernelError;

    fn from_str(name: &str) -> Result<Self, KernelError> {
        let precision = Self::ALL.into_iter().find(|precision| precision.to_string() == name);
        precision.ok_or_else(|| KernelError::UnknownPrecision(name.to_owned()))
    }
}

/// What the weights of a cell are packed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    /// The instructions that the cell is computed with.
    pub isa: Isa,
    /// The precision of its weights.
    pub precision: Precision,
}

impl From<Isa> for Packing {
    /// Weights as they came.
    fn from(isa: Isa) -> Self {
        Self { isa, precision: Precision::F32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        assert_eq!("f16".parse::<Precision>(), Err(KernelError::UnknownPrecision("f16".into())));
    }
}
