//! Element-wise operators, which broadcast their operands.

use std::rc::Rc;

use batchmaker_graph::ElementType;
use rten_onnx::onnx::{AttributeProto, DataType};

use crate::analysis::operators::{Inputs, fold, input, layout, select};
use crate::analysis::{Analysis, Operand, Val, View};
use crate::data::array::Array;
use crate::data::literal::Literal;
use crate::data::symbolic::{BATCH, Dim, Int, Windows, row_shape};
use crate::file::attribute::{float_attribute, int_attribute, string_attribute};
use crate::file::node::Node;

const UNARY: &[&str] = &[
    "Abs",
    "Acos",
    "Asin",
    "Atan",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Log",
    "Neg",
    "Not",
    "Reciprocal",
    "Relu",
    "Round",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
];

const VARIADIC: &[&str] = &[
    "Add",
    "And",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "PRelu",
    "Pow",
    "Sub",
    "Sum",
    "Where",
    "Xor",
];

pub(crate) fn is_elementwise(operator: &str) -> bool {
    UNARY.contains(&operator) || VARIADIC.contains(&operator)
}

pub(super) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let operator = node.operator.as_str();
    let operands: Vec<&Val> = if operator == "Clip" {
        vec![input(inputs, 0)?]
    } else {
        (0..inputs.len()).map(|index| input(inputs, index)).collect::<Result<_, _>>()?
    };
    if operands.is_empty() {
        return Err("it has no inputs".to_owned());
    }
    let dims = broadcast(analysis, &operands)?;
    // Of the dividend's sign; as an operator of its own where constants are folded.
    let folded = match operator == "Mod" && node.int("fmod").unwrap_or(0) != 0 {
        true => "Fmod",
        false => operator,
    };
    if !operands.iter().any(|val| matches!(val, Val::View(_))) {
        if operands.iter().all(|val| matches!(val, Val::Literal(_))) {
            analysis.afford(&dims.iter().map(Dim::fixed_part).collect::<Vec<_>>())?;
        }
        return match constants(folded, &operands, dims) {
            Ok(val) => Ok(vec![val]),
            Err(reason) => halves(analysis, operator, &operands).ok_or(reason).map(|val| vec![val]),
        };
    }
    check_types(operator, &operands)?;
    if operator == "PRelu" {
        return p_relu(analysis, node, &operands, dims);
    }
    if let ("Softplus", Val::View(view)) = (operator, operands[0]) {
        return Ok(softplus(analysis, node, view));
    }
    if let ("Sign", Val::View(view)) = (operator, operands[0]) {
        return Ok(sign(analysis, node, view));
    }
    if let ("Celu" | "Selu", Val::View(view)) = (operator, operands[0]) {
        return Ok(scaled_elu(analysis, node, view));
    }
    if let ("Pow", Val::View(base), Some(2.0)) = (operator, operands[0], exponent(&operands))
        && dims == base.dims
    {
        let twice = vec![analysis.operand(base), analysis.operand(base)];
        let same = vec![(base.element, base.dims.clone())];
        return Ok(analysis.emit(node, "Mul", vec![], twice, same));
    }
    let element = match operator {
        "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" => ElementType::Bool,
        "Where" => operands.get(1).and_then(|val| val.element()).ok_or("it has no branches")?,
        _ => operands[0].element().unwrap_or(ElementType::F32),
    };
    let mut aligned = Vec::new();
    for val in &operands {
        aligned.push(align(analysis, val, &dims)?);
    }
    if operator == "Clip" {
        aligned.extend(clip_bounds(node, inputs)?);
    }
    let attributes = attributes(node)?;
    Ok(analysis.emit(node, operator, attributes, aligned, vec![(element, dims)]))
}

/// A length divided by a number, rounded down: how many windows of that stride there are.
fn halves(analysis: &mut Analysis, operator: &str, operands: &[&Val]) -> Option<Val> {
    let ("Div", [Val::Literal(a), Val::Literal(b)]) = (operator, operands) else { return None };
    if a.element() == ElementType::F32 || b.element() == ElementType::F32 {
        return None;
    }
    let ([length], [stride]) = (&a.as_ints()?.data[..], &b.as_ints()?.data[..]) else {
        return None;
    };
    let stride = stride.as_number().filter(|&stride| stride > 0)?;
    // The length of an axis and a number.
    let atom = length.terms().find_map(|(number, atoms)| match atoms {
        [atom] if number == 1 && *atom != BATCH => Some(*atom),
        _ => None,
    })?;
    let more = length.minus(&Int::atom(atom))?.as_number()?;
    let windows = Windows { extra: more - stride, stride };
    let count = Int::atom(analysis.axes.windows(atom, windows));
    let shape = if a.shape().len() < b.shape().len() { b.shape() } else { a.shape() };
    Some(Val::literal(Literal::Int(Array::new(shape.to_vec(), vec![count]), a.element())))
}

