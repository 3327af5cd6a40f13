//! What is derived of a request's INT64 tensors before the request is unfolded.
//!
//! Programs compute with integers of 32 bits. Operators on rows of INT64 that the request itself brings need no program: they are
//! computed as the request comes, with 64 bits, up to the operator that takes something else. What programs read of it must
//! fit 32 bits.

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::{AttributeProto, DataType};

use crate::data::array::Array;
use crate::data::elements::Elements;
use crate::file::attribute::{named_int, named_ints};

/// An operator on tensors `[batch, steps, ...row]`, either of which axes may be 1.
#[derive(Clone, Debug)]
pub(crate) enum Derivation {
    /// A function of two integers; none: a division by zero.
    Pair(fn(i64, i64) -> Option<i64>),
    /// A function of any number of integers, two by two.
    All(fn(i64, i64) -> i64),
    Comparison(fn(i64, i64) -> bool),
    Logic(fn(bool, bool) -> bool),
    One(fn(i64) -> i64),
    Not,
    Clip,
    Where,
    Identity,
    Cast(ElementType),
    /// A function of the elements along constant axes.
    Reduce {
        f: fn(i64, i64) -> i64,
        keeps_axes: bool,
    },
    /// The elements at constant places of an axis.
    Gather {
        axis: usize,
    },
    /// Places one after the other of an axis.
    Slice,
    Concat {
        axis: usize,
    },
    Transpose(Vec<usize>),
}

/// Axes of rows in front of which a derived tensor has one more: programs have one axis of rows, it has batch and steps.
const MORE_AXES: usize = 1;

