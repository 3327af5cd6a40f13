//! Tensors of the wire and of the engine.
//!
//! The engine knows five types of elements. Whether a tensor of one of them is what the model
//! wants, the model says; the other datatypes are refused here.

use batchmaker::TensorInfo;
use batchmaker::{ElementType, NamedTensor, Tensor, TensorData};
use batchmaker_wire as wire;

use crate::serving::error::ServeError;

/// Takes the inputs of a request for a model that declares `declared`.
pub(crate) fn from_wire(
    inputs: Vec<wire::Tensor>,
    declared: &[TensorInfo],
) -> Result<Vec<NamedTensor>, ServeError> {
    inputs.into_iter().map(|input| input_from_wire(input, declared)).collect()
}

fn input_from_wire(
    input: wire::Tensor,
    declared: &[TensorInfo],
) -> Result<NamedTensor, ServeError> {
    let (name, shape, datatype) = (input.name.clone(), input.shape().to_vec(), input.datatype());
    let data = match input.into_data() {
        wire::TensorData::Fp32(values) => TensorData::F32(values),
        wire::TensorData::Int64(values) => TensorData::I64(values),
        wire::TensorData::Int32(values) => TensorData::I32(values),
        wire::TensorData::Bool(values) => TensorData::Bool(values),
        wire::TensorData::Bytes(values) => TensorData::Bytes(values),
        _ => {
            let expected = match declared.iter().find(|tensor| tensor.name == name) {
                Some(tensor) => datatype_of(tensor.element).to_string(),
                None => {
                    let names: Vec<&str> = declared.iter().map(|tensor| &*tensor.name).collect();
                    return Err(ServeError::Invalid(format!(
                        "input '{name}' is unknown, expected {}",
                        names.join(", ")
                    )));
                }
            };
            return Err(ServeError::Invalid(format!(
                "input '{name}': expected data type {expected}, got {datatype}"
            )));
        }
    };
    Ok(NamedTensor { name, tensor: Tensor::new(shape, data) })
}

/// Gives an output its form on the wire.
pub(crate) fn to_wire(output: NamedTensor) -> Result<wire::Tensor, ServeError> {
    let NamedTensor { name, tensor } = output;
    let shape = tensor.shape().to_vec();
    let data = match tensor.into_data() {
        TensorData::F32(values) => wire::TensorData::Fp32(values),
        TensorData::I64(values) => wire::TensorData::Int64(values),
        TensorData::I32(values) => wire::TensorData::Int32(values),
        TensorData::Bool(values) => wire::TensorData::Bool(values),
        TensorData::Bytes(values) => wire::TensorData::Bytes(values),
    };
    wire::Tensor::new(&*name, shape, data)
        .map_err(|error| ServeError::Internal(format!("output '{name}': {error}")))
}

/// The protocol's name for a type of elements.
pub(crate) fn datatype_of(element: ElementType) -> wire::Datatype {
    match element {
        ElementType::F32 => wire::Datatype::Fp32,
        ElementType::I64 => wire::Datatype::Int64,
        ElementType::I32 => wire::Datatype::Int32,
        ElementType::Bool => wire::Datatype::Bool,
        ElementType::Bytes => wire::Datatype::Bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Vec<TensorInfo> {
        vec![TensorInfo { name: "x".into(), element: ElementType::F32, shape: vec![-1] }]
    }

    #[test]
    fn what_the_engine_knows_comes_back_as_it_was() {
        let data: [wire::TensorData; 5] = [
            vec![0.1f32, f32::INFINITY].into(),
            vec![i64::MIN, 7].into(),
            vec![i32::MIN, 7].into(),
            vec![true, false].into(),
            vec![b"a".to_vec(), vec![0xff]].into(),
        ];
        for data in data {
            let tensor = wire::Tensor::new("x", vec![2, 1], data).unwrap();
            let mut engine = from_wire(vec![tensor.clone()], &declared()).unwrap();
            let back = to_wire(engine.remove(0)).unwrap();
            assert_eq!(back, tensor);
            assert_eq!(datatype_of(ElementType::F32).name(), ElementType::F32.to_string());
        }
    }

    #[test]
    fn what_no_model_takes_is_refused_by_name() {
        let refusal = |name: &str| {
            let tensor = wire::Tensor::new(name, vec![1], vec![1.0f64]).unwrap();
            from_wire(vec![tensor], &declared()).unwrap_err().to_string()
        };
        assert_eq!(refusal("x"), "input 'x': expected data type FP32, got FP64");
        assert_eq!(refusal("z"), "input 'z' is unknown, expected x");
    }
}
