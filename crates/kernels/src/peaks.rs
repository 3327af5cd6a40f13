//! The machine's limits, measured by one thread: a register-only loop of multiply-adds, and a
//! sweep over memory. Kernels are measured against both, in the same run.

use std::hint::black_box;

use crate::error::KernelError;
use crate::packing::precision::Packing;
use crate::packing::target::Target;
use crate::simd::isa::Isa;
use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// Chains of multiply-adds side by side: enough for two units of a latency of five.
const CHAINS: usize = 12;

/// Runs `turns` turns of a loop of fused multiply-adds that touches no memory, and returns how
/// many floating-point operations it did, two for each multiply-add.
///
/// # Errors
/// [`KernelError::IsaUnavailable`]
pub fn multiply_adds(isa: Isa, turns: usize) -> Result<u64, KernelError> {
    let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
    unit.vectorize(MultiplyAdds { turns });
    Ok((turns * CHAINS * unit.lanes() * 2) as u64)
}

struct MultiplyAdds {
    turns: usize,
}

impl SimdOp for MultiplyAdds {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // Stays near 1: x = 0.5 x + 0.5.
        let half = simd.splat(black_box(0.5));
        let mut sums = [simd.splat(black_box(1.0)); CHAINS];
        for _ in 0..self.turns {
            for sum in &mut sums {
                *sum = simd.settled(simd.mul_add(*sum, half, half));
            }
        }
        let mut total = simd.splat(0.0);
        for sum in sums {
            total = simd.add(total, sum);
        }
        let mut lanes = [0.0_f32; 16];
        // SAFETY: at most 16 lanes.
        unsafe { simd.store(lanes.as_mut_ptr(), total) };
        black_box(lanes);
    }
}

/// Runs `turns` turns of a loop of the instruction that products in a packing's precision are made
/// of, in registers, and returns how many multiplications and additions it did. Where weights are
/// widened, and for those of f32, these are [`multiply_adds`].
///
/// # Errors
/// [`KernelError::IsaUnavailable`]
pub fn products(packing: Packing, turns: usize) -> Result<u64, KernelError> {
    let target = Target::new(packing)?;
    match target.reduced.and_then(|reduced| reduced.peak(turns)) {
        Some(operations) => Ok(operations),
        None => multiply_adds(packing.isa, turns),
    }
}

/// Reads every element of `memory` once, in order.
///
/// # Errors
/// [`KernelError::IsaUnavailable`]
pub fn read_sweep(isa: Isa, memory: &[f32]) -> Result<(), KernelError> {
    let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
    unit.vectorize(ReadSweep { memory });
    Ok(())
}

struct ReadSweep<'a> {
    memory: &'a [f32],
}

impl SimdOp for ReadSweep<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        const SIDE: usize = 8;
        let mut sums = [simd.splat(0.0); SIDE];
        for chunk in self.memory.chunks_exact(SIDE * S::LANES) {
            for (at, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the chunk has `SIDE` vectors.
                let vector = unsafe { simd.load(chunk.as_ptr().add(at * S::LANES)) };
                // Nothing is done with it where the compiler cannot know that.
                *sum = match S::IS_TUNED {
                    true => simd.settled(vector),
                    false => simd.add(*sum, vector),
                };
            }
        }
        let mut total = simd.splat(0.0);
        for sum in sums {
            total = simd.add(total, sum);
        }
        let mut lanes = [0.0_f32; 16];
        // SAFETY: at most 16 lanes.
        unsafe { simd.store(lanes.as_mut_ptr(), total) };
        black_box(lanes);
    }
}
