//! `Einsum` as one matrix product.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::input;
use crate::analysis::operators::dispatch::apply;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::{int_attribute, ints_attribute};
use crate::file::node::Node;

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
