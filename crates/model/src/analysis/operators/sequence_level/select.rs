//! Operators that choose elements by indices, or put elements where indices say.
//!
//! Indices that are computed are clamped, and the request is checked for them (`analysis/checks.rs`).

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, input, numbers, split_sizes};
use crate::analysis::operators::dispatch::apply;
use crate::analysis::operators::sequence_op::{
    SequenceOp, has_batch, ints, lengths, materialised, operand, tensor,
};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val, View};
use crate::data::array::Array;
use crate::data::dim::Dim;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::{int_attribute, string_attribute};
use crate::file::node::Node;

/// An operator whose output is computed element by element from tensors of the same dimensions, or of one number.
fn add_elementwise(
    analysis: &mut Analysis,
    node: &Node,
    operator: &str,
    operands: Vec<Operand>,
    (element, dims): (ElementType, Vec<Dim>),
) -> Result<View, String> {
    let op = SequenceOp {
        operator: operator.to_owned(),
        attributes: vec![],
        operands,
        outputs: vec![(element, dims)],
        is_independent: true,
        is_along_first: false,
    };
    match op.add(analysis, node)?.pop() {
        Some(Val::View(view)) => Ok(view),
        _ => Err("it gives nothing".to_owned()),
    }
}

/// Computed indices of axes of `lengths` (one of all indices, or one for each along the last axis), clamped.
fn clamped(analysis: &mut Analysis, node: &Node, ids: &View, of: &[Int]) -> Result<View, String> {
    let of_type = (ids.element, ids.dims.clone());
    let is_scalar = ids.dims.is_empty();
    let wide = if is_scalar { vec![Dim::fixed(1)] } else { ids.dims.clone() };
    let highest = of.iter().map(|int| int.minus(&Int::number(1)));
    let highest: Vec<Int> = highest.collect::<Option<_>>().ok_or("an axis beyond all reason")?;
    let lowest = of.iter().map(|int| int.times(&Int::number(-1))).collect();
    let mut view = ids.clone();
    for (operator, bounds) in [("Max", lowest), ("Min", highest)] {
        let operands = [vec![tensor(&view)], lengths(bounds)].concat();
        let kind = (ids.element, wide.clone());
        view = add_elementwise(analysis, node, operator, operands, kind)?;
    }
    if is_scalar {
        let operands = vec![tensor(&view), ints([])];
        view = add_elementwise(analysis, node, "Reshape", operands, of_type)?;
    }
    match of {
        [length] => analysis.check_index(node, ids, length)?,
        _ => {
            let operands = vec![tensor(ids), tensor(&view)];
            let kind = (ids.element, wide);
            let excess = add_elementwise(analysis, node, "Sub", operands, kind)?;
            analysis.check_zero(node, &excess)?;
        }
    }
    Ok(view)
}

/// Constant indices of an axis of `length`: a request is as long as they need.
fn constant_indices(
    analysis: &mut Analysis,
    indices: impl Iterator<Item = i64>,
    dim: &Dim,
) -> Result<(), String> {
    let length = analysis.axes.int(dim).as_number();
    for index in indices {
        let needed = if index < 0 { index.checked_neg() } else { index.checked_add(1) };
        let needed = needed.and_then(|n| usize::try_from(n).ok()).ok_or("an index out of range")?;
        match (length, dim.as_symbol()) {
            (Some(length), _) if needed as i64 <= length => {}
            (None, Some(symbol)) => analysis.limit_steps(symbol, needed, usize::MAX),
            _ if !analysis.has_roles() => {}
            _ => {
                let shape = analysis.axes.show(std::slice::from_ref(dim));
                return Err(format!("index {index} of an axis of {shape}"));
            }
        }
    }
    Ok(())
}

