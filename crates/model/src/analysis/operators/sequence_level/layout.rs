//! Operators that move elements, choose or join them.

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{
    SliceBounds, axis_of, dim_of, int_list, is_to_end, numbers, permutation, slice_positions, view,
};
use crate::analysis::operators::broadcast::{Over, broadcast_dims, merge};
use crate::analysis::operators::layout::bind_squeezed;
use crate::analysis::operators::sequence_level::along::reduced;
use crate::analysis::operators::sequence_level::spatial::{length_of, windows};
use crate::analysis::operators::sequence_op::{
    SequenceOp, has_batch, ints, materialised, operand, tensor,
};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val};
use crate::data::dim::{Dim, Factor};
use crate::data::int::Int;
use crate::data::symbol::{BATCH, Windows};
use crate::file::attribute::{int_attribute, ints_attribute};
use crate::file::node::Node;

/// An end of a slice that no axis reaches backwards.
const FAR_BELOW: i64 = -(1 << 30);

/// `Transpose`.
pub(crate) fn transpose(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let order = permutation(node, x.dims.len())?;
    let op = SequenceOp {
        operator: "Transpose".to_owned(),
        attributes: vec![ints_attribute("perm", order.iter().map(|&axis| axis as i64).collect())],
        operands: vec![tensor(x)],
        outputs: vec![(x.element, order.iter().map(|&axis| x.dims[axis].clone()).collect())],
        is_independent: true,
        is_along_first: order.first() == Some(&0),
    };
    op.add(analysis, node)
}

/// `Reshape`.
pub(crate) fn reshape(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let target = int_list(inputs, 1).ok_or("its shape is not constant")?;
    let keep_zero = node.int("allowzero").unwrap_or(0) != 0;
    let out = reshaped(analysis, &view(inputs, 0)?.dims.clone(), target, keep_zero)?;
    relabelled(analysis, inputs, out)?.add(analysis, node)
}

/// The dimensions that a target shape stands for.
fn reshaped(
    analysis: &mut Analysis,
    dims: &[Dim],
    target: Vec<Int>,
    keep_zero: bool,
) -> Result<Vec<Dim>, String> {
    let mut wanted = Vec::new();
    for (axis, int) in target.into_iter().enumerate() {
        wanted.push(match int.as_number() {
            Some(0) if !keep_zero => {
                let dim = dims.get(axis).ok_or("a 0 beyond its rank")?;
                analysis.axes.int(dim)
            }
            _ => int,
        });
    }
    let product = |ints: &mut dyn Iterator<Item = Int>| {
        let one = Some(Int::number(1));
        let product = ints.fold(one, |product, int| product?.checked_times(&int));
        product.ok_or("a shape beyond all reason")
    };
    let all = product(&mut dims.iter().map(|dim| analysis.axes.int(dim)))?;
    let is_open = |int: &Int| int.as_number() == Some(-1);
    let known = product(&mut wanted.iter().filter(|int| !is_open(int)).cloned())?;
    let open = wanted.iter().filter(|int| is_open(int)).count();
    match open {
        0 if all == known => {}
        0 if analysis.has_roles() => {
            bind_rest(analysis, &all, &known);
            return Err("its shape does not fit".to_owned());
        }
        1 => {
            let rest = all.over(&known).ok_or("its shape does not fit")?;
            wanted.iter_mut().filter(|int| is_open(int)).for_each(|int| *int = rest.clone());
        }
        _ => return Err("its shape does not fit".to_owned()),
    }
    // Where the old shape has a dimension of that length, it is that one, factor by factor.
    let mut left: Vec<&Dim> = dims.iter().collect();
    let mut dim = |int: &Int| {
        let at = left.iter().position(|dim| {
            let is_same = analysis.axes.int(dim) == *int;
            is_same
                && (!analysis.has_roles() || dim.as_symbol().is_some_and(|symbol| symbol != BATCH))
        });
        at.map_or_else(|| dim_of(int), |at| Ok(left.remove(at).clone()))
    };
    wanted.iter().map(&mut dim).collect()
}

