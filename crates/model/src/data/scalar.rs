//! Numbers that are known when a request comes: its lengths, single numbers that it brings, and what is computed of
//! them.

use std::cmp::Ordering;

use batchmaker_graph::TensorData;

use crate::data::int::Int;
use crate::data::symbol::{BATCH, Symbol};

/// A number as ONNX computes with it: FLOAT, or an integer, which truth values are too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Float(f32),
}

/// A number that a request has, or that is computed of such ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Constant(Number),
    /// The only element of the input of this index.
    Input(usize),
    Length(Int),
    Of(Function, Vec<Scalar>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Add,
    Sub,
    Mul,
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Not,
    And,
    Or,
    /// A cast to INT64, which rounds to zero.
    Int64,
    /// A cast to INT32, which takes the last 32 bits of integers.
    Int32,
    /// A cast to FLOAT.
    Float,
}

impl Scalar {
    /// The number that it is for a request. `input` gives the elements of an input, `length` the value of an integer.
    pub(crate) fn value<'a>(
        &self,
        input: &impl Fn(usize) -> Option<&'a TensorData>,
        length: &impl Fn(&Int) -> i64,
    ) -> Option<Number> {
        match self {
            Self::Constant(number) => Some(*number),
            Self::Length(int) => Some(Number::Int(length(int))),
            Self::Input(index) => match input(*index)? {
                TensorData::F32(data) => data.first().map(|&x| Number::Float(x)),
                TensorData::I64(data) => data.first().map(|&n| Number::Int(n)),
                TensorData::I32(data) => data.first().map(|&n| Number::Int(n.into())),
                TensorData::Bool(data) => data.first().map(|&bit| Number::Int(bit.into())),
                TensorData::Bytes(_) => None,
            },
            Self::Of(function, of) => {
                let of: Vec<Number> =
                    of.iter().map(|scalar| scalar.value(input, length)).collect::<Option<_>>()?;
                function.of(&of)
            }
        }
    }

    /// The length and the number that must be equal, if that is the condition.
    pub(crate) fn as_equality(&self) -> Option<(&Int, i64)> {
        let Self::Of(Function::Equal, of) = self else { return None };
        match &of[..] {
            [Self::Length(int), Self::Constant(number)]
            | [Self::Constant(number), Self::Length(int)] => Some((int, number.as_int())),
            _ => None,
        }
    }

    /// Whether it depends on the number of steps of a request.
    pub(crate) fn reads_steps(&self) -> bool {
        match self {
            Self::Length(int) => int.symbols().any(|symbol| symbol != BATCH),
            Self::Of(_, of) => of.iter().any(Self::reads_steps),
            Self::Constant(_) | Self::Input(_) => false,
        }
    }

    /// The condition with symbols by other names.
    pub(crate) fn renamed(&self, name: &impl Fn(Symbol) -> Symbol) -> Self {
        match self {
            Self::Length(int) => Self::Length(int.renamed(name)),
            Self::Of(function, of) => {
                Self::Of(*function, of.iter().map(|scalar| scalar.renamed(name)).collect())
            }
            other => other.clone(),
        }
    }
}

impl Number {
    /// Whether it is true, as what an `If` takes.
    pub(crate) fn is_true(self) -> bool {
        match self {
            Self::Int(n) => n != 0,
            Self::Float(x) => x != 0.0,
        }
    }

    fn as_int(self) -> i64 {
        match self {
            Self::Int(n) => n,
            Self::Float(x) => x as i64,
        }
    }

    fn as_float(self) -> f32 {
        match self {
            Self::Int(n) => n as f32,
            Self::Float(x) => x,
        }
    }

    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(&b)),
            (a, b) => a.as_float().partial_cmp(&b.as_float()),
        }
    }

    fn combine(self, other: Self, ints: fn(i64, i64) -> i64, floats: fn(f32, f32) -> f32) -> Self {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Self::Int(ints(a, b)),
            (a, b) => Self::Float(floats(a.as_float(), b.as_float())),
        }
    }
}

impl Function {
    fn of(self, of: &[Number]) -> Option<Number> {
        let truth = |is: bool| Number::Int(is.into());
        Some(match (self, of) {
            (Self::Add, &[a, b]) => a.combine(b, i64::wrapping_add, |a, b| a + b),
            (Self::Sub, &[a, b]) => a.combine(b, i64::wrapping_sub, |a, b| a - b),
            (Self::Mul, &[a, b]) => a.combine(b, i64::wrapping_mul, |a, b| a * b),
            (Self::Equal, &[a, b]) => truth(a.compare(b) == Some(Ordering::Equal)),
            (Self::Less, &[a, b]) => truth(a.compare(b).is_some_and(Ordering::is_lt)),
            (Self::LessOrEqual, &[a, b]) => truth(a.compare(b).is_some_and(Ordering::is_le)),
            (Self::Greater, &[a, b]) => truth(a.compare(b).is_some_and(Ordering::is_gt)),
            (Self::GreaterOrEqual, &[a, b]) => truth(a.compare(b).is_some_and(Ordering::is_ge)),
            (Self::And, &[a, b]) => truth(a.is_true() && b.is_true()),
            (Self::Or, &[a, b]) => truth(a.is_true() || b.is_true()),
            (Self::Not, &[a]) => truth(!a.is_true()),
            (Self::Int64, &[a]) => Number::Int(a.as_int()),
            (Self::Int32, &[a]) => Number::Int((a.as_int() as i32).into()),
            (Self::Float, &[a]) => Number::Float(a.as_float()),
            _ => return None,
        })
    }
}
