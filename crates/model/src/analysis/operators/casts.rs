//! Casts between element types. Where both are stored alike, a cast only changes the type of the view.

use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::DataType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::arguments::input;
use crate::analysis::operators::dispatch::{apply, is_whole};
use crate::analysis::operators::fold;
use crate::analysis::operators::narrow::{data_type_of, range_of_type, wrapped};
use crate::analysis::operators::sequence_op::{SequenceOp, tensor};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Val, View};
use crate::data::array::Array;
use crate::data::dim::{row_shape, steps};
use crate::data::literal::Literal;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;
use crate::file::tensor::element_type;

/// `Cast`.
pub(crate) fn cast(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let to = element_type(DataType(node.int("to").unwrap_or(0) as i32))?;
    cast_to(analysis, node, input(inputs, 0)?, to).map(|val| vec![val])
}

/// `CastLike`.
pub(crate) fn cast_like(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    // A constant of another float type has become FLOAT.
    let to = match input(inputs, 1)? {
        Val::View(view) => Some(view.element),
        other => other.element().filter(|&element| element != ElementType::F32),
    };
    let to = to.ok_or("its type is that of a constant")?;
    cast_to(analysis, node, input(inputs, 0)?, to).map(|val| vec![val])
}

fn cast_to(
    analysis: &mut Analysis,
    node: &Node,
    val: &Val,
    to: ElementType,
) -> Result<Val, String> {
    let folded = |literal: &Literal| {
        fold::cast(literal, to).map(Rc::new).ok_or_else(|| "a cast of a shape".to_owned())
    };
    let view = match val {
        Val::Literal(literal) => return folded(literal).map(Val::Literal),
        Val::Fill(literal, dims) => return Ok(Val::Fill(folded(literal)?, dims.clone())),
        Val::Repeat(literal, dims) => return Ok(Val::Repeat(folded(literal)?, dims.clone())),
        Val::PerSequence(_) | Val::List(_) | Val::Unknown => return Ok(Val::Unknown),
        Val::View(view) => view,
    };
    let from = view.element;
    if from == to {
        return Ok(val.clone());
    }
    let relabelled = |view: &View| View { element: to, ..view.clone() };
    match to {
        ElementType::Bool => is_not_zero(analysis, node, view),
        _ if to.is_narrow() && from == ElementType::Bool => {
            physical(analysis, node, view, ElementType::F32)
                .map(|view| Val::View(relabelled(&view)))
        }
        _ if to.is_narrow() => {
            let is_within = match (range_of_type(from), range_of_type(to)) {
                (Some((low, high)), Some((least, greatest))) => least <= low && high <= greatest,
                _ => false,
            };
            if is_within {
                return Ok(Val::View(relabelled(view)));
            }
            let whole = physical(analysis, node, view, ElementType::I32)?;
            let whole = Val::View(View { element: ElementType::I32, ..whole });
            match wrapped(analysis, node, whole, to)? {
                Val::View(whole) => {
                    let view = physical(analysis, node, &whole, ElementType::F32)?;
                    Ok(Val::View(relabelled(&view)))
                }
                other => Ok(other),
            }
        }
        // The numbers of a narrow type, and those of a wider float, are floats as they stand.
        _ if to.is_float() && from.stored() == ElementType::F32 => {
            let view = relabelled(view);
            match (from.is_narrow(), to) {
                (false, ElementType::F16) => rounded(analysis, node, view, 11),
                (false, ElementType::Bf16) => rounded(analysis, node, view, 8),
                _ => Ok(Val::View(view)),
            }
        }
        ElementType::U32 | ElementType::U64 if from == ElementType::I64 => {
            unsigned(analysis, node, view, to)
        }
        _ if to.stored() == from.stored() => Ok(Val::View(relabelled(view))),
        ElementType::I64 | ElementType::U32 | ElementType::U64
            if from.stored() == ElementType::F32 && !from.is_narrow() =>
        {
            let whole = physical(analysis, node, view, ElementType::I64)?;
            analysis.check_cast(node, &whole);
            Ok(Val::View(relabelled(&whole)))
        }
        _ => match analysis.rounded_to_float(view).filter(|_| to.is_float()) {
            Some(floats) => Ok(Val::View(relabelled(&floats))),
            None => {
                let view = physical(analysis, node, view, to.stored())?;
                Ok(Val::View(relabelled(&view)))
            }
        },
    }
}