/// Indices of an axis as an operand that surely has none out of range.
fn indices(analysis: &mut Analysis, node: &Node, ids: &Val, dim: &Dim) -> Result<Operand, String> {
    let length = analysis.axes.int(dim);
    match ids {
        Val::Literal(literal) => match literal.as_numbers() {
            Some(numbers) => {
                constant_indices(analysis, numbers.into_iter(), dim)?;
                Ok(Operand::Constant(literal.clone()))
            }
            None => {
                let ints = literal.as_ints().ok_or("its indices are no integers")?;
                for int in &ints.data {
                    let from_end = int.minus(&length).and_then(|int| int.as_number());
                    let index = int.as_number().or(from_end.filter(|&index| index < 0));
                    let index = index.ok_or("its indices are lengths of the request")?;
                    constant_indices(analysis, [index].into_iter(), dim)?;
                }
                operand(ids)
            }
        },
        Val::View(view) if analysis.is_index(view.source, &length) || !analysis.has_roles() => {
            Ok(tensor(view))
        }
        Val::View(view) => Ok(tensor(&clamped(analysis, node, view, &[length])?)),
        _ => Err("its indices are repeated along batch or time".to_owned()),
    }
}

fn is_made(val: &Val) -> bool {
    matches!(val, Val::View(_))
}

/// `Gather`.
pub(crate) fn gather(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let inputs = materialised(analysis, node, inputs)?;
    let (data, ids) = (input(&inputs, 0)?, input(&inputs, 1)?);
    let dims = data.dims();
    let axis = axis_of(node.int("axis").unwrap_or(0), dims.len())?;
    let chosen = indices(analysis, node, ids, &dims[axis])?;
    let mut out = dims.clone();
    out.splice(axis..=axis, ids.dims());
    let op = SequenceOp {
        operator: "Gather".to_owned(),
        attributes: vec![int_attribute("axis", axis as i64)],
        operands: [vec![operand(data)?, chosen.clone()], lengths_of(&chosen)].concat(),
        outputs: vec![(data.element().ok_or("it has no data")?, out)],
        is_independent: !has_batch(&dims[axis..=axis]),
        is_along_first: axis != 0 && is_made(data) && !is_made(ids),
    };
    op.add(analysis, node)
}

/// The operands that make known the lengths which an operand holds.
fn lengths_of(operand: &Operand) -> Vec<Operand> {
    match operand {
        Operand::Lengths(ints) => lengths(ints.clone()).split_off(1),
        _ => Vec::new(),
    }
}

/// Whether all values that depend on the batch have it as their axis `axis`, and nothing else has that axis.
fn share_batch(vals: &[&Val]) -> bool {
    let axis_of_batch = |val: &&&Val| {
        let dims = val.dims();
        (0..dims.len()).find(|&axis| has_batch(&dims[axis..=axis]))
    };
    let axes: Vec<_> = vals.iter().map(|val| axis_of_batch(&val)).collect();
    axes.windows(2).all(|pair| pair[0] == pair[1])
}

/// `GatherElements`.
pub(crate) fn gather_elements(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let inputs = materialised(analysis, node, inputs)?;
    let (data, ids) = (input(&inputs, 0)?, input(&inputs, 1)?);
    let dims = data.dims();
    let axis = axis_of(node.int("axis").unwrap_or(0), dims.len())?;
    if ids.dims().len() != dims.len() {
        return Err("its indices have another rank than its data".to_owned());
    }
    let chosen = indices(analysis, node, ids, &dims[axis])?;
    let op = SequenceOp {
        operator: "GatherElements".to_owned(),
        attributes: vec![int_attribute("axis", axis as i64)],
        operands: vec![operand(data)?, chosen],
        outputs: vec![(data.element().ok_or("it has no data")?, ids.dims())],
        is_independent: share_batch(&[data, ids]) && !has_batch(&dims[axis..=axis]),
        is_along_first: axis != 0 && is_made(data) && is_made(ids),
    };
    op.add(analysis, node)
}

