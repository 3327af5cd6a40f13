//! Constants of a file, and integer tensors computed from shapes.

use batchmaker_graph::{ElementType, TensorData};
use half::{bf16, f16};
use rten_onnx::onnx::{DataType, TensorProto};

use crate::data::array::Array;
use crate::data::symbolic::Int;

/// A tensor known at load; integers may contain the lengths of batch and time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    F32(Array<f32>),
    /// INT64 or INT32.
    Int(Array<Int>, ElementType),
    Bool(Array<bool>),
}

/// Whether weights of the type become FLOAT.
pub(crate) fn is_converted(data_type: DataType) -> bool {
    matches!(data_type, DataType::FLOAT16 | DataType::BFLOAT16 | DataType::DOUBLE)
}

/// Does the same to whatever array is inside.
macro_rules! map_array {
    ($literal:expr, $array:ident => $body:expr) => {
        match $literal {
            Literal::F32($array) => Literal::F32($body),
            Literal::Int($array, element) => Literal::Int($body, *element),
            Literal::Bool($array) => Literal::Bool($body),
        }
    };
}

impl Literal {
    pub(crate) fn ints(values: Vec<Int>) -> Self {
        Self::Int(Array::vector(values), ElementType::I64)
    }

    /// Lengths as floats that turned out to be numbers, as floats.
    pub(crate) fn settled(self) -> Self {
        match (&self, self.as_numbers()) {
            (Self::Int(array, ElementType::F32), Some(numbers)) => {
                let data = numbers.into_iter().map(|n| n as f32).collect();
                Self::F32(Array::new(array.shape.clone(), data))
            }
            _ => self,
        }
    }

