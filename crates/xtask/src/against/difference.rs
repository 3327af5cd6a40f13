//! The distance of a tensor from another, and the distance that it may have.

use batchmaker_wire::{Tensor, TensorData};

/// The largest difference allowed in results of general programs, over max(1, the largest number of the tensor).
pub(crate) const CLOSE: f64 = 1e-5;

/// The difference that one step of rounding in a reduced precision makes, over the same.
pub(crate) const ROUNDED: f64 = 1.0 / 128.0;

/// The distance that an output of one build may have from that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// Recurrent cells alone computed it: equal in bits.
    Bits,
    /// A general program took part: within [`CLOSE`].
    Close,
    /// A general program's result was rounded to bfloat16 or bytes before the output, where the last bit may
    /// move a number to the next one that there is: within [`ROUNDED`].
    Rounded,
}

/// The distance of a tensor from another.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Difference {
    /// Not a bit.
    None,
    /// The largest |a - b|, over max(1, max|b|).
    Number(f64),
    /// A difference that is no number: of shapes, ids or texts.
    Other(String),
}

impl Claim {
    /// Whether outputs may differ by `difference`.
    pub(crate) fn allows(self, difference: &Difference) -> bool {
        match (self, difference) {
            (_, Difference::None) => true,
            (Self::Close, Difference::Number(number)) => *number <= CLOSE,
            (Self::Rounded, Difference::Number(number)) => *number <= ROUNDED,
            (Self::Bits, Difference::Number(_)) | (_, Difference::Other(_)) => false,
        }
    }
}

impl Difference {
    /// Returns the distance of `found` from `wanted`.
    pub(crate) fn of(found: &Tensor, wanted: &Tensor) -> Self {
        if found.shape() != wanted.shape() || found.datatype() != wanted.datatype() {
            return Self::Other(format!(
                "{} {:?}, was {} {:?}",
                found.datatype(),
                found.shape(),
                wanted.datatype(),
                wanted.shape()
            ));
        }
        match (found.data(), wanted.data()) {
            (TensorData::Fp32(a), TensorData::Fp32(b)) => Self::of_numbers(a, b),
            (a, b) if a == b => Self::None,
            (TensorData::Bytes(a), TensorData::Bytes(b)) => {
                let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(0);
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Self::Other(format!("{:?}, was {:?}", text(&a[at]), text(&b[at])))
            }
            _ => Self::Other(format!("{} that differ", found.datatype())),
        }
    }

    fn of_numbers(found: &[f32], wanted: &[f32]) -> Self {
        let pairs = || found.iter().zip(wanted);
        if pairs().all(|(a, b)| a.to_bits() == b.to_bits()) {
            return Self::None;
        }
        let apart = |(&a, &b): (&f32, &f32)| match () {
            () if a == b || a.is_nan() && b.is_nan() => 0.0,
            () if a.is_finite() && b.is_finite() => (f64::from(a) - f64::from(b)).abs(),
            () => f64::INFINITY,
        };
        let finite = wanted.iter().filter(|b| b.is_finite());
        let largest = finite.map(|&b| f64::from(b).abs()).fold(1.0, f64::max);
        Self::Number(pairs().map(apart).fold(0.0, f64::max) / largest)
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => write!(f, "equal"),
            Self::Number(number) => write!(f, "differs by {number:.1e}"),
            Self::Other(what) => write!(f, "{what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(data: impl Into<TensorData>) -> Tensor {
        let data = data.into();
        Tensor::new("y", vec![data.len()], data).unwrap()
    }

    fn of(found: &[f32], wanted: &[f32]) -> Difference {
        Difference::of(&tensor(found.to_vec()), &tensor(wanted.to_vec()))
    }

    #[test]
    fn one_bit_is_a_difference() {
        let next = f32::from_bits(0.5f32.to_bits() + 1);
        assert_eq!(of(&[0.5, 1.0], &[0.5, 1.0]), Difference::None);
        assert_eq!(of(&[next], &[0.5]), Difference::Number(f64::from(next) - 0.5));
        // The sign of zero is a bit, and of no size.
        assert_eq!(of(&[0.0], &[-0.0]), Difference::Number(0.0));
        assert!(!Claim::Bits.allows(&of(&[0.0], &[-0.0])));
        assert_eq!(of(&[f32::NAN], &[f32::NAN]), Difference::None);
    }

    #[test]
    fn differences_are_over_the_largest_number_but_no_less_than_1() {
        assert_eq!(of(&[0.5, 100.5], &[0.0, 100.0]), Difference::Number(0.005));
        assert_eq!(of(&[0.25], &[0.125]), Difference::Number(0.125));
        assert_eq!(of(&[f32::NAN, 1.0], &[1.0, 1.0]), Difference::Number(f64::INFINITY));
        assert_eq!(of(&[f32::INFINITY, 3.0], &[f32::INFINITY, 2.0]), Difference::Number(0.5));
    }

    #[test]
    fn claims_allow_what_they_say() {
        let (close, far) = (Difference::Number(9e-6), Difference::Number(1.1e-5));
        assert!(Claim::Close.allows(&close) && !Claim::Close.allows(&far));
        assert!(Claim::Rounded.allows(&far) && !Claim::Rounded.allows(&Difference::Number(0.01)));
        assert!(!Claim::Bits.allows(&close) && Claim::Bits.allows(&Difference::None));
        assert!(!Claim::Close.allows(&Difference::Number(f64::NAN)));
    }

    #[test]
    fn ids_and_texts_and_shapes_are_equal_or_not() {
        let differs = |a: Tensor, b: Tensor| Difference::of(&a, &b).to_string();
        assert_eq!(differs(tensor(vec![1i64]), tensor(vec![1i64])), "equal");
        assert_eq!(differs(tensor(vec![1i64]), tensor(vec![2i64])), "INT64 that differ");
        let texts = |text: &str| tensor(vec![b"a".to_vec(), text.as_bytes().to_vec()]);
        assert_eq!(differs(texts("b"), texts("c")), r#""b", was "c""#);
        assert_eq!(differs(tensor(vec![1f32]), tensor(vec![1f32, 2.0])), "FP32 [1], was FP32 [2]");
        assert!(!Claim::Rounded.allows(&Difference::Other(String::new())));
    }
}
