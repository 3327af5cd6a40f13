//! Constant folding: operators whose inputs are all constants.

use batchmaker_graph::ElementType;

use crate::data::array::Array;
use crate::data::literal::Literal;
use crate::data::symbolic::Int;

/// An element-wise operator on constants; none: not one that is folded.
pub(super) fn elementwise(operator: &str, operands: &[&Literal]) -> Option<Literal> {
    folded(operator, operands).map(Literal::settled)
}

fn folded(operator: &str, operands: &[&Literal]) -> Option<Literal> {
    match operands {
        [one] => unary(operator, one),
        [Literal::F32(a), Literal::F32(b)] => floats(operator, a, b),
        [Literal::Int(a, element), Literal::Int(b, _)] => ints(operator, a, b, *element),
        [Literal::Int(a, ElementType::F32), Literal::F32(b)] => {
            ints(operator, a, &whole_numbers(b)?, ElementType::F32)
        }
        [Literal::F32(a), Literal::Int(b, ElementType::F32)] => {
            ints(operator, &whole_numbers(a)?, b, ElementType::F32)
        }
        [Literal::Bool(a), Literal::Bool(b)] => {
            let f: fn(bool, bool) -> bool = match operator {
                "And" => |a, b| a && b,
                "Or" => |a, b| a || b,
                "Xor" => |a, b| a != b,
                "Equal" => |a, b| a == b,
                _ => return None,
            };
            a.zipped(b, |&a, &b| Some(f(a, b))).map(Literal::Bool)
        }
        [Literal::Bool(condition), a, b] if operator == "Where" => choose(condition, a, b),
        _ => None,
    }
}

/// Floats that are integers, as such.
fn whole_numbers(array: &Array<f32>) -> Option<Array<Int>> {
    let is_whole = |x: &f32| x.fract() == 0.0 && x.abs() < 1e6;
    let ints = array.data.iter().map(|&x| Int::number(x as i64)).collect();
    array.data.iter().all(is_whole).then(|| Array::new(array.shape.clone(), ints))
}

fn unary(operator: &str, operand: &Literal) -> Option<Literal> {
    match operand {
        Literal::F32(array) => {
            let f: fn(f32) -> f32 = match operator {
                "Neg" => |x| -x,
                "Sqrt" => f32::sqrt,
                "Exp" => f32::exp,
                "Log" => f32::ln,
                "Abs" => f32::abs,
                "Reciprocal" => |x| 1.0 / x,
                "Relu" => |x| x.max(0.0),
                "Floor" => f32::floor,
                "Tanh" => f32::tanh,
                "Sigmoid" => |x| 1.0 / (1.0 + (-x).exp()),
                "Sin" => f32::sin,
                "Cos" => f32::cos,
                "Ceil" => f32::ceil,
                _ => return None,
            };
            let data = array.data.iter().map(|&x| f(x)).collect();
            Some(Literal::F32(Array::new(array.shape.clone(), data)))
        }
        Literal::Int(_, ElementType::F32) if matches!(operator, "Ceil" | "Floor") => {
            Some(operand.clone())
        }
        Literal::Int(array, element) if operator == "Neg" => {
            let data = array.data.iter().map(|int| int.times(&Int::number(-1))).collect();
            Some(Literal::Int(Array::new(array.shape.clone(), data), *element))
        }
        Literal::Bool(array) if operator == "Not" => {
            let data = array.data.iter().map(|&bit| !bit).collect();
            Some(Literal::Bool(Array::new(array.shape.clone(), data)))
        }
        _ => None,
    }
}

fn floats(operator: &str, a: &Array<f32>, b: &Array<f32>) -> Option<Literal> {
    let f: fn(f32, f32) -> f32 = match operator {
        "Add" => |a, b| a + b,
        "Sub" => |a, b| a - b,
        "Mul" => |a, b| a * b,
        "Div" => |a, b| a / b,
        "Pow" => f32::powf,
        _ => {
            let f: fn(f32, f32) -> bool = match operator {
                "Equal" => |a, b| a == b,
                "Less" => |a, b| a < b,
                "Greater" => |a, b| a > b,
                _ => return None,
            };
            return a.zipped(b, |&a, &b| Some(f(a, b))).map(Literal::Bool);
        }
    };
    a.zipped(b, |&a, &b| Some(f(a, b))).map(Literal::F32)
}

