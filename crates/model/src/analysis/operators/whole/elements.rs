//! Element-wise operators, casts and matrix products.

use std::rc::Rc;

use batchmaker_graph::ElementType;
use rten_onnx::onnx::DataType;

use crate::analysis::operators::contract::check_floats;
use crate::analysis::operators::elementwise::{
    attributes, broadcast_dims, check_types, clip_bounds,
};
use crate::analysis::operators::whole::{Whole, has_batch, view, whole};
use crate::analysis::operators::{Inputs, apply, input, select};
use crate::analysis::{Analysis, Operand, Val};
use crate::data::array::Array;
use crate::data::literal::Literal;
use crate::data::symbolic::{Dim, Int};
use crate::file::attribute::int_attribute;
use crate::file::node::Node;
use crate::file::tensor::element_type;

/// A value that depends on the request, or a constant tensor, as it is.
pub(super) fn operand(val: &Val) -> Result<Operand, String> {
    match val {
        Val::View(view) => Ok(whole(view)),
        Val::Literal(literal) if literal.data().is_some() => Ok(Operand::Constant(literal.clone())),
        Val::Literal(literal) => match &**literal {
            Literal::Int(array, ElementType::I64) if array.shape.len() <= 1 => {
                Ok(Operand::Lengths(array.data.clone()))
            }
            _ => Err("an operand depends on the request's lengths".to_owned()),
        },
        Val::Fill(value, _) | Val::Repeat(value, _) if value.data().is_none() => {
            Err("an operand depends on the request's lengths".to_owned())
        }
        Val::Fill(value, _) => Ok(Operand::Constant(Rc::new(value.reshaped(&[])))),
        // Where it stands beside a tensor that has these axes.
        Val::Repeat(literal, _) => Ok(Operand::Constant(literal.clone())),
        Val::Sequence(_) | Val::Unknown => Err("an operand is unknown".to_owned()),
    }
}

pub(super) fn matmul(analysis: &mut Analysis, inputs: &Inputs) -> Result<Whole, String> {
    let is_filled = |val: &Val| matches!(val, Val::Fill(..) | Val::Repeat(..));
    let (a, b) = (input(inputs, 0)?, input(inputs, 1)?);
    check_floats(&[a, b])?;
    let (da, db) = (a.dims(), b.dims());
    if da.len() < 2 || db.len() < 2 || is_filled(a) || is_filled(b) {
        return Err("a product with a vector".to_owned());
    }
    let (ra, rb) = (da.len() - 2, db.len() - 2);
    let mut inner = da[ra + 1].clone();
    select::merge(analysis, &mut inner, &db[rb])?;
    let mut out = broadcast_dims(analysis, &[da[..ra].to_vec(), db[..rb].to_vec()])?;
    out.extend([da[ra].clone(), db[rb + 1].clone()]);
    let is_alone = |dim: &Dim, other: &Val| {
        !has_batch(std::slice::from_ref(dim)) || !matches!(other, Val::View(_))
    };
    let is_independent = !has_batch(std::slice::from_ref(&inner))
        && is_alone(&da[ra], b)
        && is_alone(&db[rb + 1], a);
    // Matrices along axis 0, or rows of one matrix times a constant one.
    let is_along_first = match (a, b) {
        (Val::View(_), Val::View(_)) => da.len() > 2 && da.len() == db.len(),
        (Val::View(_), _) => db.len() == 2,
        _ => false,
    };
    let operands = vec![operand(a)?, operand(b)?];
    let outputs = vec![(ElementType::F32, out)];
    let operator = "MatMul".to_owned();
    Ok(Whole { operator, attributes: vec![], operands, outputs, is_independent, is_along_first })
}

pub(super) fn elementwise(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Whole, String> {
    let operator = node.operator.as_str();
    let vals: Vec<&Val> = match operator {
        "Clip" => vec![input(inputs, 0)?],
        _ => (0..inputs.len()).map(|index| input(inputs, index)).collect::<Result<_, _>>()?,
    };
    check_types(operator, &vals)?;
    let all: Vec<Vec<Dim>> = vals.iter().map(|val| val.dims()).collect();
    let out = broadcast_dims(analysis, &all)?;
    let given: Vec<Vec<Dim>> = vals
        .iter()
        .filter(|val| !matches!(val, Val::Fill(..) | Val::Repeat(..)))
        .map(|val| val.dims())
        .collect();
    let is_given = broadcast_dims(analysis, &given)? == out;
    if !is_given && !analysis.draft {
        return Err("a constant is repeated along the axes of the request".to_owned());
    }
    let element = match operator {
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => ElementType::Bool,
        "Where" => vals.get(1).and_then(|val| val.element()).ok_or("it has no branches")?,
        _ => vals[0].element().unwrap_or(ElementType::F32),
    };
    let mut operands = vals.iter().map(|val| operand(val)).collect::<Result<Vec<_>, _>>()?;
    if operands.iter().any(|operand| matches!(operand, Operand::Lengths(_))) {
        return Err("an operand depends on the request's lengths".to_owned());
    }
    if operator == "Clip" {
        operands.extend(clip_bounds(node, inputs)?);
    }
    Ok(Whole {
        operator: operator.to_owned(),
        attributes: attributes(node)?,
        operands,
        outputs: vec![(element, out)],
        is_independent: true,
        is_along_first: false,
    })
}

pub(super) fn cast(node: &Node, inputs: &Inputs) -> Result<Whole, String> {
    let x = view(inputs, 0)?;
    let data_type = DataType(node.int("to").unwrap_or(0) as i32);
    Ok(Whole {
        operator: "Cast".to_owned(),
        attributes: vec![int_attribute("to", data_type.0.into())],
        operands: vec![whole(x)],
        outputs: vec![(element_type(data_type)?, x.dims.clone())],
        is_independent: true,
        is_along_first: true,
    })
}

/// The truth of numbers: all but zero are true.
pub(super) fn is_not_zero(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Val, String> {
    let x = view(inputs, 0)?.clone();
    let zero = match x.element {
        ElementType::Bool => return Ok(Val::View(x)),
        ElementType::F32 => Literal::F32(Array::scalar(0.0)),
        element => Literal::Int(Array::scalar(Int::number(0)), element),
    };
    let is_zero = apply(analysis, node, "Equal", vec![], vec![Val::View(x), Val::literal(zero)])?;
    apply(analysis, node, "Not", vec![], vec![is_zero])
}
