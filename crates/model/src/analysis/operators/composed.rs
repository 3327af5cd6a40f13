//! Operators that are others put together.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, dim_of, input, int_list};
use crate::analysis::operators::dispatch::apply;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::attribute::{int_attribute, ints_attribute};
use crate::file::node::Node;

/// `Mish`: x tanh(softplus(x)).
pub(crate) fn mish(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = input(inputs, 0)?;
    let soft = apply(analysis, node, "Softplus", vec![], vec![x.clone()])?;
    let gate = apply(analysis, node, "Tanh", vec![], vec![soft])?;
    apply(analysis, node, "Mul", vec![], vec![x.clone(), gate]).map(|val| vec![val])
}

/// `Tile`: an `Expand` along an axis of length 1, a `Concat` of copies along another.
pub(crate) fn tile(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let mut val = input(inputs, 0)?.clone();
    let repeats = int_list(inputs, 1).ok_or("its repeats are not constant")?;
    if repeats.len() != val.dims().len() {
        return Err("its repeats are not one an axis".to_owned());
    }
    for (axis, repeat) in repeats.into_iter().enumerate() {
        let dims = val.dims();
        match repeat.as_number() {
            Some(1) => {}
            _ if dims[axis].is_one() => {
                let mut shape: Vec<Int> = dims.iter().map(|dim| analysis.axes.int(dim)).collect();
                shape[axis] = repeat;
                let shape = Val::literal(Literal::ints(shape));
                val = apply(analysis, node, "Expand", vec![], vec![val, shape])?;
            }
            Some(count @ 2..=64) => {
                let axis = vec![int_attribute("axis", axis as i64)];
                let parts = vec![val; count as usize];
                val = apply(analysis, node, "Concat", axis, parts)?;
            }
            _ => return Err(format!("its repeats along axis {axis}")),
        }
    }
    Ok(vec![val])
}

/// The mean over the axes from `axis` on, which stay as axes of 1.
fn mean(analysis: &mut Analysis, node: &Node, x: Val) -> Result<Val, String> {
    let rank = x.dims().len();
    let axis = axis_of(node.int("axis").unwrap_or(-1), rank)?;
    let axes = Literal::ints((axis..rank).map(|axis| Int::number(axis as i64)).collect());
    apply(analysis, node, "ReduceMean", vec![], vec![x, Val::literal(axes)])
}

/// sqrt(mean(x²) + epsilon).
fn root_mean_square(analysis: &mut Analysis, node: &Node, x: &Val) -> Result<Val, String> {
    let epsilon = Literal::F32(Array::scalar(node.float("epsilon").unwrap_or(1e-5)));
    let square = apply(analysis, node, "Mul", vec![], vec![x.clone(), x.clone()])?;
    let mean = mean(analysis, node, square)?;
    let mean = apply(analysis, node, "Add", vec![], vec![mean, Val::literal(epsilon)])?;
    apply(analysis, node, "Sqrt", vec![], vec![mean])
}

/// `RMSNormalization`: x / sqrt(mean(x²) + epsilon) * scale.
pub(crate) fn rms_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (x, scale) = (input(inputs, 0)?.clone(), input(inputs, 1)?.clone());
    let root = root_mean_square(analysis, node, &x)?;
    let unit = apply(analysis, node, "Div", vec![], vec![x, root])?;
    apply(analysis, node, "Mul", vec![], vec![unit, scale]).map(|val| vec![val])
}

/// `LayerNormalization` with its statistics: Y, Mean and InvStdDev.
pub(crate) fn layer_normalization(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let (x, scale) = (input(inputs, 0)?.clone(), input(inputs, 1)?.clone());
    let mean = mean(analysis, node, x.clone())?;
    let centred = apply(analysis, node, "Sub", vec![], vec![x, mean.clone()])?;
    let root = root_mean_square(analysis, node, &centred)?;
    let unit = apply(analysis, node, "Div", vec![], vec![centred, root.clone()])?;
    let mut y = apply(analysis, node, "Mul", vec![], vec![unit, scale])?;
    if let Some(Some(bias)) = inputs.get(2) {
        y = apply(analysis, node, "Add", vec![], vec![y, bias.clone()])?;
    }
    let inverse = apply(analysis, node, "Reciprocal", vec![], vec![root])?;
    Ok(vec![y, mean, inverse])
}

