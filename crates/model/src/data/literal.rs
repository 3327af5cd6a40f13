//! Constants of a file, and integer tensors computed from shapes.

use batchmaker_graph::{ElementType, TensorData};

use crate::data::array::Array;
use crate::data::int::Int;

/// A tensor known at load; integers may contain the lengths of batch and time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    F32(Array<f32>),
    /// Integers of at least 32 bits.
    Int(Array<Int>, ElementType),
    /// Integers of at most 16 bits, which are stored as FLOAT.
    Whole(Array<f32>, ElementType),
    Bool(Array<bool>),
}

/// Applies an expression to the array inside a literal, whatever its element type.
macro_rules! map_array {
    ($literal:expr, $array:ident => $body:expr) => {
        match $literal {
            Literal::F32($array) => Literal::F32($body),
            Literal::Int($array, element) => Literal::Int($body, *element),
            Literal::Whole($array, element) => Literal::Whole($body, *element),
            Literal::Bool($array) => Literal::Bool($body),
        }
    };
}

impl Literal {
    pub(crate) fn ints(values: Vec<Int>) -> Self {
        Self::Int(Array::vector(values), ElementType::I64)
    }

    /// The number zero, of a float or an integer type.
    pub(crate) fn zero(element: ElementType) -> Self {
        match element {
            element if element.is_narrow() => Self::Whole(Array::scalar(0.0), element),
            element if element.is_float() => Self::F32(Array::scalar(0.0)),
            element => Self::Int(Array::scalar(Int::number(0)), element),
        }
    }

    /// Converts lengths of element type FLOAT that turned out to be plain numbers to floats.
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
            Self::Int(_, element) | Self::Whole(_, element) => *element,
            Self::Bool(_) => ElementType::Bool,
        }
    }

    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::F32(array) | Self::Whole(array, _) => &array.shape,
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
        let whole: Option<Vec<_>> = parts.iter().map(|part| part.as_whole()).collect();
        if let Some(whole) = whole {
            let element = parts.first()?.element();
            return Array::concatenated(&whole, axis).map(|array| Self::Whole(array, element));
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

    /// Elements that are stored as FLOAT.
    pub(crate) fn as_whole(&self) -> Option<&Array<f32>> {
        match self {
            Self::F32(array) | Self::Whole(array, _) => Some(array),
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
            Self::F32(array) | Self::Whole(array, _) => TensorData::F32(array.data.clone()),
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
}
