//! Softmax over rows.
//!
//! ```text
//! y[i] = exp(x[i] - max) / sum over j of exp(x[j] - max)
//! ```
//! (the ONNX operator Softmax, over the last axis.)
//!
//! **Order.** A sum has 16 parts on every instruction set, to which elements are dealt out one by one; at the end they are added in
//! pairs, 8 apart, then 4, 2 and 1.

use crate::cells::activations::exp_of_negative;
use crate::error::KernelError;
use crate::layers::sum_parts::{PARTS, greatest, total};
use crate::simd::isa::Isa;
use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// Replaces each row of `length` elements by its softmax.
///
/// # Errors
/// [`KernelError::IsaUnavailable`] where this machine lacks the instructions.
pub fn softmax(isa: Isa, length: usize, rows: &mut [f32]) -> Result<(), KernelError> {
    let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
    unit.vectorize(Softmax { length, step: length, rows });
    Ok(())
}

/// Softmax in place of the first `length` elements of each row, of which one begins every `step` elements.
pub(super) struct Softmax<'a> {
    pub(super) length: usize,
    pub(super) step: usize,
    pub(super) rows: &'a mut [f32],
}

impl SimdOp for Softmax<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for row in self.rows.chunks_mut(self.step.max(1)) {
            let row = &mut row[..self.length];
            // The vectors that hold the parts of a sum.
            match PARTS / S::LANES {
                0 | 1 => softmax_of::<S, 1>(simd, row),
                2 => softmax_of::<S, 2>(simd, row),
                _ => softmax_of::<S, PARTS>(simd, row),
            }
        }
    }
}

#[inline(always)]
fn softmax_of<S: Simd, const VECTORS: usize>(simd: S, row: &mut [f32]) {
    let whole = row.len() / S::LANES * S::LANES;
    let left = row.len() - whole;
    let at = row.as_mut_ptr();
    // SAFETY: vectors begin at multiples of their length below `whole`; `left` elements follow there. `parts` holds `VECTORS` vectors.
    unsafe {
        // Minus infinity leaves the greatest element as it is, and its exp is 0.
        let last = simd.load_partial_or(at.add(whole), left, f32::NEG_INFINITY);
        let mut greatest_lanes = last;
        for first in (0..whole).step_by(S::LANES) {
            greatest_lanes = simd.max(greatest_lanes, simd.load(at.add(first)));
        }
        let mut parts = [f32::NEG_INFINITY; PARTS];
        simd.store(parts.as_mut_ptr(), greatest_lanes);
        let max = simd.splat(greatest(parts));

        let mut sums = [simd.splat(0.0); VECTORS];
        for first in (0..whole).step_by(S::LANES) {
            let exp = exp_of_negative(simd, simd.sub(simd.load(at.add(first)), max));
            simd.store(at.add(first), exp);
            let sum = &mut sums[first / S::LANES % VECTORS];
            *sum = simd.add(*sum, exp);
        }
        let exp_of_last = exp_of_negative(simd, simd.sub(last, max));
        let sum = &mut sums[whole / S::LANES % VECTORS];
        *sum = simd.add(*sum, exp_of_last);
        let mut parts = [0.0; PARTS];
        for (vector, sum) in sums.iter().enumerate() {
            simd.store(parts.as_mut_ptr().add(vector * S::LANES), *sum);
        }

        let factor = simd.splat(1.0 / total(parts));
        for first in (0..whole).step_by(S::LANES) {
            simd.store(at.add(first), simd.mul(simd.load(at.add(first)), factor));
        }
        simd.store_partial(at.add(whole), simd.mul(exp_of_last, factor), left);
    }
}
