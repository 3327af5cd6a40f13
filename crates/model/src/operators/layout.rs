//! Operators that move elements: most of them change only how rows are looked at.

use std::rc::Rc;

use batchmaker_graph::ElementType;
use rten_onnx::onnx::DataType;

use super::{Inputs, axis_of, fold, input, int_attribute, ints_attribute};
use crate::analysis::{Analysis, Operand, Source, Val, View};
use crate::array::Array;
use crate::literal::Literal;
use crate::onnx_file::{Node, element_type};
use crate::symbolic::{BATCH, Dim, Factor, Int, TIME, row_axis, row_shape};

pub(super) const OPERATORS: &[&str] = &[
    "Cast",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Range",
    "Reshape",
    "Shape",
    "Size",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

pub(super) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let one = |val: Val| Ok(vec![val]);
    match node.operator.as_str() {
        "Identity" => one(input(inputs, 0)?.clone()),
        "Dropout" => dropout(node, inputs),
        "Constant" => one(Val::literal(constant(node)?)),
        "ConstantOfShape" => one(constant_of_shape(node, inputs)?),
        "Range" => one(range(inputs)?),
        "Shape" => one(shape(analysis, node, inputs)?),
        "Size" => {
            let dims = input(inputs, 0)?.dims();
            let ints = dims.iter().map(|dim| analysis.axes.int(dim));
            let size = ints.fold(Int::number(1), |size, int| size.times(&int));
            one(Val::literal(Literal::Int(Array::scalar(size), ElementType::I64)))
        }
        "Cast" => one(cast(analysis, node, inputs)?),
        "Transpose" => one(transpose(analysis, node, input(inputs, 0)?)?),
        "Reshape" => {
            let target = int_list(inputs, 1).ok_or("its shape is not constant")?;
            let keep_zero = node.int("allowzero").unwrap_or(0) != 0;
            one(reshape(analysis, input(inputs, 0)?, target, keep_zero)?)
        }
        "Flatten" => one(flatten(node, input(inputs, 0)?)?),
        "Squeeze" => one(squeeze(analysis, node, inputs)?),
        "Unsqueeze" => one(unsqueeze(node, inputs)?),
        "Expand" => one(expand(analysis, node, inputs)?),
        "Gather" => one(gather(analysis, node, inputs)?),
        "Slice" => one(slice(analysis, node, inputs)?),
        "Split" => split(analysis, node, inputs),
        "Concat" => one(concat(analysis, node, inputs)?),
        other => Err(format!("{other} is not supported")),
    }
}

/// The integers of an input that is a constant vector or scalar.
pub(super) fn int_list(inputs: &Inputs, index: usize) -> Option<Vec<Int>> {
    match inputs.get(index)?.as_ref()? {
        Val::Literal(literal) => Some(literal.as_ints()?.data.clone()),
        _ => None,
    }
}

/// Plain numbers, from an attribute (older opsets) or a constant input.
pub(super) fn numbers(
    node: &Node,
    attribute: &str,
    inputs: &Inputs,
    index: usize,
) -> Result<Option<Vec<i64>>, String> {
    if let Some(values) = node.ints(attribute) {
        return Ok(Some(values.to_vec()));
    }
    if inputs.get(index).is_none_or(Option::is_none) {
        return Ok(None);
    }
    let ints = int_list(inputs, index).ok_or_else(|| format!("its {attribute} is not constant"))?;
    let numbers: Option<Vec<i64>> = ints.iter().map(Int::as_number).collect();
    numbers.map(Some).ok_or_else(|| format!("its {attribute} depends on the request"))
}

/// The same value under other dimensions that hold the same elements in the same order.
fn relabelled(val: &Val, dims: Vec<Dim>) -> Result<Val, String> {
    match val {
        Val::View(view) => Ok(Val::View(View { dims, ..view.clone() })),
        Val::Fill(value, _) => Ok(Val::Fill(value.clone(), dims)),
        Val::Literal(literal) => {
            let shape: Vec<usize> = dims.iter().map(Dim::fixed_part).collect();
            if dims.iter().any(|dim| dim.atoms().next().is_some()) {
                return Err("a constant takes a shape that depends on the request".to_owned());
            }
            Ok(Val::literal(literal.reshaped(&shape)))
        }
        Val::Unknown => Ok(Val::Unknown),
    }
}

