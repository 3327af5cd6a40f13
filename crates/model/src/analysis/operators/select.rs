//! Operators that choose elements or join them: gather, slice, split, concatenate.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::capture::step_of;
use crate::analysis::ids::try_limit_ids;
use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::split_sizes;
use crate::analysis::operators::arguments::{
    SliceBounds, axis_of, dim_of, input, is_to_end, numbers, slice_positions, uniform,
};
use crate::analysis::operators::broadcast::{Over, merge};
use crate::analysis::operators::layout::bind_to_one;
use crate::analysis::operators::sequence_op::first_rows_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val, View};
use crate::data::array::Array;
use crate::data::dim::{Dim, row_axis};
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;

/// `Gather`.
pub(crate) fn gather(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    gathered(analysis, node, inputs).map(|val| vec![val])
}

fn gathered(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let (data, indices) = (input(inputs, 0)?, input(inputs, 1)?);
    let dims = data.dims();
    let axis = axis_of(node.int("axis").unwrap_or(0), dims.len())?;
    let indices = match indices {
        Val::View(ids) => return embed(analysis, node, data, axis, ids),
        Val::Literal(literal) => literal.clone(),
        _ => return Err("its indices depend on the request".to_owned()),
    };
    if let (Val::View(view), Some([index])) = (data, indices.as_ints().map(|ints| &ints.data[..]))
        && let Some(mut view) = step_of(analysis, view, axis, index, true)?
    {
        view.dims.splice(axis..axis, indices.shape().iter().map(|_| Dim::fixed(1)));
        return Ok(Val::View(view));
    }
    let numbers = indices.as_numbers().ok_or("its indices depend on the request")?;
    let view = match data {
        Val::View(view) => view,
        Val::Literal(literal) => {
            let positions: Vec<usize> = numbers
                .iter()
                .map(|&n| axis_of(n, literal.shape()[axis]))
                .collect::<Result<_, _>>()?;
            let mut shape = literal.shape().to_vec();
            shape.splice(axis..=axis, indices.shape().iter().copied());
            analysis.afford(&shape)?;
            return Ok(Val::literal(literal.gathered(axis, &positions, indices.shape())));
        }
        Val::Fill(value, dims) => {
            let mut dims = dims.clone();
            dims.splice(axis..=axis, indices.shape().iter().map(|&n| Dim::fixed(n)));
            return Ok(Val::Fill(value.clone(), dims));
        }
        Val::Repeat(..) => return Err("it chooses of a repeated constant".to_owned()),
        Val::PerSequence(_) | Val::List(_) | Val::Unknown => return Ok(Val::Unknown),
    };
    if let Some(length) = analysis.fixed(&dims[axis]) {
        let positions = numbers
            .iter()
            .map(|&n| axis_of(n, length).map(|n| Int::number(n as i64)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut out = dims.clone();
        out.splice(axis..=axis, indices.shape().iter().map(|&n| Dim::fixed(n)));
        let at = 1 + row_axis(&dims, axis) as i64;
        let chosen = Array::new(indices.shape().to_vec(), positions);
        let operands = vec![
            analysis.operand(view),
            Operand::Constant(Rc::new(Literal::Int(chosen, ElementType::I64))),
        ];
        let attributes = vec![int_attribute("axis", at)];
        let outputs = vec![(view.element, out)];
        let vals = analysis.emit(node, "Gather", attributes, operands, outputs);
        return Ok(vals.into_iter().next().unwrap_or(Val::Unknown));
    }
    let [index] = numbers[..] else {
        return Err("it chooses several rows of batch or time".to_owned());
    };
    let chosen = choose(analysis, view, axis, index)?;
    let mut out = chosen.dims.clone();
    out.splice(axis..=axis, indices.shape().iter().map(|_| Dim::fixed(1)));
    Ok(Val::View(View { dims: out, ..chosen }))
}

/// Index `index` of an axis of batch or time; its dimension becomes 1.
fn choose(analysis: &mut Analysis, view: &View, axis: usize, index: i64) -> Result<View, String> {
    match view.dims[axis].as_symbol().map(|symbol| analysis.axes.find(symbol)) {
        Some(symbol) if symbol != BATCH && analysis.has_roles() => {
            Ok(analysis.select_time(view, axis, index))
        }
        Some(BATCH) if index == 0 || index == -1 => bind_to_one(analysis, view, axis),
        Some(_) if !analysis.has_roles() => {
            let mut view = view.clone();
            view.dims[axis] = Dim::fixed(1);
            Ok(view)
        }
        _ => {
            let shape = analysis.axes.show(&view.dims);
            Err(format!("it chooses rows along axis {axis} of {shape}"))
        }
    }
}

/// `Gather` from a constant table.
fn embed(
    analysis: &mut Analysis,
    node: &Node,
    table: &Val,
    axis: usize,
    ids: &View,
) -> Result<Val, String> {
    let Val::Literal(table) = table else {
        return Err("its indices depend on the request, and so does what they choose from".into());
    };
    if axis != 0 {
        return Err(format!("its indices depend on the request and choose along axis {axis}"));
    }
    let rows = table.shape()[0];
    let clamped = match try_limit_ids(analysis, ids, rows) || !analysis.has_roles() {
        true => ids.clone(),
        false => clamped(analysis, node, ids, rows)?,
    };
    let is_computed = analysis.range(clamped.source).is_known();
    let clamped = match is_computed && analysis.range(clamped.source).low < 0 {
        true => from_front(analysis, node, &clamped, rows)?,
        false => clamped,
    };
    let ids = &clamped;
    let mut out = ids.dims.clone();
    out.extend(table.shape()[1..].iter().map(|&n| Dim::fixed(n)));
    let operands = vec![Operand::Constant(table.clone()), analysis.operand(ids)];
    let attributes = vec![int_attribute("axis", 0)];
    let outputs = vec![(table.element(), out)];
    let vals = analysis.emit(node, "Gather", attributes, operands, outputs);
    Ok(vals.into_iter().next().unwrap_or(Val::Unknown))
}

/// Computed integers as indices of `rows` rows, for which every request is checked.
fn clamped(analysis: &mut Analysis, node: &Node, ids: &View, rows: usize) -> Result<View, String> {
    let rows = i64::try_from(rows).map_err(|_| "an axis beyond all reason")?;
    analysis.check_index(node, ids, &Int::number(rows))?;
    let element = ids.element;
    let bound =
        |n: i64| Operand::Constant(Rc::new(Literal::Int(Array::scalar(Int::number(n)), element)));
    let operands = vec![analysis.operand(ids), bound(-rows), bound(rows - 1)];
    let outputs = vec![(ids.element, ids.dims.clone())];
    match analysis.emit(node, "Clip", vec![], operands, outputs).pop() {
        Some(Val::View(view)) => Ok(view),
        _ => Err("it gives nothing".to_owned()),
    }
}

/// Indices of `rows` rows, of which those below 0 count from the end, as indices from the front.
fn from_front(
    analysis: &mut Analysis,
    node: &Node,
    ids: &View,
    rows: usize,
) -> Result<View, String> {
    let rows = Literal::Int(Array::scalar(Int::number(rows as i64)), ids.element);
    let operands = vec![analysis.operand(ids), Operand::Constant(Rc::new(rows))];
    let outputs = vec![(ids.element, ids.dims.clone())];
    let fmod = vec![int_attribute("fmod", 0)];
    match analysis.emit(node, "Mod", fmod, operands, outputs).pop() {
        Some(Val::View(view)) => Ok(view),
        _ => Err("it gives nothing".to_owned()),
    }
}

/// `Slice`.
pub(crate) fn slice(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    sliced(analysis, node, inputs).map(|val| vec![val])
}

fn sliced(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let val = input(inputs, 0)?;
    let SliceBounds { starts, ends, axes, steps } =
        SliceBounds::read(node, inputs, val.dims().len())?;
    let mut val = val.clone();
    for (i, &axis) in axes.iter().enumerate() {
        val = slice_axis(analysis, node, &val, axis, &starts[i], &ends[i], steps[i])?;
    }
    Ok(val)
}

fn slice_axis(
    analysis: &mut Analysis,
    node: &Node,
    val: &Val,
    axis: usize,
    start: &Int,
    end: &Int,
    step: i64,
) -> Result<Val, String> {
    let dims = val.dims();
    let dim = dims.get(axis).ok_or("an axis beyond its rank")?.clone();
    let length = analysis.axes.int(&dim);
    // The whole axis, whatever its length.
    let to_end = is_to_end(end, &length);
    if step == 1 && start.as_number() == Some(0) && to_end {
        return Ok(val.clone());
    }
    let is_one = step == 1 && end.minus(start).and_then(|n| n.as_number()) == Some(1);
    if let (true, Val::View(view)) = (is_one, val)
        && let Some(mut view) = step_of(analysis, view, axis, start, false)?
    {
        view.dims.insert(axis, Dim::fixed(1));
        return Ok(Val::View(view));
    }
    if let Some(length) = analysis.fixed(&dim) {
        let (Some(start), Some(end)) = (start.as_number(), end.as_number()) else {
            let Val::Literal(literal) = val else {
                return Err("its bounds depend on the request".to_owned());
            };
            return first_rows(analysis, node, literal, axis, (start, end, step));
        };
        let positions = slice_positions(length as i64, start, end, step)?;
        return take_positions(analysis, node, val, axis, &positions);
    }
    let Val::View(view) = val else {
        return Err("it cuts a constant along batch or time".to_owned());
    };
    let one = match (start.as_number(), end.as_number()) {
        (Some(-1), _) if to_end && step == 1 => Some(-1),
        (Some(start), Some(end)) if end.checked_sub(1) == Some(start) && end != 0 && step == 1 => {
            Some(start)
        }
        _ => None,
    };
    match one {
        Some(index) => choose(analysis, view, axis, index).map(Val::View),
        None => {
            let shape = analysis.axes.show(&dims);
            Err(format!("it takes a part of axis {axis} of {shape}"))
        }
    }
}

/// The first rows of a constant along `axis`: as many as an axis of the request is long.
fn first_rows(
    analysis: &mut Analysis,
    node: &Node,
    literal: &Rc<Literal>,
    axis: usize,
    (start, end, step): (&Int, &Int, i64),
) -> Result<Val, String> {
    let reason = || "its bounds depend on the request".to_owned();
    let along = dim_of(end)?;
    let symbol = along.as_symbol().filter(|_| start.as_number() == Some(0) && step == 1);
    let symbol = symbol.ok_or_else(reason)?;
    if symbol == BATCH {
        return Err(reason());
    }
    analysis.limit_steps(symbol, 1, literal.shape()[axis]);
    let mut dims: Vec<Dim> = literal.shape().iter().map(|&n| Dim::fixed(n)).collect();
    dims[axis] = along;
    first_rows_of(analysis, node, literal, axis, dims)
}

/// The given positions of an axis that rows hold.
pub(crate) fn take_positions(
    analysis: &mut Analysis,
    node: &Node,
    val: &Val,
    axis: usize,
    positions: &[usize],
) -> Result<Val, String> {
    let mut dims = val.dims();
    let old = dims.clone();
    dims[axis] = Dim::fixed(positions.len());
    if positions.is_empty() && !matches!(val, Val::Literal(_)) {
        return Err("it leaves nothing of an axis".to_owned());
    }
    match val {
        Val::Literal(literal) => {
            analysis.afford(literal.shape())?;
            Ok(Val::literal(literal.gathered(axis, positions, &[positions.len()])))
        }
        Val::Fill(value, _) => Ok(Val::Fill(value.clone(), dims)),
        Val::Repeat(literal, _) => {
            let once = literal.gathered(axis, positions, &[positions.len()]);
            Ok(Val::repeated(Rc::new(once), dims))
        }
        Val::PerSequence(_) | Val::List(_) | Val::Unknown => Ok(Val::Unknown),
        Val::View(view) => {
            let row = row_axis(&old, axis) as i64;
            let contiguous = positions.windows(2).all(|pair| pair[1] == pair[0] + 1);
            let vector = |ns: Vec<i64>| {
                let ints = ns.into_iter().map(Int::number).collect();
                Operand::Constant(Rc::new(Literal::ints(ints)))
            };
            let outputs = vec![(view.element, dims)];
            let rows = analysis.operand(view);
            let vals = if contiguous {
                let start = positions[0] as i64;
                let end = start + positions.len() as i64;
                let operands =
                    vec![rows, vector(vec![start]), vector(vec![end]), vector(vec![1 + row])];
                analysis.emit(node, "Slice", vec![], operands, outputs)
            } else {
                let positions = positions.iter().map(|&n| n as i64).collect();
                let attributes = vec![int_attribute("axis", 1 + row)];
                analysis.emit(node, "Gather", attributes, vec![rows, vector(positions)], outputs)
            };
            Ok(vals.into_iter().next().unwrap_or(Val::Unknown))
        }
    }
}

/// `Split`.
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
    let mut start = 0;
    let mut parts = Vec::new();
    for (output, size) in sizes.into_iter().enumerate() {
        if node.output(output).is_some() {
            let positions: Vec<usize> = (start..start + size).collect();
            parts.push(take_positions(analysis, node, val, axis, &positions)?);
        } else {
            parts.push(Val::Unknown);
        }
        start += size;
    }
    Ok(parts)
}

/// `Concat`.
pub(crate) fn concat(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    concatenated(analysis, node, inputs).map(|val| vec![val])
}

fn concatenated(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let vals: Vec<&Val> = inputs.iter().flatten().collect();
    let first = vals.first().ok_or("it has no inputs")?;
    let rank = first.dims().len();
    let axis = axis_of(node.int("axis").ok_or("it has no axis")?, rank)?;
    let literals: Vec<&Literal> = vals
        .iter()
        .filter_map(|val| match val {
            Val::Literal(literal) => Some(&**literal),
            _ => None,
        })
        .collect();
    if literals.len() == vals.len() {
        let count = |literal: &&Literal| literal.shape().iter().product::<usize>();
        analysis.afford(&[literals.iter().map(count).fold(0, usize::saturating_add)])?;
        let joined = Literal::concatenated(&literals, axis).ok_or("its inputs do not fit")?;
        return Ok(Val::literal(joined));
    }
    let scalar = |val: &Val| match val {
        Val::Fill(value, _) => Some(value.clone()),
        Val::Literal(literal) => uniform(literal).map(Rc::new),
        _ => None,
    };
    let same = scalar(first).filter(|one| vals.iter().all(|v| scalar(v).as_ref() == Some(one)));
    let mut out = first.dims();
    let mut length = 0_usize;
    for val in &vals {
        let dims = val.dims();
        if dims.len() != rank {
            return Err("its inputs differ in rank".to_owned());
        }
        let part = analysis.need_fixed(&dims[axis], "joins along")?;
        length = length.checked_add(part).ok_or("its inputs are too long together")?;
        for other in (0..rank).filter(|&other| other != axis) {
            merge(analysis, &mut out[other], &dims[other], Over::Rows)?;
        }
    }
    out[axis] = Dim::fixed(length);
    if let Some(value) = same {
        return Ok(Val::Fill(value, out));
    }
    let element = first.element().ok_or("its inputs do not fit")?;
    let mut operands = Vec::new();
    for val in &vals {
        match val {
            Val::View(view) => operands.push(analysis.operand(view)),
            _ => return Err("it joins constants and rows".to_owned()),
        }
    }
    let attributes = vec![int_attribute("axis", 1 + row_axis(&out, axis) as i64)];
    let vals = analysis.emit(node, "Concat", attributes, operands, vec![(element, out)]);
    Ok(vals.into_iter().next().unwrap_or(Val::Unknown))
}
