//! Sequences of tensors: the steps of one tensor, a list, or what a loop appends to.

use std::rc::Rc;

use batchmaker_graph::ElementType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::{axis_of, input, int_list};
use crate::analysis::operators::dispatch::apply;
use crate::analysis::state::Analysis;
use crate::analysis::value::{TensorList, Val};
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::attribute::{int_attribute, ints_attribute};
use crate::file::node::Node;

/// The longest list that is put together tensor by tensor.
const LIST_MAX: usize = 512;

/// Applies `rule`, unless a part of the inputs is downstream of a diagnostic.
fn known(inputs: &Inputs, rule: impl FnOnce() -> Result<Val, String>) -> Result<Vec<Val>, String> {
    match inputs.iter().flatten().any(is_unknown) {
        true => Ok(vec![Val::Unknown]),
        false => rule().map(|val| vec![val]),
    }
}

/// `SequenceEmpty` and `SequenceConstruct`.
pub(crate) fn construct(_: &mut Analysis, _: &Node, inputs: &Inputs) -> Result<Vec<Val>, String> {
    known(inputs, || Ok(list(inputs.iter().flatten().cloned().collect())))
}

/// `SplitToSequence`.
pub(crate) fn split_to_list(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    known(inputs, || split(analysis, node, inputs))
}

/// `SequenceInsert`.
pub(crate) fn insert_into_list(
    _: &mut Analysis,
    _: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    known(inputs, || insert(inputs))
}

/// `SequenceAt`.
pub(crate) fn element_of_list(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    known(inputs, || at(analysis, node, inputs))
}

/// `SequenceLength`.
pub(crate) fn length_of_list(
    analysis: &mut Analysis,
    _: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    known(inputs, || length(analysis, inputs))
}

/// `ConcatFromSequence`.
pub(crate) fn concat_list(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    known(inputs, || concat(analysis, node, inputs))
}

/// Whether something of a value is downstream of a diagnostic.
fn is_unknown(val: &Val) -> bool {
    match val {
        Val::Unknown => true,
        Val::List(sequence) => match &**sequence {
            TensorList::Slices { tensor, .. } => is_unknown(tensor),
            TensorList::List(vals) => vals.iter().any(is_unknown),
            TensorList::Grown(val) => val.iter().any(is_unknown),
        },
        _ => false,
    }
}

fn list(vals: Vec<Val>) -> Val {
    Val::List(Rc::new(TensorList::List(vals)))
}

fn sequence(inputs: &Inputs) -> Result<&TensorList, String> {
    match input(inputs, 0)? {
        Val::List(sequence) => Ok(sequence),
        _ => Err("its input is no sequence".to_owned()),
    }
}

fn split(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let tensor = input(inputs, 0)?.clone();
    let axis = axis_of(node.int("axis").unwrap_or(0), tensor.dims().len())?;
    let keeps_axis = node.int("keepdims").unwrap_or(1) != 0;
    let Some(of) = inputs.get(1).and_then(Option::as_ref) else {
        return Ok(Val::List(Rc::new(TensorList::Slices { tensor, axis, keeps_axis })));
    };
    let sizes = match of {
        Val::Literal(literal) => literal.as_numbers().map(|sizes| (sizes, literal.shape().len())),
        _ => None,
    };
    let sizes = match sizes.ok_or("the lengths of its parts depend on the request")? {
        // ONNX Runtime and PyTorch's exporter read it so.
        (one, 0) if one == [1] => {
            return Ok(Val::List(Rc::new(TensorList::Slices { tensor, axis, keeps_axis })));
        }
        (one, 0) if one[0] > 0 => {
            let length = analysis.need_fixed(&tensor.dims()[axis], "splits")? as i64;
            (0..length).step_by(one[0] as usize).map(|at| one[0].min(length - at)).collect()
        }
        (sizes, _) => sizes,
    };
    let is_size = |size: &i64| (1..=1 << 31).contains(size);
    let length = analysis.fixed(&tensor.dims()[axis]);
    let total: Option<i64> = sizes.iter().all(is_size).then(|| sizes.iter().sum());
    if sizes.len() > LIST_MAX || total.is_none() || length.is_some_and(|n| total != Some(n as i64))
    {
        return Err(format!("{} parts that are not those of its axis", sizes.len()));
    }
    let mut parts = Vec::new();
    let mut from = 0;
    for size in sizes {
        let bounds = [from, from + size, axis as i64];
        from += size;
        let bounds = bounds.map(|n| Val::literal(Literal::ints(vec![Int::number(n)])));
        let inputs = [&[tensor.clone()][..], &bounds].concat();
        parts.push(apply(analysis, node, "Slice", Vec::new(), inputs)?);
    }
    Ok(list(parts))
}

