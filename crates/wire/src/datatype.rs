//! The datatypes of tensors, and their two spellings: `FP32` in requests and metadata, `TYPE_FP32`
//! in a Triton model configuration.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{WireError, excerpt};

/// The type of a tensor's elements (Open Inference Protocol v2, "Tensor Data Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Datatype {
    /// `true` or `false`; one byte, 1 or 0, in binary.
    Bool,
    /// Unsigned, 8 bits.
    Uint8,
    /// Unsigned, 16 bits.
    Uint16,
    /// Unsigned, 32 bits.
    Uint32,
    /// Unsigned, 64 bits.
    Uint64,
    /// Signed, 8 bits.
    Int8,
    /// Signed, 16 bits.
    Int16,
    /// Signed, 32 bits.
    Int32,
    /// Signed, 64 bits.
    Int64,
    /// IEEE 754 binary16.
    Fp16,
    /// The upper half of an IEEE 754 binary32.
    Bf16,
    /// IEEE 754 binary32.
    Fp32,
    /// IEEE 754 binary64.
    Fp64,
    /// Byte strings, each of its own length.
    Bytes,
}

impl Datatype {
    /// Every datatype, in the order of the protocol's table.
    pub const ALL: [Self; 14] = [
        Self::Bool,
        Self::Uint8,
        Self::Uint16,
        Self::Uint32,
        Self::Uint64,
        Self::Int8,
        Self::Int16,
        Self::Int32,
        Self::Int64,
        Self::Fp16,
        Self::Bf16,
        Self::Fp32,
        Self::Fp64,
        Self::Bytes,
    ];

    /// The name in requests and metadata: `FP32`.
    pub const fn name(self) -> &'static str {
        match self {
            // Triton's name for BYTES is not this one's with a prefix.
            Self::Bytes => "BYTES",
            other => other.triton_name().split_at("TYPE_".len()).1,
        }
    }

    /// The name in a Triton model configuration: `TYPE_FP32`, and `TYPE_STRING` for BYTES.
    pub const fn triton_name(self) -> &'static str {
        match self {
            Self::Bool => "TYPE_BOOL",
            Self::Uint8 => "TYPE_UINT8",
            Self::Uint16 => "TYPE_UINT16",
            Self::Uint32 => "TYPE_UINT32",
            Self::Uint64 => "TYPE_UINT64",
            Self::Int8 => "TYPE_INT8",
            Self::Int16 => "TYPE_INT16",
            Self::Int32 => "TYPE_INT32",
            Self::Int64 => "TYPE_INT64",
            Self::Fp16 => "TYPE_FP16",
            Self::Bf16 => "TYPE_BF16",
            Self::Fp32 => "TYPE_FP32",
            Self::Fp64 => "TYPE_FP64",
            Self::Bytes => "TYPE_STRING",
        }
    }

    /// The bytes of one element in binary; `None` for [`Datatype::Bytes`], whose elements differ.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Datatype {
    type Err = WireError;

    /// Reads a name as [`Datatype::name`] spells it, in capitals.
    fn from_str(name: &str) -> Result<Self, WireError> {
        let found = Self::ALL.into_iter().find(|datatype| datatype.name() == name);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            let name = excerpt(name);
            WireError::invalid(format!("datatype '{name}' is unknown, expected one of {known}"))
        })
    }
}

impl Serialize for Datatype {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Datatype {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(D::Error::custom)
    }
}

/// Serde's `with` module for a datatype spelled as in a Triton model configuration.
pub(crate) mod triton_name {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        datatype: &Datatype,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(datatype.triton_name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Datatype, D::Error> {
        let name = String::deserialize(deserializer)?;
        let found = Datatype::ALL.into_iter().find(|datatype| datatype.triton_name() == name);
        found.ok_or_else(|| D::Error::custom(format!("data_type '{}' is unknown", excerpt(&name))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_protocols() {
        let names = Datatype::ALL.map(|datatype| datatype.to_string()).join(" ");
        assert_eq!(
            names,
            "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 BF16 FP32 FP64 BYTES"
        );
        for datatype in Datatype::ALL {
            assert_eq!(datatype.name().parse(), Ok(datatype));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = "fp32".parse::<Datatype>().unwrap_err().to_string();
        assert!(
            error.starts_with("datatype 'fp32' is unknown, expected one of BOOL, UINT8,"),
            "{error}"
        );
    }

    #[test]
    fn sizes_are_the_bits_of_the_names() {
        for datatype in Datatype::ALL {
            let digits = datatype.name().trim_start_matches(|c: char| !c.is_ascii_digit());
            let bits: Option<usize> = digits.parse().ok();
            match datatype {
                Datatype::Bool => assert_eq!(datatype.size(), Some(1)),
                _ => assert_eq!(datatype.size(), bits.map(|bits| bits / 8), "{datatype}"),
            }
        }
    }
}
