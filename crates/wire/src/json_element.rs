//! One element of a tensor as JSON.
//!
//! Elements are read straight from their text, so that an FP32 is the nearest one to the decimal
//! that the client wrote (through an f64 it might not be) and a 64-bit integer is exact. Floats
//! are written so that they read back to the same bits; those that are not finite are the strings
//! "NaN", "Infinity" and "-Infinity", for which JSON has no number.

use half::{bf16, f16};
use serde::ser::Error as _;
use serde::{Serialize, Serializer};

/// An element of a tensor, read from JSON and written to it.
pub(crate) trait JsonElement: Sized {
    /// Describes the values that [`Self::parse`] takes, for a message.
    fn expected() -> String;
    /// Reads a JSON value that is not a list.
    fn parse(token: &str) -> Option<Self>;
    /// Writes the value.
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

macro_rules! integer {
    ($($integer:ty),*) => {$(
        impl JsonElement for $integer {
            fn expected() -> String {
                format!("an integer from {} to {}", Self::MIN, Self::MAX)
            }

            fn parse(token: &str) -> Option<Self> {
                token.parse().ok().or_else(|| digits_of_whole(token)?.parse().ok())
            }

            fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.serialize(serializer)
            }
        }
    )*};
}

integer!(u8, u16, u32, u64, i8, i16, i32, i64);

/// The most digits before the point, after it, and zeros that an exponent stands for: more than integers of 64 bits have.
const DIGITS_MAX: usize = 32;