fn dropout(node: &Node, inputs: &Inputs) -> Result<Vec<Val>, String> {
    if let Some(Some(Val::Literal(training))) = inputs.get(2)
        && training.as_bools().is_some_and(|bits| bits.data.contains(&true))
    {
        return Err("training mode".to_owned());
    }
    if node.output(1).is_some() {
        return Err("its output `mask` is not supported".to_owned());
    }
    Ok(vec![input(inputs, 0)?.clone()])
}

fn constant(node: &Node) -> Result<Literal, String> {
    if let Some(literal) = node.tensor("value") {
        return literal;
    }
    let int = |n: &i64| Int::number(*n);
    if let Some(n) = node.int("value_int") {
        return Ok(Literal::Int(Array::scalar(int(&n)), ElementType::I64));
    }
    if let Some(ns) = node.ints("value_ints") {
        return Ok(Literal::ints(ns.iter().map(int).collect()));
    }
    if let Some(x) = node.float("value_float") {
        return Ok(Literal::F32(Array::scalar(x)));
    }
    if let Some(xs) = node.floats("value_floats") {
        return Ok(Literal::F32(Array::vector(xs.to_vec())));
    }
    Err("its value is not supported".to_owned())
}

fn constant_of_shape(node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let shape = int_list(inputs, 0).ok_or("its shape is not constant")?;
    let value = match node.tensor("value") {
        Some(literal) => literal?.reshaped(&[]),
        None => Literal::F32(Array::scalar(0.0)),
    };
    let dims = shape.iter().map(dim_of).collect::<Result<Vec<_>, _>>()?;
    let numbers: Option<Vec<usize>> =
        shape.iter().map(|int| usize::try_from(int.as_number()?).ok()).collect();
    match numbers {
        Some(shape) if count(&shape).is_some_and(|n| n <= 4096) => {
            Ok(Val::literal(value.expanded(&shape)))
        }
        _ => Ok(Val::Fill(Rc::new(value), dims)),
    }
}

fn dim_of(int: &Int) -> Result<Dim, String> {
    let number = usize::try_from(int.number).map_err(|_| "a negative length".to_owned())?;
    let mut dim = Dim(int.atoms.iter().map(|&atom| Factor::Atom(atom)).collect());
    dim.push(Factor::Fixed(number));
    Ok(dim)
}

/// The elements of a shape.
fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |count, &length| count.checked_mul(length))
}

fn range(inputs: &Inputs) -> Result<Val, String> {
    let number = |index| {
        let ints = int_list(inputs, index)?;
        ints.first()?.as_number()
    };
    let (Some(start), Some(limit), Some(delta)) = (number(0), number(1), number(2)) else {
        return Err("its bounds depend on the request".to_owned());
    };
    let count = if delta == 0 { 0 } else { (limit - start + delta - delta.signum()) / delta };
    let values = (0..count.clamp(0, 1 << 20)).map(|i| Int::number(start + i * delta));
    Ok(Val::literal(Literal::ints(values.collect())))
}

fn shape(analysis: &Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let dims = input(inputs, 0)?.dims();
    let rank = dims.len() as i64;
    let clamp = |n: i64| (if n < 0 { n + rank } else { n }).clamp(0, rank) as usize;
    let start = clamp(node.int("start").unwrap_or(0));
    let end = clamp(node.int("end").unwrap_or(rank)).max(start);
    let ints = dims[start..end].iter().map(|dim| analysis.axes.int(dim));
    Ok(Val::literal(Literal::ints(ints.collect())))
}

