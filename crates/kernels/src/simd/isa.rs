//! Which instruction sets kernels exist for, and which of them this machine has.
//!
//! [`Isa`] is a name, as written in a configuration. [`VectorUnit`] is the proof that goes with
//! it: it holds an instruction set's token, which exists only where its instructions do.

use std::fmt;
use std::str::FromStr;

use crate::KernelError;
use crate::products::panel_product::tile_rows;
#[cfg(target_arch = "x86_64")]
use crate::products::reduced::Tiles;
#[cfg(target_arch = "x86_64")]
use crate::simd::{Avx2, Avx512};
use crate::simd::{Scalar, Simd, SimdOp};

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

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Amx];

    /// The fastest instruction set of this machine, detected at run time.
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Scalar)
    }

    /// Elements of f32 in a vector.
    pub fn lanes(self) -> usize {
        match self {
            Self::Scalar | Self::Avx2 => 8,
            Self::Avx512 | Self::Amx => 16,
        }
    }

    /// Rows of a register tile over so many vectors of a panel, at most.
    pub fn tile_rows_max(self, vectors: usize) -> usize {
        let registers = match self {
            Self::Scalar | Self::Avx2 => 16,
            Self::Avx512 | Self::Amx => 32,
        };
        tile_rows(registers, vectors)
    }

    /// Whether this machine has the instructions, detected at run time.
    pub fn is_available(self) -> bool {
        VectorUnit::new(self).is_some()
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
    type Err = KernelError;

    fn from_str(name: &str) -> Result<Self, KernelError> {
        match name {
            "scalar" => Ok(Self::Scalar),
            "avx2" => Ok(Self::Avx2),
            "avx512" => Ok(Self::Avx512),
            "amx" => Ok(Self::Amx),
            _ => Err(KernelError::UnknownIsa(name.to_owned())),
        }
    }
}

/// The token of one instruction set: the one place where a kernel's vector type is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum VectorUnit {
    Scalar(Scalar<8>),
    /// The layout and the row tile of AVX-512 in portable code, so that every machine tests them.
    #[cfg(test)]
    Scalar16(Scalar<16>),
    /// One lane a panel: nothing to pad and nothing to mask.
    #[cfg(test)]
    Scalar1(Scalar<1>),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl VectorUnit {
    /// The token for `isa`, where this machine has its instructions.
    pub(crate) fn new(isa: Isa) -> Option<Self> {
        match isa {
            Isa::Scalar => Some(Self::Scalar(Scalar)),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::new().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::new().map(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => Tiles::new().and(Avx512::new()).map(Self::Avx512),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 | Isa::Amx => None,
        }
    }

    pub(crate) fn isa(self) -> Isa {
        match self {
            Self::Scalar(_) => Isa::Scalar,
            #[cfg(test)]
            Self::Scalar16(_) | Self::Scalar1(_) => Isa::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Isa::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Isa::Avx512,
        }
    }

    /// Elements in one vector.
    pub(crate) fn lanes(self) -> usize {
        fn lanes_of<S: Simd>(_: S) -> usize {
            S::LANES
        }
        match self {
            Self::Scalar(simd) => lanes_of(simd),
            #[cfg(test)]
            Self::Scalar16(simd) => lanes_of(simd),
            #[cfg(test)]
            Self::Scalar1(simd) => lanes_of(simd),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => lanes_of(simd),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => lanes_of(simd),
        }
    }

    /// Runs `op` compiled for this instruction set.
    pub(crate) fn vectorize<O: SimdOp>(self, op: O) {
        match self {
            Self::Scalar(simd) => simd.vectorize(op),
            #[cfg(test)]
            Self::Scalar16(simd) => simd.vectorize(op),
            #[cfg(test)]
            Self::Scalar1(simd) => simd.vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => simd.vectorize(op),
        }
    }

    /// Every vector unit that this machine can test: the portable ones at each width, then what
    /// the processor has.
    #[cfg(test)]
    pub(crate) fn all_for_tests() -> Vec<Self> {
        let mut all = vec![Self::Scalar1(Scalar), Self::Scalar(Scalar), Self::Scalar16(Scalar)];
        all.extend([Isa::Avx2, Isa::Avx512].into_iter().filter_map(Self::new));
        all
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
        assert_eq!("neon".parse::<Isa>(), Err(KernelError::UnknownIsa("neon".into())));
    }

    #[test]
    fn the_best_is_available_and_the_token_says_its_name() {
        assert!(Isa::best().is_available());
        assert!(Isa::Scalar.is_available());
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            // Tiles have no vectors of their own.
            let of_vectors = if isa == Isa::Amx { Isa::Avx512 } else { isa };
            assert_eq!(VectorUnit::new(isa).map(VectorUnit::isa), Some(of_vectors));
        }
    }
}
