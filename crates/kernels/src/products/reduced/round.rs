//! f32 to bfloat16, and to bytes with a scale. Loops of these become vector instructions.

/// `value` as bfloat16, the upper half of an f32, to nearest even; what is subnormal there is 0, as
/// the instructions that multiply it take it to be.
#[inline(always)]
pub(crate) fn bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16;
    let rounded = if rounded & 0x7f80 == 0 { rounded & 0x8000 } else { rounded };
    // A NaN stays one, whatever its lower half.
    if value.is_nan() { bits >> 16 | 0x40 } else { rounded }
}

/// `value` rounded to bfloat16.
#[inline(always)]
pub(crate) fn round_to_bf16(value: f32) -> f32 {
    f32::from_bits(bf16(value) << 16)
}

/// The largest magnitude that a byte stands for.
const BYTE_MAX: f32 = 127.0;

/// Where all numbers are smaller, they count as zeros: the inverse of their scale would overflow.
const LEAST: f32 = 1e-30;

/// The value that a byte of 1 stands for among numbers whose largest magnitude has the bits `largest` (a NaN's
/// are larger than infinity's): 0 where all are zero, NaN where one is not finite. Then the factor
/// that makes bytes of them.
#[inline(always)]
pub(crate) fn scale_of(largest: u32) -> (f32, f32) {
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        (f32::NAN, 0.0)
    } else if largest < LEAST {
        (0.0, 0.0)
    } else {
        (largest / BYTE_MAX, BYTE_MAX / largest)
    }
}

/// The bits of the largest magnitude among `values`.
#[inline(always)]
pub(crate) fn largest_magnitude(values: &[f32]) -> u32 {
    values.iter().fold(0, |largest, value| largest.max(value.to_bits() & 0x7fff_ffff))
}

/// `value` as a byte, to nearest even. Where `factor` is 0 it is 0, whatever the value.
#[inline(always)]
pub(crate) fn to_byte(value: f32, factor: f32) -> i32 {
    let scaled = if factor == 0.0 { 0.0 } else { value * factor };
    // SAFETY: a finite value times the factor of the largest magnitude is at most 127 and a rounding
    // error; with factor 0 it is 0.
    unsafe { scaled.round_ties_even().to_int_unchecked::<i32>() }
}

/// The greatest unsigned byte.
const UNSIGNED_MAX: f32 = 255.0;

/// What unsigned bytes stand for: the difference of two that follow each other, and the byte of 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct UnsignedScale {
    pub(crate) scale: f32,
    pub(crate) zero_point: f32,
}

impl UnsignedScale {
    /// The scale of which the least and the greatest of `values` and 0 are bytes (the ONNX operator
    /// `DynamicQuantizeLinear`); NaN where one is not finite.
    #[inline(always)]
    pub(crate) fn of(values: &[f32]) -> Self {
        let least = values.iter().fold(0.0_f32, |least, &value| least.min(value));
        let greatest = values.iter().fold(0.0_f32, |greatest, &value| greatest.max(value));
        if !f32::from_bits(largest_magnitude(values)).is_finite() {
            return Self { scale: f32::NAN, zero_point: 0.0 };
        }
        let span = greatest - least;
        let scale = if span == 0.0 { 1.0 } else { span / UNSIGNED_MAX };
        Self { scale, zero_point: in_byte(-least / scale).round_ties_even() }
    }

    /// `value` as an unsigned byte, to nearest even.
    #[inline(always)]
    pub(crate) fn byte(self, value: f32) -> f32 {
        in_byte((value / self.scale).round_ties_even() + self.zero_point)
    }
}

/// The nearest number to `value` from 0 to 255; 0 for NaN.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "`clamp` gives NaN for NaN, `max` the other number")]
fn in_byte(value: f32) -> f32 {
    value.max(0.0).min(UNSIGNED_MAX)
}

/// What unsigned bytes stand for among the numbers of a row: the difference of two that follow each other, its inverse, and the byte of 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SpanScale {
    pub(crate) scale: f32,
    factor: f32,
    pub(crate) zero_point: i32,
}

