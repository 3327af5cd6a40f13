//! How weights are stored: `kernels/weights.cuh`.

use batchmaker_graph::Precision;

/// In which numbers a matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// As the weights came.
    F32,
    /// Rounded to bfloat16, as is what they are multiplied with.
    Bf16,
}

impl Storage {
    /// That of cells in a precision; none if there are no kernels for it.
    pub fn of(precision: Precision) -> Option<Self> {
        match precision {
            Precision::F32 => Some(Self::F32),
            Precision::Bf16 => Some(Self::Bf16),
            Precision::Int8 => None,
        }
    }

    /// What is the storage's: of f32, or of bfloat16.
    pub(super) fn choose<T>(self, [f32, bf16]: [T; 2]) -> T {
        match self {
            Self::F32 => f32,
            Self::Bf16 => bf16,
        }
    }

    /// Weights, `[rows, columns]`, as they are stored: in bfloat16 `[ceil(rows / 2), columns, 2]`, two rows side by side, the last one beside zeros where
    /// their number is odd.
    pub(super) fn bytes(self, weights: &[f32], columns: usize) -> Vec<u8> {
        if self == Self::F32 {
            return bytemuck::cast_slice(weights).to_vec();
        }
        let two_rows = weights.chunks(2 * columns.max(1));
        let word = |[low, high]: [f32; 2]| {
            (u32::from(bf16(low)) | u32::from(bf16(high)) << 16).to_ne_bytes()
        };
        let words = two_rows.flat_map(|rows| {
            let (first, second) = rows.split_at(columns);
            let second = second.iter().copied().chain(std::iter::repeat(0.0));
            first.iter().zip(second).flat_map(move |(&low, high)| word([low, high]))
        });
        words.collect()
    }
}

/// Whole numbers as they are stored: integers of 16 bits.
pub(super) fn whole_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|&number| (number as i16).to_ne_bytes()).collect()
}

/// The bits of the nearest bfloat16: of an f32 the upper 16. A tie goes to even; what is subnormal there is 0; what is no number stays so.
pub fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let nearest = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    match nearest & 0x7f80 {
        _ if value.is_nan() => (bits >> 16) as u16 | 0x40,
        0 => nearest & 0x8000,
        _ => nearest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_bfloat16() {
        let of_bits = |bits: u32| bf16(f32::from_bits(bits));
        assert_eq!([of_bits(0x3f80_8000), of_bits(0x3f81_8000)], [0x3f80, 0x3f82], "ties");
        assert_eq!([of_bits(0x3f80_8001), of_bits(0xbf81_7fff)], [0x3f81, 0xbf81]);
        assert_eq!([of_bits(0x007f_7fff), of_bits(0x807f_0000)], [0, 0x8000], "subnormal");
        assert_eq!(of_bits(0x007f_8000), 0x0080, "rounded to a normal number");
        assert_eq!([of_bits(0x7f7f_ffff), of_bits(0xff80_0000)], [0x7f80, 0xff80], "infinite");
        assert_eq!([of_bits(0x7f80_0001), of_bits(0xffff_ffff)], [0x7fc0, 0xffff], "no number");
    }

    #[test]
    fn weights_are_stored_as_the_precision_has_them() {
        let rows = [1.0, -2.5, 2.0, 1.0, -2.5, 0.0];
        let bytes = |precision| Storage::of(precision).map(|of| of.bytes(&rows, 2));
        assert_eq!(bytes(Precision::F32).unwrap(), bytemuck::bytes_of(&rows));
        let words = [0x4000_3f80u32, 0x3f80_c020, 0x0000_c020, 0];
        assert_eq!(bytes(Precision::Bf16).unwrap(), bytemuck::bytes_of(&words));
        assert_eq!(bytes(Precision::Int8), None);
    }
}