/// The one number that is an operator's second operand.
fn exponent(operands: &[&Val]) -> Option<f32> {
    match operands.get(1)? {
        Val::Literal(literal) | Val::Fill(literal, _) if literal.shape().len() <= 1 => {
            let data = &literal.as_f32()?.data;
            (data.len() == 1).then(|| data[0])
        }
        _ => None,
    }
}

/// `log(1 + exp(x))` as `max(x, 0) + log(1 + exp(-|x|))`, which has no overflow.
fn softplus(analysis: &mut Analysis, node: &Node, view: &View) -> Vec<Val> {
    let mut emit = |operator: &str, operands: Vec<Operand>| {
        let outputs = vec![(view.element, view.dims.clone())];
        let made = analysis.emit(node, operator, vec![], operands, outputs);
        match &made[0] {
            Val::View(view) => (analysis.operand(view), made),
            _ => unreachable!("an operator gives a view"),
        }
    };
    let x = Operand::Rows { source: view.source, at: view.at, shape: row_shape(&view.dims) };
    let one = Operand::Constant(Rc::new(Literal::F32(Array::scalar(1.0))));
    let (above, _) = emit("Relu", vec![x.clone()]);
    let (size, _) = emit("Abs", vec![x]);
    let (negative, _) = emit("Neg", vec![size]);
    let (power, _) = emit("Exp", vec![negative]);
    let (sum, _) = emit("Add", vec![power, one]);
    let (rest, _) = emit("Log", vec![sum]);
    emit("Add", vec![above, rest]).1
}

/// 1 above zero, -1 below, 0 at either zero.
fn sign(analysis: &mut Analysis, node: &Node, view: &View) -> Vec<Val> {
    let zero = match view.element {
        ElementType::F32 => Literal::F32(Array::scalar(0.0)),
        element => Literal::Int(Array::scalar(Int::number(0)), element),
    };
    let zero = Operand::Constant(Rc::new(zero));
    let to = match view.element {
        ElementType::F32 => DataType::FLOAT,
        ElementType::I64 => DataType::INT64,
        _ => DataType::INT32,
    };
    let mut parts = Vec::new();
    for operator in ["Greater", "Less"] {
        let operands = vec![analysis.operand(view), zero.clone()];
        let outputs = vec![(ElementType::Bool, view.dims.clone())];
        let found = analysis.emit(node, operator, vec![], operands, outputs);
        let Val::View(found) = &found[0] else { continue };
        let cast = vec![int_attribute("to", to.0.into())];
        let (operands, outputs) =
            (vec![analysis.operand(found)], vec![(view.element, view.dims.clone())]);
        let number = analysis.emit(node, "Cast", cast, operands, outputs);
        if let Val::View(number) = &number[0] {
            parts.push(analysis.operand(number));
        }
    }
    analysis.emit(node, "Sub", vec![], parts, vec![(view.element, view.dims.clone())])
}

/// The slope times x where x is below zero.
fn p_relu(
    analysis: &mut Analysis,
    node: &Node,
    operands: &[&Val],
    dims: Vec<Dim>,
) -> Result<Vec<Val>, String> {
    let (x, slope) = (align(analysis, operands[0], &dims)?, align(analysis, operands[1], &dims)?);
    let element = operands[0].element().unwrap_or(ElementType::F32);
    let zero = Operand::Constant(Rc::new(Literal::F32(Array::scalar(0.0))));
    let mut emit = |operator: &str, element, operands| {
        let made = analysis.emit(node, operator, vec![], operands, vec![(element, dims.clone())]);
        match &made[0] {
            Val::View(view) => (analysis.operand(view), made),
            _ => unreachable!("an operator gives a view"),
        }
    };
    let (below, _) = emit("Less", ElementType::Bool, vec![x.clone(), zero]);
    let (scaled, _) = emit("Mul", element, vec![x.clone(), slope]);
    Ok(emit("Where", element, vec![below, scaled, x]).1)
}

