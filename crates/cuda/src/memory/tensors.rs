//! Tensors as bytes: elements in this machine's order, a truth value in one byte.

use batchmaker_graph::{ElementType, TensorData};
use bytemuck::{Pod, cast_slice};

/// Appends the bytes of a tensor's elements.
///
/// # Panics
/// For byte strings, which end at the edge of the model.
pub(crate) fn append_bytes(to: &mut Vec<u8>, data: &TensorData) {
    match data {
        TensorData::F32(data) => to.extend(cast_slice::<f32, u8>(data)),
        TensorData::I64(data) => to.extend(cast_slice::<i64, u8>(data)),
        TensorData::I32(data) => to.extend(cast_slice::<i32, u8>(data)),
        TensorData::Bool(data) => to.extend(data.iter().map(|&of| u8::from(of))),
        TensorData::Bytes(_) => unreachable!("byte strings end at the edge of the model"),
    }
}

/// The tensor of elements of a type that has these bytes.
///
/// # Panics
/// For byte strings, which end at the edge of the model.
pub(crate) fn of_bytes(element: ElementType, bytes: &[u8]) -> TensorData {
    match element.stored() {
        ElementType::I64 => TensorData::I64(elements(bytes)),
        ElementType::I32 => TensorData::I32(elements(bytes)),
        ElementType::Bool => TensorData::Bool(bytes.iter().map(|&of| of != 0).collect()),
        ElementType::Bytes => unreachable!("byte strings end at the edge of the model"),
        _ => TensorData::F32(elements(bytes)),
    }
}

fn elements<T: Pod>(bytes: &[u8]) -> Vec<T> {
    // Mostly the bytes are aligned, and their copy needs no zeros before.
    bytemuck::try_cast_slice(bytes)
        .map_or_else(|_| bytemuck::pod_collect_to_vec(bytes), <[T]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_come_back() {
        let all = [
            TensorData::F32(vec![1.5, -0.0]),
            TensorData::I64(vec![1 << 40, -1]),
            TensorData::I32(vec![7]),
            TensorData::Bool(vec![true, false, true]),
        ];
        for data in all {
            let mut bytes = Vec::new();
            append_bytes(&mut bytes, &data);
            assert_eq!(of_bytes(data.element(), &bytes), data);
        }
    }
}