/// `Einsum`: sums of products of one or two tensors, as one matrix product.
pub(crate) fn einsum(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let equation = node.string("equation").ok_or("it has no equation")?;
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (from, to) = match equation.split_once("->") {
        Some((from, to)) => (from, Some(to.to_owned())),
        None => (equation.as_str(), None),
    };
    let terms: Vec<Vec<char>> = from.split(',').map(|term| term.chars().collect()).collect();
    let to: Vec<char> = match to {
        Some(to) => to.chars().collect(),
        None => {
            // The letters that occur once, in the order of the alphabet.
            let all: Vec<char> = terms.iter().flatten().copied().collect();
            let mut once = all.clone();
            once.retain(|letter| all.iter().filter(|other| *other == letter).count() == 1);
            once.sort_unstable();
            once
        }
    };
    let twice =
        |letters: &Vec<char>| (1..letters.len()).any(|at| letters[..at].contains(&letters[at]));
    let is_letter = |letter: &char| letter.is_ascii_alphabetic();
    let is_plain = terms.iter().flatten().chain(&to).all(is_letter)
        && !terms.iter().chain([&to]).any(twice)
        && to.iter().all(|letter| terms.iter().flatten().any(|known| known == letter));
    if !is_plain || terms.len() != inputs.len() {
        return Err(format!("its equation {equation} is not supported"));
    }
    let mut vals = Vec::new();
    for (index, term) in terms.iter().enumerate() {
        let val = input(inputs, index)?.clone();
        if val.dims().len() != term.len() {
            return Err(format!("its equation {equation} is not of its inputs"));
        }
        vals.push((val, term.clone()));
    }
    let result = match vals.len() {
        1 => {
            let (val, letters) = vals.remove(0);
            sum(analysis, node, val, letters, |letter| to.contains(&letter))?
        }
        2 => {
            let (b, a) = (vals.remove(1), vals.remove(0));
            product(analysis, node, a, b, &to)?
        }
        count => return Err(format!("a sum of products of {count} tensors")),
    };
    ordered(analysis, node, result, &to).map(|val| vec![val])
}

type Lettered = (Val, Vec<char>);

/// Sums over the axes that are not kept.
fn sum(
    analysis: &mut Analysis,
    node: &Node,
    val: Val,
    letters: Vec<char>,
    is_kept: impl Fn(char) -> bool,
) -> Result<Lettered, String> {
    let (kept, gone): (Vec<usize>, Vec<usize>) =
        (0..letters.len()).partition(|&axis| is_kept(letters[axis]));
    if gone.is_empty() {
        return Ok((val, letters));
    }
    let axes = Literal::ints(gone.iter().map(|&axis| Int::number(axis as i64)).collect());
    let drop = vec![int_attribute("keepdims", 0)];
    let val = apply(analysis, node, "ReduceSum", drop, vec![val, Val::literal(axes)])?;
    Ok((val, kept.into_iter().map(|axis| letters[axis]).collect()))
}

/// The tensor with its axes in that order.
fn ordered(
    analysis: &mut Analysis,
    node: &Node,
    (val, letters): Lettered,
    order: &[char],
) -> Result<Val, String> {
    let place = |letter: &char| letters.iter().position(|known| known == letter);
    let perm: Option<Vec<i64>> = order.iter().map(|l| place(l).map(|at| at as i64)).collect();
    let perm = perm.ok_or("an axis of its output is in none of its inputs")?;
    match perm.is_sorted() {
        true => Ok(val),
        false => apply(analysis, node, "Transpose", vec![ints_attribute("perm", perm)], vec![val]),
    }
}

