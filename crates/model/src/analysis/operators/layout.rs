//! Operators that move elements: most of them change the view of rows alone.

use std::rc::Rc;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{
    RANK_MAX, axis_of, count, dim_of, input, int_list, numbers, permutation, uniform,
};
use crate::analysis::operators::broadcast::repeat;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val, View};
use crate::data::array::Array;
use crate::data::dim::{Dim, Factor, row_axis, row_shape};
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::attribute::ints_attribute;
use crate::file::node::Node;

/// The same value under other dimensions that hold the same elements in the same order.
fn relabelled(val: &Val, dims: Vec<Dim>) -> Result<Val, String> {
    match val {
        Val::View(view) => Ok(Val::View(View { dims, ..view.clone() })),
        Val::Fill(value, _) => Ok(Val::Fill(value.clone(), dims)),
        Val::Literal(literal) => {
            let shape: Vec<usize> = dims.iter().map(Dim::fixed_part).collect();
            if dims.iter().any(|dim| dim.symbols().next().is_some()) {
                return Err("a constant takes a shape that depends on the request".to_owned());
            }
            Ok(Val::literal(literal.reshaped(&shape)))
        }
        // Of length 1 along the axes that vary, its elements stand in the same order.
        Val::Repeat(literal, _) => {
            let once = |dim: &Dim| match (dim.symbols().next(), dim.as_symbol()) {
                (None, _) => Some(dim.fixed_part()),
                (Some(_), alone) => alone.map(|_| 1),
            };
            let shape: Option<Vec<usize>> = dims.iter().map(once).collect();
            let shape = shape.ok_or("a repeated constant is reshaped")?;
            match shape.iter().product::<usize>() == literal.shape().iter().product::<usize>() {
                true => Ok(Val::repeated(Rc::new(literal.reshaped(&shape)), dims)),
                false => Err("a repeated constant is reshaped".to_owned()),
            }
        }
        Val::PerSequence(_) | Val::List(_) | Val::Unknown => Ok(Val::Unknown),
    }
}

/// `Identity`.
pub(crate) fn identity(_: &mut Analysis, _: &Node, inputs: &Inputs) -> Result<Vec<Val>, String> {
    Ok(vec![input(inputs, 0)?.clone()])
}

/// `Dropout`, which is the identity outside training.
pub(crate) fn dropout(_: &mut Analysis, _: &Node, inputs: &Inputs) -> Result<Vec<Val>, String> {
    let is_off =
        |training: &Literal| training.as_bools().is_some_and(|bits| !bits.data.contains(&true));
    match inputs.get(2).and_then(Option::as_ref) {
        None => {}
        Some(Val::Literal(training) | Val::Fill(training, _)) if is_off(training) => {}
        Some(_) => return Err("training mode".to_owned()),
    }
    let x = input(inputs, 0)?.clone();
    let mask = Val::Fill(Rc::new(Literal::Bool(Array::scalar(true))), x.dims());
    Ok(vec![x, mask])
}

/// `Transpose`.
pub(crate) fn transpose(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let val = input(inputs, 0)?;
    let dims = val.dims();
    let permutation = permutation(node, dims.len())?;
    let moved: Vec<Dim> = permutation.iter().map(|&axis| dims[axis].clone()).collect();
    match val {
        Val::Literal(literal) => {
            analysis.afford(literal.shape())?;
            Ok(vec![Val::literal(literal.transposed(&permutation))])
        }
        Val::Fill(..) | Val::Repeat(..) | Val::PerSequence(_) | Val::List(_) | Val::Unknown => {
            relabelled(val, moved).map(|val| vec![val])
        }
        Val::View(view) => {
            let in_row = permutation.iter().copied().filter(|&axis| dims[axis].in_row());
            let in_row: Vec<usize> = in_row.collect();
            let long = in_row.iter().filter(|&&axis| dims[axis].fixed_part() != 1);
            if long.is_sorted() {
                return relabelled(val, moved).map(|val| vec![val]);
            }
            let mut perm = vec![0];
            perm.extend(in_row.iter().map(|&axis| 1 + row_axis(&dims, axis) as i64));
            let attributes = vec![ints_attribute("perm", perm)];
            let operands = vec![analysis.operand(view)];
            let outputs = vec![(view.element, moved)];
            Ok(analysis.emit(node, "Transpose", attributes, operands, outputs))
        }
    }
}

