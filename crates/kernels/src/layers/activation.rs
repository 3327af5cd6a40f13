//! Adds the residual to the sums of a layer, then applies an activation.

use crate::cells::activations::{Fraction, gelu, sigmoid, tanh, value};
use crate::simd::operations::{Simd, SimdOp};

/// A function of each element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Activation {
    /// The element as it is.
    Identity,
    /// The element, at least `low` and at most `high` (the ONNX operators Relu and Clip). A NaN stays one.
    Clip {
        /// The least result.
        low: f32,
        /// The greatest result.
        high: f32,
    },
    /// The element, times `slope` if it is below 0 (LeakyRelu).
    Leaky {
        /// The factor.
        slope: f32,
    },
    /// The element times `slope * x + shift` between 0 and 1 (HardSwish, and a product with HardSigmoid).
    HardSwish {
        /// The factor of the element.
        slope: f32,
        /// The number that is added to the product.
        shift: f32,
    },
    /// `slope * x + shift` between 0 and 1 (HardSigmoid).
    HardSigmoid {
        /// The factor of the element.
        slope: f32,
        /// The number that is added to the product.
        shift: f32,
    },
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The element times its [`Self::Sigmoid`] (Swish, SiLU).
    Swish,
    /// The hyperbolic tangent.
    Tanh,
    /// The element times the normal distribution's probability of a number up to it: `x / 2 * (1 + erf(x / sqrt(2)))` (Gelu).
    Gelu,
}

/// Adds `residual` to each element of `y`, then applies the activation.
pub(crate) struct Finish<'a> {
    pub(crate) y: &'a mut [f32],
    pub(crate) residual: Option<&'a [f32]>,
    pub(crate) activation: Activation,
}

impl SimdOp for Finish<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { y, residual, activation } = self;
        match activation {
            Activation::Identity => each(
                simd,
                y,
                residual,
                #[inline(always)]
                |x| x,
            ),
            Activation::Clip { low, high } => {
                let (low, high) = (simd.splat(low), simd.splat(high));
                each(
                    simd,
                    y,
                    residual,
                    #[inline(always)]
                    |x| simd.min(high, simd.max(low, x)),
                );
            }
            Activation::Leaky { slope } => {
                let (zero, slope) = (simd.splat(0.0), simd.splat(slope));
                each(
                    simd,
                    y,
                    residual,
                    #[inline(always)]
                    |x| simd.select_greater(zero, x, simd.mul(x, slope), x),
                );
            }
            Activation::HardSwish { slope, shift } => {
                let gate = gate(simd, slope, shift);
                each(
                    simd,
                    y,
                    residual,
                    #[inline(always)]
                    |x| simd.mul(x, gate(x)),
                );
            }
            Activation::HardSigmoid { slope, shift } => {
                each(simd, y, residual, gate(simd, slope, shift))
            }
            Activation::Sigmoid => each(
                simd,
                y,
                residual,
                #[inline(always)]
                |x| value(simd, sigmoid(simd, x)),
            ),
            Activation::Swish => each(
                simd,
                y,
                residual,
                #[inline(always)]
                |x| {
                    let Fraction { numerator, denominator } = sigmoid(simd, x);
                    simd.div(simd.mul(x, numerator), denominator)
                },
            ),
            Activation::Tanh => each(
                simd,
                y,
                residual,
                #[inline(always)]
                |x| value(simd, tanh(simd, x)),
            ),
            Activation::Gelu => each(
                simd,
                y,
                residual,
                #[inline(always)]
                |x| gelu(simd, x),
            ),
        }
    }
}

/// `slope * x + shift` between 0 and 1.
#[inline(always)]
fn gate<S: Simd>(simd: S, slope: f32, shift: f32) -> impl Fn(S::Vector) -> S::Vector {
    let (slope, shift) = (simd.splat(slope), simd.splat(shift));
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    #[inline(always)]
    move |x| simd.min(one, simd.max(zero, simd.add(simd.mul(x, slope), shift)))
}

#[inline(always)]
fn each<S: Simd>(
    simd: S,
    y: &mut [f32],
    residual: Option<&[f32]>,
    f: impl Fn(S::Vector) -> S::Vector,
) {
    if let Some(residual) = residual {
        assert_eq!(residual.len(), y.len(), "one element residual for each");
    }
    let whole = y.len() / S::LANES * S::LANES;
    let residual = residual.map(<[f32]>::as_ptr);
    // SAFETY: both slices have the same length; a vector follows each multiple of it up to `whole`, less than one there.
    unsafe {
        for at in (0..whole).step_by(S::LANES) {
            let to = y.as_mut_ptr().add(at);
            let x = simd.load(to);
            let x = residual.map_or(
                x,
                #[inline(always)]
                |residual| simd.add(x, simd.load(residual.add(at))),
            );
            simd.store(to, f(x));
        }
        let count = y.len() - whole;
        if count > 0 {
            let to = y.as_mut_ptr().add(whole);
            let x = simd.load_partial(to, count);
            let x = match residual {
                Some(residual) => simd.add(x, simd.load_partial(residual.add(whole), count)),
                None => x,
            };
            simd.store_partial(to, f(x), count);
        }
    }
}
