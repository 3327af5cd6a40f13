//! Reads the inputs and attributes of a node.

use std::rc::Rc;

use crate::analysis::operator::Inputs;
use crate::analysis::value::{Val, View};
use crate::data::array::Array;
use crate::data::dim::{Dim, Factor};
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::node::Node;

pub(crate) fn input(inputs: &Inputs, index: usize) -> Result<&Val, String> {
    let found = inputs.get(index).and_then(Option::as_ref);
    found.ok_or_else(|| format!("its input {index} is missing"))
}

/// The axis `axis` of a tensor of rank `rank`, counted from the front.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Result<usize, String> {
    let from_front = if axis < 0 { axis + rank as i64 } else { axis };
    let found = usize::try_from(from_front).ok().filter(|&axis| axis < rank);
    found.ok_or_else(|| format!("axis {axis} of a tensor of rank {rank}"))
}

/// Input `index`, which must depend on the request.
pub(crate) fn view(inputs: &Inputs, index: usize) -> Result<&View, String> {
    match input(inputs, index)? {
        Val::View(view) => Ok(view),
        _ => Err(format!("its input {index} does not depend on the request")),
    }
}

/// Input `index`, called `name`, which must be constant.
pub(crate) fn constant_input(
    inputs: &Inputs,
    index: usize,
    name: &str,
) -> Result<Rc<Literal>, String> {
    match input(inputs, index)? {
        Val::Literal(literal) if literal.data().is_some() => Ok(literal.clone()),
        _ => Err(format!("its {name} is not constant")),
    }
}

/// The most axes that a tensor may have.
pub(crate) const RANK_MAX: usize = 64;

/// The integers of an input that is a constant vector or scalar.
pub(crate) fn int_list(inputs: &Inputs, index: usize) -> Option<Vec<Int>> {
    match inputs.get(index)?.as_ref()? {
        Val::Literal(literal) => Some(literal.as_ints()?.data.clone()),
        _ => None,
    }
}

/// Plain numbers, from an attribute (older opsets) or a constant input.
pub(crate) fn numbers(
    node: &Node,
    attribute: &str,
    inputs: &Inputs,
    index: usize,
) -> Result<Option<Vec<i64>>, String> {
    if let Some(values) = node.ints(attribute) {
        return match values.len() > RANK_MAX {
            true => Err(format!("{} {attribute}", values.len())),
            false => Ok(Some(values.to_vec())),
        };
    }
    if inputs.get(index).is_none_or(Option::is_none) {
        return Ok(None);
    }
    let ints = int_list(inputs, index).ok_or_else(|| format!("its {attribute} is not constant"))?;
    if ints.len() > RANK_MAX {
        return Err(format!("{} {attribute}", ints.len()));
    }
    let numbers: Option<Vec<i64>> = ints.iter().map(Int::as_number).collect();
    numbers.map(Some).ok_or_else(|| format!("its {attribute} depends on the request"))
}

/// A literal of one element, without axes.
pub(crate) fn scalar(literal: &Literal) -> Option<Literal> {
    (literal.shape().iter().product::<usize>() == 1).then(|| literal.reshaped(&[]))
}

pub(crate) fn dim_of(int: &Int) -> Result<Dim, String> {
    let (number, symbols) = int.as_product().ok_or("a length that is a sum")?;
    let number = usize::try_from(number).map_err(|_| "a negative length".to_owned())?;
    let mut dim = Dim(symbols.iter().map(|&symbol| Factor::Symbol(symbol)).collect());
    dim.push(Factor::Fixed(number));
    Ok(dim)
}

/// The number of elements of a tensor of this shape; none where it overflows.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |count, &length| count.checked_mul(length))
}

/// The element that all elements are equal to, if there is one.
pub(crate) fn uniform(literal: &Literal) -> Option<Literal> {
    fn same<T: PartialEq + Clone>(array: &Array<T>) -> Option<Array<T>> {
        let first = array.data.first()?;
        array.data.iter().all(|x| x == first).then(|| Array::scalar(first.clone()))
    }
    Some(match literal {
        Literal::F32(array) => Literal::F32(same(array)?),
        Literal::Int(array, element) => Literal::Int(same(array)?, *element),
        Literal::Whole(array, element) => Literal::Whole(same(array)?, *element),
        Literal::Bool(array) => Literal::Bool(same(array)?),
    })
}

