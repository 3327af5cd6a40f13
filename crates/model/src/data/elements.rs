//! The elements of a tensor that is computed before a request is unfolded.

use batchmaker_graph::{ElementType, TensorData};

use crate::data::array::Array;
use crate::data::literal::Literal;

/// A tensor of integers of 64 bits, of what they were cast to, or of what comparing them gave.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Elements {
    Ints(Array<i64>),
    Floats(Array<f32>),
    Bools(Array<bool>),
}

/// Applies an expression to the array inside, whatever its element type.
macro_rules! map_elements {
    ($elements:expr, $array:ident => $body:expr) => {
        match $elements {
            Elements::Ints($array) => Elements::Ints($body),
            Elements::Floats($array) => Elements::Floats($body),
            Elements::Bools($array) => Elements::Bools($body),
        }
    };
}

impl Elements {
    /// A constant of integers or truth values; none if an integer depends on the request.
    pub(crate) fn of_literal(literal: &Literal) -> Option<Self> {
        let shape = literal.shape().to_vec();
        match literal {
            Literal::Int(..) => Some(Self::Ints(Array::new(shape, literal.as_numbers()?))),
            Literal::Bool(array) => Some(Self::Bools(array.clone())),
            Literal::F32(_) | Literal::Whole(..) => None,
        }
    }

    /// A tensor of `shape`; none if it holds text.
    pub(crate) fn of_tensor(shape: Vec<usize>, data: &TensorData) -> Option<Self> {
        Some(match data {
            TensorData::I64(data) => Self::Ints(Array::new(shape, data.clone())),
            TensorData::I32(data) => {
                Self::Ints(Array::new(shape, data.iter().map(|&n| n.into()).collect()))
            }
            TensorData::F32(data) => Self::Floats(Array::new(shape, data.clone())),
            TensorData::Bool(data) => Self::Bools(Array::new(shape, data.clone())),
            TensorData::Bytes(_) => return None,
        })
    }

    /// The elements as a tensor of type `element` holds them.
    pub(crate) fn into_data(self, element: ElementType) -> TensorData {
        match (self, element.stored()) {
            (Self::Ints(array), ElementType::I32) => {
                TensorData::I32(array.data.into_iter().map(|n| n as i32).collect())
            }
            (Self::Ints(array), _) => TensorData::I64(array.data),
            (Self::Floats(array), _) => TensorData::F32(array.data),
            (Self::Bools(array), _) => TensorData::Bool(array.data),
        }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::Ints(array) => &array.shape,
            Self::Floats(array) => &array.shape,
            Self::Bools(array) => &array.shape,
        }
    }

    pub(crate) fn as_ints(&self) -> Option<&Array<i64>> {
        match self {
            Self::Ints(array) => Some(array),
            _ => None,
        }
    }

    pub(crate) fn as_bools(&self) -> Option<&Array<bool>> {
        match self {
            Self::Bools(array) => Some(array),
            _ => None,
        }
    }

    pub(crate) fn reshaped(self, shape: Vec<usize>) -> Self {
        map_elements!(self, array => array.reshaped(shape))
    }

    pub(crate) fn transposed(&self, permutation: &[usize]) -> Self {
        map_elements!(self, array => array.transposed(permutation))
    }

    pub(crate) fn expanded(&self, shape: &[usize]) -> Self {
        map_elements!(self, array => array.expanded(shape))
    }

    pub(crate) fn gathered(&self, axis: usize, indices: &[usize], index_shape: &[usize]) -> Self {
        map_elements!(self, array => array.gathered(axis, indices, index_shape))
    }
}