/// `Selu` is `gamma Elu(x)` with alpha its own; `Celu` is `alpha Elu(x / alpha)` with alpha 1.
fn scaled_elu(analysis: &mut Analysis, node: &Node, view: &View) -> Vec<Val> {
    let alpha = node.float("alpha");
    let (before, alpha, after) = match node.operator.as_str() {
        "Selu" => (1.0, alpha.unwrap_or(1.673_263_2), node.float("gamma").unwrap_or(1.050_701)),
        _ => (1.0 / alpha.unwrap_or(1.0), 1.0, alpha.unwrap_or(1.0)),
    };
    let number = |x: f32| Operand::Constant(Rc::new(Literal::F32(Array::scalar(x))));
    let same = || vec![(view.element, view.dims.clone())];
    let alpha = vec![float_attribute("alpha", alpha)];
    let mut val = Val::View(view.clone());
    for (operator, attributes, factor) in
        [("Mul", vec![], Some(before)), ("Elu", alpha, None), ("Mul", vec![], Some(after))]
    {
        let Val::View(view) = &val else { break };
        if factor != Some(1.0) {
            let mut operands = vec![analysis.operand(view)];
            operands.extend(factor.map(number));
            let mut made = analysis.emit(node, operator, attributes, operands, same());
            val = made.remove(0);
        }
    }
    vec![val]
}

/// The dimensions that operands broadcast to.
pub(super) fn broadcast(analysis: &mut Analysis, operands: &[&Val]) -> Result<Vec<Dim>, String> {
    let all: Vec<Vec<Dim>> = operands.iter().map(|val| val.dims()).collect();
    broadcast_dims(analysis, &all)
}

pub(super) fn broadcast_dims(
    analysis: &mut Analysis,
    all: &[Vec<Dim>],
) -> Result<Vec<Dim>, String> {
    let rank = all.iter().map(Vec::len).max().unwrap_or(0);
    let mut out = vec![Dim::fixed(1); rank];
    for dims in all {
        for (slot, dim) in out[rank - dims.len()..].iter_mut().zip(dims) {
            if slot.is_one() {
                *slot = dim.clone();
            } else if !dim.is_one() {
                select::merge(analysis, slot, dim)?;
            }
        }
    }
    Ok(out)
}

/// A value as an operand whose axes stand where those of `out`'s rows stand.
pub(super) fn align(analysis: &Analysis, val: &Val, out: &[Dim]) -> Result<Operand, String> {
    let dims = val.dims();
    let own = |axis: usize| (axis + dims.len()).checked_sub(out.len()).map(|axis| &dims[axis]);
    let shape: Vec<usize> = (0..out.len())
        .filter(|&axis| out[axis].in_row())
        .map(|axis| own(axis).filter(|dim| dim.in_row()).map_or(1, Dim::fixed_part))
        .collect();
    match val {
        Val::View(view) => Ok(Operand::Rows { source: view.source, at: view.at, shape }),
        Val::Fill(value, _) if value.data().is_none() && !analysis.draft => {
            Err("an operand depends on the request's lengths".to_owned())
        }
        Val::Fill(value, _) => {
            // As long as its own axes within a row are, which no other operand may have.
            let ones = shape.iter().take_while(|&&n| n == 1).count();
            let count = shape.iter().try_fold(1usize, |count, &n| count.checked_mul(n));
            if analysis.draft || count.is_none_or(|count| count > 1 << 20) {
                return Ok(Operand::Constant(value.clone()));
            }
            let value = crate::analysis::operators::layout::scalar(value)
                .ok_or("a fill of several numbers")?;
            Ok(Operand::Constant(Rc::new(value.expanded(&shape[ones..]))))
        }
        Val::Literal(literal) => {
            if analysis.draft {
                return Ok(Operand::Constant(literal.clone()));
            }
            let outside = (0..out.len()).filter(|&axis| !out[axis].in_row()).filter_map(own);
            if outside.clone().any(|dim| !dim.is_one()) {
                return Err("a constant that varies along batch or time".to_owned());
            }
            let is_wide = |n: &i64| i32::try_from(*n).is_err();
            if literal.as_numbers().is_some_and(|numbers| numbers.iter().any(is_wide)) {
                return Err("an integer that does not fit 32 bits".to_owned());
            }
            let ones = shape.iter().take_while(|&&n| n == 1).count();
            let aligned = literal.reshaped(&shape[ones..]);
            if aligned.data().is_none() {
                return Err("an operand depends on the request's lengths".to_owned());
            }
            Ok(Operand::Constant(Rc::new(aligned)))
        }
        Val::Repeat(..) => Err("a constant is repeated along batch or time".to_owned()),
        Val::Sequence(_) | Val::Unknown => Err("an operand is unknown".to_owned()),
    }
}