impl Derivation {
    /// The operator in the form that it has on rows in a program; none if it is not one that can be derived.
    pub(crate) fn of(operator: &str, attributes: &[AttributeProto]) -> Option<Self> {
        let axis = || {
            let axis = usize::try_from(named_int(attributes, "axis")?).ok()?;
            (axis > 0).then_some(axis + MORE_AXES)
        };
        let keeps_axes = named_int(attributes, "keepdims").unwrap_or(1) != 0;
        let fmod = named_int(attributes, "fmod").unwrap_or(0) != 0;
        Some(match operator {
            "Add" => Self::Pair(|a, b| Some(a.wrapping_add(b))),
            "Sub" => Self::Pair(|a, b| Some(a.wrapping_sub(b))),
            "Mul" => Self::Pair(|a, b| Some(a.wrapping_mul(b))),
            "Div" => Self::Pair(|a, b| (b != 0).then(|| a.wrapping_div(b))),
            "Mod" if fmod => Self::Pair(|a, b| (b != 0).then(|| a.wrapping_rem(b))),
            // Of the divisor's sign.
            "Mod" => Self::Pair(|a, b| {
                let rest = (b != 0).then(|| a.wrapping_rem(b))?;
                Some(if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
            }),
            "Max" => Self::All(i64::max),
            "Min" => Self::All(i64::min),
            "Sum" => Self::All(i64::wrapping_add),
            "Equal" => Self::Comparison(|a, b| a == b),
            "Less" => Self::Comparison(|a, b| a < b),
            "LessOrEqual" => Self::Comparison(|a, b| a <= b),
            "Greater" => Self::Comparison(|a, b| a > b),
            "GreaterOrEqual" => Self::Comparison(|a, b| a >= b),
            "And" => Self::Logic(|a, b| a && b),
            "Or" => Self::Logic(|a, b| a || b),
            "Xor" => Self::Logic(|a, b| a != b),
            "Not" => Self::Not,
            "Abs" => Self::One(i64::wrapping_abs),
            "Neg" => Self::One(i64::wrapping_neg),
            "Sign" => Self::One(i64::signum),
            "Clip" => Self::Clip,
            // An `If` on data is written so.
            "Where" | "If" => Self::Where,
            "Identity" => Self::Identity,
            "Cast" => match DataType(named_int(attributes, "to")? as i32) {
                DataType::FLOAT => Self::Cast(ElementType::F32),
                DataType::INT64 => Self::Cast(ElementType::I64),
                DataType::INT32 => Self::Cast(ElementType::I32),
                DataType::UINT32 => Self::Cast(ElementType::U32),
                _ => return None,
            },
            "ReduceSum" => Self::Reduce { f: i64::wrapping_add, keeps_axes },
            "ReduceProd" => Self::Reduce { f: i64::wrapping_mul, keeps_axes },
            "ReduceMax" => Self::Reduce { f: i64::max, keeps_axes },
            "ReduceMin" => Self::Reduce { f: i64::min, keeps_axes },
            "Gather" => Self::Gather { axis: axis()? },
            "Slice" => Self::Slice,
            "Concat" => Self::Concat { axis: axis()? },
            "Transpose" => {
                let order = named_ints(attributes, "perm")?.iter();
                let order = order.map(|&axis| usize::try_from(axis).map(|axis| axis + MORE_AXES));
                let order: Vec<usize> = order.collect::<Result<_, _>>().ok()?;
                let first = (0..=MORE_AXES).chain(order.into_iter().skip(1));
                Self::Transpose(first.collect())
            }
            _ => return None,
        })
    }

    /// Whether it takes operands of these types: of each whether it holds integers, rather than truth values; none: there is none.
    pub(crate) fn takes(&self, are_integers: &[Option<bool>]) -> bool {
        let all = |wanted: bool| are_integers.iter().flatten().all(|&of| of == wanted);
        match self {
            Self::Pair(_) | Self::Comparison(_) => all(true) && are_integers.len() == 2,
            Self::All(_) | Self::One(_) | Self::Clip | Self::Reduce { .. } => all(true),
            Self::Logic(_) | Self::Not => all(false),
            Self::Where => matches!(are_integers, [Some(false), a, b] if a == b),
            Self::Concat { .. } => all(true) || all(false),
            Self::Identity | Self::Cast(_) | Self::Gather { .. } | Self::Slice => true,
            Self::Transpose(_) => true,
        }
    }

    /// Computes the output. An operand is none where the operator has none.
    ///
    /// # Errors
    /// An integer is divided by zero, or the operands are not those of the operator.
    pub(crate) fn compute(&self, operands: &[Option<Elements>]) -> Result<Elements, &'static str> {
        let operand = |at: usize| operands.get(at).and_then(Option::as_ref);
        let bools = |at: usize| operand(at)?.as_bools();
        if let Self::Pair(f) = self
            && let [Some(Elements::Ints(a)), Some(Elements::Ints(b))] = operands
        {
            let quotients = a.zipped(b, |&a, &b| f(a, b)).map(Elements::Ints);
            return quotients.ok_or("an integer is divided by zero");
        }
        let computed = match self {
            Self::Pair(_) => None,
            Self::All(f) => all_of(operands, *f).map(Elements::Ints),
            Self::Comparison(f) => ints(operands, 0)
                .zip(ints(operands, 1))
                .and_then(|(a, b)| a.zipped(b, |&a, &b| Some(f(a, b))).map(Elements::Bools)),
            Self::Logic(f) => bools(0)
                .zip(bools(1))
                .and_then(|(a, b)| a.zipped(b, |&a, &b| Some(f(a, b))).map(Elements::Bools)),
            Self::One(f) => ints(operands, 0).map(|of| Elements::Ints(of.mapped(|&n| f(n)))),
            Self::Not => bools(0).map(|of| Elements::Bools(of.mapped(|bit| !bit))),
            Self::Clip => ints(operands, 0).map(|of| {
                let bound = |at, default| ints(operands, at).map_or(default, |b| b.data[0]);
                let (low, high) = (bound(1, i64::MIN), bound(2, i64::MAX));
                Elements::Ints(of.mapped(|&n| n.max(low).min(high)))
            }),
            Self::Where => bools(0).and_then(|condition| match (operand(1)?, operand(2)?) {
                (Elements::Ints(a), Elements::Ints(b)) => {
                    chosen(condition, a, b).map(Elements::Ints)
                }
                (Elements::Bools(a), Elements::Bools(b)) => {
                    chosen(condition, a, b).map(Elements::Bools)
                }
                _ => None,
            }),
            Self::Identity => operand(0).cloned(),
            Self::Cast(to) => operand(0).and_then(|of| cast(of, *to)),
            Self::Reduce { f, keeps_axes } => {
                ints(operands, 0).zip(ints(operands, 1)).and_then(|(of, axes)| {
                    let axes: Vec<usize> =
                        axes.data.iter().map(|&a| a as usize + MORE_AXES).collect();
                    let mut reduced = of.reduced(&axes, |&a, &b| Some(f(a, b)))?;
                    if !keeps_axes {
                        let mut axis = 0..reduced.shape.len();
                        reduced.shape.retain(|_| !axis.next().is_some_and(|a| axes.contains(&a)));
                    }
                    Some(Elements::Ints(reduced))
                })
            }
            Self::Gather { axis } => operand(0).zip(ints(operands, 1)).map(|(of, places)| {
                let indices: Vec<usize> = places.data.iter().map(|&n| n as usize).collect();
                of.gathered(*axis, &indices, &places.shape)
            }),
            Self::Slice => {
                let number = |at| Some(ints(operands, at)?.data[0] as usize);
                operand(0).and_then(|of| {
                    let indices: Vec<usize> = (number(1)?..number(2)?).collect();
                    Some(of.gathered(number(3)? + MORE_AXES, &indices, &[indices.len()]))
                })
            }
            Self::Concat { axis } => joined(operands, *axis),
            Self::Transpose(permutation) => operand(0).map(|of| of.transposed(permutation)),
        };
        computed.ok_or("an operator on integers has operands of other types")
    }
}

