//! Constants as ONNX files hold them: in the file, or in another beside it; weights of other float types are
//! converted to FLOAT.

use batchmaker_graph::ElementType;
use half::{bf16, f16};
use rten_onnx::onnx::{DataLocation, DataType, TensorProto};

use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::files::Files;

pub(super) struct External<'a> {
    pub(super) files: &'a Files<'a>,
    /// The name of the file that refers to the data; a location is relative to its folder.
    pub(super) beside: &'a str,
}

/// The element type of an ONNX data type that is served.
pub(crate) fn element_type(data_type: DataType) -> Result<ElementType, String> {
    match data_type {
        DataType::FLOAT => Ok(ElementType::F32),
        DataType::INT64 => Ok(ElementType::I64),
        DataType::INT32 => Ok(ElementType::I32),
        DataType::BOOL => Ok(ElementType::Bool),
        DataType::FLOAT16 => Ok(ElementType::F16),
        DataType::BFLOAT16 => Ok(ElementType::Bf16),
        DataType::DOUBLE => Ok(ElementType::F64),
        DataType::INT8 => Ok(ElementType::I8),
        DataType::INT16 => Ok(ElementType::I16),
        DataType::UINT8 => Ok(ElementType::U8),
        DataType::UINT16 => Ok(ElementType::U16),
        DataType::UINT32 => Ok(ElementType::U32),
        DataType::UINT64 => Ok(ElementType::U64),
        other => Err(format!(
            "data type {other} is not supported (floats of 16 bits and more, integers of 8 bits and \
             more and BOOL are)"
        )),
    }
}

/// The size in bytes of an element as the file stores it.
fn element_size(data_type: DataType, element: ElementType) -> usize {
    match data_type {
        DataType::FLOAT16 | DataType::BFLOAT16 | DataType::INT16 | DataType::UINT16 => 2,
        DataType::DOUBLE | DataType::INT64 | DataType::UINT64 => 8,
        DataType::INT8 | DataType::UINT8 => 1,
        DataType::UINT32 => 4,
        _ => element.bytes(),
    }
}

/// The constant that a tensor is, with its data in the file or (`external`) in another beside it.
pub(super) fn literal(
    tensor: &TensorProto,
    external: Option<&External<'_>>,
) -> Result<Literal, String> {
    let data_type = tensor.data_type.unwrap_or(DataType(0));
    let element = match is_converted(data_type) {
        true => ElementType::F32,
        false => element_type(data_type)?,
    };
    if tensor.dims.len() > 64 {
        return Err(format!("a tensor of {} axes", tensor.dims.len()));
    }
    let shape = tensor
        .dims
        .iter()
        .map(|&dim| usize::try_from(dim).map_err(|_| format!("a dimension of {dim}")))
        .collect::<Result<Vec<_>, _>>()?;
    let count = shape
        .iter()
        .try_fold(1usize, |count, &length| count.checked_mul(length))
        .ok_or("its shape overflows")?;
    let raw = match (&tensor.raw_data, external) {
        _ if tensor.data_location == Some(DataLocation::EXTERNAL) => {
            let external = external.ok_or("external data in an attribute is not supported")?;
            let size = element_size(data_type, element);
            let bytes = count.checked_mul(size).ok_or("its shape overflows")?;
            Some(read_external(tensor, external, bytes)?)
        }
        (Some(raw), _) => Some(raw.borrow().clone()),
        (None, _) => None,
    };
    let literal = from_onnx(element, shape, raw.as_deref(), tensor);
    literal.ok_or_else(|| format!("it does not hold the {count} elements that its shape says"))
}

/// The `bytes` bytes of a tensor that lie in another file.
fn read_external(
    tensor: &TensorProto,
    external: &External<'_>,
    bytes: usize,
) -> Result<Vec<u8>, String> {
    let entry = |key: &str| {
        let found = tensor.external_data.iter().find(|entry| entry.key.as_deref() == Some(key));
        found.and_then(|entry| entry.value.as_deref())
    };
    let number = |key: &str| match entry(key) {
        Some(text) => text.parse().map(Some).map_err(|_| format!("external data: bad {key}")),
        None => Ok(None::<usize>),
    };
    let location = entry("location").ok_or("external data: no location")?;
    let folder = external.beside.rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = if folder.is_empty() { location.to_owned() } else { format!("{folder}/{location}") };
    let length = number("length")?.unwrap_or(bytes);
    if length != bytes {
        return Err(format!("external data: {length} bytes where its shape says {bytes}"));
    }
    let part = (number("offset")?.unwrap_or(0), bytes);
    let bytes = external.files.read_part(&path, part);
    bytes.map_err(|error| format!("external data: {error}"))
}