impl SpanScale {
    /// The scale of which the least and the greatest of `values` and 0 are 255 apart: 0 where all are zero, NaN where one is not finite.
    #[inline(always)]
    pub(crate) fn of(values: &[f32]) -> Self {
        // As whole numbers with sign, the bits of negative numbers are below those of 0; as such without sign, they are above those of
        // positive numbers, the least the farthest. A NaN's are beyond those of infinity.
        let (mut least, mut greatest) = ((-0.0_f32).to_bits(), 0_i32);
        for value in values {
            let bits = value.to_bits();
            (least, greatest) = (least.max(bits), greatest.max(bits as i32));
        }
        let [least, greatest] = [least, greatest as u32].map(f32::from_bits);
        // Each by itself: their difference might overflow.
        let scale = greatest / UNSIGNED_MAX - least / UNSIGNED_MAX;
        if !scale.is_finite() {
            Self { scale: f32::NAN, factor: 0.0, zero_point: 0 }
        } else if greatest - least < LEAST {
            Self { scale: 0.0, factor: 0.0, zero_point: 0 }
        } else {
            let factor = 1.0 / scale;
            let zero_point = in_byte((-least * factor).round_ties_even());
            Self { scale, factor, zero_point: zero_point as i32 }
        }
    }

    /// The whole number that stands for `value`, one of the row's: a byte less the byte of 0, to nearest even; 0 where the scale is 0 or NaN.
    #[inline(always)]
    pub(crate) fn whole(self, value: f32) -> i32 {
        let scaled = if self.factor == 0.0 { 0.0 } else { value * self.factor };
        // SAFETY: a finite value times the factor of its row is at most 255 and a rounding error; with factor 0 it is 0.
        let whole = unsafe { scaled.round_ties_even().to_int_unchecked::<i32>() };
        // The least rounds to what 0 has below it, the greatest perhaps to one more than it has above.
        whole.min(UNSIGNED_MAX as i32 - self.zero_point)
    }
}

/// A weight as the whole number that it is times `scale`.
#[inline(always)]
pub(crate) fn whole(value: f32, scale: f32) -> i32 {
    // Of a scale of 0 all weights are 0.
    (value / scale).round_ties_even() as i32
}