/// Indices of several axes at once, along their last axis: those of `dims` from axis `first` on.
fn index_vectors(
    analysis: &mut Analysis,
    node: &Node,
    ids: &Val,
    dims: &[Dim],
    first: usize,
) -> Result<(Operand, usize), String> {
    let count = ids.dims().last().cloned().ok_or("its indices have no axes")?;
    let count = analysis.need_fixed(&count, "indexes along")?;
    let of =
        dims.get(first..first + count).ok_or("its indices have more parts than its data axes")?;
    let ids = match ids {
        Val::Literal(literal) => {
            let numbers = literal.as_numbers().ok_or("its indices are lengths of the request")?;
            for (part, dim) in of.iter().enumerate() {
                let of_part = numbers.iter().copied().skip(part).step_by(count.max(1));
                constant_indices(analysis, of_part, dim)?;
            }
            Operand::Constant(literal.clone())
        }
        Val::View(view) => {
            let of: Vec<Int> = of.iter().map(|dim| analysis.axes.int(dim)).collect();
            let is_known = of.iter().all(|length| analysis.is_index(view.source, length));
            match is_known || !analysis.has_roles() {
                true => tensor(view),
                false => tensor(&clamped(analysis, node, view, &of)?),
            }
        }
        _ => return Err("its indices are repeated along batch or time".to_owned()),
    };
    Ok((ids, count))
}

/// `GatherND`.
pub(crate) fn gather_nd(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let inputs = materialised(analysis, node, inputs)?;
    let (data, ids) = (input(&inputs, 0)?, input(&inputs, 1)?);
    let shared = node.int("batch_dims").unwrap_or(0);
    let shared = usize::try_from(shared).map_err(|_| "batch_dims below 0")?;
    let dims = data.dims();
    let (chosen, count) = index_vectors(analysis, node, ids, &dims, shared)?;
    let mut out = ids.dims();
    out.pop();
    out.extend_from_slice(&dims[shared + count..]);
    let is_inside = |val: &Val| has_batch(val.dims().get(shared..).unwrap_or(&[]));
    let op = SequenceOp {
        operator: "GatherND".to_owned(),
        attributes: vec![int_attribute("batch_dims", shared as i64)],
        operands: vec![operand(data)?, chosen],
        outputs: vec![(data.element().ok_or("it has no data")?, out)],
        is_independent: !has_batch(&dims)
            || (share_batch(&[data, ids]) && !is_inside(data) && !is_inside(ids)),
        is_along_first: shared > 0 && is_made(data) && is_made(ids),
    };
    op.add(analysis, node)
}

/// `ScatterElements` (`Scatter` before opset 11).
pub(crate) fn scatter_elements(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let inputs = materialised(analysis, node, inputs)?;
    let (data, ids, updates) = (input(&inputs, 0)?, input(&inputs, 1)?, input(&inputs, 2)?);
    let dims = data.dims();
    let axis = axis_of(node.int("axis").unwrap_or(0), dims.len())?;
    if [ids, updates].iter().any(|val| val.dims().len() != dims.len()) {
        return Err("its indices or updates have another rank than its data".to_owned());
    }
    let places = indices(analysis, node, ids, &dims[axis])?;
    let vals = [data, ids, updates];
    let op = SequenceOp {
        operator: "ScatterElements".to_owned(),
        attributes: vec![int_attribute("axis", axis as i64), reduction(node)],
        operands: vec![operand(data)?, places, operand(updates)?],
        outputs: vec![(data.element().ok_or("it has no data")?, dims.clone())],
        is_independent: share_batch(&vals) && !has_batch(&dims[axis..=axis]),
        is_along_first: axis != 0 && vals.iter().all(|val| is_made(val)),
    };
    op.add(analysis, node)
}

/// `ScatterND`.
pub(crate) fn scatter_nd(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let inputs = materialised(analysis, node, inputs)?;
    let (data, ids, updates) = (input(&inputs, 0)?, input(&inputs, 1)?, input(&inputs, 2)?);
    let dims = data.dims();
    let (places, _) = index_vectors(analysis, node, ids, &dims, 0)?;
    let op = SequenceOp {
        operator: "ScatterND".to_owned(),
        attributes: vec![reduction(node)],
        operands: vec![operand(data)?, places, operand(updates)?],
        outputs: vec![(data.element().ok_or("it has no data")?, dims.clone())],
        is_independent: ![data, ids, updates].iter().any(|val| has_batch(&val.dims())),
        is_along_first: false,
    };
    op.add(analysis, node)
}

