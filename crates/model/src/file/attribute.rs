//! Attributes of ONNX operators, written.

use rten_onnx::onnx::{AttributeProto, AttributeType};

/// An attribute that is one integer.
pub(crate) fn int_attribute(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        i: Some(value),
        r#type: Some(AttributeType::INT),
        ..AttributeProto::default()
    }
}

/// The integer that the attribute `name` is, if there is one.
pub(crate) fn named_int(attributes: &[AttributeProto], name: &str) -> Option<i64> {
    attributes.iter().find(|attribute| attribute.name.as_deref() == Some(name))?.i
}

/// An attribute that is a list of integers.
/// The integers of the attribute of this name, if there is one.
pub(crate) fn named_ints<'a>(attributes: &'a [AttributeProto], name: &str) -> Option<&'a [i64]> {
    let attribute = attributes.iter().find(|a| a.name.as_deref() == Some(name))?;
    Some(&attribute.ints)
}

pub(crate) fn ints_attribute(name: &str, values: Vec<i64>) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        ints: values,
        r#type: Some(AttributeType::INTS),
        ..AttributeProto::default()
    }
}

/// An attribute that is one number.
pub(crate) fn float_attribute(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        f: Some(value),
        r#type: Some(AttributeType::FLOAT),
        ..AttributeProto::default()
    }
}

/// An attribute that is a string.
pub(crate) fn string_attribute(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: Some(name.to_owned()),
        s: Some(value.to_owned()),
        r#type: Some(AttributeType::STRING),
        ..AttributeProto::default()
    }
}