fn cast(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let to = element_type(DataType(node.int("to").unwrap_or(0) as i32))?;
    let val = input(inputs, 0)?;
    let folded = |literal: &Literal| fold::cast(literal, to).ok_or("a cast of a shape".to_owned());
    match val {
        Val::Literal(literal) => Ok(Val::literal(folded(literal)?)),
        Val::Fill(literal, dims) => Ok(Val::Fill(Rc::new(folded(literal)?), dims.clone())),
        Val::View(view) if view.element == to => Ok(val.clone()),
        Val::View(view) => {
            let data_type = match to {
                ElementType::F32 => DataType::FLOAT,
                ElementType::I64 => DataType::INT64,
                ElementType::I32 => DataType::INT32,
                _ => DataType::BOOL,
            };
            let attributes = vec![int_attribute("to", data_type.0.into())];
            let operands = vec![analysis.operand(view)];
            let outputs = vec![(to, view.dims.clone())];
            let bound = id_bound(analysis, view);
            let vals = analysis.emit(node, "Cast", attributes, operands, outputs);
            if let Some(op) = analysis.ops.last_mut() {
                op.bound = bound;
            }
            Ok(vals.into_iter().next().unwrap_or(Val::Unknown))
        }
        Val::Unknown => Ok(Val::Unknown),
    }
}

/// The number that all elements are below, where the file shows that there is one.
fn id_bound(analysis: &Analysis, view: &View) -> Option<usize> {
    match view.source {
        Source::Op(index, _) => analysis.ops[index].bound,
        _ => None,
    }
}

fn transpose(analysis: &mut Analysis, node: &Node, val: &Val) -> Result<Val, String> {
    let dims = val.dims();
    let rank = dims.len();
    let permutation: Vec<usize> = match node.ints("perm") {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).rev().collect(),
    };
    let mut sorted = permutation.clone();
    sorted.sort_unstable();
    if sorted != (0..rank).collect::<Vec<_>>() {
        return Err(format!("perm {permutation:?} of a tensor of rank {rank}"));
    }
    let moved: Vec<Dim> = permutation.iter().map(|&axis| dims[axis].clone()).collect();
    match val {
        Val::Literal(literal) => Ok(Val::literal(literal.transposed(&permutation))),
        Val::Fill(..) | Val::Unknown => relabelled(val, moved),
        Val::View(view) => {
            let in_row = permutation.iter().copied().filter(|&axis| dims[axis].in_row());
            let in_row: Vec<usize> = in_row.collect();
            let long = in_row.iter().filter(|&&axis| dims[axis].fixed_part() != 1);
            if long.is_sorted() {
                return relabelled(val, moved);
            }
            let mut perm = vec![0];
            perm.extend(in_row.iter().map(|&axis| 1 + row_axis(&dims, axis) as i64));
            let attributes = vec![ints_attribute("perm", perm)];
            let operands = vec![analysis.operand(view)];
            let outputs = vec![(view.element, moved)];
            let vals = analysis.emit(node, "Transpose", attributes, operands, outputs);
            Ok(vals.into_iter().next().unwrap_or(Val::Unknown))
        }
    }
}

fn reshape(
    analysis: &Analysis,
    val: &Val,
    mut target: Vec<Int>,
    keep_zero: bool,
) -> Result<Val, String> {
    let dims = val.dims();
    for (axis, int) in target.iter_mut().enumerate() {
        if !keep_zero && int.as_number() == Some(0) {
            let dim = dims.get(axis).ok_or("a 0 in its shape copies no dimension")?;
            *int = analysis.axes.int(dim);
        }
    }
    let show = || {
        let shape = analysis.axes.show(&dims);
        format!("it mixes axes of {shape} that rows do not share")
    };
    let total = dims.iter().fold(Int::number(1), |n, dim| n.times(&analysis.axes.int(dim)));
    if let Some(hole) = target.iter().position(|int| int.as_number() == Some(-1)) {
        let others = target.iter().enumerate().filter(|(axis, _)| *axis != hole);
        let others = others.fold(Int::number(1), |n, (_, int)| n.times(int));
        target[hole] = exactly_over(&total, &others).ok_or_else(show)?;
    }
    let regrouped = regroup(analysis, &dims, &target).ok_or_else(show)?;
    relabelled(val, regrouped)
}

fn exactly_over(a: &Int, b: &Int) -> Option<Int> {
    a.over(b).filter(|quotient| quotient.times(b) == *a)
}

