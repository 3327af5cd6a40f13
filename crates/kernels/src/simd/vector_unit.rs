//! The instruction set that this machine runs a kernel with: [`VectorUnit`] is the proof that goes with
//! an [`Isa`]'s name. It holds the instruction set's token, which exists only where its instructions do.

#[cfg(target_arch = "x86_64")]
use super::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use super::avx512::Avx512;
use super::isa::Isa;
use super::operations::{Simd, SimdOp};
use super::scalar::Scalar;
#[cfg(target_arch = "x86_64")]
use super::tokens::Tiles;

impl Isa {
    /// The fastest instruction set of this machine, detected at run time.
    pub fn best() -> Self {
        Self::ALL.into_iter().rev().find(|isa| isa.is_available()).unwrap_or(Self::Scalar)
    }

    /// Whether this machine has the instructions, detected at run time.
    pub fn is_available(self) -> bool {
        VectorUnit::new(self).is_some()
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
    fn the_best_is_available_and_its_vector_unit_has_its_name() {
        assert!(Isa::best().is_available());
        assert!(Isa::Scalar.is_available());
        for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            // Tiles have no vectors of their own.
            let of_vectors = if isa == Isa::Amx { Isa::Avx512 } else { isa };
            assert_eq!(VectorUnit::new(isa).map(VectorUnit::isa), Some(of_vectors));
        }
    }
}