/// `[shared, left, inner]` times `[shared, inner, right]`.
fn product(
    analysis: &mut Analysis,
    node: &Node,
    (a, of_a): Lettered,
    (b, of_b): Lettered,
    to: &[char],
) -> Result<Lettered, String> {
    // Axes that neither the other tensor nor the output has are summed over first.
    let a = sum(analysis, node, a, of_a.clone(), |l| of_b.contains(&l) || to.contains(&l))?;
    let b = sum(analysis, node, b, of_b.clone(), |l| of_a.contains(&l) || to.contains(&l))?;
    let (of_a, of_b) = (a.1.clone(), b.1.clone());
    let pick = |letters: &[char], is: &dyn Fn(char) -> bool| -> Vec<char> {
        letters.iter().copied().filter(|&letter| is(letter)).collect()
    };
    let shared = pick(to, &|l| of_a.contains(&l) && of_b.contains(&l));
    let inner = pick(&of_a, &|l| of_b.contains(&l) && !to.contains(&l));
    let left = pick(to, &|l| of_a.contains(&l) && !of_b.contains(&l));
    let right = pick(to, &|l| of_b.contains(&l) && !of_a.contains(&l));
    let a = ordered(analysis, node, a, &[&shared[..], &left, &inner].concat())?;
    let b = ordered(analysis, node, b, &[&shared[..], &inner, &right].concat())?;
    let count = shared.len();
    let lengths = |analysis: &Analysis, val: &Val, at: usize, n: usize| -> Vec<Int> {
        val.dims()[at..at + n].iter().map(|dim| analysis.axes.int(dim)).collect()
    };
    let outer = lengths(analysis, &a, 0, count).into_iter().zip(lengths(analysis, &b, 0, count));
    let outer = outer.map(|(a, b)| if a.as_number() == Some(1) { b } else { a }).collect();
    let rows = lengths(analysis, &a, count, left.len());
    let columns = lengths(analysis, &b, count + inner.len(), right.len());
    let a = as_matrix(analysis, node, a, count, [left.len(), inner.len()])?;
    let b = as_matrix(analysis, node, b, count, [inner.len(), right.len()])?;
    let mut val = apply(analysis, node, "MatMul", vec![], vec![a, b])?;
    if left.len() != 1 || right.len() != 1 {
        let shape = Literal::ints([outer, rows, columns].concat());
        val = apply(analysis, node, "Reshape", vec![], vec![val, Val::literal(shape)])?;
    }
    Ok((val, [shared, left, right].concat()))
}

/// Joins the axes after the first `count` into two: of `rows` axes and of `columns` axes.
fn as_matrix(
    analysis: &mut Analysis,
    node: &Node,
    val: Val,
    count: usize,
    [rows, columns]: [usize; 2],
) -> Result<Val, String> {
    if [rows, columns] == [1, 1] {
        return Ok(val);
    }
    let ints: Vec<Int> = val.dims().iter().map(|dim| analysis.axes.int(dim)).collect();
    let (outer, inside) = ints.split_at(count);
    let joined = |part: &[Int]| part.iter().fold(Int::number(1), |all, int| all.times(int));
    let mut shape = outer.to_vec();
    shape.extend([joined(&inside[..rows]), joined(&inside[rows..])]);
    apply(analysis, node, "Reshape", vec![], vec![val, Val::literal(Literal::ints(shape))])
}

/// The integers from 0 to `length` - 1, where `length` is a length of the request.
pub(super) fn range(analysis: &mut Analysis, node: &Node, length: &Int) -> Result<Val, String> {
    let one = Rc::new(Literal::Int(Array::scalar(Int::number(1)), ElementType::I64));
    let dims = vec![dim_of(length)?];
    let axis = Val::literal(Literal::Int(Array::scalar(Int::number(0)), ElementType::I64));
    let from_one =
        apply(analysis, node, "CumSum", vec![], vec![Val::Fill(one.clone(), dims.clone()), axis])?;
    let symbol = dims[0].as_symbol();
    if symbol == Some(BATCH) {
        return Err("it has as many numbers as the batch has sequences".to_owned());
    }
    let from_zero = apply(analysis, node, "Sub", vec![], vec![from_one, Val::Literal(one)])?;
    if let Some(op) = analysis.ops.last_mut() {
        op.counts = symbol;
    }
    Ok(from_zero)
}
