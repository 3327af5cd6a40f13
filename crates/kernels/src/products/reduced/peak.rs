//! The rate of the instructions that multiply reduced weights, without memory.

use crate::packing::reduced::{Instructions, Reduced};

impl Reduced {
    /// Runs the instruction in registers, `turns` turns of a loop, and returns how many multiplications and
    /// additions it did; none where there is no such instruction.
    pub(crate) fn peak(self, turns: usize) -> Option<u64> {
        let _ = (turns, self.format);
        match self.instructions {
            Instructions::Widened => None,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2(dot) => Some(dot.peak(turns)),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2Words(dot) => Some(dot.peak(turns)),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512Bf16(dot) => Some(dot.peak(turns)),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512Vnni(dot) => Some(dot.peak(turns)),
            #[cfg(target_arch = "x86_64")]
            Instructions::Tiles(tiles) => Some(tiles.peak(self.format, turns)),
        }
    }
}
