//! The names of the instruction sets that kernels exist for.

use std::fmt;
use std::str::FromStr;

/// An instruction set that kernels can be asked to use. All give the same bits, but for sums of
/// bfloat16 on [tiles](Self::Amx).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Portable code; slow where the target has no fused multiply-add by default.
    Scalar,
    /// AVX2 and FMA: 8 lanes, 16 registers.
    Avx2,
    /// AVX-512F: 16 lanes, 32 registers.
    Avx512,
    /// AVX-512F, and the tiles of AMX for bfloat16 and bytes.
    Amx,
}

/// A name that no instruction set has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownIsa(pub String);

impl fmt::Display for UnknownIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown instruction set {:?}: expected scalar, avx2, avx512 or amx", self.0)
    }
}

impl std::error::Error for UnknownIsa {}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Amx];

    /// Elements of f32 in a vector.
    pub fn lanes(self) -> usize {
        match self {
            Self::Scalar | Self::Avx2 => 8,
            Self::Avx512 | Self::Amx => 16,
        }
    }

    /// Vector registers.
    pub(crate) fn registers(self) -> usize {
        match self {
            Self::Scalar | Self::Avx2 => 16,
            Self::Avx512 | Self::Amx => 32,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Amx => "amx",
        })
    }
}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Self, UnknownIsa> {
        let known = Self::ALL.into_iter().find(|isa| isa.to_string() == name);
        known.ok_or_else(|| UnknownIsa(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for isa in Isa::ALL {
            assert_eq!(isa.to_string().parse(), Ok(isa));
        }
        assert_eq!("neon".parse::<Isa>(), Err(UnknownIsa("neon".into())));
    }
}
