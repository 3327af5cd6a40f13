//! The target that weights are packed for, as kernels need to know it: the vectors that a cell is computed
//! with, and the instructions that multiply its weights.

use super::precision::{Packing, Precision};
use super::reduced::{Format, INT8_INPUTS_MAX, Instructions, Reduced};
use crate::error::KernelError;
#[cfg(target_arch = "x86_64")]
use crate::simd::avx2::Avx2;
use crate::simd::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::simd::tokens::{Avx512Bf16, Avx512Vnni, Tiles};
use crate::simd::vector_unit::VectorUnit;

/// A [`Packing`] on this machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) isa: Isa,
    pub(crate) unit: VectorUnit,
    /// The format and instructions of weights that are not f32.
    pub(crate) reduced: Option<Reduced>,
}

impl Target {
    /// The target of a packing.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks its instructions.
    pub(crate) fn new(packing: Packing) -> Result<Self, KernelError> {
        let Packing { isa, precision } = packing;
        let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
        let reduced = |format| Reduced { format, instructions: instructions(isa, format) };
        let reduced = match precision {
            Precision::F32 => None,
            Precision::Bf16 => Some(reduced(Format::Bf16)),
            Precision::Int8 => Some(reduced(Format::Int8)),
        };
        Ok(Self { isa, unit, reduced })
    }

    /// The same, with weights of bytes.
    pub(crate) fn of_bytes(self) -> Self {
        let format = Format::Int8;
        let reduced = match self.reduced {
            Some(reduced) if reduced.format == format => reduced,
            _ => Reduced { format, instructions: instructions(self.isa, format) },
        };
        Self { reduced: Some(reduced), ..self }
    }

    /// The most elements of an input.
    pub(crate) fn inputs_max(self) -> usize {
        match self.reduced {
            Some(Reduced { format: Format::Int8, .. }) => INT8_INPUTS_MAX,
            _ => usize::MAX,
        }
    }

    /// See [`crate::Recurrence::panels_a_call`]: with this number, converting an input costs a tenth of a product with
    /// it at most.
    pub(crate) fn panels_a_call(self) -> usize {
        match self.reduced {
            None => 1,
            Some(Reduced { instructions, .. }) if instructions.is_tiled() => 16,
            Some(_) => 4,
        }
    }

    /// Elements in one vector.
    pub(crate) fn lanes(self) -> usize {
        self.unit.lanes()
    }
}

/// The fastest instructions of `isa`, and of what this machine has beside it, for products in a
/// format.
fn instructions(isa: Isa, format: Format) -> Instructions {
    #[cfg(target_arch = "x86_64")]
    {
        let tiles = || Tiles::new().map(Instructions::Tiles);
        let of_avx512 = || match format {
            Format::Bf16 => Avx512Bf16::new().map(Instructions::Avx512Bf16),
            Format::Int8 => Avx512Vnni::new().map(Instructions::Avx512Vnni),
        };
        let found = match isa {
            Isa::Amx => tiles(),
            Isa::Avx512 => of_avx512(),
            Isa::Avx2 if format == Format::Int8 => Avx2::new().map(Instructions::Avx2),
            Isa::Avx2 | Isa::Scalar => None,
        };
        if let Some(found) = found {
            return found;
        }
    }
    let _ = (isa, format);
    Instructions::Widened
}

impl From<VectorUnit> for Target {
    fn from(unit: VectorUnit) -> Self {
        Self { isa: unit.isa(), unit, reduced: None }
    }
}

#[cfg(test)]
impl Target {
    /// Every target with f32 weights that this machine can test.
    pub(crate) fn all_f32_for_tests() -> Vec<Self> {
        VectorUnit::all_for_tests().into_iter().map(Self::from).collect()
    }

    /// Every target that this machine can test whose products are of `format`: by widening on each
    /// vector unit, then by what the processor has for it.
    pub(crate) fn all_reduced_for_tests(format: Format) -> Vec<Self> {
        let on = |target: Self, instructions| {
            let reduced = Some(Reduced { format, instructions });
            Self { reduced, ..target }
        };
        let f32s = Self::all_f32_for_tests();
        let mut all: Vec<Self> =
            f32s.iter().map(|&target| on(target, Instructions::Widened)).collect();
        for isa in [Isa::Avx2, Isa::Avx512, Isa::Amx].into_iter().filter(|isa| isa.is_available()) {
            let unit = VectorUnit::new(isa).expect("it is available");
            let instructions = instructions(isa, format);
            if !matches!(instructions, Instructions::Widened) {
                all.push(on(Self { isa, unit, reduced: None }, instructions));
            }
        }
        all
    }

    /// All of them.
    pub(crate) fn all_for_tests() -> Vec<Self> {
        let mut all = Self::all_f32_for_tests();
        all.extend(Self::all_reduced_for_tests(Format::Bf16));
        all.extend(Self::all_reduced_for_tests(Format::Int8));
        all
    }
}
