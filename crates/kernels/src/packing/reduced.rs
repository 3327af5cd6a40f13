//! The formats of weights that are not f32, and the instructions that multiply them.

#[cfg(target_arch = "x86_64")]
use crate::simd::avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use crate::simd::tokens::{Avx2Words, Avx512Bf16, Avx512Vnni, Tiles};

/// The longest input whose sums of bytes fit 32 bits: 65536 * 255 * 128 < 2^31.
pub(crate) const INT8_INPUTS_MAX: usize = 1 << 16;

/// The least signed byte whose negative is one too.
#[cfg(target_arch = "x86_64")]
pub(crate) const LEAST_SYMMETRIC: i32 = -127;

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
    /// Weights in a lane group.
    pub(crate) const fn group_len(self) -> usize {
        match self {
            Self::Bf16 => 2,
            Self::Int8 => 4,
        }
    }
}

/// The instructions that multiply lane groups. The tokens prove that the machine has the instructions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Instructions {
    /// Each number made an f32, on any vector unit.
    Widened,
    /// `vpmaddubsw`, of weights from [`LEAST_SYMMETRIC`] on
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// `vpmaddwd`
    #[cfg(target_arch = "x86_64")]
    Avx2Words(Avx2Words),
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
    /// The form in which inputs are multiplied.
    pub(crate) fn input_form(self) -> InputForm {
        match self {
            Self::Widened => InputForm::Floats,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => InputForm::SignedLaneGroups,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2Words(_) => InputForm::Words,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Bf16(_) | Self::Avx512Vnni(_) | Self::Tiles(_) => InputForm::LaneGroups,
        }
    }

    /// The instructions for weights of bytes of which the least is `least`.
    pub(crate) fn for_bytes_from(self, least: i32) -> Self {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) if least < LEAST_SYMMETRIC => Self::Avx2Words(Avx2Words(token)),
            other => {
                let _ = least;
                other
            }
        }
    }

    /// The least byte of weights that is multiplied as fast as any.
    pub(crate) fn least_fast_byte(self) -> i32 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => LEAST_SYMMETRIC,
            _ => i32::from(i8::MIN),
        }
    }

    /// Whether lane groups lie in tiles.
    pub(crate) fn is_tiled(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Tiles(_) => true,
            _ => false,
        }
    }
}

/// The form of the inputs that instructions multiply lane groups of weights with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputForm {
    /// Numbers of the format of the weights, but unsigned bytes, in lane groups.
    LaneGroups,
    /// As [`Self::LaneGroups`], of signed bytes: 128 less.
    SignedLaneGroups,
    /// Signed numbers of 16 bits: of the four of a lane group the first and the third, then the second and the fourth.
    Words,
    /// An f32 for each number.
    Floats,
}

impl InputForm {
    /// Elements of 32 bits that go with a lane group of weights.
    pub(crate) fn elements(self, format: Format) -> usize {
        match self {
            Self::LaneGroups | Self::SignedLaneGroups => 1,
            Self::Words => 2,
            Self::Floats => format.group_len(),
        }
    }
}

/// A format, and how it is computed with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduced {
    pub(crate) format: Format,
    pub(crate) instructions: Instructions,
}
