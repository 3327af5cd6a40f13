//! Lengths of the request, and numbers of a loop's steps, as data, where operators compute on them.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::DataType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::dispatch::apply;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Source, Val, View};
use crate::data::array::Array;
use crate::data::dim::Dim;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::data::symbol::{BATCH, Symbol, Windows};
use crate::file::attribute::int_attribute;
use crate::file::node::Node;

/// The symbolic length that a constant holds, if it holds one.
fn length_of(literal: &Literal) -> Option<Int> {
    let [int] = &literal.as_ints()?.data[..] else { return None };
    literal.data().is_none().then(|| int.clone())
}

/// The inputs with lengths turned into data; none if no input is a length.
pub(crate) fn as_data(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Option<Vec<Option<Val>>>, String> {
    let mut vals = inputs.to_vec();
    let mut is_any = false;
    for val in vals.iter_mut().flatten() {
        let (Val::Literal(literal) | Val::Fill(literal, _)) = &*val else { continue };
        let Some(int) = length_of(literal) else { continue };
        let (element, dims) = (literal.element(), val.dims());
        let one = length(analysis, node, &int, element, dims.len())?;
        *val = match val {
            Val::Fill(..) => {
                let shape = dims.iter().map(|dim| analysis.axes.int(dim)).collect();
                let shape = Val::literal(Literal::ints(shape));
                apply(analysis, node, "Expand", vec![], vec![one, shape])?
            }
            _ => one,
        };
        is_any = true;
    }
    Ok(is_any.then_some(vals))
}

fn length(
    analysis: &mut Analysis,
    node: &Node,
    int: &Int,
    element: ElementType,
    rank: usize,
) -> Result<Val, String> {
    let terms: Vec<(i64, Vec<Symbol>)> =
        int.terms().map(|(number, symbols)| (number, symbols.to_vec())).collect();
    let number =
        |n: i64| Val::literal(Literal::Int(Array::scalar(Int::number(n)), ElementType::I64));
    let mut sum = None;
    for (factor, symbols) in terms {
        let mut product = None;
        for symbol in symbols {
            let length = Val::View(of_axis(analysis, node, symbol)?);
            product = Some(match product {
                None => length,
                Some(product) => apply(analysis, node, "Mul", vec![], vec![product, length])?,
            });
        }
        let term = match product {
            None => number(factor),
            Some(product) if factor == 1 => product,
            Some(product) => apply(analysis, node, "Mul", vec![], vec![product, number(factor)])?,
        };
        sum = Some(match sum {
            None => term,
            Some(sum) => apply(analysis, node, "Add", vec![], vec![sum, term])?,
        });
    }
    let mut val = sum.ok_or("a length of nothing")?;
    let to = match element {
        ElementType::F32 => Some(DataType::FLOAT),
        ElementType::I32 => Some(DataType::INT32),
        _ => None,
    };
    if let Some(to) = to {
        val = apply(analysis, node, "Cast", vec![int_attribute("to", to.0.into())], vec![val])?;
    }
    match val {
        Val::View(view) => Ok(Val::View(View { dims: vec![Dim::fixed(1); rank], ..view })),
        _ => Err("a length that is known".to_owned()),
    }
}

/// The length of an axis; for the axis of a loop's steps, the number of steps up to this one.
fn of_axis(analysis: &mut Analysis, node: &Node, symbol: Symbol) -> Result<View, String> {
    let of_request = View {
        source: Source::Length(symbol),
        at: None,
        element: ElementType::I64,
        dims: Vec::new(),
    };
    if analysis.body.is_none() {
        return Ok(of_request);
    }
    let Some(counter) = analysis.counter(symbol) else {
        return Ok(analysis.capture_length(of_request, symbol));
    };
    let one = Val::literal(Literal::Int(Array::scalar(Int::number(1)), ElementType::I64));
    match apply(analysis, node, "Add", vec![], vec![Val::View(counter), one])? {
        Val::View(view) => Ok(view),
        _ => Err("a step without a number".to_owned()),
    }
}

/// A length divided by a number, rounded down: how many windows of that stride there are.
pub(crate) fn windows_of_length(analysis: &mut Analysis, operands: &[&Val]) -> Option<Val> {
    let [Val::Literal(a), Val::Literal(b)] = operands else { return None };
    if a.element() == ElementType::F32 || b.element() == ElementType::F32 {
        return None;
    }
    let ([length], [stride]) = (&a.as_ints()?.data[..], &b.as_ints()?.data[..]) else {
        return None;
    };
    let stride = stride.as_number().filter(|&stride| stride > 0)?;
    // The length of an axis and a number.
    let symbol = length.terms().find_map(|(number, symbols)| match symbols {
        [symbol] if number == 1 && *symbol != BATCH => Some(*symbol),
        _ => None,
    })?;
    let more = length.minus(&Int::symbol(symbol))?.as_number()?;
    let windows = Windows::new(more - stride, stride);
    let count = Int::symbol(analysis.axes.windows(symbol, windows));
    let shape = if a.shape().len() < b.shape().len() { b.shape() } else { a.shape() };
    Some(Val::literal(Literal::Int(Array::new(shape.to_vec(), vec![count]), a.element())))
}