/// The whole number by which weights, which are whole numbers times `scale`, are more than signed bytes; they are at most 255
/// apart. The bytes are `least` or more, if that is possible.
pub(crate) fn offset_of(weights: &[f32], scale: f32, least: i32) -> i32 {
    let wholes = || weights.iter().map(|&weight| whole(weight, scale));
    let (Some(low), Some(high)) = (wholes().min(), wholes().max()) else { return 0 };
    let greatest = i32::from(i8::MAX);
    let least = if high - low > greatest - least { i32::from(i8::MIN) } else { least };
    if low >= least && high <= greatest { 0 } else { low - least }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_to_nearest_even() {
        let rounded = |bits: u32| bf16(f32::from_bits(bits));
        assert_eq!(rounded(0x3f80_0000), 0x3f80);
        assert_eq!(rounded(0x3f80_8000), 0x3f80, "a tie goes to even");
        assert_eq!(rounded(0x3f81_8000), 0x3f82, "a tie goes to even");
        assert_eq!(rounded(0x3f80_8001), 0x3f81);
        assert_eq!(rounded(0x7f7f_ffff), 0x7f80, "overflow is infinity");
        assert_eq!(rounded(0xff80_0000), 0xff80);
        assert_eq!(rounded(0x007f_ffff), 0x0080, "the least normal number");
        assert_eq!(rounded(0x8040_0000), 0x8000, "subnormal");
        assert!(f32::from_bits(rounded(0x7f80_0001) << 16).is_nan());
    }

    #[test]
    fn bytes_and_scales() {
        let values = [0.5, -2.0, 1.0, 0.0];
        let (scale, factor) = scale_of(largest_magnitude(&values));
        assert_eq!(values.map(|value| to_byte(value, factor)), [32, -127, 64, 0]);
        assert_eq!(scale, 2.0 / 127.0);
        assert_eq!(scale_of(largest_magnitude(&[0.0, -1e-38])), (0.0, 0.0));
        for bad in [f32::NAN, f32::INFINITY, -f32::NAN] {
            let (scale, factor) = scale_of(largest_magnitude(&[1.0, bad]));
            assert!(scale.is_nan());
            assert_eq!(to_byte(bad, factor), 0);
        }
        let largest = f32::MAX;
        let (_, factor) = scale_of(largest_magnitude(&[largest]));
        assert_eq!(to_byte(largest, factor), 127);
    }

    #[test]
    fn bytes_between_the_least_and_the_greatest() {
        let of = |values: &[f32]| {
            let scale = SpanScale::of(values);
            let byte = |&value: &f32| scale.whole(value) + scale.zero_point;
            (scale.scale, scale.zero_point, values.iter().map(byte).collect::<Vec<i32>>())
        };
        assert_eq!(of(&[-1.0, 0.5, 1.55]), (1.55 / 255.0 + 1.0 / 255.0, 100, vec![0, 150, 255]));
        assert_eq!(of(&[1.0, 2.55, 0.0]).1, 0, "a row without negative numbers");
        assert_eq!(of(&[-2.55, -1.0]).2, [0, 155]);
        assert_eq!(of(&[0.0, -1e-38]), (0.0, 0, vec![0, 0]));
        // 101.5 below 0 and 153.5 above, of which both round up.
        assert_eq!(of(&[-101.5, 153.5]).2, [0, 255]);
        assert_eq!(of(&[f32::MAX, -f32::MAX]).2, [255, 0]);
        for bad in [f32::NAN, f32::INFINITY, -f32::NAN, f32::NEG_INFINITY] {
            let (scale, zero_point, bytes) = of(&[1.0, bad]);
            assert!(scale.is_nan());
            assert_eq!((zero_point, bytes), (0, vec![0, 0]));
        }
    }

    #[test]
    fn unsigned_bytes_and_scales() {
        let scale = UnsignedScale::of(&[-1.0, 0.5, 1.55]);
        assert_eq!(scale, UnsignedScale { scale: 2.55 / 255.0, zero_point: 100.0 });
        assert_eq!(
            [-1.0, 0.0, 0.5, 1.55].map(|value| scale.byte(value)),
            [0.0, 100.0, 150.0, 255.0]
        );
        let positive = UnsignedScale::of(&[1.0, 2.0]);
        assert_eq!(positive, UnsignedScale { scale: 2.0 / 255.0, zero_point: 0.0 });
        let zeros = UnsignedScale::of(&[0.0, -0.0]);
        assert_eq!(zeros, UnsignedScale { scale: 1.0, zero_point: 0.0 });
        let bad = UnsignedScale::of(&[1.0, f32::NAN]);
        assert!(bad.scale.is_nan());
        assert_eq!((bad.zero_point, bad.byte(1.0)), (0.0, 0.0));
        assert_eq!([-128, 0, 127].map(|byte| whole(byte as f32 * 0.3, 0.3)), [-128, 0, 127]);
        assert_eq!(whole(0.0, 0.0), 0);
        let offset =
            |weights: &[f32], scale| [-128, -127].map(|least| offset_of(weights, scale, least));
        assert_eq!(offset(&[-128.0, 127.0], 1.0), [0, 0]);
        assert_eq!(offset(&[-128.0, 126.0], 1.0), [0, -1]);
        assert_eq!(offset(&[-127.0, 127.0], 1.0), [0, 0]);
        assert_eq!(offset(&[-0.7, 24.8], 0.1), [-7 + 128; 2], "255 apart");
        assert_eq!(offset(&[-0.7, 24.7], 0.1), [-7 + 128, -7 + 127]);
        assert_eq!(offset(&[-20.0, 5.5], 0.1), [-200 + 128; 2]);
        assert_eq!(offset(&[], 0.1), [0, 0]);
    }
}
