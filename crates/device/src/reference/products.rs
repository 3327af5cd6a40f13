//! Products of a matrix and a vector, as each precision defines them; sums in f64.
//!
//! ```text
//! f32:    sum over k of w[k] x[k]
//! bf16:   both rounded to bfloat16, to nearest even; what is subnormal there is 0
//! int8:   both rounded to whole multiples of a scale, to nearest even:
//!         of a weight the largest magnitude in its row / 127, of an input the distance from the least to the greatest of the
//!         vector and 0 / 255
//! ```

use std::borrow::Cow;

use batchmaker_graph::Precision;

/// Below this largest magnitude, or distance, all numbers of a row count as zeros in int8.
const LEAST: f32 = 1e-30;

/// A vector that rows of matrices are multiplied with.
pub(super) struct Operand<'a> {
    precision: Precision,
    /// The elements, rounded by the precision.
    values: Cow<'a, [f64]>,
}

impl<'a> Operand<'a> {
    pub(super) fn new(precision: Precision, x: &'a [f64]) -> Self {
        let values = match precision {
            Precision::F32 => Cow::Borrowed(x),
            Precision::Int8 => Cow::Owned(in_span(x.iter().map(|&x| x as f32))),
            _ => Cow::Owned(rounded(precision, x.iter().map(|&x| x as f32))),
        };
        Self { precision, values }
    }

    /// The vector as 256 whole numbers between its least and its greatest element and 0 stand for it (the ONNX operator
    /// `DynamicQuantizeLinear`), in f32 arithmetic as that defines it. Weights are not rounded.
    pub(super) fn quantised(x: &[f64]) -> Self {
        let values = x.iter().map(|&x| x as f32);
        let least = values.clone().fold(0.0, f32::min);
        let greatest = values.clone().fold(0.0, f32::max);
        let scale = if greatest > least { (greatest - least) / 255.0 } else { 1.0 };
        let zero_point = (-least / scale).round_ties_even().clamp(0.0, 255.0);
        let byte = |value: f32| ((value / scale).round_ties_even() + zero_point).clamp(0.0, 255.0);
        let values = values.map(|value| f64::from(byte(value) - zero_point) * f64::from(scale));
        Self { precision: Precision::F32, values: Cow::Owned(values.collect()) }
    }

    /// The whole numbers that are the elements of `x` but the last, times the last element. They are from -255 to 255, and at most
    /// 255 apart. Weights are not rounded.
    pub(super) fn scaled(x: &[f64]) -> Self {
        const SPAN: f64 = 255.0;
        let (scale, x) = x.split_last().expect("x has a scale");
        let least = x.iter().copied().fold(0.0, f64::min).max(-SPAN).round_ties_even();
        let whole = x.iter().map(|x| x.round_ties_even().clamp(least, least + SPAN));
        let values = whole.map(|whole| whole * scale).chain([0.0]);
        Self { precision: Precision::F32, values: Cow::Owned(values.collect()) }
    }

    /// The product with row `row` of `matrix`, whose rows are as long as the vector.
    pub(super) fn dot(&self, matrix: &[f32], row: usize) -> f64 {
        let inputs = self.values.len();
        let weights = &matrix[row * inputs..][..inputs];
        let products = |weights: &mut dyn Iterator<Item = f64>| -> f64 {
            weights.zip(&*self.values).map(|(w, x)| w * x).sum()
        };
        match self.precision {
            Precision::F32 => products(&mut weights.iter().map(|&w| f64::from(w))),
            reduced => {
                let weights = rounded(reduced, weights.iter().copied());
                products(&mut weights.into_iter())
            }
        }
    }
}

/// Element `row` of a bias; none is zero.
pub(super) fn bias(b: Option<&[f32]>, row: usize) -> f64 {
    b.map_or(0.0, |b| f64::from(b[row]))
}

/// The elements of an input as int8 rounds them, in f32 arithmetic.
fn in_span(values: impl Iterator<Item = f32> + Clone) -> Vec<f64> {
    let least = values.clone().fold(0.0, f32::min);
    let greatest = values.clone().fold(0.0, f32::max);
    if !values.clone().all(f32::is_finite) {
        return values.map(|_| f64::NAN).collect();
    }
    if greatest - least < LEAST {
        return values.map(|_| 0.0).collect();
    }
    let scale = greatest / 255.0 - least / 255.0;
    let factor = 1.0 / scale;
    let zero_point = (-least * factor).round_ties_even().clamp(0.0, 255.0);
    let byte = |value: f32| ((value * factor).round_ties_even() + zero_point).clamp(0.0, 255.0);
    values.map(|value| f64::from(byte(value) - zero_point) * f64::from(scale)).collect()
}

/// The weights of a row, or the elements of an input in bfloat16, rounded by a precision, in f32 arithmetic as the precision defines it.
fn rounded(precision: Precision, values: impl Iterator<Item = f32> + Clone) -> Vec<f64> {
    match precision {
        Precision::F32 => values.map(f64::from).collect(),
        Precision::Bf16 => values.map(|value| f64::from(to_bf16(value))).collect(),
        Precision::Int8 => {
            let largest = values.clone().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            if largest < LEAST {
                return values.map(|_| 0.0).collect();
            }
            let (scale, factor) = (f64::from(largest / 127.0), 127.0 / largest);
            values.map(|value| f64::from((value * factor).round_ties_even()) * scale).collect()
        }
    }
}

/// The nearest bfloat16: of an f32 the upper 16 bits.
fn to_bf16(value: f32) -> f32 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
    let is_subnormal = nearest & 0x7f80_0000 == 0;
    f32::from_bits(if is_subnormal { nearest & 0x8000_0000 } else { nearest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_as_documented() {
        let bf16 = |bits: u32| to_bf16(f32::from_bits(bits)).to_bits();
        assert_eq!(bf16(0x3f80_8000), 0x3f80_0000, "a tie goes to even");
        assert_eq!(bf16(0x3f81_8000), 0x3f82_0000, "a tie goes to even");
        assert_eq!(bf16(0x3f80_8001), 0x3f81_0000);
        assert_eq!(bf16(0x8040_0000), 0x8000_0000, "subnormal");
        let scale = f64::from(2.0_f32 / 127.0);
        let int8 = rounded(Precision::Int8, [0.5, -2.0, 1.0, 0.0].into_iter());
        assert_eq!(int8, [32.0, -127.0, 64.0, 0.0].map(|byte| byte * scale));
        assert_eq!(rounded(Precision::Int8, [1e-38, 0.0].into_iter()), [0.0, 0.0]);
        let scale = f64::from(1.55_f32 / 255.0 + 1.0 / 255.0);
        let of_span = in_span([-1.0, 0.5, 1.55].into_iter());
        assert_eq!(of_span, [-100.0, 50.0, 155.0].map(|byte| byte * scale));
        assert_eq!(in_span([1e-38, 0.0].into_iter()), [0.0, 0.0]);
    }

    #[test]
    fn a_row_of_a_matrix_is_multiplied() {
        let x = Operand::new(Precision::F32, &[1.0, 10.0]);
        assert_eq!([0, 1].map(|row| x.dot(&[1.0, 2.0, 3.0, 4.0], row)), [21.0, 43.0]);
    }
}
