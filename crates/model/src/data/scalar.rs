//! Numbers that are known when a request comes: its lengths, single numbers that it brings, and what is computed of
//! them.

use batchmaker_graph::TensorData;

use crate::data::int::Int;
use crate::data::symbol::{BATCH, Symbol};

/// A number that a request has, or that is computed of such ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Constant(f64),
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
    /// Rounded to zero.
    Whole,
}

impl Scalar {
    /// The number that it is for a request. `input` gives the elements of an input, `length` the value of an integer.
    pub(crate) fn value<'a>(
        &self,
        input: &impl Fn(usize) -> Option<&'a TensorData>,
        length: &impl Fn(&Int) -> i64,
    ) -> Option<f64> {
        match self {
            Self::Constant(number) => Some(*number),
            Self::Length(int) => Some(length(int) as f64),
            Self::Input(index) => match input(*index)? {
                TensorData::F32(data) => data.first().map(|&x| f64::from(x)),
                TensorData::I64(data) => data.first().map(|&n| n as f64),
                TensorData::I32(data) => data.first().map(|&n| f64::from(n)),
                TensorData::Bool(data) => data.first().map(|&bit| f64::from(u8::from(bit))),
                TensorData::Bytes(_) => None,
            },
            Self::Of(function, of) => {
                let of: Vec<f64> =
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
            | [Self::Constant(number), Self::Length(int)] => Some((int, *number as i64)),
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

impl Function {
    fn of(self, of: &[f64]) -> Option<f64> {
        let truth = |is: bool| f64::from(u8::from(is));
        Some(match (self, of) {
            (Self::Add, &[a, b]) => a + b,
            (Self::Sub, &[a, b]) => a - b,
            (Self::Mul, &[a, b]) => a * b,
            (Self::Equal, &[a, b]) => truth(a == b),
            (Self::Less, &[a, b]) => truth(a < b),
            (Self::LessOrEqual, &[a, b]) => truth(a <= b),
            (Self::Greater, &[a, b]) => truth(a > b),
            (Self::GreaterOrEqual, &[a, b]) => truth(a >= b),
            (Self::And, &[a, b]) => truth(a != 0.0 && b != 0.0),
            (Self::Or, &[a, b]) => truth(a != 0.0 || b != 0.0),
            (Self::Not, &[a]) => truth(a == 0.0),
            (Self::Whole, &[a]) => a.trunc(),
            _ => return None,
        })
    }
}
