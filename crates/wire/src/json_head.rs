//! The JSON of a body as far as it can be read before any tensor's datatype is known, and the
//! JSON that is written.
//!
//! Reading takes the fields apart but leaves each as text, so that a wrong one can be named
//! together with its tensor. Fields that the protocol does not have are skipped.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::datatype::Datatype;
use crate::error::{WireError, excerpt};
use crate::json_data::JsonData;
use crate::parameter::{Parameter, Parameters, whole};

/// The most tensors in a list: a false list of many empty ones would take far more memory than
/// its text.
const TENSORS_MAX: usize = 4096;

/// The longest text of a field that is not `data`, for the same reason.
const FIELD_BYTES_MAX: usize = 1 << 20;

/// How a message names a string, which may be long.
const A_STRING: Unexpected<'_> = Unexpected::Other("a string");

/// A field as text; `None` where it is absent or null.
pub(crate) type Field<'a> = Option<&'a RawValue>;

#[derive(Deserialize)]
pub(crate) struct RequestHead<'a> {
    #[serde(borrow)]
    pub(crate) id: Field<'a>,
    #[serde(borrow)]
    pub(crate) parameters: Field<'a>,
    #[serde(borrow)]
    pub(crate) inputs: Option<Objects<TensorHead<'a>>>,
    #[serde(borrow)]
    pub(crate) outputs: Option<Objects<OutputHead<'a>>>,
}

#[derive(Deserialize)]
pub(crate) struct ResponseHead<'a> {
    #[serde(borrow)]
    pub(crate) model_name: Field<'a>,
    #[serde(borrow)]
    pub(crate) model_version: Field<'a>,
    #[serde(borrow)]
    pub(crate) id: Field<'a>,
    #[serde(borrow)]
    pub(crate) parameters: Field<'a>,
    #[serde(borrow)]
    pub(crate) outputs: Option<Objects<TensorHead<'a>>>,
}

#[derive(Deserialize)]
pub(crate) struct TensorHead<'a> {
    #[serde(borrow)]
    pub(crate) name: Field<'a>,
    #[serde(borrow)]
    pub(crate) shape: Field<'a>,
    #[serde(borrow)]
    pub(crate) datatype: Field<'a>,
    #[serde(borrow)]
    pub(crate) parameters: Field<'a>,
    #[serde(borrow)]
    pub(crate) data: Field<'a>,
}

#[derive(Deserialize)]
pub(crate) struct OutputHead<'a> {
    #[serde(borrow)]
    pub(crate) name: Field<'a>,
    #[serde(borrow)]
    pub(crate) parameters: Field<'a>,
}

/// Takes the JSON object of a body apart.
pub(crate) fn parse<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, WireError> {
    match serde_json::from_str::<Object<T>>(json) {
        Ok(Object(head)) => Ok(head),
        Err(error) if error.is_data() => Err(WireError::invalid(error.to_string())),
        Err(error) => Err(WireError::invalid(format!("not valid JSON: {error}"))),
    }
}

/// Reads the field `key`, if it is there.
pub(crate) fn optional<'a, T: Deserialize<'a>>(
    field: Field<'a>,
    key: &str,
    expected: &str,
) -> Result<Option<T>, WireError> {
    let Some(text) = field.map(RawValue::get) else { return Ok(None) };
    if text.len() > FIELD_BYTES_MAX {
        let got = text.len();
        return Err(WireError::invalid(format!(
            "{key} has {got} bytes, expected at most {FIELD_BYTES_MAX}"
        )));
    }
    serde_json::from_str(text).map(Some).map_err(|_| {
        let text = excerpt(text);
        WireError::invalid(format!("{key} is {text}, expected {expected}"))
    })
}

/// Reads the field `key`, which must be there.
pub(crate) fn required<'a, T: Deserialize<'a>>(
    field: Field<'a>,
    key: &str,
    expected: &str,
) -> Result<T, WireError> {
    let value = optional(field, key, expected)?;
    value.ok_or_else(|| WireError::invalid(format!("{key} is missing, expected {expected}")))
}

