//! Parameters: named values beside a request, a tensor or a requested output.
//!
//! Their meaning is the server's business, save for the three that say how tensors travel
//! (`binary_data_size`, `binary_data`, `binary_data_output`), which the codec takes out.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Parameters by name.
pub type Parameters = BTreeMap<String, Parameter>;

/// The value of a parameter.
///
/// An integer that fits an `i64` is always [`Parameter::I64`] when it was read from JSON or made
/// with `From`; ask with [`Parameter::as_u64`] and [`Parameter::as_i64`], which take either width.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Parameter {
    /// `true` or `false`.
    Bool(bool),
    /// An integer within the range of `i64`.
    I64(i64),
    /// An integer beyond `i64::MAX`.
    U64(u64),
    /// A number with a fraction or an exponent, or an integer beyond `u64::MAX`.
    F64(f64),
    /// Text.
    String(String),
    /// A value that no parameter of the protocol has, and whose content is not kept: some clients send such ones for
    /// purposes of their own. It is written as null.
    Other(OtherValue),
}

/// The kind of a value that no parameter of the protocol has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherValue {
    /// The null of JSON.
    Null,
    /// A list.
    List,
    /// An object.
    Object,
}

/// Floats below it are exact where they are whole: another integer may be rounded to it.
const WHOLE_BELOW: f64 = (1u64 << 53) as f64;

impl Parameter {
    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// The integer, of whichever width, if it is within the range of `i64`; or a float that is whole and below 2^53 in
    /// magnitude.
    pub fn as_i64(&self) -> Option<i64> {
        match *self {
            Self::I64(value) => Some(value),
            Self::U64(value) => value.try_into().ok(),
            Self::F64(value) => whole(value),
            _ => None,
        }
    }

    /// The integer, of whichever width, if it is not negative; or a float that is whole and below 2^53.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U64(value) => Some(value),
            _ => self.as_i64()?.try_into().ok(),
        }
    }

    /// Whether it is the null of JSON, which some clients write where there is no value.
    pub fn is_null(&self) -> bool {
        *self == Self::Other(OtherValue::Null)
    }

    /// The number, integers included (rounded beyond 2^53).
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::I64(value) => Some(value as f64),
            Self::U64(value) => Some(value as f64),
            Self::F64(value) => Some(value),
            _ => None,
        }
    }

    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(value) => Some(value),
            _ => None,
        }
    }
}

/// The integer that a float is, if it is below 2^53 in magnitude.
pub(crate) fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < WHOLE_BELOW).then_some(value as i64)
}

impl Serialize for OtherValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl From<bool> for Parameter {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Parameter {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}

impl From<u64> for Parameter {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::U64(value), Self::I64)
    }
}

impl From<f64> for Parameter {
    fn from(value: f64) -> Self {
        Self::F64(value)
    }
}

impl From<&str> for Parameter {
    fn from(value: &str) -> Self {
        Self::String(value.into())
    }
}

impl From<String> for Parameter {
    fn from(value: String) -> Self {
        Self::String(value)
    }
}

/// Writes it as JSON does: text in quotes.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::I64(value) => write!(f, "{value}"),
            Self::U64(value) => write!(f, "{value}"),
            Self::F64(value) => write!(f, "{value:?}"),
            Self::String(value) => write!(f, "{value:?}"),
            Self::Other(OtherValue::Null) => f.write_str("null"),
            Self::Other(OtherValue::List) => f.write_str("a list"),
            Self::Other(OtherValue::Object) => f.write_str("an object"),
        }
    }
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParameterVisitor;

        impl<'de> Visitor<'de> for ParameterVisitor {
            type Value = Parameter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Parameter, E> {
                Ok(Parameter::Other(OtherValue::Null))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Parameter, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Parameter::Other(OtherValue::List))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Parameter, A::Error> {
                while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Parameter::Other(OtherValue::Object))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Parameter, E> {
                Ok(value.into())
            }

            fn visit_i64<E>(self, value: i64) -> Result<Parameter, E> {
                Ok(value.into())
            }

            fn visit_u64<E>(self, value: u64) -> Result<Parameter, E> {
                Ok(value.into())
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Parameter, E> {
                if value.is_finite() { Ok(value.into()) } else { Err(E::custom("not finite")) }
            }

            fn visit_str<E>(self, value: &str) -> Result<Parameter, E> {
                Ok(value.into())
            }

            fn visit_string<E>(self, value: String) -> Result<Parameter, E> {
                Ok(value.into())
            }
        }

        deserializer.deserialize_any(ParameterVisitor).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Parameter {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn integers_are_exact_and_of_either_width() {
        assert_eq!(read("-9223372036854775808").as_i64(), Some(i64::MIN));
        assert_eq!(read("18446744073709551615").as_u64(), Some(u64::MAX));
        assert_eq!(read("7"), Parameter::from(7u64));
        assert_eq!(Parameter::U64(7).as_i64(), Some(7));
        assert_eq!(read("-1").as_u64(), None);
        assert_eq!(read("9223372036854775808").as_i64(), None);
        assert_eq!((read("7.0").as_u64(), read("-7e1").as_i64()), (Some(7), Some(-70)));
        assert_eq!((read("7.5").as_i64(), read("1e17").as_u64()), (None, None));
        // Two integers have the same nearest float.
        assert_eq!(
            [read("9007199254740992.0"), read("9007199254740993.0")].map(|of| of.as_u64()),
            [None; 2]
        );
        assert_eq!(read("7").as_f64(), Some(7.0));
    }

    #[test]
    fn values_are_written_as_they_are_read() {
        for json in ["true", "-5", "18446744073709551615", "0.1", "1e300", "\"a\\\"b\"", "null"] {
            assert_eq!(serde_json::to_string(&read(json)).unwrap().replace("e+", "e"), json);
        }
    }

    #[test]
    fn of_lists_objects_and_null_the_kind_is_kept() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let table = [
            ("null", "null"),
            ("[1, {\"a\": []}]", "a list"),
            ("{\"a\": [1.5, null]}", "an object"),
            (&deep, "a list"),
        ];
        for (json, shown) in table {
            let value = read(json);
            assert_eq!(value.to_string(), shown);
            assert_eq!((value.as_u64(), value.as_bool(), value.as_str()), (None, None, None));
            assert_eq!(value.is_null(), shown == "null");
        }
        assert!(serde_json::from_str::<Parameter>("[1, {]}").is_err());
    }
}