fn reduction(node: &Node) -> rten_onnx::onnx::AttributeProto {
    string_attribute("reduction", node.string("reduction").unwrap_or("none"))
}

/// `Split`, as slices.
pub(crate) fn split(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let val = input(inputs, 0)?;
    let dims = val.dims();
    let axis = axis_of(node.int("axis").unwrap_or(0), dims.len())?;
    let length = analysis.need_fixed(&dims[axis], "splits")?;
    let sizes = split_sizes(node, numbers(node, "split", inputs, 1)?, length)?;
    let vector = |n: usize| Val::literal(Literal::ints(vec![Int::number(n as i64)]));
    let mut start = 0;
    let mut parts = Vec::new();
    for size in sizes {
        let bounds = [start, start + size, axis].map(vector);
        let inputs = [vec![val.clone()], bounds.to_vec()].concat();
        parts.push(apply(analysis, node, "Slice", vec![], inputs)?);
        start += size;
    }
    Ok(parts)
}

/// `TopK` along an axis that may vary, of as many elements as the request has at least.
pub(crate) fn top_k(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let Val::View(x) = input(inputs, 0)? else {
        return Err("a computation on constants that is not folded".to_owned());
    };
    let axis = axis_of(node.int("axis").unwrap_or(-1), x.dims.len())?;
    let dim = x.dims[axis].clone();
    let length = analysis.axes.int(&dim);
    let k = match inputs.get(1) {
        Some(Some(Val::Literal(k))) => k.as_ints().and_then(|k| k.data.first().cloned()),
        Some(Some(_)) => None,
        _ => node.int("k").map(Int::number),
    };
    let k = k.ok_or("its k is computed")?;
    let mut out = x.dims.clone();
    if k != length {
        let number = k.as_number().filter(|&k| k > 0).ok_or("its k depends on the request")?;
        constant_indices(analysis, [number - 1].into_iter(), &dim)?;
        out[axis] = Dim::fixed(number as usize);
    }
    let op = SequenceOp {
        operator: "TopK".to_owned(),
        attributes: vec![
            int_attribute("axis", axis as i64),
            int_attribute("largest", node.int("largest").unwrap_or(1)),
            int_attribute("sorted", node.int("sorted").unwrap_or(1)),
        ],
        operands: [vec![tensor(x)], lengths(vec![k])].concat(),
        outputs: vec![(x.element, out.clone()), (ElementType::I64, out)],
        is_independent: !has_batch(&x.dims[axis..=axis]),
        is_along_first: false,
    };
    op.add(analysis, node)
}

/// `NonZero` of a constant.
pub(crate) fn non_zero(_: &mut Analysis, _: &Node, inputs: &Inputs) -> Result<Vec<Val>, String> {
    let Val::Literal(literal) = input(inputs, 0)? else {
        return Err("how many elements it finds depends on the request's data".to_owned());
    };
    let is_set: Vec<bool> = match &**literal {
        Literal::F32(array) | Literal::Whole(array, _) => {
            array.data.iter().map(|&x| x != 0.0).collect()
        }
        Literal::Bool(array) => array.data.clone(),
        Literal::Int(..) => {
            let numbers = literal.as_numbers().ok_or("its input depends on the request")?;
            numbers.iter().map(|&n| n != 0).collect()
        }
    };
    let shape = literal.shape();
    let places: Vec<usize> = (0..is_set.len()).filter(|&at| is_set[at]).collect();
    let index_along = |axis: usize| {
        let inner: usize = shape[axis + 1..].iter().product();
        let length = shape[axis];
        places.iter().map(move |place| Int::number((place / inner % length) as i64))
    };
    let data = (0..shape.len()).flat_map(index_along).collect();
    let found = Array::new(vec![shape.len(), places.len()], data);
    Ok(vec![Val::Literal(Rc::new(Literal::Int(found, ElementType::I64)))])
}
