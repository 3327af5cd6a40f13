//! Sigmoid, tanh and [`gelu`] over any vector type: one sequence of operations, so one result everywhere.
//!
//! Both come from `exp(-y)` in parts, which leave few roundings to each side of a fraction:
//!
//! ```text
//! y = -n ln 2 + r,   n = round(-y / ln 2),   |r| <= ln 2 / 2,   s = 2^n
//! m = 1 - exp(-r) = r + r^2 Q(r)                Q: minimax polynomial of degree 4
//! exp(-y) = s (1 - m)
//!
//! sigmoid(x) = 1 / (1 + exp(-x)) = 1 / ((least(s, 1) - s m) + greatest(s, 1))         y = x
//!
//! |tanh(x)|  = (1 - exp(-y)) / (1 + exp(-y))
//!            = ((1 - s) + s m) / ((1 + s) - s m)                                      y = 2|x|
//! ```
//!
//! The results are fractions, whose division is left to the caller: a product of two activations
//! costs one division, not two.
//!
//! Infinities give 0, 1 and -1 exactly, a NaN gives a NaN, tanh keeps the sign of zero. A sigmoid
//! below 2^-126 is zero, so that none is subnormal. Otherwise the error is at most 2 units in the
//! last place; over every float it is 1.999 for sigmoid and 1.93 for tanh.

use crate::simd::operations::Arithmetic;

/// A value not divided yet: `numerator / denominator`, the denominator at least 1 or NaN.
#[derive(Clone, Copy)]
pub(crate) struct Fraction<V> {
    pub(crate) numerator: V,
    pub(crate) denominator: V,
}

/// The parts of `exp(-y)` in the module's formula.
#[derive(Clone, Copy)]
struct ExpParts<V> {
    s: V,
    m: V,
}

/// Splits `exp(-y)` for `y >= -127 ln 2`; above `127 ln 2`, s is zero.
#[inline(always)]
fn exp_parts<S: Arithmetic>(simd: S, y: S::Vector) -> ExpParts<S::Vector> {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits, here with the bias of
    // the exponent field already added.
    const ROUND_AND_BIAS: f32 = 12_582_912.0 + 127.0;
    const GREATEST: f32 = 88.03;
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts; n times the first is exact.
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Least greatest relative error of r + r^2 Q(r) against 1 - exp(-r): 2^-26.2.
    const Q: [f32; 5] =
        [-0.499_999_97, 0.166_665_43, -0.041_667_2, 0.008_366_548, -0.001_388_251_9];

    let y = simd.min(simd.splat(GREATEST), y);
    let biased = simd.negative_mul_add(y, simd.splat(LOG2_E), simd.splat(ROUND_AND_BIAS));
    let n = simd.sub(biased, simd.splat(ROUND_AND_BIAS));
    let r = simd.mul_add(n, simd.splat(LN_2_HIGH), y);
    let r = simd.mul_add(n, simd.splat(LN_2_LOW), r);

    let q = simd.mul_add(simd.splat(Q[4]), r, simd.splat(Q[3]));
    let q = simd.mul_add(q, r, simd.splat(Q[2]));
    let q = simd.mul_add(q, r, simd.splat(Q[1]));
    let q = simd.mul_add(q, r, simd.splat(Q[0]));
    ExpParts { s: simd.low_bits_to_exponent(biased), m: simd.mul_add(simd.mul(r, r), q, r) }
}

/// `exp(x)` of x up to 0, at most 2 units in the last place off; 0 below -88.
#[inline(always)]
pub(crate) fn exp_of_negative<S: Arithmetic>(simd: S, x: S::Vector) -> S::Vector {
    let ExpParts { s, m } = exp_parts(simd, simd.sub(simd.splat(0.0), x));
    simd.negative_mul_add(s, m, s)
}