/// The factors of `dims` dealt out to dimensions of the lengths `target`, in order.
fn regroup(analysis: &Analysis, dims: &[Dim], target: &[Int]) -> Option<Vec<Dim>> {
    let axes = &analysis.axes;
    let mut factors: Vec<Factor> = dims.iter().flat_map(|dim| dim.0.iter().copied()).collect();
    factors.reverse();
    let one = Int::number(1);
    let length = |factor: Factor| axes.int(&Dim(vec![factor]));
    let mut regrouped = Vec::new();
    for (position, wanted) in target.iter().enumerate() {
        let mut dim = Dim(Vec::new());
        let mut have = one.clone();
        if *wanted == one && factors.last().is_some_and(|&next| length(next) == one) {
            dim.push(factors.pop()?);
        }
        while have != *wanted {
            let factor = factors.pop()?;
            let missing = exactly_over(wanted, &have)?;
            let step = length(factor);
            if exactly_over(&missing, &step).is_some() {
                have = have.times(&step);
                dim.push(factor);
                continue;
            }
            // A fixed factor (in a draft, one that may turn out fixed) is split in two.
            let (n, part) = (step.as_number()?, missing.as_number()?);
            if part < 1 || n % part != 0 {
                return None;
            }
            dim.push(Factor::Fixed(part as usize));
            factors.push(Factor::Fixed((n / part) as usize));
            have = have.times(&Int::number(part));
        }
        let takes_one = target.get(position + 1) == Some(&one);
        while !takes_one && factors.last().is_some_and(|&next| length(next) == one) {
            factors.pop();
        }
        regrouped.push(dim);
    }
    factors.is_empty().then_some(regrouped)
}

fn flatten(node: &Node, val: &Val) -> Result<Val, String> {
    let dims = val.dims();
    let axis = node.int("axis").unwrap_or(1);
    let axis = if axis == dims.len() as i64 { dims.len() } else { axis_of(axis, dims.len())? };
    let joined = |dims: &[Dim]| {
        let mut dim = Dim(Vec::new());
        dims.iter().flat_map(|dim| dim.0.iter().copied()).for_each(|factor| dim.push(factor));
        dim
    };
    relabelled(val, vec![joined(&dims[..axis]), joined(&dims[axis..])])
}

/// Learns that the axis of a dimension has length 1, and drops it (`view.dims[axis]`
/// becomes 1).
fn bind_to_one(analysis: &mut Analysis, view: &View, axis: usize) -> Result<View, String> {
    let mut bound = view.clone();
    let dim = &view.dims[axis];
    bound.dims[axis] = Dim::fixed(1);
    if dim.is_one() {
        return Ok(bound);
    }
    let Some(atom) = dim.as_atom() else {
        let shape = analysis.axes.show(&view.dims);
        return Err(format!("it takes axis {axis} of {shape} to be of length 1"));
    };
    let atom = analysis.axes.find(atom);
    match analysis.axes.length(atom) {
        Some(n) if n != 1 => return Err(format!("an axis of length {n} is taken to be 1")),
        _ => {}
    }
    match atom {
        _ if analysis.draft => {}
        BATCH => analysis.batch_is_one = true,
        TIME => analysis.time_is_one = true,
        _ => {}
    }
    Ok(bound)
}

fn squeeze(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let val = input(inputs, 0)?;
    let dims = val.dims();
    let axes: Vec<usize> = match numbers(node, "axes", inputs, 1)? {
        Some(axes) => {
            axes.iter().map(|&axis| axis_of(axis, dims.len())).collect::<Result<_, _>>()?
        }
        None => {
            let one = |dim: &Dim| analysis.axes.int(dim).as_number() == Some(1);
            (0..dims.len()).filter(|&axis| one(&dims[axis])).collect()
        }
    };
    let mut val = val.clone();
    if let Val::View(view) = &val {
        let mut view = view.clone();
        for &axis in &axes {
            view = bind_to_one(analysis, &view, axis)?;
        }
        val = Val::View(view);
    } else if axes.iter().any(|&axis| !dims[axis].is_one()) && !matches!(val, Val::Fill(..)) {
        return Err("it drops an axis that is longer than 1".to_owned());
    }
    let kept = val.dims().into_iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    relabelled(&val, kept.map(|(_, dim)| dim).collect())
}