fn insert(inputs: &Inputs) -> Result<Val, String> {
    let val = input(inputs, 1)?.clone();
    let place = match inputs.get(2).and_then(Option::as_ref) {
        None => None,
        Some(_) => Some(numbers_of_one(inputs, 2).ok_or("its position is not constant")?),
    };
    Ok(match sequence(inputs)? {
        TensorList::List(vals) => {
            if vals.len() >= LIST_MAX {
                return Err(format!("a list grows beyond {LIST_MAX} tensors"));
            }
            let mut vals = vals.clone();
            let place = match place {
                Some(place) => axis_of(place, vals.len() + 1)?,
                None => vals.len(),
            };
            vals.insert(place, val);
            list(vals)
        }
        TensorList::Grown(None) if place.is_none() => {
            Val::List(Rc::new(TensorList::Grown(Some(val))))
        }
        TensorList::Grown(_) => return Err("a step of a loop appends more than one tensor".into()),
        TensorList::Slices { .. } => return Err("it appends to the steps of a tensor".to_owned()),
    })
}

fn numbers_of_one(inputs: &Inputs, index: usize) -> Option<i64> {
    match int_list(inputs, index)?[..] {
        [ref one] => one.as_number(),
        _ => None,
    }
}

fn at(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    match sequence(inputs)? {
        TensorList::List(vals) => {
            let place = numbers_of_one(inputs, 1).ok_or("its position depends on the request")?;
            Ok(vals[axis_of(place, vals.len())?].clone())
        }
        TensorList::Slices { tensor, axis, keeps_axis } => {
            let position = int_list(inputs, 1).filter(|list| list.len() == 1);
            let position = position.ok_or("its position depends on the request")?.remove(0);
            let index = Val::literal(Literal::Int(Array::scalar(position), ElementType::I64));
            let along = vec![int_attribute("axis", *axis as i64)];
            let val = apply(analysis, node, "Gather", along, vec![tensor.clone(), index])?;
            match keeps_axis {
                true => unsqueeze(analysis, node, val, *axis),
                false => Ok(val),
            }
        }
        TensorList::Grown(_) => Err("it reads what the loop appends".to_owned()),
    }
}

fn length(analysis: &Analysis, inputs: &Inputs) -> Result<Val, String> {
    let length = match sequence(inputs)? {
        TensorList::List(vals) => Int::number(vals.len() as i64),
        TensorList::Slices { tensor, axis, .. } => analysis.axes.int(&tensor.dims()[*axis]),
        TensorList::Grown(_) => return Err("it counts what the loop appends".to_owned()),
    };
    Ok(Val::literal(Literal::Int(Array::scalar(length), ElementType::I64)))
}

fn concat(analysis: &mut Analysis, node: &Node, inputs: &Inputs) -> Result<Val, String> {
    let is_new = node.int("new_axis").unwrap_or(0) != 0;
    let axis = node.int("axis").ok_or("it has no axis")?;
    match sequence(inputs)? {
        TensorList::List(vals) => {
            let rank = vals.first().ok_or("it joins nothing")?.dims().len() + usize::from(is_new);
            let axis = axis_of(axis, rank)?;
            let mut parts = vals.clone();
            if is_new {
                for part in &mut parts {
                    *part = unsqueeze(analysis, node, part.clone(), axis)?;
                }
            }
            apply(analysis, node, "Concat", vec![int_attribute("axis", axis as i64)], parts)
        }
        TensorList::Slices { tensor, axis: own, keeps_axis } => {
            let (mut tensor, own) = (tensor.clone(), *own);
            let rank = tensor.dims().len() - usize::from(!keeps_axis) + usize::from(is_new);
            let axis = axis_of(axis, rank)?;
            if *keeps_axis {
                // As slices without the axis, of a tensor that has one of 1 beside it.
                tensor = unsqueeze(analysis, node, tensor, own + 1)?;
            }
            // The axis of slices to before the one that they are joined along.
            let rank = tensor.dims().len();
            let mut order: Vec<usize> = (0..rank).filter(|&at| at != own).collect();
            order.insert(axis, own);
            let perm = ints_attribute("perm", order.iter().map(|&at| at as i64).collect());
            let tensor = apply(analysis, node, "Transpose", vec![perm], vec![tensor])?;
            if is_new {
                return Ok(tensor);
            }
            let mut shape: Vec<Int> =
                tensor.dims().iter().map(|dim| analysis.axes.int(dim)).collect();
            let joined = shape.remove(axis);
            shape[axis] = joined.times(&shape[axis]);
            let shape = Val::literal(Literal::ints(shape));
            apply(analysis, node, "Reshape", Vec::new(), vec![tensor, shape])
        }
        TensorList::Grown(_) => Err("it joins what the loop appends".to_owned()),
    }
}

fn unsqueeze(analysis: &mut Analysis, node: &Node, val: Val, axis: usize) -> Result<Val, String> {
    apply(analysis, node, "Unsqueeze", vec![ints_attribute("axes", vec![axis as i64])], vec![val])
}