/// The logistic function, `1 / (1 + exp(-x))`.
#[inline(always)]
pub(crate) fn sigmoid<S: Arithmetic>(simd: S, x: S::Vector) -> Fraction<S::Vector> {
    // The greatest float whose exp is subnormal.
    const SHUT: f32 = -87.336_55;
    let (one, shut) = (simd.splat(1.0), simd.splat(SHUT));
    let ExpParts { s, m } = exp_parts(simd, simd.max(shut, x));
    let rest = simd.negative_mul_add(s, m, simd.min(s, one));
    Fraction {
        numerator: simd.keep_greater(x, shut, one),
        denominator: simd.add(rest, simd.max(s, one)),
    }
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<S: Arithmetic>(simd: S, x: S::Vector) -> Fraction<S::Vector> {
    let half_y = simd.abs(x);
    let ExpParts { s, m } = exp_parts(simd, simd.add(half_y, half_y));
    let one = simd.splat(1.0);
    Fraction {
        numerator: simd.with_sign(simd.mul_add(s, m, simd.sub(one, s)), x),
        denominator: simd.negative_mul_add(s, m, simd.add(one, s)),
    }
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`, at most 2e-7 |x| and 3e-7 off.
///
/// With `z = |x| / sqrt(2)`, `1 - erf(z) = (a_1 t + ... + a_5 t^5) exp(-z^2)` and `t = 1 / (1 + p z)`, within 1.5e-7 (Abramowitz and
/// Stegun, Handbook of Mathematical Functions, 7.1.26).
#[inline(always)]
pub(crate) fn gelu<S: Arithmetic>(simd: S, x: S::Vector) -> S::Vector {
    const P: f32 = 0.327_591_1;
    const A: [f32; 5] = [0.254_829_6, -0.284_496_72, 1.421_413_8, -1.453_152, 1.061_405_4];
    // Where 1 - erf(z) is 0: so that infinity times 0 is not computed.
    const SHUT: f32 = 30.0;
    let (zero, one) = (simd.splat(0.0), simd.splat(1.0));
    let magnitude = simd.min(simd.splat(SHUT), simd.abs(x));
    let z = simd.mul(magnitude, simd.splat(std::f32::consts::FRAC_1_SQRT_2));
    let t = simd.div(one, simd.mul_add(z, simd.splat(P), one));
    let q = simd.mul_add(simd.splat(A[4]), t, simd.splat(A[3]));
    let q = simd.mul_add(q, t, simd.splat(A[2]));
    let q = simd.mul_add(q, t, simd.splat(A[1]));
    let q = simd.mul_add(q, t, simd.splat(A[0]));
    let rest = simd.mul(simd.mul(q, t), exp_of_negative(simd, simd.sub(zero, simd.mul(z, z))));
    let half = simd.mul(magnitude, simd.splat(0.5));
    simd.negative_mul_add(half, rest, simd.max(zero, x))
}

/// The quotient.
#[inline(always)]
pub(crate) fn value<S: Arithmetic>(simd: S, a: Fraction<S::Vector>) -> S::Vector {
    simd.div(a.numerator, a.denominator)
}

/// The product of two fractions, with one division.
#[inline(always)]
pub(crate) fn product<S: Arithmetic>(
    simd: S,
    a: Fraction<S::Vector>,
    b: Fraction<S::Vector>,
) -> S::Vector {
    simd.div(simd.mul(a.numerator, b.numerator), simd.mul(a.denominator, b.denominator))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::operations::{Simd, SimdOp};
    use crate::simd::vector_unit::VectorUnit;

    #[derive(Clone, Copy, Debug)]
    enum Function {
        Sigmoid,
        Tanh,
    }

    impl Function {
        fn exact(self, x: f64) -> f64 {
            match self {
                // The naive form loses nothing here: f64 holds exp(-x) for every f32 of interest.
                Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                Self::Tanh => x.tanh(),
            }
        }
    }

    struct Map<'a> {
        function: Function,
        inputs: &'a [f32],
        outputs: &'a mut [f32],
    }

    impl SimdOp for Map<'_> {
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            for (from, to) in self.inputs.chunks(S::LANES).zip(self.outputs.chunks_mut(S::LANES)) {
                // SAFETY: both chunks have `from.len()` elements, at most `LANES`.
                unsafe {
                    let x = simd.load_partial(from.as_ptr(), from.len());
                    let fraction = match self.function {
                        Function::Sigmoid => sigmoid(simd, x),
                        Function::Tanh => tanh(simd, x),
                    };
                    simd.store_partial(to.as_mut_ptr(), value(simd, fraction), to.len());
                }
            }
        }
    }

    fn map(unit: VectorUnit, function: Function, inputs: &[f32]) -> Vec<f32> {
        let mut outputs = vec![0.0; inputs.len()];
        unit.vectorize(Map { function, inputs, outputs: &mut outputs });
        outputs
    }

    /// Every `stride`-th float from +0 to +infinity, both signs.
    fn sweep(stride: usize) -> Vec<f32> {
        (0..=f32::INFINITY.to_bits())
            .step_by(stride)
            .map(f32::from_bits)
            .flat_map(|x| [x, -x])
            .collect()
    }

    /// The documented bound, in units in the last place.
    const ULPS_MAX: f64 = 2.0;

    /// Distance in units in the last place of `exact` as an f32.
    fn ulps(approximate: f32, exact: f64) -> f64 {
        let nearest = (exact.abs() as f32).max(f32::MIN_POSITIVE);
        // The spacing of floats in the binade of `nearest`.
        let ulp = f32::from_bits(nearest.to_bits() & 0x7f80_0000) * f32::EPSILON;
        (f64::from(approximate) - exact).abs() / f64::from(ulp)
    }

    fn greatest_error(function: Function, inputs: &[f32], bound: f64) -> f64 {
        let outputs = map(VectorUnit::all_for_tests().pop().unwrap(), function, inputs);
        let mut greatest = (0.0, 0.0);
        for (&x, &y) in inputs.iter().zip(&outputs) {
            let exact = function.exact(f64::from(x));
            if exact.abs() < f64::from(f32::MIN_POSITIVE) && matches!(function, Function::Sigmoid) {
                // Subnormal or flushed to zero.
                assert!((f64::from(y) - exact).abs() < f64::from(f32::MIN_POSITIVE));
                continue;
            }
            let error = ulps(y, exact);
            if error > greatest.0 {
                greatest = (error, x);
            }
        }
        assert!(greatest.0 <= bound, "{function:?}({:e}) is off by {} ulp", greatest.1, greatest.0);
        greatest.0
    }

    #[test]
    fn errors_are_within_the_bound() {
        // Where the functions bend, densely; then every exponent.
        let mut inputs: Vec<f32> = (-200_000..=200_000).map(|i| i as f32 / 10_000.0).collect();
        inputs.extend((-20_000..=20_000).map(|i| i as f32 / 200.0));
        inputs.extend(sweep(if cfg!(miri) { 9_999_991 } else { 20_011 }));
        if cfg!(miri) {
            inputs = inputs.into_iter().step_by(1009).collect();
        }
        for function in [Function::Sigmoid, Function::Tanh] {
            let greatest = greatest_error(function, &inputs, ULPS_MAX);
            println!("{function:?}: {greatest:.3} ulp");
        }
    }

    /// All floats: `cargo test --release -p batchmaker-kernels -- --ignored --nocapture`
    #[test]
    #[ignore = "minutes in release"]
    fn errors_over_every_float() {
        for function in [Function::Sigmoid, Function::Tanh] {
            let mut greatest: f64 = 0.0;
            for start in (0..=f32::INFINITY.to_bits()).step_by(1 << 20) {
                let end = (start + (1 << 20)).min(f32::INFINITY.to_bits());
                let inputs: Vec<f32> =
                    (start..end).map(f32::from_bits).flat_map(|x| [x, -x]).collect();
                greatest = greatest.max(greatest_error(function, &inputs, ULPS_MAX));
            }
            println!("{function:?}: {greatest:.3} ulp over every float");
        }
    }

    #[test]
    fn special_values() {
        let tiny = f32::from_bits(1);
        for unit in VectorUnit::all_for_tests() {
            let sigmoid = |x| map(unit, Function::Sigmoid, &[x])[0];
            let tanh = |x| map(unit, Function::Tanh, &[x])[0];
            let bits = |x: f32| x.to_bits();

            assert_eq!(sigmoid(f32::INFINITY), 1.0);
            assert_eq!(sigmoid(f32::MAX), 1.0);
            assert_eq!(bits(sigmoid(f32::NEG_INFINITY)), bits(0.0));
            assert_eq!(bits(sigmoid(f32::MIN)), bits(0.0));
            assert_eq!(sigmoid(0.0), 0.5);
            assert_eq!(sigmoid(-0.0), 0.5);
            assert_eq!(sigmoid(tiny), 0.5);
            assert!(sigmoid(f32::NAN).is_nan());
            assert!(sigmoid(-f32::NAN).is_nan());

            assert_eq!(tanh(f32::INFINITY), 1.0);
            assert_eq!(tanh(f32::NEG_INFINITY), -1.0);
            assert_eq!(tanh(f32::MAX), 1.0);
            assert_eq!(tanh(f32::MIN), -1.0);
            assert_eq!(bits(tanh(0.0)), bits(0.0));
            assert_eq!(bits(tanh(-0.0)), bits(-0.0));
            assert_eq!(bits(tanh(tiny)), bits(tiny));
            assert_eq!(bits(tanh(-tiny)), bits(-tiny));
            assert!(tanh(f32::NAN).is_nan());
            assert!(tanh(-f32::NAN).is_nan());
        }
    }

    #[test]
    fn results_stay_in_range() {
        let inputs = sweep(if cfg!(miri) { 9_999_991 } else { 60_013 });
        let unit = VectorUnit::all_for_tests().pop().unwrap();
        let sigmoids = map(unit, Function::Sigmoid, &inputs);
        assert!(sigmoids.iter().all(|y| (0.0..=1.0).contains(y)));
        let tanhs = map(unit, Function::Tanh, &inputs);
        assert!(tanhs.iter().all(|y| (-1.0..=1.0).contains(y)));
    }

    #[test]
    fn every_vector_unit_gives_the_same_bits() {
        let inputs = sweep(if cfg!(miri) { 19_999_981 } else { 200_003 });
        for function in [Function::Sigmoid, Function::Tanh] {
            let expected = map(VectorUnit::all_for_tests()[0], function, &inputs);
            for unit in VectorUnit::all_for_tests() {
                let actual = map(unit, function, &inputs);
                for ((x, expected), actual) in inputs.iter().zip(&expected).zip(&actual) {
                    assert_eq!(
                        expected.to_bits(),
                        actual.to_bits(),
                        "{function:?}({x:e}) with {unit:?}"
                    );
                }
            }
        }
    }
}