/// The digits of a whole number that is written with a fraction, an exponent or as a negative zero: some clients write
/// integers as floats. None if it is not whole, or has more than [`DIGITS_MAX`] digits or zeros.
fn digits_of_whole(token: &str) -> Option<String> {
    let (mantissa, exponent) = token.split_once(['e', 'E']).unwrap_or((token, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    if integer.is_empty() || !is_digits(integer) || !is_digits(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    if integer.len().max(fraction.len()) > DIGITS_MAX {
        return None;
    }
    let digits = format!("{integer}{fraction}");
    let zeros = exponent.checked_sub(fraction.len() as i64)?;
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some("0".to_owned());
    }
    match usize::try_from(zeros) {
        Ok(zeros) if zeros <= DIGITS_MAX => Some(format!("{sign}{digits}{}", "0".repeat(zeros))),
        Ok(_) => None,
        Err(_) => {
            let len = digits.len().checked_sub(usize::try_from(zeros.unsigned_abs()).ok()?)?;
            let (kept, rest) = digits.split_at(len);
            rest.bytes().all(|digit| digit == b'0').then(|| format!("{sign}{kept}"))
        }
    }
}

/// A float, whose text is read as a `$via` (FP16 and BF16 are rounded from an f32).
macro_rules! float {
    ($($float:ty, $name:literal, $via:ty, $from:expr;)*) => {$(
        impl JsonElement for $float {
            fn expected() -> String {
                let max = <$via>::from(Self::MAX);
                format!(
                    concat!(
                        "a ", $name, " number from -{max:e} to {max:e}, ",
                        "or \"NaN\", \"Infinity\" or \"-Infinity\""
                    ),
                    max = max
                )
            }

            fn parse(token: &str) -> Option<Self> {
                match token {
                    "\"NaN\"" => Some(Self::NAN),
                    "\"Infinity\"" => Some(Self::INFINITY),
                    "\"-Infinity\"" => Some(Self::NEG_INFINITY),
                    _ => token.parse::<$via>().ok().map($from).filter(|value| value.is_finite()),
                }
            }

            fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match *self {
                    value if value.is_finite() => <$via>::from(value).serialize(serializer),
                    value if value.is_nan() => serializer.serialize_str("NaN"),
                    value if value.is_sign_positive() => serializer.serialize_str("Infinity"),
                    _ => serializer.serialize_str("-Infinity"),
                }
            }
        }
    )*};
}

float! {
    f16, "FP16", f32, f16::from_f32;
    bf16, "BF16", f32, bf16::from_f32;
    f32, "FP32", f32, |value| value;
    f64, "FP64", f64, |value| value;
}

impl JsonElement for bool {
    fn expected() -> String {
        "true or false".into()
    }

    fn parse(token: &str) -> Option<Self> {
        match token {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        }
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.serialize(serializer)
    }
}

impl JsonElement for Vec<u8> {
    fn expected() -> String {
        "a string".into()
    }

    fn parse(token: &str) -> Option<Self> {
        let inside = token.strip_prefix('"')?.strip_suffix('"')?;
        if inside.contains('\\') {
            return serde_json::from_str::<String>(token).ok().map(String::into_bytes);
        }
        Some(inside.as_bytes().to_vec())
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = str::from_utf8(self).map_err(S::Error::custom)?;
        serializer.serialize_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::Datatype;
    use crate::json_data::{JsonData, parse};
    use crate::tensor::TensorData;
    use proptest::prelude::*;

    fn read(datatype: Datatype, shape: &[usize], text: &str) -> TensorData {
        parse(datatype, shape, text).unwrap()
    }

    fn refusal(datatype: Datatype, shape: &[usize], text: &str) -> String {
        parse(datatype, shape, text).unwrap_err().to_string()
    }

    fn written(data: impl Into<TensorData>) -> String {
        serde_json::to_string(&JsonData(&data.into())).unwrap()
    }

    #[test]
    fn elements_of_another_type_are_refused() {
        let first = |datatype, text: &str| refusal(datatype, &[2], text);
        let expected = "expected an integer from -128 to 127";
        for token in ["1.5", "1e3", "15e-1", "128", "-129", "true", "null", "\"1\""] {
            assert_eq!(
                first(Datatype::Int8, &format!("[0,{token}]")),
                format!("element 1 is {token}, {expected}")
            );
        }
        assert_eq!(
            first(Datatype::Uint64, "[18446744073709551616,0]"),
            "element 0 is 18446744073709551616, expected an integer from 0 to 18446744073709551615"
        );
        assert_eq!(
            first(Datatype::Fp32, "[1e39,0]"),
            "element 0 is 1e39, expected a FP32 number from -3.4028235e38 to 3.4028235e38, \
             or \"NaN\", \"Infinity\" or \"-Infinity\""
        );
        assert!(
            first(Datatype::Fp16, "[65520,0]").starts_with("element 0 is 65520, expected a FP16")
        );
        assert!(first(Datatype::Fp64, "[\"nan\",0]").contains("element 0 is \"nan\""));
        assert!(first(Datatype::Fp64, "[{\"a\":[1]},0]").contains("element 0 is {"));
        assert_eq!(first(Datatype::Bool, "[2,true]"), "element 0 is 2, expected true or false");
        assert_eq!(first(Datatype::Bytes, "[\"a\",1]"), "element 1 is 1, expected a string");
        // Half of a surrogate pair is no text.
        assert!(first(Datatype::Bytes, r#"["\ud800","a"]"#).contains("expected a string"));
    }

    #[test]
    fn an_fp32_is_the_nearest_to_its_decimal() {
        // Just above the middle of 1 and the next float; the nearest f64 is the middle itself.
        let text = "[1.0000000596046447753906250000001]";
        assert_eq!(read(Datatype::Fp32, &[1], text), vec![1.0f32.next_up()].into());
        // Equal floats may differ in the sign of a zero: compare text.
        let zeros = read(Datatype::Fp32, &[3], "[-0.0,-1e-60,1e-60]");
        assert_eq!(format!("{zeros:?}"), "Fp32([-0.0, -0.0, 0.0])");
    }

    #[test]
    fn bools_and_negative_zero_have_two_spellings() {
        let bools = vec![true, false, true, false];
        assert_eq!(read(Datatype::Bool, &[4], "[1,0,true,false]"), bools.into());
        assert_eq!(read(Datatype::Uint8, &[2], "[-0,0]"), vec![0u8, 0].into());
    }

    #[test]
    fn whole_floats_are_integers() {
        let text = "[1.0,-2.50e1,1e2,1200e-2,0.0e99,-0.0]";
        let integers = vec![1i8, -25, 100, 12, 0, 0];
        assert_eq!(read(Datatype::Int8, &[6], text), integers.into());
        let exact = vec![9_007_199_254_740_993i64, i64::MIN];
        let text = "[9007199254740993.0,-9223372036854775808.00]";
        assert_eq!(read(Datatype::Int64, &[2], text), exact.into());
        let long = format!("1.{}", "0".repeat(1 << 20));
        assert_eq!(read(Datatype::Int64, &[1], &format!("[{long}]")), vec![1i64].into());
        let digits = "1".repeat(1 << 20);
        for token in
            ["1e99", "-1e999999999999", "1e-999999999999", "9223372036854775808.0", &digits]
        {
            let error = refusal(Datatype::Int64, &[2], &format!("[0,{token}]"));
            assert!(error.starts_with("element 1 is"), "{error}");
        }
    }

    #[test]
    fn strings_are_unescaped() {
        let text = r#"["plain","é","\u00e9\n\"\\","\ud83d\ude00","],[",""]"#;
        let strings = ["plain", "é", "é\n\"\\", "😀", "],[", ""];
        let bytes: Vec<Vec<u8>> = strings.iter().map(|text| text.as_bytes().to_vec()).collect();
        assert_eq!(read(Datatype::Bytes, &[6], text), bytes.clone().into());
        assert_eq!(read(Datatype::Bytes, &[6], &written(bytes.clone())), bytes.into());
    }

    #[test]
    fn non_finite_floats_are_strings() {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1.5];
        let text = "[\"NaN\",\"Infinity\",\"-Infinity\",-0.0,1.5]";
        assert_eq!(written(special.to_vec()), text);
        assert_eq!(written(special.map(f64::from).to_vec()), text);
        assert_eq!(written(special.map(f16::from_f32).to_vec()), text);
        assert_eq!(written(special.map(bf16::from_f32).to_vec()), text);
        let TensorData::Fp32(values) = read(Datatype::Fp32, &[5], text) else { unreachable!() };
        assert!(values[0].is_nan());
        assert_eq!(values[1..], special[1..]);
    }

    #[test]
    fn every_half_keeps_its_bits() {
        let halves: Vec<u16> = (0..=u16::MAX).collect();
        let fp16: Vec<f16> =
            halves.iter().map(|&bits| f16::from_bits(bits)).filter(|x| !x.is_nan()).collect();
        let bf16: Vec<bf16> =
            halves.iter().map(|&bits| bf16::from_bits(bits)).filter(|x| !x.is_nan()).collect();
        let (fp16, bf16) = (TensorData::Fp16(fp16), TensorData::Bf16(bf16));
        for data in [fp16, bf16] {
            let text = serde_json::to_string(&JsonData(&data)).unwrap();
            let back = read(data.datatype(), &[data.len()], &text);
            let (mut bits, mut back_bits) = (Vec::new(), Vec::new());
            data.append_le_bytes(&mut bits);
            back.append_le_bytes(&mut back_bits);
            assert!(bits == back_bits, "{}", data.datatype());
        }
    }

    proptest! {
        #[test]
        fn fp32_keeps_its_bits(bits: Vec<u32>) {
            let values: Vec<f32> = bits.iter().map(|&bits| f32::from_bits(bits)).collect();
            let TensorData::Fp32(back) =
                read(Datatype::Fp32, &[values.len()], &written(values.clone()))
            else { unreachable!() };
            for (value, back) in values.iter().zip(back) {
                let same = value.to_bits() == back.to_bits() || value.is_nan() && back.is_nan();
                prop_assert!(same, "{value:e} {back:e}");
            }
        }

        #[test]
        fn fp64_keeps_its_bits(bits: Vec<u64>) {
            let values: Vec<f64> = bits.iter().map(|&bits| f64::from_bits(bits)).collect();
            let TensorData::Fp64(back) =
                read(Datatype::Fp64, &[values.len()], &written(values.clone()))
            else { unreachable!() };
            for (value, back) in values.iter().zip(back) {
                let same = value.to_bits() == back.to_bits() || value.is_nan() && back.is_nan();
                prop_assert!(same, "{value:e} {back:e}");
            }
        }

        #[test]
        fn integers_are_exact(mut signed: Vec<i64>, mut unsigned: Vec<u64>) {
            signed.extend([i64::MIN, i64::MAX]);
            unsigned.extend([u64::MIN, u64::MAX]);
            let back = read(Datatype::Int64, &[signed.len()], &written(signed.clone()));
            prop_assert_eq!(back, signed.into());
            let back = read(Datatype::Uint64, &[unsigned.len()], &written(unsigned.clone()));
            prop_assert_eq!(back, unsigned.into());
        }
    }
}
