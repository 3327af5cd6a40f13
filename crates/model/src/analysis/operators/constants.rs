//! Constants, and what is known of a tensor without its elements: its shape.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{
    axis_of, count, dim_of, input, int_list, numbers, scalar,
};
use crate::analysis::operators::composed;
use crate::analysis::operators::dispatch::apply;
use crate::analysis::operators::narrow::data_type_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::dim::Dim;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;

/// `Constant`.
pub(crate) fn constant(_: &mut Analysis, node: &Node, _: &Inputs) -> Result<Vec<Val>, String> {
    value_of(node).map(|literal| vec![Val::literal(literal)])
}

/// The number of elements of a tensor: `Size`.
pub(crate) fn size(analysis: &mut Analysis, _: &Node, inputs: &Inputs) -> Result<Vec<Val>, String> {
    let dims = input(inputs, 0)?.dims();
    let ints = dims.iter().map(|dim| analysis.axes.int(dim));
    let size = ints.fold(Int::number(1), |size, int| size.times(&int));
    Ok(vec![Val::literal(Literal::Int(Array::scalar(size), ElementType::I64))])
}

fn value_of(node: &Node) -> Result<Literal, String> {
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

/// `ConstantOfShape`.
pub(crate) fn constant_of_shape(
    _: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let shape = int_list(inputs, 0).ok_or("its shape is not constant")?;
    let value = match node.tensor("value") {
        Some(literal) => scalar(&literal?).ok_or("its value is not one number")?,
        None => Literal::F32(Array::scalar(0.0)),
    };
    let dims = shape.iter().map(dim_of).collect::<Result<Vec<_>, _>>()?;
    let numbers: Option<Vec<usize>> =
        shape.iter().map(|int| usize::try_from(int.as_number()?).ok()).collect();
    match numbers {
        Some(shape) if count(&shape).is_some_and(|n| n <= 4096) => {
            Ok(vec![Val::literal(value.expanded(&shape))])
        }
        _ => Ok(vec![Val::Fill(Rc::new(value), dims)]),
    }
}

/// `Trilu` of a constant.
pub(crate) fn triangle(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let Val::Literal(literal) = input(inputs, 0)? else {
        return Err("its input does not depend on the request".to_owned());
    };
    let k = numbers(node, "k", inputs, 1)?.and_then(|k| k.first().copied()).unwrap_or(0);
    let is_upper = node.int("upper").unwrap_or(1) != 0;
    let &[.., rows, columns] = literal.shape() else {
        return Err("triangles of a vector".to_owned());
    };
    analysis.afford(literal.shape())?;
    let is_kept = |at: usize| {
        let (row, column) = ((at / columns % rows) as i64, (at % columns) as i64);
        let above = (column - row).saturating_sub(k);
        if is_upper { above >= 0 } else { above <= 0 }
    };
    fn cut<T: Clone>(array: &Array<T>, zero: T, is_kept: impl Fn(usize) -> bool) -> Array<T> {
        let all = array.data.iter().enumerate();
        let data = all.map(|(at, x)| if is_kept(at) { x.clone() } else { zero.clone() });
        Array::new(array.shape.clone(), data.collect())
    }
    let literal = match &**literal {
        Literal::F32(array) => Literal::F32(cut(array, 0.0, is_kept)),
        Literal::Int(array, of) => Literal::Int(cut(array, Int::number(0), is_kept), *of),
        Literal::Whole(array, of) => Literal::Whole(cut(array, 0.0, is_kept), *of),
        Literal::Bool(array) => Literal::Bool(cut(array, false, is_kept)),
    };
    Ok(vec![Val::literal(literal)])
}

/// `Range`.
pub(crate) fn range(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let int = |index| match int_list(inputs, index) {
        Some(ints) => ints.first().cloned(),
        // Floats that are whole.
        None => match inputs.get(index)?.as_ref()? {
            Val::Literal(literal) => {
                let x = *literal.as_f32()?.data.first()?;
                (x.fract() == 0.0 && x.abs() < 1e6).then(|| Int::number(x as i64))
            }
            _ => None,
        },
    };
    let number = |index| int(index)?.as_number().map(i128::from);
    if let (Some(start), Some(limit), Some(1)) = (int(0), int(1), number(2))
        && let Some(count) = limit.minus(&start)
        && count.as_number().is_none()
    {
        let counted = composed::repetition::range(analysis, node, &count)?;
        let of_type = |vals: [Val; 2]| -> Option<ElementType> {
            vals.iter().find_map(|val| val.element().filter(|&of| of != ElementType::I64))
        };
        let moved = match start.as_number() {
            Some(0) => counted,
            _ => {
                let start = Literal::Int(Array::scalar(start), ElementType::I64);
                apply(analysis, node, "Add", vec![], vec![counted, Val::literal(start)])?
            }
        };
        let element = of_type([input(inputs, 0)?.clone(), input(inputs, 1)?.clone()]);
        let to = data_type_of(element.unwrap_or(ElementType::I64));
        let to = vec![int_attribute("to", to.0.into())];
        return apply(analysis, node, "Cast", to, vec![moved]).map(|val| vec![val]);
    }
    let (Some(start), Some(limit), Some(delta)) = (number(0), number(1), number(2)) else {
        return Err("its bounds depend on the request".to_owned());
    };
    let count = match delta {
        0 => return Err("a range by steps of 0".to_owned()),
        _ => (limit - start + delta - delta.signum()) / delta,
    };
    if count > 1 << 20 {
        return Err(format!("a range of {count} numbers"));
    }
    let values = (0..count).map(|i| (start + i * delta) as i64);
    let is_float = input(inputs, 0)?.element().is_some_and(ElementType::is_float);
    Ok(vec![Val::literal(match is_float {
        true => Literal::F32(Array::vector(values.map(|n| n as f32).collect())),
        false => Literal::ints(values.map(Int::number).collect()),
    })])
}

/// `Shape`.
pub(crate) fn shape(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let dims = input(inputs, 0)?.dims();
    let rank = dims.len() as i64;
    let clamp = |n: i64| (if n < 0 { n + rank } else { n }).clamp(0, rank) as usize;
    let start = clamp(node.int("start").unwrap_or(0));
    let end = clamp(node.int("end").unwrap_or(rank)).max(start);
    let ints = dims[start..end].iter().map(|dim| analysis.axes.int(dim));
    Ok(vec![Val::literal(Literal::ints(ints.collect()))])
}

/// `ScatterElements` of constants.
pub(crate) fn scattered(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let unfolded = || "a computation on constants that is not folded".to_owned();
    let data = written_out(analysis, input(inputs, 0)?)?.ok_or_else(unfolded)?;
    let (Val::Literal(ids), Val::Literal(updates)) = (input(inputs, 1)?, input(inputs, 2)?) else {
        return Err(unfolded());
    };
    let places = ids.as_numbers().ok_or_else(unfolded)?;
    let (shape, of_ids) = (data.shape(), ids.shape());
    let axis = axis_of(node.int("axis").unwrap_or(0), shape.len())?;
    let fits = of_ids.len() == shape.len()
        && (0..shape.len()).all(|at| at == axis || of_ids[at] <= shape[at])
        && updates.shape() == of_ids
        && node.string("reduction").unwrap_or("none") == "none";
    if !fits {
        return Err(unfolded());
    }
    analysis.afford(shape)?;
    let place = |&place: &i64| {
        axis_of(place, shape[axis])
            .map_err(|_| format!("index {place} of an axis of {}", shape[axis]))
    };
    let places = places.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let scattered = match (&*data, &**updates) {
        (Literal::F32(data), Literal::F32(updates)) => {
            Literal::F32(data.scattered(axis, &places, updates))
        }
        (Literal::Int(data, element), Literal::Int(updates, _)) => {
            Literal::Int(data.scattered(axis, &places, updates), *element)
        }
        (Literal::Bool(data), Literal::Bool(updates)) => {
            Literal::Bool(data.scattered(axis, &places, updates))
        }
        _ => return Err(unfolded()),
    };
    Ok(vec![Val::literal(scattered)])
}

/// A constant with all its elements; none for what is no constant of fixed lengths.
fn written_out(analysis: &mut Analysis, val: &Val) -> Result<Option<Rc<Literal>>, String> {
    match val {
        Val::Literal(literal) => Ok(Some(literal.clone())),
        Val::Fill(value, dims) if dims.iter().all(|dim| dim.symbols().next().is_none()) => {
            let shape: Vec<usize> = dims.iter().map(Dim::fixed_part).collect();
            analysis.afford(&shape)?;
            Ok(Some(Rc::new(value.expanded(&shape))))
        }
        _ => Ok(None),
    }
}