/// A function of the first two operands, then of what it gives and the next.
fn all_of(operands: &[Option<Elements>], f: fn(i64, i64) -> i64) -> Option<Array<i64>> {
    let mut all = ints(operands, 0)?.clone();
    for at in 1..operands.len() {
        all = all.zipped(ints(operands, at)?, |&a, &b| Some(f(a, b)))?;
    }
    Some(all)
}

fn ints(operands: &[Option<Elements>], at: usize) -> Option<&Array<i64>> {
    operands.get(at)?.as_ref()?.as_ints()
}

fn chosen<T: Clone>(condition: &Array<bool>, a: &Array<T>, b: &Array<T>) -> Option<Array<T>> {
    let pairs = a.zipped(b, |a, b| Some((a.clone(), b.clone())))?;
    condition.zipped(&pairs, |&yes, (a, b)| Some(if yes { a.clone() } else { b.clone() }))
}

fn cast(of: &Elements, to: ElementType) -> Option<Elements> {
    let of = match of {
        Elements::Ints(array) => array.clone(),
        Elements::Bools(array) => array.mapped(|&bit| bit.into()),
        Elements::Floats(_) => return None,
    };
    Some(match to {
        ElementType::F32 => Elements::Floats(of.mapped(|&n| n as f32)),
        ElementType::I32 => Elements::Ints(of.mapped(|&n| i64::from(n as i32))),
        ElementType::U32 => Elements::Ints(of.mapped(|&n| i64::from(n as u32))),
        _ => Elements::Ints(of),
    })
}

/// Tensors one behind the other along an axis. They may differ in whether they have batch and steps.
fn joined(parts: &[Option<Elements>], axis: usize) -> Option<Elements> {
    let parts: Vec<&Elements> = parts.iter().map(Option::as_ref).collect::<Option<_>>()?;
    let longest = |at: usize| parts.iter().map(|part| part.shape()[at]).max();
    let lead = [longest(0)?, longest(1)?];
    let parts = parts.iter().map(|part| part.expanded(&[&lead, &part.shape()[2..]].concat()));
    let parts: Vec<Elements> = parts.collect();
    let ints: Option<Vec<_>> = parts.iter().map(Elements::as_ints).collect();
    if let Some(ints) = ints {
        return Array::concatenated(&ints, axis).map(Elements::Ints);
    }
    let bools: Option<Vec<_>> = parts.iter().map(Elements::as_bools).collect();
    Array::concatenated(&bools?, axis).map(Elements::Bools)
}

/// An input that no request brings: the derivation of its tensor.
#[derive(Clone, Debug)]
pub(crate) struct Derived {
    pub(crate) derivation: Derivation,
    pub(crate) operands: Vec<DerivedOperand>,
    pub(crate) row: RowSpec,
}

/// An operand of a derivation.
#[derive(Clone, Debug)]
pub(crate) enum DerivedOperand {
    /// Rows of an input under a shape, at a step of it where `at` is given; below 0: from the end.
    Rows {
        input: usize,
        at: Option<i64>,
        shape: Vec<usize>,
    },
    Constant(Elements),
    Absent,
}