fn constants(operator: &str, operands: &[&Val], dims: Vec<Dim>) -> Result<Val, String> {
    let literals: Option<Vec<&Literal>> = operands
        .iter()
        .map(|val| match val {
            Val::Literal(literal) => Some(&**literal),
            _ => None,
        })
        .collect();
    let unfolded = || "a computation on constants that is not folded".to_owned();
    if let Some(literals) = literals {
        return fold::elementwise(operator, &literals).map(Val::literal).ok_or_else(unfolded);
    }
    let scalars: Option<Vec<Literal>> = operands
        .iter()
        .map(|val| match val {
            Val::Fill(value, _) => Some((**value).clone()),
            Val::Literal(literal) => layout::uniform(literal),
            _ => None,
        })
        .collect();
    let Some(scalars) = scalars else {
        return repeated(operator, operands, dims).ok_or_else(unfolded);
    };
    let scalars: Vec<&Literal> = scalars.iter().collect();
    let value = fold::elementwise(operator, &scalars).ok_or_else(unfolded)?;
    Ok(Val::Fill(Rc::new(value), dims))
}

/// Of constants and one number repeated along `dims`.
fn repeated(operator: &str, operands: &[&Val], dims: Vec<Dim>) -> Option<Val> {
    let once = operands.iter().map(|val| match val {
        Val::Fill(value, _) => Some((**value).clone()),
        Val::Literal(literal) => Some((**literal).clone()),
        _ => None,
    });
    let once: Vec<Literal> = once.collect::<Option<_>>()?;
    let folded = fold::elementwise(operator, &once.iter().collect::<Vec<_>>())?;
    let mut shape = vec![1; dims.len().checked_sub(folded.shape().len())?];
    shape.extend(folded.shape());
    let fits = |(&own, dim): (&usize, &Dim)| {
        own == 1 || (dim.atoms().next().is_none() && own == dim.fixed_part())
    };
    let fits = shape.iter().zip(&dims).all(fits);
    fits.then(|| layout::repeat(&folded.reshaped(&shape), dims).ok())?
}

/// Refuses integer arithmetic that could fail in the middle of a batch.
pub(super) fn check_types(operator: &str, operands: &[&Val]) -> Result<(), String> {
    let integer = |val: &Val| matches!(val.element(), Some(ElementType::I64 | ElementType::I32));
    if matches!(operator, "Div" | "Mod") && integer(operands[0]) {
        let nonzero = match operands.get(1) {
            Some(Val::Literal(literal) | Val::Fill(literal, _)) => {
                // By -1 the least integer overflows, which ends the process.
                let is_safe = |&number: &i64| {
                    i32::try_from(number).is_ok_and(|number| number != 0 && number != -1)
                };
                literal.as_numbers().is_some_and(|numbers| numbers.iter().all(is_safe))
            }
            _ => false,
        };
        if !nonzero {
            return Err("an integer is divided by one that may be 0 or -1".to_owned());
        }
    }
    let elements = operands.iter().map(|val| val.element());
    if operator == "Pow" && elements.clone().any(|element| element != operands[0].element()) {
        return Err("base and exponent are of different types".to_owned());
    }
    let is_of_any = matches!(operator, "Abs" | "Clip" | "Neg" | "Not" | "Sign");
    if integer(operands[0]) && UNARY.contains(&operator) && !is_of_any {
        return Err("integers are not supported".to_owned());
    }
    if operator == "Pow" && integer(operands[0]) {
        return Err("a power of integers is not supported".to_owned());
    }
    Ok(())
}

pub(super) fn clip_bounds(node: &Node, inputs: &Inputs) -> Result<Vec<Operand>, String> {
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

pub(super) fn attributes(node: &Node) -> Result<Vec<AttributeProto>, String> {
    let mut attributes = Vec::new();
    let floats: &[(&str, f32)] = match node.operator.as_str() {
        "Elu" => &[("alpha", 1.0)],
        "LeakyRelu" => &[("alpha", 0.01)],
        "HardSigmoid" => &[("alpha", 0.2), ("beta", 0.5)],
        _ => &[],
    };
    for &(name, default) in floats {
        attributes.push(float_attribute(name, node.float(name).unwrap_or(default)));
    }
    match node.operator.as_str() {
        "Gelu" => {
            let approximate = node.string("approximate").unwrap_or("none");
            attributes.push(string_attribute("approximate", approximate));
        }
        "Mod" => attributes.push(int_attribute("fmod", node.int("fmod").unwrap_or(0))),
        _ => {}
    }
    if node.has("broadcast") {
        return Err("the attribute `broadcast` of older opsets is not supported".to_owned());
    }
    Ok(attributes)
}