fn unsqueeze(node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let val = input(inputs, 0)?;
    let mut dims = val.dims();
    let axes = numbers(node, "axes", inputs, 1)?.ok_or("it has no axes")?;
    let rank = dims.len() + axes.len();
    let mut axes: Vec<usize> =
        axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?;
    axes.sort_unstable();
    for axis in axes {
        if axis > dims.len() {
            return Err("an axis appears twice".to_owned());
        }
        dims.insert(axis, Dim::fixed(1));
    }
    relabelled(val, dims)
}

fn expand(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let val = input(inputs, 0)?;
    let target = int_list(inputs, 1).ok_or("its shape is not constant")?;
    let mut dims = val.dims();
    let rank = dims.len().max(target.len());
    while dims.len() < rank {
        dims.insert(0, Dim::fixed(1));
    }
    let mut wide = dims.clone();
    let mut in_rows = false;
    for (dim, int) in wide[rank - target.len()..].iter_mut().zip(&target) {
        if int.as_number() == Some(1) || analysis.axes.int(dim) == *int {
            continue;
        }
        if !dim.is_one() {
            let shape = analysis.axes.show(&dims);
            return Err(format!("it cannot expand {shape} so"));
        }
        *dim = dim_of(int)?;
        in_rows |= dim.in_row();
    }
    match val {
        Val::Fill(value, _) => Ok(Val::Fill(value.clone(), wide)),
        Val::Unknown => Ok(Val::Unknown),
        Val::Literal(literal) => {
            let plain = wide.iter().all(|dim| dim.atoms().next().is_none());
            let shape: Vec<usize> = wide.iter().map(Dim::fixed_part).collect();
            if plain && count(&shape).is_some_and(|n| n <= 1 << 24) {
                return Ok(Val::literal(literal.expanded(&shape)));
            }
            let scalar = uniform(literal).ok_or("a constant is repeated along batch or time")?;
            Ok(Val::Fill(Rc::new(scalar), wide))
        }
        Val::View(view) if in_rows => {
            let aligned = View { dims: dims.clone(), ..view.clone() };
            // Where a dimension became batch or time, the row loses an axis of length 1.
            let shape: Vec<usize> = (0..rank)
                .filter(|&axis| wide[axis].in_row())
                .map(|axis| dims[axis].fixed_part())
                .collect();
            let Operand::Rows { source, at, .. } = analysis.operand(&aligned) else {
                return Err("nothing to expand".to_owned());
            };
            let mut to = vec![Int::number(1)];
            to.extend(row_shape(&wide).into_iter().map(|n| Int::number(n as i64)));
            let operands = vec![
                Operand::Rows { source, at, shape },
                Operand::Constant(Rc::new(Literal::ints(to))),
            ];
            let vals = analysis.emit(node, "Expand", vec![], operands, vec![(view.element, wide)]);
            Ok(vals.into_iter().next().unwrap_or(Val::Unknown))
        }
        Val::View(_) => relabelled(val, wide),
    }
}

/// The element that all elements equal.
pub(super) fn uniform(literal: &Literal) -> Option<Literal> {
    fn same<T: PartialEq + Clone>(array: &Array<T>) -> Option<Array<T>> {
        let first = array.data.first()?;
        array.data.iter().all(|x| x == first).then(|| Array::scalar(first.clone()))
    }
    Some(match literal {
        Literal::F32(array) => Literal::F32(same(array)?),
        Literal::Int(array, element) => Literal::Int(same(array)?, *element),
        Literal::Bool(array) => Literal::Bool(same(array)?),
    })
}

