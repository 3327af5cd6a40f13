//! Layer normalisation of rows.
//!
//! ```text
//! z = x + residual        mean = sum of z / n        variance = sum of (z - mean)^2 / n
//! y = (z - mean) / sqrt(variance + epsilon) * scale + bias
//! ```
//! (the ONNX operator LayerNormalization, over the last axis.)
//!
//! **Order.** A sum has 16 parts on every instruction set, to which elements are dealt out one by one; at the end they are added in
//! pairs, 8 apart, then 4, 2 and 1.

use crate::error::KernelError;
use crate::layers::sum_parts::{PARTS, total};
use crate::packing::checks::check_len;
use crate::simd::isa::Isa;
use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// The numbers that rows are normalised with.
#[derive(Debug, Clone, Copy)]
pub struct LayerNormParameters<'a> {
    /// The number that is added to the variance.
    pub epsilon: f32,
    /// The factor of each element of a row.
    pub scale: &'a [f32],
    /// The number that is added to each element of a row; `None` is zero.
    pub bias: Option<&'a [f32]>,
}

/// Computes y, `[rows, n]`, from x and perhaps a residual of the same shape, where n is the length of `parameters.scale`.
///
/// # Errors
/// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; [`KernelError::Length`] where a tensor has another length.
pub fn layer_norm(
    isa: Isa,
    parameters: LayerNormParameters<'_>,
    x: &[f32],
    residual: Option<&[f32]>,
    y: &mut [f32],
) -> Result<(), KernelError> {
    let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
    let length = parameters.scale.len();
    check_len("y", y, y.len().checked_div(length).unwrap_or(0) * length)?;
    check_len("x", x, y.len())?;
    if let Some(residual) = residual {
        check_len("residual", residual, y.len())?;
    }
    if let Some(bias) = parameters.bias {
        check_len("bias", bias, parameters.scale.len())?;
    }
    unit.vectorize(LayerNorm { parameters, x, residual, y });
    Ok(())
}

/// The lengths are those that [`layer_norm`] has checked.
struct LayerNorm<'a> {
    parameters: LayerNormParameters<'a>,
    x: &'a [f32],
    residual: Option<&'a [f32]>,
    y: &'a mut [f32],
}

impl SimdOp for LayerNorm<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { parameters, x, residual, y } = self;
        let length = parameters.scale.len().max(1);
        for (row, y) in y.chunks_exact_mut(length).enumerate() {
            let of_row = row * length..(row + 1) * length;
            y.copy_from_slice(&x[of_row.clone()]);
            if let Some(residual) = residual {
                y.iter_mut().zip(&residual[of_row]).for_each(|(y, residual)| *y += residual);
            }
            // The vectors that hold the parts of a sum.
            match PARTS / S::LANES {
                0 | 1 => normalise::<S, 1>(simd, parameters, y),
                2 => normalise::<S, 2>(simd, parameters, y),
                _ => normalise::<S, PARTS>(simd, parameters, y),
            }
        }
    }
}

#[inline(always)]
fn normalise<S: Simd, const VECTORS: usize>(
    simd: S,
    LayerNormParameters { epsilon, scale, bias }: LayerNormParameters<'_>,
    row: &mut [f32],
) {
    let n = row.len() as f32;
    let mean = sum_of::<S, VECTORS>(
        simd,
        row,
        #[inline(always)]
        |x| x,
        |x| x,
    ) / n;
    let means = simd.splat(mean);
    let variance = sum_of::<S, VECTORS>(
        simd,
        row,
        #[inline(always)]
        |x| {
            let apart = simd.sub(x, means);
            simd.mul(apart, apart)
        },
        |x| (x - mean) * (x - mean),
    ) / n;
    let factor = simd.splat(1.0 / (variance + epsilon).sqrt());
    let normal = Normal { simd, means, factor };
    let (scale, bias) = (scale.as_ptr(), bias.map(<[f32]>::as_ptr));
    let whole = row.len() / S::LANES * S::LANES;
    let left = row.len() - whole;
    let at = row.as_mut_ptr();
    // SAFETY: vectors begin at multiples of their length below `whole`; `left` elements follow there. The scale and the bias are as long as
    // the row.
    unsafe {
        for first in (0..whole).step_by(S::LANES) {
            let bias = bias.map(
                #[inline(always)]
                |bias| simd.load(bias.add(first)),
            );
            let y = normal.of(simd.load(at.add(first)), simd.load(scale.add(first)), bias);
            simd.store(at.add(first), y);
        }
        if left > 0 {
            let bias = bias.map(
                #[inline(always)]
                |bias| simd.load_partial(bias.add(whole), left),
            );
            let x = simd.load_partial(at.add(whole), left);
            let y = normal.of(x, simd.load_partial(scale.add(whole), left), bias);
            simd.store_partial(at.add(whole), y, left);
        }
    }
}

/// The mean of a row, and the factor that makes its deviation 1.
struct Normal<S: Simd> {
    simd: S,
    means: S::Vector,
    factor: S::Vector,
}

impl<S: Simd> Normal<S> {
    #[inline(always)]
    fn of(&self, x: S::Vector, scale: S::Vector, bias: Option<S::Vector>) -> S::Vector {
        let Self { simd, means, factor } = *self;
        let y = simd.mul(simd.mul(simd.sub(x, means), factor), scale);
        match bias {
            Some(bias) => simd.add(y, bias),
            None => y,
        }
    }
}

/// The sum of what `of_vector` makes of a row's elements; `of_one` does the same to one of them.
#[inline(always)]
fn sum_of<S: Simd, const VECTORS: usize>(
    simd: S,
    row: &[f32],
    of_vector: impl Fn(S::Vector) -> S::Vector,
    of_one: impl Fn(f32) -> f32,
) -> f32 {
    let whole = row.len() / S::LANES * S::LANES;
    let mut sums = [simd.splat(0.0); VECTORS];
    let mut parts = [0.0; PARTS];
    // SAFETY: vectors begin at multiples of their length below `whole`; `VECTORS` of them are the parts.
    unsafe {
        for first in (0..whole).step_by(S::LANES) {
            let sum = &mut sums[first / S::LANES % VECTORS];
            *sum = simd.add(*sum, of_vector(simd.load(row.as_ptr().add(first))));
        }
        for (vector, sum) in sums.iter().enumerate() {
            simd.store(parts.as_mut_ptr().add(vector * S::LANES), *sum);
        }
    }
    for (at, x) in row.iter().enumerate().skip(whole) {
        parts[at % PARTS] += of_one(*x);
    }
    total(parts)
}
