//! Element-wise operators, which broadcast their operands: how they are added to the analysis on rows, and
//! which types they take.

use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::analysis::operator::{Elementwise, Inputs, Operands};
use crate::analysis::operators::arguments::{input, uniform};
use crate::analysis::operators::broadcast::{align_any, broadcast, refuse_wide, repeat};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Val};
use crate::data::array::Array;
use crate::data::dim::{Dim, row_shape};
use crate::data::literal::Literal;
use crate::file::node::Node;

/// The operands of an operator that computes element by element.
pub(crate) fn operands<'a>(
    elementwise: &Elementwise<Analysis>,
    inputs: &'a Inputs,
) -> Result<Vec<&'a Val>, String> {
    let count = match elementwise.operands {
        Operands::All => inputs.len(),
        Operands::First(_) => 1,
    };
    (0..count).map(|index| input(inputs, index)).collect()
}

/// The attributes that the executor is given.
pub(crate) fn attributes(
    elementwise: &Elementwise<Analysis>,
    node: &Node,
) -> Result<Vec<AttributeProto>, String> {
    match node.has("broadcast") {
        true => Err("the attribute `broadcast` of older opsets is not supported".to_owned()),
        false => Ok((elementwise.attributes)(node)),
    }
}

/// The entry in the table of operators of a node that computes element by element.
///
/// # Panics
/// If the node is of another operator.
pub(crate) fn entry(analysis: &Analysis, node: &Node) -> &'static Elementwise<Analysis> {
    let operator = analysis.operators.find(&node.operator);
    operator.and_then(|operator| operator.elementwise).expect("an element-wise operator")
}

/// An element-wise operator on rows.
pub(crate) fn on_rows(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let elementwise = entry(analysis, node);
    let operands = operands(elementwise, inputs)?;
    if operands.is_empty() {
        return Err("it has no inputs".to_owned());
    }
    let dims = broadcast(analysis, &operands)?;
    if !operands.iter().any(|val| matches!(val, Val::View(_))) {
        if operands.iter().all(|val| matches!(val, Val::Literal(_))) {
            analysis.afford(&dims.iter().map(Dim::fixed_part).collect::<Vec<_>>())?;
        }
        let folded = constants(elementwise, node, &operands, dims);
        return folded
            .or_else(|reason| {
                let of_lengths = elementwise.fold_lengths;
                of_lengths.and_then(|fold| fold(analysis, &operands)).ok_or(reason)
            })
            .map(|val| vec![val]);
    }
    (elementwise.check)(&operands)?;
    if let Some(rewrite) = elementwise.rewrite
        && let Some(outputs) = rewrite(analysis, node, &operands, &dims)?
    {
        return Ok(outputs);
    }
    let element = elementwise.gives.element(&operands)?;
    let aligned = operands.iter().map(|val| align_any(analysis, val, &dims));
    let mut aligned: Vec<Operand> = aligned.collect::<Result<_, _>>()?;
    let attributes = attributes(elementwise, node)?;
    let row = [RowSpec::new(element, row_shape(&dims))];
    if !analysis.can_derive(&node.operator, &attributes, &aligned, &row) {
        aligned.iter().try_for_each(|operand| refuse_wide(analysis, operand))?;
    }
    if let Operands::First(others) = elementwise.operands {
        aligned.extend(others(node, inputs)?);
    }
    Ok(analysis.emit(node, &node.operator, attributes, aligned, vec![(element, dims)]))
}

