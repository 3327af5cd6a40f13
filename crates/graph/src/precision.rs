//! In which precision a cell's weights are kept: a choice of who loads it.

use std::fmt;
use std::str::FromStr;

/// In which precision a cell multiplies with weights. States, activations and sums are f32 in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Precision {
    /// As the weights came.
    #[default]
    F32,
    /// Weights, and what they are multiplied with, rounded to bfloat16.
    Bf16,
    /// Weights as bytes with a scale for each output, and what they are multiplied with as 255 steps from
    /// the least to the greatest element of each row.
    Int8,
}

/// The name is none of a precision's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no precision: expected f32, bf16 or int8")]
pub struct UnknownPrecision(String);

impl Precision {
    /// Every precision, the most precise first.
    pub const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::Int8];
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
    type Err = UnknownPrecision;

    fn from_str(name: &str) -> Result<Self, UnknownPrecision> {
        match name.to_ascii_lowercase().as_str() {
            "f32" | "fp32" | "float32" => Ok(Self::F32),
            "bf16" | "bfloat16" => Ok(Self::Bf16),
            "int8" | "i8" => Ok(Self::Int8),
            _ => Err(UnknownPrecision(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for precision in Precision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        assert_eq!("BFloat16".parse(), Ok(Precision::Bf16));
        assert!("f16".parse::<Precision>().is_err());
    }
}