/// The order of axes that a `Transpose` of a tensor of rank `rank` gives.
pub(crate) fn permutation(node: &Node, rank: usize) -> Result<Vec<usize>, String> {
    let order: Vec<usize> = match node.ints("perm") {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    match sorted == (0..rank).collect::<Vec<_>>() {
        true => Ok(order),
        false => Err(format!("perm {order:?} of a tensor of rank {rank}")),
    }
}

/// An end of a slice that no axis reaches.
const BEYOND: i64 = 1 << 28;

/// Whether a slice that ends at `end` takes an axis of `length` to its end.
pub(crate) fn is_to_end(end: &Int, length: &Int) -> bool {
    end == length || end.as_number().is_some_and(|n| n >= BEYOND)
}

/// The bounds of a `Slice`, with one entry for each axis that it cuts.
pub(crate) struct SliceBounds {
    pub(crate) starts: Vec<Int>,
    pub(crate) ends: Vec<Int>,
    pub(crate) axes: Vec<usize>,
    pub(crate) steps: Vec<i64>,
}

impl SliceBounds {
    pub(crate) fn read(node: &Node, inputs: &Inputs, rank: usize) -> Result<Self, String> {
        let list = |name: &str, index| -> Result<Vec<Int>, String> {
            if let Some(values) = node.ints(name) {
                return Ok(values.iter().map(|&n| Int::number(n)).collect());
            }
            int_list(inputs, index).ok_or_else(|| format!("its {name} are not constant"))
        };
        let (starts, ends) = (list("starts", 1)?, list("ends", 2)?);
        let axes = match numbers(node, "axes", inputs, 3)? {
            Some(axes) => axes.iter().map(|&a| axis_of(a, rank)).collect::<Result<Vec<_>, _>>()?,
            None => (0..starts.len()).collect(),
        };
        let steps = numbers(node, "steps", inputs, 4)?.unwrap_or(vec![1; starts.len()]);
        if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
            return Err("its starts, ends, axes and steps differ in number".to_owned());
        }
        Ok(Self { starts, ends, axes, steps })
    }
}

/// The sizes of the parts of an axis of `length` that a `Split` gives.
pub(crate) fn split_sizes(
    node: &Node,
    given: Option<Vec<i64>>,
    length: usize,
) -> Result<Vec<usize>, String> {
    let sizes: Vec<usize> = match given {
        Some(sizes) => sizes.iter().map(|&n| n.max(0) as usize).collect(),
        None => {
            let parts = node.outputs.len().max(1);
            let size = length.div_ceil(parts);
            (0..parts)
                .map(|part| size.min(length.saturating_sub(part.saturating_mul(size))))
                .collect()
        }
    };
    let sum = sizes.iter().copied().fold(0, usize::saturating_add);
    match sum == length && sizes.len() >= node.outputs.len() {
        true => Ok(sizes),
        false => Err(format!("parts of {sizes:?} of an axis of length {length}")),
    }
}

/// The longest axis whose positions are listed.
pub(crate) const LENGTH_MAX: i64 = 1 << 22;

/// The positions that ONNX `Slice` chooses of an axis.
pub(crate) fn slice_positions(
    length: i64,
    start: i64,
    end: i64,
    step: i64,
) -> Result<Vec<usize>, String> {
    let from_front = |n: i64| if n < 0 { n.saturating_add(length) } else { n };
    let (mut at, last) = match step {
        _ if length == 0 => return Ok(Vec::new()),
        _ if length > LENGTH_MAX => return Err(format!("an axis of length {length}")),
        0 => return Err("a step of 0".to_owned()),
        1.. => (from_front(start).clamp(0, length), from_front(end).clamp(0, length)),
        _ => (from_front(start).clamp(0, length - 1), from_front(end).clamp(-1, length - 1)),
    };
    let mut positions = Vec::new();
    while (step > 0 && at < last) || (step < 0 && at > last) {
        positions.push(at as usize);
        at = at.saturating_add(step);
    }
    Ok(positions)
}
