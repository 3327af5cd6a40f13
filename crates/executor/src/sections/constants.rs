//! Reads the constants of a program's file, and the attributes of its operators.

use std::collections::BTreeMap;

use rten_onnx::onnx::{DataType, GraphProto, NodeProto, TensorProto};

use crate::probe::{constant_dims, int_elements};

/// A program's constants by name.
pub(super) struct Constants<'a>(BTreeMap<&'a str, &'a TensorProto>);

impl<'a> Constants<'a> {
    pub(super) fn of(graph: &'a GraphProto) -> Self {
        let named = |tensor: &'a TensorProto| Some((tensor.name.as_deref()?, tensor));
        Self(graph.initializer.iter().filter_map(named).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a TensorProto> {
        self.0.get(name).copied()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The shape and the elements of a FLOAT constant.
    pub(super) fn floats(&self, name: &str) -> Option<(Vec<usize>, Vec<f32>)> {
        let tensor = self.get(name).filter(|tensor| tensor.data_type == Some(DataType::FLOAT))?;
        let shape: Vec<usize> = tensor.dims.iter().map(|&n| n as usize).collect();
        let data: Vec<f32> = match &tensor.raw_data {
            Some(raw) => {
                let bytes = raw.borrow();
                let (floats, _) = bytes.as_chunks::<4>();
                floats.iter().map(|&float| f32::from_le_bytes(float)).collect()
            }
            None => tensor.float_data.clone(),
        };
        (data.len() == shape.iter().product::<usize>()).then_some((shape, data))
    }

    /// The shape of a FLOAT constant.
    pub(super) fn float_dims(&self, name: &str) -> Option<Vec<usize>> {
        let tensor = self.get(name)?;
        (tensor.data_type == Some(DataType::FLOAT)).then(|| constant_dims(tensor))
    }

    /// The shape of a constant.
    pub(super) fn dims(&self, name: &str) -> Option<Vec<usize>> {
        Some(constant_dims(self.get(name)?))
    }

    /// The elements of an INT64 constant.
    pub(super) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        int_elements(self.get(name)?)
    }

    /// A FLOAT constant of one element.
    pub(super) fn number(&self, name: &str) -> Option<f32> {
        match self.floats(name)?.1[..] {
            [number] => Some(number),
            _ => None,
        }
    }
}

/// The integers of an attribute; `count` times `default` where the node has no such attribute.
pub(super) fn ints(node: &NodeProto, name: &str, default: i64, count: usize) -> Option<Vec<usize>> {
    let attribute = node.attribute.iter().find(|a| a.name.as_deref() == Some(name));
    let ints = attribute.map_or_else(|| vec![default; count], |attribute| attribute.ints.clone());
    let ints: Option<Vec<usize>> = ints.into_iter().map(|n| usize::try_from(n).ok()).collect();
    ints.filter(|ints| ints.len() == count)
}

/// The integer of an attribute.
pub(super) fn int(node: &NodeProto, name: &str, default: i64) -> i64 {
    let attribute = node.attribute.iter().find(|a| a.name.as_deref() == Some(name));
    attribute.and_then(|attribute| attribute.i).unwrap_or(default)
}

/// The FLOAT of an attribute.
pub(super) fn float(node: &NodeProto, name: &str, default: f32) -> f32 {
    let attribute = node.attribute.iter().find(|a| a.name.as_deref() == Some(name));
    attribute.and_then(|attribute| attribute.f).unwrap_or(default)
}