/// Reads the field `parameters`.
pub(crate) fn parameters(field: Field<'_>) -> Result<Parameters, WireError> {
    Ok(optional(field, "parameters", "an object")?.unwrap_or_default())
}

/// Reads the field `shape`.
pub(crate) fn dimensions(field: Field<'_>) -> Result<Vec<i64>, WireError> {
    let dimensions: Vec<Dimension> = required(field, "shape", "a list of integers")?;
    Ok(dimensions.into_iter().map(|Dimension(size)| size).collect())
}

/// An integer, which some clients write as a float.
struct Dimension(i64);

impl<'de> Deserialize<'de> for Dimension {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DimensionVisitor;

        impl Visitor<'_> for DimensionVisitor {
            type Value = Dimension;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer")
            }

            fn visit_i64<E>(self, value: i64) -> Result<Dimension, E> {
                Ok(Dimension(value))
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Dimension, E> {
                i64::try_from(value).map(Dimension).map_err(E::custom)
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Dimension, E> {
                whole(value)
                    .map(Dimension)
                    .ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
            }
        }

        deserializer.deserialize_any(DimensionVisitor)
    }
}

/// A structure read from a JSON object alone: what serde derives also takes a list of the fields.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Object<T>, E> {
                Err(E::invalid_type(A_STRING, &self))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        // Not `deserialize_map`, whose message would hold the whole of a string that comes instead.
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

/// A list of at most [`TENSORS_MAX`] objects.
pub(crate) struct Objects<T>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Objects<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectsVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectsVisitor<T> {
            type Value = Objects<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of tensors")
            }

            fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Objects<T>, E> {
                Err(E::invalid_type(A_STRING, &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Objects<T>, A::Error> {
                let mut objects = Vec::new();
                while let Some(Object(object)) = seq.next_element()? {
                    if objects.len() == TENSORS_MAX {
                        let message = format!("expected at most {TENSORS_MAX} tensors, got more");
                        return Err(A::Error::custom(message));
                    }
                    objects.push(object);
                }
                Ok(Objects(objects))
            }
        }

        deserializer.deserialize_any(ObjectsVisitor(PhantomData))
    }
}

#[derive(Serialize)]
pub(crate) struct RequestJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<&'a str>,
    #[serde(skip_serializing_if = "ParametersJson::is_empty")]
    pub(crate) parameters: ParametersJson<'a>,
    pub(crate) inputs: Vec<TensorJson<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) outputs: Vec<OutputJson<'a>>,
}

#[derive(Serialize)]
pub(crate) struct ResponseJson<'a> {
    pub(crate) model_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) model_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<&'a str>,
    #[serde(skip_serializing_if = "ParametersJson::is_empty")]
    pub(crate) parameters: ParametersJson<'a>,
    pub(crate) outputs: Vec<TensorJson<'a>>,
}

#[derive(Serialize)]
pub(crate) struct TensorJson<'a> {
    pub(crate) name: &'a str,
    pub(crate) shape: &'a [usize],
    pub(crate) datatype: Datatype,
    #[serde(skip_serializing_if = "ParametersJson::is_empty")]
    pub(crate) parameters: ParametersJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<JsonData<'a>>,
}

#[derive(Serialize)]
pub(crate) struct OutputJson<'a> {
    pub(crate) name: &'a str,
    #[serde(skip_serializing_if = "ParametersJson::is_empty")]
    pub(crate) parameters: ParametersJson<'a>,
}

/// Parameters and the one of the codec's own, which goes before another of its name.
pub(crate) struct ParametersJson<'a> {
    pub(crate) parameters: &'a Parameters,
    pub(crate) own: Option<(&'static str, Parameter)>,
}

impl ParametersJson<'_> {
    fn is_empty(&self) -> bool {
        self.parameters.is_empty() && self.own.is_none()
    }
}

impl Serialize for ParametersJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let own = self.own.as_ref();
        for (name, value) in self.parameters {
            if own.is_none_or(|(own, _)| own != name) {
                map.serialize_entry(name, value)?;
            }
        }
        if let Some((name, value)) = own {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