/// The literal of a tensor of the file; none where elements are missing.
fn from_onnx(
    element: ElementType,
    shape: Vec<usize>,
    raw: Option<&[u8]>,
    tensor: &TensorProto,
) -> Option<Literal> {
    let int = |n: i64| Int::number(n);
    if let Some(data_type) = tensor.data_type.filter(|&data_type| is_converted(data_type)) {
        return Some(Literal::F32(array(shape, converted(data_type, raw, tensor)?)?));
    }
    if element.is_narrow() {
        return Some(Literal::Whole(array(shape, narrow(element, raw, tensor)?)?, element));
    }
    let literal = match (element, raw) {
        (ElementType::U32, Some(raw)) => {
            let data = chunks(raw)?.map(u32::from_le_bytes).map(|n| int(n.into())).collect();
            Literal::Int(array(shape, data)?, element)
        }
        (ElementType::U64, Some(raw)) => {
            let data = chunks(raw)?.map(u64::from_le_bytes).map(|n| i64::try_from(n).ok());
            let data = data.map(|n| n.map(int)).collect::<Option<_>>()?;
            Literal::Int(array(shape, data)?, element)
        }
        // The reader skips the field that holds them.
        (ElementType::U32 | ElementType::U64, None) => {
            Literal::Int(array(shape, Vec::new())?, element)
        }
        (ElementType::F32, Some(raw)) => {
            Literal::F32(array(shape, chunks(raw)?.map(f32::from_le_bytes).collect())?)
        }
        (ElementType::F32, None) => Literal::F32(array(shape, tensor.float_data.clone())?),
        (ElementType::I64, Some(raw)) => {
            let data = chunks(raw)?.map(i64::from_le_bytes).map(int).collect();
            Literal::Int(array(shape, data)?, element)
        }
        (ElementType::I64, None) => {
            let data = tensor.int64_data.iter().copied().map(int).collect();
            Literal::Int(array(shape, data)?, element)
        }
        (ElementType::I32, Some(raw)) => {
            let data = chunks(raw)?.map(i32::from_le_bytes).map(|n| int(n.into())).collect();
            Literal::Int(array(shape, data)?, element)
        }
        (ElementType::I32, None) => {
            let data = tensor.int32_data.iter().map(|&n| int(n.into())).collect();
            Literal::Int(array(shape, data)?, element)
        }
        (_, Some(raw)) => Literal::Bool(array(shape, raw.iter().map(|&b| b != 0).collect())?),
        (_, None) => {
            let data = tensor.int32_data.iter().map(|&n| n != 0).collect();
            Literal::Bool(array(shape, data)?)
        }
    };
    Some(literal)
}

/// A constant in a file's form, under `name`.
///
/// # Panics
/// If an integer is not a plain number.
pub(crate) fn to_tensor(literal: &Literal, name: &str) -> TensorProto {
    let (data_type, raw): (_, Vec<u8>) = match literal {
        Literal::F32(array) => {
            (DataType::FLOAT, array.data.iter().flat_map(|x| x.to_le_bytes()).collect())
        }
        Literal::Bool(array) => {
            (DataType::BOOL, array.data.iter().map(|&bit| u8::from(bit)).collect())
        }
        Literal::Whole(array, _) => {
            (DataType::FLOAT, array.data.iter().flat_map(|x| x.to_le_bytes()).collect())
        }
        Literal::Int(_, element) => {
            let numbers = literal.as_numbers().expect("a symbolic integer in a program");
            if *element == ElementType::I32 {
                let bytes = numbers.iter().flat_map(|&n| (n as i32).to_le_bytes());
                (DataType::INT32, bytes.collect())
            } else {
                (DataType::INT64, numbers.iter().flat_map(|n| n.to_le_bytes()).collect())
            }
        }
    };
    TensorProto {
        name: Some(name.to_owned()),
        dims: literal.shape().iter().map(|&length| length as i64).collect(),
        data_type: Some(data_type),
        raw_data: Some(raw.into()),
        ..TensorProto::default()
    }
}

/// Integers of a narrow type as floats; none where elements are missing.
fn narrow(element: ElementType, raw: Option<&[u8]>, tensor: &TensorProto) -> Option<Vec<f32>> {
    let Some(raw) = raw else {
        return Some(tensor.int32_data.iter().map(|&n| n as f32).collect());
    };
    Some(match element {
        ElementType::I8 => raw.iter().map(|&n| f32::from(n as i8)).collect(),
        ElementType::U8 => raw.iter().map(|&n| f32::from(n)).collect(),
        ElementType::I16 => chunks(raw)?.map(i16::from_le_bytes).map(f32::from).collect(),
        _ => chunks(raw)?.map(u16::from_le_bytes).map(f32::from).collect(),
    })
}

/// Whether weights of the type become FLOAT.
pub(crate) fn is_converted(data_type: DataType) -> bool {
    matches!(data_type, DataType::FLOAT16 | DataType::BFLOAT16 | DataType::DOUBLE)
}

/// Converts weights of another float type to the nearest FLOAT; none where elements are missing.
fn converted(data_type: DataType, raw: Option<&[u8]>, tensor: &TensorProto) -> Option<Vec<f32>> {
    // Without raw data, the bits of 16-bit floats are in 32-bit integers.
    let bits = || tensor.int32_data.iter().map(|&bits| bits as u16);
    Some(match (data_type, raw) {
        (DataType::FLOAT16, Some(raw)) => {
            chunks(raw)?.map(|bytes| f16::from_le_bytes(bytes).to_f32()).collect()
        }
        (DataType::FLOAT16, None) => bits().map(|bits| f16::from_bits(bits).to_f32()).collect(),
        (DataType::BFLOAT16, Some(raw)) => {
            chunks(raw)?.map(|bytes| bf16::from_le_bytes(bytes).to_f32()).collect()
        }
        (DataType::BFLOAT16, None) => bits().map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        (_, Some(raw)) => chunks(raw)?.map(|bytes| f64::from_le_bytes(bytes) as f32).collect(),
        (_, None) => tensor.double_data.iter().map(|&x| x as f32).collect(),
    })
}

fn array<T: Clone>(shape: Vec<usize>, data: Vec<T>) -> Option<Array<T>> {
    (shape.iter().product::<usize>() == data.len()).then(|| Array::new(shape, data))
}

fn chunks<const N: usize>(raw: &[u8]) -> Option<impl Iterator<Item = [u8; N]> + '_> {
    let (chunks, rest) = raw.as_chunks::<N>();
    rest.is_empty().then(|| chunks.iter().copied())
}