fn constants(
    elementwise: &Elementwise<Analysis>,
    node: &Node,
    operands: &[&Val],
    dims: Vec<Dim>,
) -> Result<Val, String> {
    let literals: Option<Vec<&Literal>> = operands
        .iter()
        .map(|val| match val {
            Val::Literal(literal) => Some(&**literal),
            _ => None,
        })
        .collect();
    let unfolded = || "a computation on constants that is not folded".to_owned();
    if let Some(literals) = literals {
        return (elementwise.fold)(node, &literals).map(Val::literal).ok_or_else(unfolded);
    }
    let scalars: Option<Vec<Literal>> = operands
        .iter()
        .map(|val| match val {
            Val::Fill(value, _) => Some((**value).clone()),
            Val::Literal(literal) => uniform(literal),
            _ => None,
        })
        .collect();
    let Some(scalars) = scalars else {
        return repeated(elementwise, node, operands, dims).ok_or_else(unfolded);
    };
    let scalars: Vec<&Literal> = scalars.iter().collect();
    let value = (elementwise.fold)(node, &scalars).ok_or_else(unfolded)?;
    Ok(Val::Fill(Rc::new(value), dims))
}

/// Folds constants of which some are one number repeated along `dims`.
fn repeated(
    elementwise: &Elementwise<Analysis>,
    node: &Node,
    operands: &[&Val],
    dims: Vec<Dim>,
) -> Option<Val> {
    let once = operands.iter().map(|val| match val {
        Val::Fill(value, _) => Some((**value).clone()),
        Val::Literal(literal) => Some((**literal).clone()),
        _ => None,
    });
    let once: Vec<Literal> = once.collect::<Option<_>>()?;
    let folded = (elementwise.fold)(node, &once.iter().collect::<Vec<_>>())?;
    let mut shape = vec![1; dims.len().checked_sub(folded.shape().len())?];
    shape.extend(folded.shape());
    let fits = |(&own, dim): (&usize, &Dim)| {
        own == 1 || (dim.symbols().next().is_none() && own == dim.fixed_part())
    };
    let fits = shape.iter().zip(&dims).all(fits);
    fits.then(|| repeat(&folded.reshaped(&shape), dims).ok())?
}

/// Whether a value holds integers.
fn is_integer(val: &Val) -> bool {
    val.element().is_some_and(ElementType::is_integer)
}

/// Refuses integers.
pub(crate) fn check_floats(operands: &[&Val]) -> Result<(), String> {
    match is_integer(operands[0]) {
        true => Err("integers are not supported".to_owned()),
        false => Ok(()),
    }
}

/// Refuses a division of integers that could fail in the middle of a batch.
pub(crate) fn check_division(operands: &[&Val]) -> Result<(), String> {
    if !is_integer(operands[0]) {
        return Ok(());
    }
    let is_safe = match operands.get(1) {
        Some(Val::Literal(literal) | Val::Fill(literal, _)) => {
            // The least integer divided by -1 overflows, which ends the process.
            let is_safe = |&number: &i64| number != 0 && number != -1;
            literal.as_numbers().is_some_and(|numbers| numbers.iter().all(is_safe))
        }
        _ => false,
    };
    match is_safe {
        true => Ok(()),
        false => Err("an integer is divided by one that may be 0 or -1".to_owned()),
    }
}

/// Refuses powers of integers, and a base and an exponent of different types.
pub(crate) fn check_power(operands: &[&Val]) -> Result<(), String> {
    if operands.iter().any(|val| val.element() != operands[0].element()) {
        return Err("base and exponent are of different types".to_owned());
    }
    match is_integer(operands[0]) {
        true => Err("a power of integers is not supported".to_owned()),
        false => Ok(()),
    }
}

/// The bounds of a `Clip`.
pub(crate) fn clip_bounds(node: &Node, inputs: &Inputs) -> Result<Vec<Operand>, String> {
    let mut bounds = Vec::new();
    for (index, name) in [(1, "min"), (2, "max")] {
        bounds.push(match (inputs.get(index).and_then(Option::as_ref), node.float(name)) {
            (Some(Val::Literal(literal)), _) if literal.data().is_some_and(|d| d.len() == 1) => {
                Operand::Constant(Rc::new(literal.reshaped(&[])))
            }
            (Some(_), _) => return Err(format!("its {name} is not a constant scalar")),
            (None, Some(x)) => Operand::Constant(Rc::new(Literal::F32(Array::scalar(x)))),
            (None, None) => Operand::Absent,
        });
    }
    Ok(bounds)
}
