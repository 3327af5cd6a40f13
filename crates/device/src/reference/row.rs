//! A row of a value, wide enough for any element type.

use std::ops::Range;

use batchmaker_graph::{ElementType, RowSpec, TensorData};

/// The elements of a row, or of several rows one after the other.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Elements of [`ElementType::F32`].
    Float(Vec<f64>),
    /// Elements of integer types; false is 0, true is 1.
    Int(Vec<i64>),
}

impl Row {
    /// `rows` rows of zeros.
    pub fn zeros(spec: &RowSpec, rows: usize) -> Self {
        let count = rows * spec.elements();
        match spec.element {
            ElementType::F32 => Self::Float(vec![0.0; count]),
            _ => Self::Int(vec![0; count]),
        }
    }

    /// Some elements of a tensor.
    ///
    /// # Panics
    /// For byte strings, which never are in a cell.
    pub fn of(data: &TensorData, elements: Range<usize>) -> Self {
        match data {
            TensorData::F32(data) => {
                Self::Float(data[elements].iter().map(|&x| f64::from(x)).collect())
            }
            TensorData::I64(data) => Self::Int(data[elements].to_vec()),
            TensorData::I32(data) => Self::Int(data[elements].iter().map(|&n| n.into()).collect()),
            TensorData::Bool(data) => Self::Int(data[elements].iter().map(|&n| n.into()).collect()),
            TensorData::Bytes(_) => unreachable!("byte strings end at the edge of the model"),
        }
    }

    /// The row as elements of a type, each rounded to it.
    ///
    /// # Panics
    /// If the type is not of the row's kind.
    pub fn to_data(&self, element: ElementType) -> TensorData {
        match element {
            ElementType::F32 => TensorData::F32(self.floats().iter().map(|&x| x as f32).collect()),
            ElementType::I64 => TensorData::I64(self.ints().to_vec()),
            ElementType::I32 => TensorData::I32(self.ints().iter().map(|&n| n as i32).collect()),
            ElementType::Bool => TensorData::Bool(self.ints().iter().map(|&n| n != 0).collect()),
            _ => unreachable!("cells hold stored types"),
        }
    }

    /// The elements of a row of floats.
    ///
    /// # Panics
    /// If it is one of integers.
    pub fn floats(&self) -> &[f64] {
        match self {
            Self::Float(elements) => elements,
            Self::Int(_) => panic!("a row of integers where floats go"),
        }
    }

    /// The elements of a row of integers.
    ///
    /// # Panics
    /// If it is one of floats.
    pub fn ints(&self) -> &[i64] {
        match self {
            Self::Int(elements) => elements,
            Self::Float(_) => panic!("a row of floats where integers go"),
        }
    }

    /// Appends the elements of another row of its kind.
    ///
    /// # Panics
    /// If that is of the other kind.
    pub fn extend(&mut self, row: &Self) {
        match (self, row) {
            (Self::Float(elements), Self::Float(more)) => elements.extend(more),
            (Self::Int(elements), Self::Int(more)) => elements.extend(more),
            _ => panic!("floats and integers in one row"),
        }
    }
}
