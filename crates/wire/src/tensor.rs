//! Named tensors: a shape and the elements that fill it, whether they came as JSON or as bytes.

use half::{bf16, f16};

use crate::datatype::Datatype;
use crate::error::WireError;
use crate::parameter::Parameters;
use crate::raw_data;

/// The most dimensions that a shape may have.
pub const RANK_MAX: usize = 64;

/// The elements of a tensor, flat and row-major.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "a variant is the datatype of its name")]
pub enum TensorData {
    Bool(Vec<bool>),
    Uint8(Vec<u8>),
    Uint16(Vec<u16>),
    Uint32(Vec<u32>),
    Uint64(Vec<u64>),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Fp16(Vec<f16>),
    Bf16(Vec<bf16>),
    Fp32(Vec<f32>),
    Fp64(Vec<f64>),
    Bytes(Vec<Vec<u8>>),
}

/// Runs `$body` with `$values` bound to the vector of whichever variant `$data` is.
macro_rules! with_values {
    ($data:expr, $values:ident => $body:expr) => {
        match $data {
            $crate::tensor::TensorData::Bool($values) => $body,
            $crate::tensor::TensorData::Uint8($values) => $body,
            $crate::tensor::TensorData::Uint16($values) => $body,
            $crate::tensor::TensorData::Uint32($values) => $body,
            $crate::tensor::TensorData::Uint64($values) => $body,
            $crate::tensor::TensorData::Int8($values) => $body,
            $crate::tensor::TensorData::Int16($values) => $body,
            $crate::tensor::TensorData::Int32($values) => $body,
            $crate::tensor::TensorData::Int64($values) => $body,
            $crate::tensor::TensorData::Fp16($values) => $body,
            $crate::tensor::TensorData::Bf16($values) => $body,
            $crate::tensor::TensorData::Fp32($values) => $body,
            $crate::tensor::TensorData::Fp64($values) => $body,
            $crate::tensor::TensorData::Bytes($values) => $body,
        }
    };
}
pub(crate) use with_values;

/// Makes the variant of `$datatype` from `$vector`, an expression of whatever `Vec` it holds.
macro_rules! data_of_type {
    ($datatype:expr, $vector:expr) => {
        match $datatype {
            $crate::datatype::Datatype::Bool => $crate::tensor::TensorData::Bool($vector),
            $crate::datatype::Datatype::Uint8 => $crate::tensor::TensorData::Uint8($vector),
            $crate::datatype::Datatype::Uint16 => $crate::tensor::TensorData::Uint16($vector),
            $crate::datatype::Datatype::Uint32 => $crate::tensor::TensorData::Uint32($vector),
            $crate::datatype::Datatype::Uint64 => $crate::tensor::TensorData::Uint64($vector),
            $crate::datatype::Datatype::Int8 => $crate::tensor::TensorData::Int8($vector),
            $crate::datatype::Datatype::Int16 => $crate::tensor::TensorData::Int16($vector),
            $crate::datatype::Datatype::Int32 => $crate::tensor::TensorData::Int32($vector),
            $crate::datatype::Datatype::Int64 => $crate::tensor::TensorData::Int64($vector),
            $crate::datatype::Datatype::Fp16 => $crate::tensor::TensorData::Fp16($vector),
            $crate::datatype::Datatype::Bf16 => $crate::tensor::TensorData::Bf16($vector),
            $crate::datatype::Datatype::Fp32 => $crate::tensor::TensorData::Fp32($vector),
            $crate::datatype::Datatype::Fp64 => $crate::tensor::TensorData::Fp64($vector),
            $crate::datatype::Datatype::Bytes => $crate::tensor::TensorData::Bytes($vector),
        }
    };
}
pub(crate) use data_of_type;

impl TensorData {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        with_values!(self, values => values.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        match self {
            Self::Bool(_) => Datatype::Bool,
            Self::Uint8(_) => Datatype::Uint8,
            Self::Uint16(_) => Datatype::Uint16,
            Self::Uint32(_) => Datatype::Uint32,
            Self::Uint64(_) => Datatype::Uint64,
            Self::Int8(_) => Datatype::Int8,
            Self::Int16(_) => Datatype::Int16,
            Self::Int32(_) => Datatype::Int32,
            Self::Int64(_) => Datatype::Int64,
            Self::Fp16(_) => Datatype::Fp16,
            Self::Bf16(_) => Datatype::Bf16,
            Self::Fp32(_) => Datatype::Fp32,
            Self::Fp64(_) => Datatype::Fp64,
            Self::Bytes(_) => Datatype::Bytes,
        }
    }

    /// Reads `count` little-endian elements that take up all of `bytes`; an element of BYTES is a
    /// 4-byte length and its bytes, a BOOL is one byte, 0 or 1.
    ///
    /// # Errors
    /// [`WireError::Invalid`] where the bytes are too few, too many or not the datatype's.
    pub fn from_le_bytes(
        datatype: Datatype,
        count: usize,
        bytes: &[u8],
    ) -> Result<Self, WireError> {
        if let Some(size) = datatype.size()
            && count.checked_mul(size) != Some(bytes.len())
        {
            let got = bytes.len();
            return Err(WireError::invalid(format!(
                "expected {count} {datatype} elements of {size} bytes each, got {got} bytes"
            )));
        }
        Ok(data_of_type!(datatype, raw_data::read(count, bytes)?))
    }

    /// The bytes that [`Self::append_le_bytes`] appends.
    pub fn le_size_bytes(&self) -> usize {
        with_values!(self, values => raw_data::size_bytes(values))
    }