    pub(crate) fn element(&self) -> ElementType {
        match self {
            Self::F32(_) => ElementType::F32,
            Self::Int(_, element) => *element,
            Self::Bool(_) => ElementType::Bool,
        }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::F32(array) => &array.shape,
            Self::Int(array, _) => &array.shape,
            Self::Bool(array) => &array.shape,
        }
    }

    pub(crate) fn reshaped(&self, shape: &[usize]) -> Self {
        map_array!(self, array => array.clone().reshaped(shape.to_vec()))
    }

    pub(crate) fn transposed(&self, permutation: &[usize]) -> Self {
        map_array!(self, array => array.transposed(permutation))
    }

    pub(crate) fn expanded(&self, shape: &[usize]) -> Self {
        map_array!(self, array => array.expanded(shape))
    }

    pub(crate) fn gathered(&self, axis: usize, indices: &[usize], index_shape: &[usize]) -> Self {
        map_array!(self, array => array.gathered(axis, indices, index_shape))
    }

    /// Its first element alone; of none, zero.
    pub(crate) fn gathered_first(&self) -> Self {
        match self.shape().contains(&0) {
            true => Self::F32(Array::scalar(0.0)),
            false => self.reshaped(&[self.shape().iter().product()]).gathered(0, &[0], &[]),
        }
    }

    pub(crate) fn concatenated(parts: &[&Self], axis: usize) -> Option<Self> {
        let floats: Option<Vec<_>> = parts.iter().map(|part| part.as_f32()).collect();
        if let Some(floats) = floats {
            return Array::concatenated(&floats, axis).map(Self::F32);
        }
        let ints: Option<Vec<_>> = parts.iter().map(|part| part.as_ints()).collect();
        if let Some(ints) = ints {
            let element = parts.first()?.element();
            return Array::concatenated(&ints, axis).map(|array| Self::Int(array, element));
        }
        let bools: Option<Vec<_>> = parts.iter().map(|part| part.as_bools()).collect();
        Array::concatenated(&bools?, axis).map(Self::Bool)
    }

    pub(crate) fn as_f32(&self) -> Option<&Array<f32>> {
        match self {
            Self::F32(array) => Some(array),
            _ => None,
        }
    }

    pub(crate) fn as_ints(&self) -> Option<&Array<Int>> {
        match self {
            Self::Int(array, _) => Some(array),
            _ => None,
        }
    }

    pub(crate) fn as_bools(&self) -> Option<&Array<bool>> {
        match self {
            Self::Bool(array) => Some(array),
            _ => None,
        }
    }

    /// The integers, if all of them are plain numbers.
    pub(crate) fn as_numbers(&self) -> Option<Vec<i64>> {
        self.as_ints()?.data.iter().map(Int::as_number).collect()
    }

    /// The elements; none where an integer is not a plain number.
    pub(crate) fn data(&self) -> Option<TensorData> {
        Some(match self {
            Self::F32(array) => TensorData::F32(array.data.clone()),
            Self::Bool(array) => TensorData::Bool(array.data.clone()),
            Self::Int(_, ElementType::F32) => {
                let float = |n: i64| n as f32;
                TensorData::F32(self.as_numbers()?.into_iter().map(float).collect())
            }
            Self::Int(_, ElementType::I32) => {
                let narrow = |n: i64| i32::try_from(n).ok();
                TensorData::I32(self.as_numbers()?.into_iter().map(narrow).collect::<Option<_>>()?)
            }
            Self::Int(..) => TensorData::I64(self.as_numbers()?),
        })
    }

    /// From the file's form; none where elements are missing.
    pub(crate) fn from_onnx(
        element: ElementType,
        shape: Vec<usize>,
        raw: Option<&[u8]>,
        tensor: &TensorProto,
    ) -> Option<Self> {
        let int = |n: i64| Int::number(n);
        if let Some(data_type) = tensor.data_type.filter(|&data_type| is_converted(data_type)) {
            return Some(Self::F32(array(shape, converted(data_type, raw, tensor)?)?));
        }
        let literal = match (element, raw) {
            (ElementType::F32, Some(raw)) => {
                Self::F32(array(shape, chunks(raw)?.map(f32::from_le_bytes).collect())?)
            }
            (ElementType::F32, None) => Self::F32(array(shape, tensor.float_data.clone())?),
            (ElementType::I64, Some(raw)) => {
                let data = chunks(raw)?.map(i64::from_le_bytes).map(int).collect();
                Self::Int(array(shape, data)?, element)
            }
            (ElementType::I64, None) => {
                let data = tensor.int64_data.iter().copied().map(int).collect();
                Self::Int(array(shape, data)?, element)
            }
            (ElementType::I32, Some(raw)) => {
                let data = chunks(raw)?.map(i32::from_le_bytes).map(|n| int(n.into())).collect();
                Self::Int(array(shape, data)?, element)
            }
            (ElementType::I32, None) => {
                let data = tensor.int32_data.iter().map(|&n| int(n.into())).collect();
                Self::Int(array(shape, data)?, element)
            }
            (_, Some(raw)) => Self::Bool(array(shape, raw.iter().map(|&b| b != 0).collect())?),
            (_, None) => {
                let data = tensor.int32_data.iter().map(|&n| n != 0).collect();
                Self::Bool(array(shape, data)?)
            }
        };
        Some(literal)
    }

    /// To the file's form, under `name`.
    ///
    /// # Panics
    /// If an integer is not a plain number.
    pub(crate) fn to_onnx(&self, name: &str) -> TensorProto {
        let (data_type, raw): (_, Vec<u8>) = match self {
            Self::F32(array) => {
                (DataType::FLOAT, array.data.iter().flat_map(|x| x.to_le_bytes()).collect())
            }
            Self::Bool(array) => {
                (DataType::BOOL, array.data.iter().map(|&bit| u8::from(bit)).collect())
            }
            Self::Int(_, element) => {
                let numbers = self.as_numbers().expect("a symbolic integer in a program");
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
            dims: self.shape().iter().map(|&length| length as i64).collect(),
            data_type: Some(data_type),
            raw_data: Some(raw.into()),
            ..TensorProto::default()
        }
    }
}

/// Weights of another float type as FLOAT, the nearest ones; none where elements are missing.
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