fn ints(operator: &str, a: &Array<Int>, b: &Array<Int>, element: ElementType) -> Option<Literal> {
    let numbers = |f: fn(i64, i64) -> Option<i64>| {
        let g = |a: &Int, b: &Int| f(a.as_number()?, b.as_number()?).map(Int::number);
        a.zipped(b, g).map(|array| Literal::Int(array, element))
    };
    let compared = |f: fn(&Int, &Int) -> Option<bool>| a.zipped(b, f).map(Literal::Bool);
    let exact =
        |f: fn(&Int, &Int) -> Option<Int>| a.zipped(b, f).map(|array| Literal::Int(array, element));
    match operator {
        "Add" => exact(Int::plus),
        "Sub" => exact(Int::minus),
        "Mul" => exact(Int::checked_times),
        // Of lengths as floats the quotient has to be exact.
        "Div" if element == ElementType::F32 => {
            exact(|a, b| a.over(b).filter(|quotient| quotient.times(b) == *a))
        }
        "Div" => exact(Int::over),
        // Of the divisor's sign.
        "Fmod" => numbers(i64::checked_rem),
        "Mod" => numbers(|a, b| a.checked_rem(b)?.checked_add(b)?.checked_rem(b)),
        "Min" => numbers(|a, b| Some(a.min(b))),
        "Max" => numbers(|a, b| Some(a.max(b))),
        "Equal" => a.zipped(b, Int::equals).map(Literal::Bool),
        "Less" => compared(Int::is_less),
        "LessOrEqual" => compared(|a, b| b.is_less(a).map(|less| !less)),
        "Greater" => compared(|a, b| b.is_less(a)),
        "GreaterOrEqual" => compared(|a, b| a.is_less(b).map(|less| !less)),
        _ => None,
    }
}

fn choose(condition: &Array<bool>, a: &Literal, b: &Literal) -> Option<Literal> {
    fn pick<T: Clone>(condition: &Array<bool>, a: &Array<T>, b: &Array<T>) -> Option<Array<T>> {
        let pairs = a.zipped(b, |a, b| Some((a.clone(), b.clone())))?;
        condition.zipped(&pairs, |&yes, (a, b)| Some(if yes { a.clone() } else { b.clone() }))
    }
    match (a, b) {
        (Literal::F32(a), Literal::F32(b)) => pick(condition, a, b).map(Literal::F32),
        (Literal::Int(a, element), Literal::Int(b, _)) => {
            pick(condition, a, b).map(|array| Literal::Int(array, *element))
        }
        (Literal::Bool(a), Literal::Bool(b)) => pick(condition, a, b).map(Literal::Bool),
        _ => None,
    }
}

/// `Cast` of a constant.
pub(super) fn cast(literal: &Literal, to: ElementType) -> Option<Literal> {
    let shape = literal.shape().to_vec();
    let floats = |data: Vec<f32>| Literal::F32(Array::new(shape.clone(), data));
    let ints = |data: Vec<i64>| {
        let data = data.into_iter().map(Int::number).collect();
        Literal::Int(Array::new(shape.clone(), data), to)
    };
    let bools = |data: Vec<bool>| Literal::Bool(Array::new(shape.clone(), data));
    Some(match (literal, to) {
        (Literal::F32(_), ElementType::F32) | (Literal::Bool(_), ElementType::Bool) => {
            literal.clone()
        }
        (Literal::Int(array, _), ElementType::I64 | ElementType::I32) => {
            Literal::Int(array.clone(), to)
        }
        (Literal::F32(a), ElementType::Bool) => bools(a.data.iter().map(|&x| x != 0.0).collect()),
        (Literal::F32(a), _) => ints(a.data.iter().map(|&x| x as i64).collect()),
        (Literal::Bool(a), ElementType::F32) => {
            floats(a.data.iter().map(|&bit| f32::from(u8::from(bit))).collect())
        }
        (Literal::Bool(a), _) => ints(a.data.iter().map(|&bit| i64::from(bit)).collect()),
        // Numbers that are lengths of the request stay what they are.
        (Literal::Int(array, _), ElementType::F32) if literal.as_numbers().is_none() => {
            Literal::Int(array.clone(), to)
        }
        (Literal::Int(..), ElementType::F32) => {
            floats(literal.as_numbers()?.into_iter().map(|n| n as f32).collect())
        }
        (Literal::Int(..), _) => bools(literal.as_numbers()?.iter().map(|&n| n != 0).collect()),
    })
}
