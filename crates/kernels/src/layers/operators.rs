//! Operators on one number, and on two.

/// An operator on an element x.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unary {
    /// The square root of x (Sqrt).
    Root,
    /// -x (Neg).
    Negative,
    /// x without its sign (Abs).
    Magnitude,
    /// The greatest whole number that is not above x (Floor).
    Floor,
    /// The least whole number that is not below x (Ceil).
    Ceiling,
    /// The whole number next to x, of two the even one (Round).
    Nearest,
}

impl Unary {
    /// The result of x.
    #[inline(always)]
    pub fn of(self, x: f32) -> f32 {
        match self {
            Self::Root => x.sqrt(),
            Self::Negative => -x,
            Self::Magnitude => x.abs(),
            Self::Floor => x.floor(),
            Self::Ceiling => x.ceil(),
            Self::Nearest => x.round_ties_even(),
        }
    }
}

/// An operator on an element x and its operand b.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// x + b (Add).
    Add,
    /// x - b (Sub).
    Subtract,
    /// b - x (Sub).
    SubtractFrom,
    /// x b (Mul).
    Multiply,
    /// x / b (Div).
    Divide,
    /// b / x (Div).
    DivideInto,
    /// The greater of the two (Max); NaN if one of them is.
    Greatest,
    /// The lesser of the two (Min); NaN if one of them is.
    Least,
}

impl Binary {
    /// The result of x and b.
    #[inline(always)]
    pub fn of(self, x: f32, b: f32) -> f32 {
        match self {
            Self::Add => x + b,
            Self::Subtract => x - b,
            Self::SubtractFrom => b - x,
            Self::Multiply => x * b,
            Self::Divide => x / b,
            Self::DivideInto => b / x,
            Self::Greatest => greatest(x, b),
            Self::Least => least(x, b),
        }
    }
}

/// The greater of two numbers; NaN if one of them is.
#[inline(always)]
pub(super) fn greatest(a: f32, b: f32) -> f32 {
    if (a > b) | a.is_nan() { a } else { b }
}

/// The lesser of two numbers; NaN if one of them is.
#[inline(always)]
pub(super) fn least(a: f32, b: f32) -> f32 {
    if (a < b) | a.is_nan() { a } else { b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unary_operators_are_those_of_onnx() {
        let cases: [(Unary, f32, f32); 9] = [
            (Unary::Root, 6.25, 2.5),
            (Unary::Negative, 0.0, -0.0),
            (Unary::Magnitude, -2.5, 2.5),
            (Unary::Floor, -1.5, -2.0),
            (Unary::Ceiling, 1.2, 2.0),
            (Unary::Ceiling, -0.5, -0.0),
            (Unary::Nearest, 2.5, 2.0),
            (Unary::Nearest, 3.5, 4.0),
            (Unary::Nearest, -0.2, -0.0),
        ];
        for (unary, x, wanted) in cases {
            assert_eq!(unary.of(x).to_bits(), wanted.to_bits(), "{unary:?} {x}");
        }
    }
}
