//! Tensors of the wire and of the engine.
//!
//! The engine knows five types of elements. A tensor that the model does not declare, or declares with another
//! type, is refused here, before anything is made of it.

use batchmaker::TensorInfo;
use batchmaker::{ElementType, NamedTensor, Tensor, TensorData};
use batchmaker_wire as wire;

use crate::serving::error::ServeError;
use crate::serving::heavy_work::COPIED_PER_JSON_BYTE;

/// The work of unfolding a row, which may be a sequence of its own.
const WORK_PER_ROW: usize = 16;

/// Checks the inputs of a request, before they are decoded, against those that its model declares.
pub(crate) fn check(
    inputs: &[wire::EncodedTensor<'_>],
    declared: &[TensorInfo],
) -> Result<(), ServeError> {
    inputs.iter().try_for_each(|input| check_input(&input.name, input.datatype(), declared))
}

/// The work of decoding the inputs of a request, which were checked, and of unfolding it: see
/// [`heavy_work`](crate::serving::heavy_work).
pub(crate) fn work(inputs: &[wire::EncodedTensor<'_>], declared: &[TensorInfo]) -> usize {
    let of_input = |input: &wire::EncodedTensor<'_>| {
        let elements = match input.is_binary() && input.datatype() != wire::Datatype::Bytes {
            true => input.encoded_bytes() / COPIED_PER_JSON_BYTE,
            false => input.encoded_bytes(),
        };
        let declared = declared.iter().find(|tensor| tensor.name == input.name);
        let axes = declared.map_or(&[][..], |tensor| &tensor.shape);
        let open = input.shape().iter().zip(axes).filter(|(_, axis)| **axis < 0);
        let rows = open.fold(1usize, |rows, (length, _)| rows.saturating_mul(*length));
        elements.saturating_add(rows.saturating_mul(WORK_PER_ROW))
    };
    inputs.iter().map(of_input).fold(0, usize::saturating_add)
}

fn check_input(
    name: &str,
    datatype: wire::Datatype,
    declared: &[TensorInfo],
) -> Result<(), ServeError> {
    let Some(tensor) = declared.iter().find(|tensor| tensor.name == name) else {
        let names: Vec<&str> = declared.iter().map(|tensor| &*tensor.name).collect();
        let names = names.join(", ");
        return Err(ServeError::Invalid(format!("input '{name}' is unknown, expected {names}")));
    };
    let expected = datatype_of(tensor.element);
    if datatype == expected {
        return Ok(());
    }
    Err(ServeError::Invalid(format!(
        "input '{name}': expected data type {expected}, got {datatype}"
    )))
}

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
    check_input(&input.name, input.datatype(), declared)?;
    let (name, shape) = (input.name.clone(), input.shape().to_vec());
    let data = match input.into_data() {
        wire::TensorData::Fp32(values) => TensorData::F32(values),
        wire::TensorData::Int64(values) => TensorData::I64(values),
        wire::TensorData::Int32(values) => TensorData::I32(values),
        wire::TensorData::Bool(values) => TensorData::Bool(values),
        wire::TensorData::Bytes(values) => TensorData::Bytes(values),
        _ => unreachable!("no model declares another type of elements"),
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

    fn declared(element: ElementType) -> Vec<TensorInfo> {
        vec![TensorInfo { name: "x".into(), element, shape: vec![-1] }]
    }

    fn element_of(tensor: &wire::Tensor) -> ElementType {
        use ElementType::{Bool, Bytes, F32, I32, I64};
        let elements = [F32, I64, I32, Bool, Bytes].into_iter();
        elements.clone().find(|&element| datatype_of(element) == tensor.datatype()).unwrap()
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
            let element = element_of(&tensor);
            let mut engine = from_wire(vec![tensor.clone()], &declared(element)).unwrap();
            let back = to_wire(engine.remove(0)).unwrap();
            assert_eq!(back, tensor);
            assert_eq!(datatype_of(ElementType::F32).name(), ElementType::F32.to_string());
        }
    }

    #[test]
    fn rows_and_json_are_more_work_than_copies() {
        let shape = vec![-1, -1, 512];
        let declared = [TensorInfo { name: "x".into(), element: ElementType::F32, shape }];
        let work = |rows: usize, format| {
            let tensor = wire::Tensor::new("x", vec![rows, 1, 512], vec![0.5f32; rows * 512]);
            let request =
                wire::InferRequest { inputs: vec![tensor.unwrap()], ..Default::default() };
            let body = wire::encode_request(&request, format).unwrap();
            let read = wire::read_request(&body.bytes, body.header_length).unwrap();
            super::work(&read.inputs, &declared)
        };
        let (row_bytes, rows) = (512 * size_of::<f32>(), 100);
        let binary = rows * (row_bytes / COPIED_PER_JSON_BYTE + WORK_PER_ROW);
        assert_eq!(work(rows, wire::DataFormat::Binary), binary);
        let json = rows * (512 * "0.5,".len() + WORK_PER_ROW);
        assert_eq!(work(rows, wire::DataFormat::Json), json + "]".len());
    }

    #[test]
    fn what_no_model_takes_is_refused_by_name() {
        let refusal = |name: &str| {
            let tensor = wire::Tensor::new(name, vec![1], vec![1.0f64]).unwrap();
            from_wire(vec![tensor], &declared(ElementType::F32)).unwrap_err().to_string()
        };
        assert_eq!(refusal("x"), "input 'x': expected data type FP32, got FP64");
        assert_eq!(refusal("z"), "input 'z' is unknown, expected x");
    }
}