fn gather(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let (data, indices) = (input(inputs, 0)?, input(inputs, 1)?);
    let dims = data.dims();
    let axis = axis_of(node.int("axis").unwrap_or(0), dims.len())?;
    let indices = match indices {
        Val::View(ids) => return embed(analysis, node, data, axis, ids),
        Val::Literal(literal) => literal.clone(),
        _ => return Err("its indices depend on the request".to_owned()),
    };
    let numbers = indices.as_numbers().ok_or("its indices depend on the request")?;
    let view = match data {
        Val::View(view) => view,
        Val::Literal(literal) => {
            let positions: Vec<usize> = numbers
                .iter()
                .map(|&n| axis_of(n, literal.shape()[axis]))
                .collect::<Result<_, _>>()?;
            return Ok(Val::literal(literal.gathered(axis, &positions, indices.shape())));
        }
        Val::Fill(value, dims) => {
            let mut dims = dims.clone();
            dims.splice(axis..=axis, indices.shape().iter().map(|&n| Dim::fixed(n)));
            return Ok(Val::Fill(value.clone(), dims));
        }
        Val::Unknown => return Ok(Val::Unknown),
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
    match view.dims[axis].as_atom().map(|atom| analysis.axes.find(atom)) {
        Some(TIME) => Ok(analysis.select_time(view, axis, index)),
        Some(BATCH) if index == 0 || index == -1 => bind_to_one(analysis, view, axis),
        Some(_) if analysis.draft => {
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
    let origin = origin(analysis, ids.source);
    match (origin, id_bound(analysis, ids)) {
        (_, Some(bound)) if bound <= rows => {}
        (Source::Input(index), _) => {
            let known = &mut analysis.inputs[index].ids;
            *known = Some(known.map_or(rows, |known| known.min(rows)));
        }
        _ if analysis.draft => {}
        _ => {
            return Err("its indices are computed: a bad one could not be refused".to_owned());
        }
    }
    let mut out = ids.dims.clone();
    out.extend(table.shape()[1..].iter().map(|&n| Dim::fixed(n)));
    let operands = vec![Operand::Constant(table.clone()), analysis.operand(ids)];
    let attributes = vec![int_attribute("axis", 0)];
    let outputs = vec![(table.element(), out)];
    let vals = analysis.emit(node, "Gather", attributes, operands, outputs);
    Ok(vals.into_iter().next().unwrap_or(Val::Unknown))
}

/// Where integers come from, through casts between integers.
fn origin(analysis: &Analysis, source: Source) -> Source {
    let Source::Op(index, _) = source else { return source };
    let op = &analysis.ops[index];
    match (op.operator.as_str(), op.operands.first()) {
        ("Cast" | "Transpose", Some(Operand::Rows { source, .. })) => {
            let from = origin(analysis, *source);
            let integer = |element| matches!(element, ElementType::I64 | ElementType::I32);
            match from {
                Source::Input(input) if integer(analysis.inputs[input].element) => from,
                _ => source.to_owned(),
            }
        }
        _ => source,
    }
}

fn slice(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let val = input(inputs, 0)?;
    let rank = val.dims().len();
    let get = |name, index| -> Result<Option<Vec<Int>>, String> {
        if let Some(values) = node.ints(name) {
            return Ok(Some(values.iter().map(|&n| Int::number(n)).collect()));
        }
        if inputs.get(index).is_none_or(Option::is_none) {
            return Ok(None);
        }
        int_list(inputs, index).map(Some).ok_or_else(|| format!("its {name} are not constant"))
    };
    let starts = get("starts", 1)?.ok_or("it has no starts")?;
    let ends = get("ends", 2)?.ok_or("it has no ends")?;
    let axes = match numbers(node, "axes", inputs, 3)? {
        Some(axes) => axes.iter().map(|&a| axis_of(a, rank)).collect::<Result<Vec<_>, _>>()?,
        None => (0..starts.len()).collect(),
    };
    let steps = numbers(node, "steps", inputs, 4)?.unwrap_or(vec![1; starts.len()]);
    if starts.len() != ends.len() || starts.len() != axes.len() || starts.len() != steps.len() {
        return Err("its starts, ends, axes and steps differ in number".to_owned());
    }
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
    let to_end = end.as_number().is_some_and(|n| n >= i64::from(i32::MAX)) || *end == length;
    if step == 1 && start.as_number() == Some(0) && to_end {
        return Ok(val.clone());
    }
    if let Some(length) = analysis.fixed(&dim) {
        let (Some(start), Some(end)) = (start.as_number(), end.as_number()) else {
            return Err("its bounds depend on the request".to_owned());
        };
        let positions = slice_positions(length as i64, start, end, step)?;
        return take(analysis, node, val, axis, &positions);
    }
    let Val::View(view) = val else {
        return Err("it cuts a constant along batch or time".to_owned());
    };
    let one = match (start.as_number(), end.as_number()) {
        (Some(-1), _) if to_end && step == 1 => Some(-1),
        (Some(start), Some(end)) if end == start + 1 && end != 0 && step == 1 => Some(start),
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

/// The positions that ONNX `Slice` chooses of an axis.
fn slice_positions(length: i64, start: i64, end: i64, step: i64) -> Result<Vec<usize>, String> {
    let from_front = |n: i64| if n < 0 { n.saturating_add(length) } else { n };
    let (mut at, last) = match step {
        _ if length == 0 => return Ok(Vec::new()),
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

/// The given positions of an axis that rows hold.
fn take(
    analysis: &mut Analysis,
    node: &Node,
    val: &Val,
    axis: usize,
    positions: &[usize],
) -> Result<Val, String> {
    let mut dims = val.dims();
    let old = dims.clone();
    dims[axis] = Dim::fixed(positions.len());
    if positions.is_empty() {
        return Err("it leaves nothing of an axis".to_owned());
    }
    match val {
        Val::Literal(literal) => {
            Ok(Val::literal(literal.gathered(axis, positions, &[positions.len()])))
        }
        Val::Fill(value, _) => Ok(Val::Fill(value.clone(), dims)),
        Val::Unknown => Ok(Val::Unknown),
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

fn split(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Vec<Val>, String> {
    let val = input(inputs, 0)?;
    let dims = val.dims();
    let axis = axis_of(node.int("axis").unwrap_or(0), dims.len())?;
    let length = analysis.need_fixed(&dims[axis], "splits")?;
    let sizes: Vec<usize> = match numbers(node, "split", inputs, 1)? {
        Some(sizes) => sizes.iter().map(|&n| n.max(0) as usize).collect(),
        None => {
            let parts = node.outputs.len().max(1);
            let size = length.div_ceil(parts);
            (0..parts).map(|part| size.min(length.saturating_sub(part * size))).collect()
        }
    };
    if sizes.iter().sum::<usize>() != length || sizes.len() < node.outputs.len() {
        return Err(format!("parts of {sizes:?} of an axis of length {length}"));
    }
    let mut start = 0;
    let mut parts = Vec::new();
    for (output, size) in sizes.into_iter().enumerate() {
        if node.output(output).is_some() {
            let positions: Vec<usize> = (start..start + size).collect();
            parts.push(take(analysis, node, val, axis, &positions)?);
        } else {
            parts.push(Val::Unknown);
        }
        start += size;
    }
    Ok(parts)
}

fn concat(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
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
    let mut length = 0;
    for val in &vals {
        let dims = val.dims();
        if dims.len() != rank {
            return Err("its inputs differ in rank".to_owned());
        }
        length += analysis.need_fixed(&dims[axis], "joins along")?;
        for other in (0..rank).filter(|&other| other != axis) {
            merge(analysis, &mut out[other], &dims[other])?;
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

/// Makes `dim` what both dimensions are.
pub(super) fn merge(analysis: &mut Analysis, dim: &mut Dim, other: &Dim) -> Result<(), String> {
    if analysis.axes.same_dim(dim, other) {
        return Ok(());
    }
    if let (Some(a), Some(b)) = (dim.as_atom(), other.as_atom()) {
        return analysis.axes.unify(a, b);
    }
    let (a, b) = (analysis.axes.int(dim), analysis.axes.int(other));
    if analysis.draft && (a == b || a.as_number().is_none() || b.as_number().is_none()) {
        if dim.as_atom().is_none() {
            *dim = other.clone();
        }
        return Ok(());
    }
    let names = [dim, other].map(|dim| {
        analysis.axes.show(std::slice::from_ref(dim)).trim_matches(['[', ']']).to_owned()
    });
    let [a, b] = names;
    Err(format!("an axis of {a} meets one of {b}: values that vary along it are not supported"))
}