/// `Reshape`.
pub(crate) fn reshape(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let mut target = int_list(inputs, 1).ok_or("its shape is not constant")?;
    let keep_zero = node.int("allowzero").unwrap_or(0) != 0;
    let val = input(inputs, 0)?;
    let dims = val.dims();
    if target.len() > RANK_MAX {
        return Err(format!("a shape of {} axes", target.len()));
    }
    for (axis, int) in target.iter_mut().enumerate() {
        if !keep_zero && int.as_number() == Some(0) {
            let dim = dims.get(axis).ok_or("a 0 in its shape copies no dimension")?;
            *int = analysis.axes.int(dim);
        }
    }
    let shape = analysis.axes.show(&dims);
    let show = || format!("it mixes axes of {shape} that rows do not share");
    let total = dims.iter().fold(Int::number(1), |n, dim| n.times(&analysis.axes.int(dim)));
    if let Some(hole) = target.iter().position(|int| int.as_number() == Some(-1)) {
        let others = target.iter().enumerate().filter(|(axis, _)| *axis != hole);
        let one = Some(Int::number(1));
        let others = others.fold(one, |n, (_, int)| n?.checked_times(int)).ok_or_else(show)?;
        target[hole] = exactly_over(&total, &others).ok_or_else(show)?;
    }
    let regrouped = regroup(analysis, &dims, &target);
    if regrouped.is_none() && analysis.has_roles() {
        bind_frozen(analysis, &dims, &target);
    }
    relabelled(val, regrouped.ok_or_else(show)?).map(|val| vec![val])
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
            // A fixed factor (or one that may turn out fixed) is split in two.
            if matches!(factor, Factor::Symbol(_)) && analysis.has_roles() {
                return None;
            }
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

/// `Flatten`.
pub(crate) fn flatten(_: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Vec<Val>, String> {
    let val = input(inputs, 0)?;
    let dims = val.dims();
    let axis = node.int("axis").unwrap_or(1);
    let axis = if axis == dims.len() as i64 { dims.len() } else { axis_of(axis, dims.len())? };
    relabelled(val, vec![Dim::joined(&dims[..axis]), Dim::joined(&dims[axis..])])
        .map(|val| vec![val])
}

/// Binds an axis that varies to the number that an exporter wrote in its place, if it did; the next pass takes
/// this into account.
fn bind_frozen(analysis: &mut Analysis, dims: &[Dim], target: &[Int]) {
    for (dim, wanted) in dims.iter().zip(target) {
        if analysis.axes.int(dim) == *wanted {
            continue;
        }
        let frozen = wanted.as_number().and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
        if let (Some(symbol), Some(length)) = (dim.as_symbol(), frozen)
            && analysis.axes.length(symbol).is_none()
        {
            analysis.bind(analysis.axes.find(symbol), length);
        }
        return;
    }
}

/// Learns that the axis of a dimension has length 1, and drops it (`view.dims[axis]`
/// becomes 1).
pub(super) fn bind_to_one(
    analysis: &mut Analysis,
    view: &View,
    axis: usize,
) -> Result<View, String> {
    let mut bound = view.clone();
    let dim = &view.dims[axis];
    bound.dims[axis] = Dim::fixed(1);
    if dim.is_one() {
        return Ok(bound);
    }
    let Some(symbol) = dim.as_symbol() else {
        let shape = analysis.axes.show(&view.dims);
        return Err(format!("it takes axis {axis} of {shape} to be of length 1"));
    };
    let symbol = analysis.axes.find(symbol);
    match analysis.axes.length(symbol) {
        Some(n) if n != 1 => return Err(format!("an axis of length {n} is taken to be 1")),
        _ => {}
    }
    match symbol {
        _ if !analysis.has_roles() => {}
        _ if analysis.bind(symbol, 1) => {}
        _ => return Err("it takes an axis that varies to be of length 1".to_owned()),
    }
    Ok(bound)
}

/// Settles which axes a `Squeeze` drops that names none: those of length 1. The batch is bound to one sequence, and
/// steps are more than one.
pub(super) fn bind_squeezed(analysis: &mut Analysis, dims: &[Dim]) -> Result<(), String> {
    if !analysis.has_roles() {
        return Ok(());
    }
    for dim in dims {
        if analysis.axes.int(dim).as_number().is_some() {
            continue;
        }
        match dim.as_symbol() {
            Some(BATCH) if analysis.bind(BATCH, 1) => {}
            Some(symbol) if symbol != BATCH => analysis.limit_steps(symbol, 2, usize::MAX),
            _ => return Err("which axes it drops depends on the request".to_owned()),
        }
    }
    Ok(())
}

/// `Squeeze`.
pub(crate) fn squeeze(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let val = input(inputs, 0)?;
    let dims = val.dims();
    let axes: Vec<usize> = match numbers(node, "axes", inputs, 1)? {
        Some(axes) => {
            axes.iter().map(|&axis| axis_of(axis, dims.len())).collect::<Result<_, _>>()?
        }
        None => {
            bind_squeezed(analysis, &dims)?;
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
    relabelled(&val, kept.map(|(_, dim)| dim).collect()).map(|val| vec![val])
}

/// `Unsqueeze`.
pub(crate) fn unsqueeze(
    _: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
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
    relabelled(val, dims).map(|val| vec![val])
}

/// `Expand`.
pub(crate) fn expand(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    expanded(analysis, node, inputs).map(|val| vec![val])
}

fn expanded(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
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
        Val::PerSequence(_) | Val::List(_) | Val::Unknown => Ok(Val::Unknown),
        Val::Literal(literal) => {
            let plain = wide.iter().all(|dim| dim.symbols().next().is_none());
            let shape: Vec<usize> = wide.iter().map(Dim::fixed_part).collect();
            if plain && count(&shape).is_some_and(|n| n <= 1 << 24) {
                analysis.afford(&shape)?;
                return Ok(Val::literal(literal.expanded(&shape)));
            }
            match uniform(literal) {
                Some(scalar) => Ok(Val::Fill(Rc::new(scalar), wide)),
                None => repeat(literal, wide),
            }
        }
        Val::Repeat(literal, _) => repeat(literal, wide),
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