/// Binds the one length by which two numbers of elements differ to the number that an exporter wrote in its place, if it
/// did; the next pass takes this into account.
fn bind_rest(analysis: &mut Analysis, all: &Int, known: &Int) {
    let (Some((count, of_all)), Some((wanted, of_known))) = (all.as_product(), known.as_product())
    else {
        return;
    };
    let mut rest = of_all.to_vec();
    for symbol in of_known {
        match rest.iter().position(|known| known == symbol) {
            Some(at) => rest.remove(at),
            None => return,
        };
    }
    let length = wanted.checked_div(count).filter(|n| n.checked_mul(count) == Some(wanted));
    let length = length.and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
    if let (&[symbol], Some(length)) = (&rest[..], length)
        && analysis.axes.length(symbol).is_none()
        && !analysis.bind(analysis.axes.find(symbol), length)
    {
        analysis.bind_windows(symbol, length);
    }
}

/// The same elements under other dimensions.
fn relabelled(analysis: &Analysis, inputs: &Inputs, out: Vec<Dim>) -> Result<SequenceOp, String> {
    let x = view(inputs, 0)?;
    let target = Operand::Lengths(out.iter().map(|dim| analysis.axes.open_int(dim)).collect());
    let first = |dims: &[Dim]| dims.iter().position(|dim| has_batch(std::slice::from_ref(dim)));
    let is_independent = match (first(&x.dims), first(&out)) {
        (None, None) => true,
        (Some(from), Some(to)) => {
            let leads = |dim: &Dim| dim.0.first() == Some(&Factor::Symbol(BATCH));
            from == to && x.dims[..from] == out[..to] && leads(&x.dims[from]) && leads(&out[to])
        }
        _ => false,
    };
    Ok(SequenceOp {
        operator: "Reshape".to_owned(),
        attributes: vec![],
        operands: vec![tensor(x), target],
        outputs: vec![(x.element, out)],
        is_independent,
        is_along_first: false,
    })
}

/// `Flatten`.
pub(crate) fn flatten(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let dims = view(inputs, 0)?.dims.clone();
    let rank = dims.len();
    let axis = node.int("axis").unwrap_or(1);
    let axis = if axis == rank as i64 { rank } else { axis_of(axis, rank)? };
    let out = vec![Dim::joined(&dims[..axis]), Dim::joined(&dims[axis..])];
    relabelled(analysis, inputs, out)?.add(analysis, node)
}

/// `Squeeze`.
pub(crate) fn squeeze(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let dims = view(inputs, 0)?.dims.clone();
    let rank = dims.len();
    let axes: Vec<usize> = match numbers(node, "axes", inputs, 1)? {
        Some(axes) => axes.iter().map(|&a| axis_of(a, rank)).collect::<Result<_, _>>()?,
        None => {
            bind_squeezed(analysis, &dims)?;
            (0..rank).filter(|&axis| dims[axis].is_one()).collect()
        }
    };
    let is_one = axes.iter().all(|&axis| dims[axis].is_one());
    analysis.require(is_one, || "it drops an axis that varies".to_owned())?;
    let out = reduced(&dims, &axes, false);
    relabelled(analysis, inputs, out)?.add(analysis, node)
}

/// `Unsqueeze`.
pub(crate) fn unsqueeze(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let dims = view(inputs, 0)?.dims.clone();
    let rank = dims.len();
    let axes = numbers(node, "axes", inputs, 1)?.ok_or("it has no axes")?;
    let rank = rank + axes.len();
    let axes: Vec<usize> =
        axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?;
    let mut rest = dims.into_iter();
    let dim = |axis| match axes.contains(&axis) {
        true => Some(Dim::fixed(1)),
        false => rest.next(),
    };
    let out = (0..rank).map(dim).collect::<Option<_>>().ok_or("an axis twice")?;
    relabelled(analysis, inputs, out)?.add(analysis, node)
}

