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
}