    /// Appends the elements in little-endian, as [`Self::from_le_bytes`] reads them.
    ///
    /// # Panics
    /// If an element of BYTES has 4 GiB or more, for which the format has no length.
    pub fn append_le_bytes(&self, bytes: &mut Vec<u8>) {
        with_values!(self, values => raw_data::append(values, bytes));
    }
}

macro_rules! from_vec {
    ($($element:ty => $variant:ident),* $(,)?) => {$(
        impl From<Vec<$element>> for TensorData {
            fn from(values: Vec<$element>) -> Self {
                Self::$variant(values)
            }
        }
    )*};
}

from_vec!(
    bool => Bool,
    u8 => Uint8,
    u16 => Uint16,
    u32 => Uint32,
    u64 => Uint64,
    i8 => Int8,
    i16 => Int16,
    i32 => Int32,
    i64 => Int64,
    f16 => Fp16,
    bf16 => Bf16,
    f32 => Fp32,
    f64 => Fp64,
    Vec<u8> => Bytes,
);

/// A named tensor whose data fill its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The name that the model gives it.
    pub name: String,
    /// Its parameters.
    pub parameters: Parameters,
    shape: Vec<usize>,
    data: TensorData,
}

impl Tensor {
    /// A tensor without parameters.
    ///
    /// # Errors
    /// [`WireError::Invalid`], without the tensor's name, where `data` does not hold the product
    /// of `shape` elements, or as [`element_count`].
    pub fn new(
        name: impl Into<String>,
        shape: Vec<usize>,
        data: impl Into<TensorData>,
    ) -> Result<Self, WireError> {
        let (name, data) = (name.into(), data.into());
        let (expected, got) = (element_count(&shape)?, data.len());
        if expected != got {
            return Err(WireError::invalid(format!(
                "expected {expected} elements for shape {shape:?}, got {got}"
            )));
        }
        Ok(Self { name, parameters: Parameters::new(), shape, data })
    }

    /// The size of each dimension, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements.
    pub fn data(&self) -> &TensorData {
        &self.data
    }

    /// The elements, without a copy.
    pub fn into_data(self) -> TensorData {
        self.data
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.data.datatype()
    }
}

/// Takes the signed dimensions of the wire for a shape.
///
/// # Errors
/// [`WireError::Invalid`] where a dimension is negative, or as [`element_count`].
pub fn parse_shape(dimensions: &[i64]) -> Result<Vec<usize>, WireError> {
    // The rank comes first: a message shows the shape.
    check_rank(dimensions.len())?;
    let sizes = dimensions.iter().map(|&size| usize::try_from(size));
    let shape: Vec<usize> = sizes.collect::<Result<_, _>>().map_err(|_| {
        WireError::invalid(format!("shape {dimensions:?} has a dimension that is negative"))
    })?;
    element_count(&shape)?;
    Ok(shape)
}

/// The product of a shape's dimensions: 1 for a scalar's, which has none.
///
/// # Errors
/// [`WireError::Invalid`] where there are more than [`RANK_MAX`] dimensions, or where the
/// dimensions that are not 0 have a product beyond `i64`, so that the product of any of the
/// dimensions is safe to form.
pub fn element_count(shape: &[usize]) -> Result<usize, WireError> {
    check_rank(shape.len())?;
    let product = shape.iter().try_fold(1usize, |product, &size| {
        let product = product.checked_mul(size.max(1))?;
        i64::try_from(product).is_ok().then_some(product)
    });
    match product {
        Some(_) if shape.contains(&0) => Ok(0),
        Some(count) => Ok(count),
        None => Err(WireError::invalid(format!("shape {shape:?} has too many elements"))),
    }
}

fn check_rank(rank: usize) -> Result<(), WireError> {
    if rank <= RANK_MAX {
        return Ok(());
    }
    Err(WireError::invalid(format!("shape has {rank} dimensions, expected at most {RANK_MAX}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_positive_bounded_and_counted() {
        assert_eq!(parse_shape(&[2, 3]), Ok(vec![2, 3]));
        assert_eq!(element_count(&[]), Ok(1));
        assert_eq!(element_count(&[5, 0, 7]), Ok(0));
        let message = |dimensions: &[i64]| parse_shape(dimensions).unwrap_err().to_string();
        assert_eq!(message(&[2, -1]), "shape [2, -1] has a dimension that is negative");
        assert_eq!(
            message(&[1 << 40, 1 << 40]),
            "shape [1099511627776, 1099511627776] has too many elements"
        );
        assert!(message(&[i64::MAX, 2]).ends_with("has too many elements"));
        assert!(message(&[0, i64::MAX, i64::MAX]).ends_with("has too many elements"));
        assert_eq!(message(&[1; 65]), "shape has 65 dimensions, expected at most 64");
    }

    #[test]
    fn data_fill_the_shape() {
        let tensor = Tensor::new("x", vec![2, 2], vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((tensor.datatype(), tensor.shape()), (Datatype::Fp32, &[2, 2][..]));
        let error = Tensor::new("x", vec![2, 2], vec![1i64]).unwrap_err();
        assert_eq!(error.to_string(), "expected 4 elements for shape [2, 2], got 1");
    }

    #[test]
    fn a_huge_count_with_few_bytes_is_refused_before_anything_is_allocated() {
        for datatype in Datatype::ALL {
            let error = TensorData::from_le_bytes(datatype, usize::MAX, &[0; 8]).unwrap_err();
            assert!(error.to_string().contains("expected 18446744073709551615"), "{error}");
        }
    }
}