/// `Expand`.
pub(crate) fn expand(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let target = int_list(inputs, 1).ok_or("its shape is not constant")?;
    let wanted = target.iter().map(dim_of).collect::<Result<Vec<_>, _>>()?;
    let out = broadcast_dims(analysis, &[x.dims.clone(), wanted], Over::Sequences)?;
    if has_batch(&out) && !has_batch(&x.dims) {
        return Err("it repeats along the batch".to_owned());
    }
    let shape = Operand::Lengths(out.iter().map(|dim| analysis.axes.open_int(dim)).collect());
    let op = SequenceOp {
        operator: "Expand".to_owned(),
        attributes: vec![],
        operands: vec![tensor(x), shape],
        outputs: vec![(x.element, out)],
        is_independent: true,
        is_along_first: false,
    };
    op.add(analysis, node)
}

/// `Concat`.
pub(crate) fn concat(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let is_made = inputs.iter().flatten().all(|val| matches!(val, Val::View(_)));
    let inputs = materialised(analysis, node, inputs)?;
    let vals: Vec<&Val> = inputs.iter().flatten().collect();
    let first = vals.first().ok_or("it has no inputs")?;
    let rank = first.dims().len();
    let axis = axis_of(node.int("axis").ok_or("it has no axis")?, rank)?;
    let mut out = first.dims();
    let (mut fixed, mut open) = (0_u32, None);
    for val in &vals {
        let dims = val.dims();
        if dims.len() != rank || matches!(val, Val::Fill(..) | Val::Repeat(..)) {
            return Err("its inputs do not fit".to_owned());
        }
        for other in (0..rank).filter(|&other| other != axis) {
            merge(analysis, &mut out[other], &dims[other], Over::Sequences)?;
        }
        match analysis.fixed(&dims[axis]) {
            Some(length) => {
                let sum = u32::try_from(length).ok().and_then(|length| fixed.checked_add(length));
                fixed = sum.ok_or("its inputs are too long together")?;
            }
            None if open.is_none() => open = Some(dims[axis].clone()),
            None => return Err("it joins several tensors along steps".to_owned()),
        }
    }
    out[axis] = match open {
        None => Dim::fixed(fixed as usize),
        Some(dim) => windows(analysis, &dim, Windows::new(i64::from(fixed) - 1, 1))?,
    };
    let element = first.element().ok_or("its inputs do not fit")?;
    let is_batched = vals.iter().all(|val| has_batch(&val.dims()));
    let op = SequenceOp {
        operator: "Concat".to_owned(),
        attributes: vec![int_attribute("axis", axis as i64)],
        operands: vals.iter().map(|val| operand(val)).collect::<Result<_, _>>()?,
        is_independent: is_batched && !has_batch(&out[axis..=axis]),
        is_along_first: axis != 0 && is_made,
        outputs: vec![(element, out)],
    };
    op.add(analysis, node)
}

/// The number of steps from `start` to `end`, both counted from the same end of an axis, and how many steps the axis
/// must have for that.
fn part_of_steps(start: i64, end: i64, by: i64) -> Option<(usize, usize)> {
    if (start < 0) != (end < 0) || by == 0 || start.checked_abs()?.max(end.checked_abs()?) > 1 << 28
    {
        return None;
    }
    let (span, by_steps) = if by > 0 { (end - start, by) } else { (start - end, -by) };
    let count = usize::try_from(span.checked_add(by_steps - 1)? / by_steps).ok().filter(|&n| n > 0);
    let needed = match (start < 0, by > 0) {
        (true, true) => -start,
        (true, false) => -end - 1,
        (false, true) => end,
        (false, false) => start + 1,
    };
    Some((count?, usize::try_from(needed).ok()?.max(1)))
}