/// A cast of INT64 to integers without sign.
fn unsigned(
    analysis: &mut Analysis,
    node: &Node,
    view: &View,
    to: ElementType,
) -> Result<Val, String> {
    let relabelled = |view: &View| Val::View(View { element: to, ..view.clone() });
    if to == ElementType::U32 {
        let attributes = vec![int_attribute("to", data_type_of(to).0.into())];
        let operands = vec![analysis.operand(view)];
        let row = [RowSpec::new(ElementType::I64, row_shape(&view.dims))];
        if analysis.can_derive("Cast", &attributes, &operands, &row) {
            let outputs = vec![(ElementType::I64, view.dims.clone())];
            let vals = analysis.emit(node, "Cast", attributes, operands, outputs);
            return match vals.first() {
                Some(Val::View(view)) => Ok(relabelled(view)),
                _ => Err("it gives nothing".to_owned()),
            };
        }
    }
    if analysis.range(view.source).low < 0 {
        analysis.check_not_negative(node, view);
    }
    Ok(relabelled(view))
}

/// A cast that converts what is stored.
fn physical(
    analysis: &mut Analysis,
    node: &Node,
    view: &View,
    to: ElementType,
) -> Result<View, String> {
    let attributes = vec![int_attribute("to", data_type_of(to).0.into())];
    let outputs = vec![(to, view.dims.clone())];
    let is_whole = to != ElementType::I64 && is_whole(analysis, view);
    let mut vals = match steps(&view.dims).len() {
        0 | 1 if !is_whole => {
            let operands = vec![analysis.operand(view)];
            analysis.emit(node, "Cast", attributes, operands, outputs)
        }
        _ => {
            let op = SequenceOp {
                operator: "Cast".to_owned(),
                attributes,
                operands: vec![tensor(view)],
                outputs,
                is_independent: true,
                is_along_first: false,
            };
            op.add(analysis, node)?
        }
    };
    match vals.pop() {
        Some(Val::View(view)) => Ok(view),
        _ => Err("it gives nothing".to_owned()),
    }
}

/// Casts numbers to truth values: all but zero are true.
fn is_not_zero(analysis: &mut Analysis, node: &Node, view: &View) -> Result<Val, String> {
    let zero = Val::literal(Literal::zero(view.element));
    let is_zero = apply(analysis, node, "Equal", vec![], vec![Val::View(view.clone()), zero])?;
    apply(analysis, node, "Not", vec![], vec![is_zero])
}

/// Floats rounded to `digits` binary digits: what is left of x when (2^(24 - digits) + 1) x has taken its last ones
/// (Dekker's splitting).
fn rounded(analysis: &mut Analysis, node: &Node, view: View, digits: u32) -> Result<Val, String> {
    let factor = ((1u32 << (24 - digits)) + 1) as f32;
    let number = |x: f32| Val::literal(Literal::F32(Array::scalar(x)));
    let x = Val::View(view);
    let large = apply(analysis, node, "Mul", vec![], vec![x.clone(), number(factor)])?;
    let rest = apply(analysis, node, "Sub", vec![], vec![large.clone(), x.clone()])?;
    let rounded = apply(analysis, node, "Sub", vec![], vec![large, rest])?;
    // What would overflow stays as it is; so do infinities.
    let size = apply(analysis, node, "Abs", vec![], vec![x.clone()])?;
    let fits = apply(analysis, node, "Less", vec![], vec![size, number(f32::MAX / factor)])?;
    apply(analysis, node, "Where", vec![], vec![fits, rounded, x])
}
