//! Tensors of the wire and of the engine.
//!
//! The engine stores elements as one of five types. A tensor that the model does not declare, or declares with
//! another type, is refused here, before anything is made of it.

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
    let data = stored(input.into_data()).ok_or_else(|| {
        ServeError::Invalid(format!("input '{name}': expected integers below 2^63"))
    })?;
    Ok(NamedTensor { name, tensor: Tensor::new(shape, data) })
}

/// The elements as the engine stores them; none if one does not fit.
fn stored(data: wire::TensorData) -> Option<TensorData> {
    fn floats<T: Into<f32>>(values: Vec<T>) -> TensorData {
        TensorData::F32(values.into_iter().map(Into::into).collect())
    }
    Some(match data {
        wire::TensorData::Fp32(values) => TensorData::F32(values),
        wire::TensorData::Int64(values) => TensorData::I64(values),
        wire::TensorData::Int32(values) => TensorData::I32(values),
        wire::TensorData::Bool(values) => TensorData::Bool(values),
        wire::TensorData::Bytes(values) => TensorData::Bytes(values),
        wire::TensorData::Fp16(values) => floats(values),
        wire::TensorData::Bf16(values) => floats(values),
        wire::TensorData::Fp64(values) => {
            TensorData::F32(values.into_iter().map(|x| x as f32).collect())
        }
        wire::TensorData::Int8(values) => floats(values),
        wire::TensorData::Int16(values) => floats(values),
        wire::TensorData::Uint8(values) => floats(values),
        wire::TensorData::Uint16(values) => floats(values),
        wire::TensorData::Uint32(values) => {
            TensorData::I64(values.into_iter().map(i64::from).collect())
        }
        wire::TensorData::Uint64(values) => {
            let all = values.into_iter().map(|n| i64::try_from(n).ok());
            TensorData::I64(all.collect::<Option<_>>()?)
        }
    })
}

/// Elements as the engine stores them in the type that the model declares.
fn declared_as(element: ElementType, data: TensorData) -> wire::TensorData {
    fn cast<T, U>(values: Vec<T>, f: impl Fn(T) -> U) -> Vec<U> {
        values.into_iter().map(f).collect()
    }
    match (data, element) {
        (TensorData::F32(values), ElementType::F16) => cast(values, half::f16::from_f32).into(),
        (TensorData::F32(values), ElementType::Bf16) => cast(values, half::bf16::from_f32).into(),
        (TensorData::F32(values), ElementType::F64) => cast(values, f64::from).into(),
        (TensorData::F32(values), ElementType::I8) => cast(values, |x| x as i8).into(),
        (TensorData::F32(values), ElementType::I16) => cast(values, |x| x as i16).into(),
        (TensorData::F32(values), ElementType::U8) => cast(values, |x| x as u8).into(),
        (TensorData::F32(values), ElementType::U16) => cast(values, |x| x as u16).into(),
        (TensorData::I64(values), ElementType::U32) => cast(values, |n| n as u32).into(),
        (TensorData::I64(values), ElementType::U64) => cast(values, |n| n as u64).into(),
        (TensorData::F32(values), _) => values.into(),
        (TensorData::I64(values), _) => values.into(),
        (TensorData::I32(values), _) => values.into(),
        (TensorData::Bool(values), _) => values.into(),
        (TensorData::Bytes(values), _) => values.into(),
    }
}

/// Gives an output its form on the wire. `converted` holds the types of those outputs, by name, that have another
/// type than they are stored as.
pub(crate) fn to_wire(
    output: NamedTensor,
    converted: &[(String, ElementType)],
) -> Result<wire::Tensor, ServeError> {
    let NamedTensor { name, tensor } = output;
    let shape = tensor.shape().to_vec();
    let element = converted.iter().find(|(converted, _)| *converted == name);
    let element = element.map_or(tensor.element(), |(_, element)| *element);
    wire::Tensor::new(&*name, shape, declared_as(element, tensor.into_data()))
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
        ElementType::F16 => wire::Datatype::Fp16,
        ElementType::Bf16 => wire::Datatype::Bf16,
        ElementType::F64 => wire::Datatype::Fp64,
        ElementType::I8 => wire::Datatype::Int8,
        ElementType::I16 => wire::Datatype::Int16,
        ElementType::U8 => wire::Datatype::Uint8,
        ElementType::U16 => wire::Datatype::Uint16,
        ElementType::U32 => wire::Datatype::Uint32,
        ElementType::U64 => wire::Datatype::Uint64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(element: ElementType) -> Vec<TensorInfo> {
        vec![TensorInfo { name: "x".into(), element, shape: vec![-1] }]
    }

    fn element_of(tensor: &wire::Tensor) -> ElementType {
        use ElementType::*;
        let elements =
            [F32, I64, I32, Bool, Bytes, F16, Bf16, F64, I8, I16, U8, U16, U32, U64].into_iter();
        elements.clone().find(|&element| datatype_of(element) == tensor.datatype()).unwrap()
    }

    #[test]
    fn what_the_engine_knows_comes_back_as_it_was() {
        let half = half::f16::from_f32;
        let data: [wire::TensorData; 14] = [
            vec![0.1f32, f32::INFINITY].into(),
            vec![i64::MIN, 7].into(),
            vec![i32::MIN, 7].into(),
            vec![true, false].into(),
            vec![b"a".to_vec(), vec![0xff]].into(),
            vec![half(0.1), half(f32::NEG_INFINITY)].into(),
            vec![half::bf16::from_f32(0.1), half::bf16::MAX].into(),
            vec![0.5f64, f64::INFINITY].into(),
            vec![i8::MIN, 7].into(),
            vec![i16::MIN, 7].into(),
            vec![u8::MAX, 7].into(),
            vec![u16::MAX, 7].into(),
            vec![u32::MAX, 7].into(),
            vec![u64::MAX >> 1, 7].into(),
        ];
        for data in data {
            let tensor = wire::Tensor::new("x", vec![2, 1], data).unwrap();
            let element = element_of(&tensor);
            let mut engine = from_wire(vec![tensor.clone()], &declared(element)).unwrap();
            let back = to_wire(engine.remove(0), &[("x".into(), element)]).unwrap();
            assert_eq!(back, tensor);
            assert_eq!(datatype_of(element).name(), element.to_string());
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