/// `Slice`.
///
/// It takes a part of an axis of steps whose length follows from that of the axis: all but a number of first and
/// last steps, one step of every `by`, or all steps backwards.
pub(crate) fn slice(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let x = view(inputs, 0)?;
    let SliceBounds { starts, ends, axes, steps: by } =
        SliceBounds::read(node, inputs, x.dims.len())?;
    let mut out = x.dims.clone();
    let mut is_independent = true;
    let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
    let mut computed: Vec<(usize, Int)> = Vec::new();
    for (at, &axis) in axes.iter().enumerate() {
        let (dim, by) = (&x.dims[axis], by[at]);
        let length = analysis.axes.int(dim);
        // The length less a number counts from the end.
        let number = |int: &Int| {
            int.as_number().or_else(|| int.minus(&length)?.as_number().filter(|&n| n < 0))
        };
        let is_to_end = is_to_end(&ends[at], &length);
        if let (Some(start @ 0..), 1, None) = (number(&starts[at]), by, number(&ends[at]))
            && !is_to_end
        {
            // A part whose end is computed from lengths; a request whose axis is shorter is refused.
            let count = ends[at].minus(&Int::number(start)).ok_or("its ends are beyond reason")?;
            out[axis] = length_of(analysis, &count)?;
            let rest = length.minus(&ends[at]).ok_or("its ends are beyond reason")?;
            analysis.require_length(rest);
            is_independent &= !has_batch(std::slice::from_ref(dim));
            computed.push((firsts.len(), ends[at].clone()));
            firsts.push(start);
            lasts.push(0);
            continue;
        }
        let start = number(&starts[at]).ok_or("its starts depend on the request")?;
        let end = if is_to_end {
            i64::from(i32::MAX)
        } else {
            number(&ends[at]).ok_or("its ends depend on the request")?
        };
        firsts.push(start);
        lasts.push(end.clamp(i64::from(i32::MIN), i64::from(i32::MAX)));
        if is_to_end && start == 0 && by == 1 {
            continue;
        }
        is_independent &= !has_batch(std::slice::from_ref(dim));
        if let Some(length) = analysis.fixed(dim) {
            let positions = slice_positions(length as i64, start, end, by)?;
            if positions.is_empty() {
                return Err("it leaves nothing of an axis".to_owned());
            }
            out[axis] = Dim::fixed(positions.len());
            continue;
        }
        out[axis] = match (start, end, by) {
            (-1, ..=FAR_BELOW, -1) => dim.clone(),
            // The last `-start` steps.
            (..0, _, 1) if is_to_end && dim.as_symbol().is_some() => {
                let count = usize::try_from(-start).map_err(|_| "a start beyond all reason")?;
                dim.as_symbol()
                    .into_iter()
                    .for_each(|a| analysis.limit_steps(a, count, usize::MAX));
                Dim::fixed(count)
            }
            (0.., _, 1..) if is_to_end => windows(analysis, dim, Windows::new(-start - 1, by))?,
            (0.., ..0, 1..) => windows(analysis, dim, Windows::new(end - start - 1, by))?,
            _ => match (part_of_steps(start, end, by), dim.as_symbol()) {
                (Some((count, needed)), Some(symbol)) if symbol != BATCH => {
                    analysis.limit_steps(symbol, needed, usize::MAX);
                    Dim::fixed(count)
                }
                _ => {
                    let shape = analysis.axes.show(&x.dims);
                    return Err(format!("it takes a part of axis {axis} of {shape}"));
                }
            },
        };
    }
    let mut lasts: Vec<Int> = lasts.into_iter().map(Int::number).collect();
    computed.iter().for_each(|(at, end)| lasts[*at] = end.clone());
    let lasts = match computed.is_empty() {
        true => ints(lasts.iter().filter_map(Int::as_number)),
        false => Operand::Lengths(lasts),
    };
    let op = SequenceOp {
        operator: "Slice".to_owned(),
        attributes: vec![],
        operands: vec![
            tensor(x),
            ints(firsts),
            lasts,
            ints(axes.iter().map(|&axis| axis as i64)),
            ints(by),
        ],
        outputs: vec![(x.element, out)],
        is_independent,
        is_along_first: !axes.contains(&0) && computed.is_empty(),
    };
    op.add(analysis, node)
}
