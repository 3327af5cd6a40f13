//! Constant folding: operators whose inputs are all constants. A function gives none where its operator does
//! not fold such constants.

use batchmaker_graph::ElementType;

use crate::analysis::operators::narrow::range_of_type;
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::node::Node;

/// Two constants of one type.
enum Pair<'a> {
    F32(&'a Array<f32>, &'a Array<f32>),
    Int(std::borrow::Cow<'a, Array<Int>>, std::borrow::Cow<'a, Array<Int>>, ElementType),
    Bool(&'a Array<bool>, &'a Array<bool>),
}

impl<'a> Pair<'a> {
    fn of(operands: &[&'a Literal]) -> Option<Self> {
        use std::borrow::Cow::{Borrowed, Owned};
        let &[a, b] = operands else { return None };
        Some(match (a, b) {
            (Literal::F32(a), Literal::F32(b)) => Self::F32(a, b),
            (Literal::Int(a, element), Literal::Int(b, _)) => {
                Self::Int(Borrowed(a), Borrowed(b), *element)
            }
            // Lengths as floats, and floats that are integers.
            (Literal::Int(a, ElementType::F32), Literal::F32(b)) => {
                Self::Int(Borrowed(a), Owned(whole_numbers(b)?), ElementType::F32)
            }
            (Literal::F32(a), Literal::Int(b, ElementType::F32)) => {
                Self::Int(Owned(whole_numbers(a)?), Borrowed(b), ElementType::F32)
            }
            (Literal::Bool(a), Literal::Bool(b)) => Self::Bool(a, b),
            _ => return None,
        })
    }
}

/// An array of floats as integers, if all of them are whole.
fn whole_numbers(array: &Array<f32>) -> Option<Array<Int>> {
    let is_whole = |x: &f32| x.fract() == 0.0 && x.abs() < 1e6;
    let ints = array.data.iter().map(|&x| Int::number(x as i64)).collect();
    array.data.iter().all(is_whole).then(|| Array::new(array.shape.clone(), ints))
}

/// A function of one FLOAT.
pub(crate) fn float(operands: &[&Literal], f: fn(f32) -> f32) -> Option<Literal> {
    let [Literal::F32(array)] = operands else { return None };
    let data = array.data.iter().map(|&x| f(x)).collect();
    Some(Literal::F32(Array::new(array.shape.clone(), data)))
}

/// `Ceil` and `Floor`: lengths as floats are whole.
pub(crate) fn rounded(operands: &[&Literal], f: fn(f32) -> f32) -> Option<Literal> {
    match operands {
        [length @ Literal::Int(_, ElementType::F32)] => Some((*length).clone().settled()),
        _ => float(operands, f),
    }
}

/// `Neg`.
pub(crate) fn negated(operands: &[&Literal]) -> Option<Literal> {
    let [Literal::Int(array, element)] = operands else { return float(operands, |x| -x) };
    let data = array.data.iter().map(|int| int.times(&Int::number(-1))).collect();
    Some(Literal::Int(Array::new(array.shape.clone(), data), *element).settled())
}

/// `Not`.
pub(crate) fn not(operands: &[&Literal]) -> Option<Literal> {
    let [Literal::Bool(array)] = operands else { return None };
    let data = array.data.iter().map(|&bit| !bit).collect();
    Some(Literal::Bool(Array::new(array.shape.clone(), data)))
}

/// An operation on two numbers; `on_ints` is given the type that lengths have.
pub(crate) fn arithmetic(
    operands: &[&Literal],
    on_floats: Option<fn(f32, f32) -> f32>,
    on_ints: fn(&Int, &Int, ElementType) -> Option<Int>,
) -> Option<Literal> {
    let folded = match Pair::of(operands)? {
        Pair::F32(a, b) => {
            let f = on_floats?;
            a.zipped(b, |&a, &b| Some(f(a, b))).map(Literal::F32)
        }
        Pair::Int(a, b, element) => {
            let ints = a.zipped(&b, |a, b| on_ints(a, b, element));
            ints.map(|array| Literal::Int(array, element))
        }
        Pair::Bool(..) => None,
    };
    folded.map(Literal::settled)
}

/// As [`arithmetic`], for integers that are plain numbers.
fn of_numbers(operands: &[&Literal], f: fn(i64, i64) -> Option<i64>) -> Option<Literal> {
    let folded = match Pair::of(operands)? {
        Pair::Int(a, b, element) => {
            let ints = a.zipped(&b, |a, b| f(a.as_number()?, b.as_number()?).map(Int::number));
            ints.map(|array| Literal::Int(array, element))
        }
        Pair::F32(..) | Pair::Bool(..) => None,
    };
    folded.map(Literal::settled)
}

/// `Mod`: of the divisor's sign, or by attribute `fmod` of the dividend's.
pub(crate) fn remainder(node: &Node, operands: &[&Literal]) -> Option<Literal> {
    match node.int("fmod").unwrap_or(0) {
        0 => of_numbers(operands, |a, b| a.checked_rem(b)?.checked_add(b)?.checked_rem(b)),
        _ => of_numbers(operands, i64::checked_rem),
    }
}

/// The quotient; that of lengths as floats has to be exact.
pub(crate) fn quotient(a: &Int, b: &Int, element: ElementType) -> Option<Int> {
    match element {
        ElementType::F32 => a.over(b).filter(|quotient| quotient.times(b) == *a),
        _ => a.over(b),
    }
}

/// A comparison of two numbers.
pub(crate) fn comparison(
    operands: &[&Literal],
    of_floats: Option<fn(f32, f32) -> bool>,
    of_ints: fn(&Int, &Int) -> Option<bool>,
) -> Option<Literal> {
    match Pair::of(operands)? {
        Pair::F32(a, b) => {
            let f = of_floats?;
            a.zipped(b, |&a, &b| Some(f(a, b))).map(Literal::Bool)
        }
        Pair::Int(a, b, _) => a.zipped(&b, of_ints).map(Literal::Bool),
        Pair::Bool(..) => None,
    }
}

/// `Equal`.
pub(crate) fn equal(operands: &[&Literal]) -> Option<Literal> {
    logic(operands, |a, b| a == b)
        .or_else(|| comparison(operands, Some(|a, b| a == b), Int::equals))
}

/// An operation on two truth values.
pub(crate) fn logic(operands: &[&Literal], f: fn(bool, bool) -> bool) -> Option<Literal> {
    match Pair::of(operands)? {
        Pair::Bool(a, b) => a.zipped(b, |&a, &b| Some(f(a, b))).map(Literal::Bool),
        Pair::F32(..) | Pair::Int(..) => None,
    }
}

/// `Where`.
pub(crate) fn chosen(operands: &[&Literal]) -> Option<Literal> {
    let [Literal::Bool(condition), a, b] = operands else { return None };
    choose(condition, a, b).map(Literal::settled)
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

/// A reduction over `axes`, which stay as axes of 1; of lengths of the request where the result is one.
pub(crate) fn reduction(operator: &str, literal: &Literal, axes: &[usize]) -> Option<Literal> {
    let root = |literal: Literal| float(&[&literal], f32::sqrt);
    let of_each = |f: fn(f32) -> f32| match literal {
        Literal::F32(array) => {
            let data = array.data.iter().map(|&x| f(x)).collect();
            Some(Literal::F32(Array::new(array.shape.clone(), data)))
        }
        _ => None,
    };
    match operator {
        "ReduceL1" => return reduction("ReduceSum", &of_each(f32::abs)?, axes),
        "ReduceL2" => return root(reduction("ReduceSum", &of_each(|x| x * x)?, axes)?),
        "ReduceSumSquare" => return reduction("ReduceSum", &of_each(|x| x * x)?, axes),
        "ReduceMean" => {
            let count: usize = axes.iter().map(|&axis| literal.shape()[axis]).product();
            let Literal::F32(sums) = reduction("ReduceSum", literal, axes)? else { return None };
            let data = sums.data.iter().map(|&sum| sum / count as f32).collect();
            return Some(Literal::F32(Array::new(sums.shape, data)));
        }
        _ => {}
    }
    let on_floats: fn(f32, f32) -> f32 = match operator {
        "ReduceMax" => f32::max,
        "ReduceMin" => f32::min,
        "ReduceProd" => |a, b| a * b,
        "ReduceSum" => |a, b| a + b,
        _ => return None,
    };
    let on_ints: fn(&Int, &Int) -> Option<Int> = match operator {
        "ReduceMax" => greater,
        "ReduceMin" => lesser,
        "ReduceProd" => Int::checked_times,
        _ => Int::plus,
    };
    Some(match literal {
        Literal::F32(array) => Literal::F32(array.reduced(axes, |&a, &b| Some(on_floats(a, b)))?),
        Literal::Int(array, element) => Literal::Int(array.reduced(axes, on_ints)?, *element),
        Literal::Whole(..) | Literal::Bool(_) => return None,
    })
}

/// The greater of two integers, where that does not depend on the request.
pub(crate) fn greater(a: &Int, b: &Int) -> Option<Int> {
    Some(if a.is_less(b)? { b.clone() } else { a.clone() })
}

/// The lesser of two integers, where that does not depend on the request.
pub(crate) fn lesser(a: &Int, b: &Int) -> Option<Int> {
    Some(if b.is_less(a)? { b.clone() } else { a.clone() })
}

/// `Cast` of a constant.
pub(crate) fn cast(literal: &Literal, to: ElementType) -> Option<Literal> {
    let shape = || literal.shape().to_vec();
    let floats = |data: Vec<f32>| Literal::F32(Array::new(shape(), data));
    let ints = |data: Vec<i64>| {
        let number = |&n: &i64| Int::number(n);
        match range_of_type(to) {
            Some((low, high)) => {
                let wrapped = |n: &i64| ((n - low).rem_euclid(high - low + 1) + low) as f32;
                Literal::Whole(Array::new(shape(), data.iter().map(wrapped).collect()), to)
            }
            None => Literal::Int(Array::new(shape(), data.iter().map(number).collect()), to),
        }
    };
    let bools = |data: Vec<bool>| Literal::Bool(Array::new(shape(), data));
    Some(match literal {
        _ if literal.element() == to => literal.clone(),
        Literal::F32(a) | Literal::Whole(a, _) if to.is_float() => floats(a.data.clone()),
        Literal::F32(a) | Literal::Whole(a, _) if to == ElementType::Bool => {
            bools(a.data.iter().map(|&x| x != 0.0).collect())
        }
        Literal::F32(a) | Literal::Whole(a, _) => ints(a.data.iter().map(|&x| x as i64).collect()),
        Literal::Bool(a) if to.is_float() => {
            floats(a.data.iter().map(|&bit| f32::from(u8::from(bit))).collect())
        }
        Literal::Bool(a) => ints(a.data.iter().map(|&bit| i64::from(bit)).collect()),
        // Lengths are at least 1.
        Literal::Int(..) if to == ElementType::Bool => {
            let is_set = |int: &Int| int.equals(&Int::number(0)).map(|is_zero| !is_zero);
            bools(literal.as_ints()?.data.iter().map(is_set).collect::<Option<_>>()?)
        }
        Literal::Int(..) if to.is_narrow() => ints(literal.as_numbers()?),
        Literal::Int(array, _) if to.is_integer() => Literal::Int(array.clone(), to),
        // Numbers that are lengths of the request stay what they are.
        Literal::Int(array, _) => match literal.as_numbers() {
            None => Literal::Int(array.clone(), ElementType::F32),
            Some(numbers) => floats(numbers.into_iter().map(|n| n as f32).collect()),
        },
    })
}
