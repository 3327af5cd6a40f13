//! Integers that pass 32 bits.
//!
//! Programs compute with integers of 32 bits, INT64 among them. Where the file does not prove that a sum or a product fits
//! them, and it is not derived of the request's own integers, FLOAT computes it too, and a request for which that is too large is
//! refused.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::DataType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::composed::composer::{Composer, number};
use crate::analysis::operators::dispatch::evaluate;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Source, Val, View};
use crate::data::dim::Dim;
use crate::data::int_range::IntRange;
use crate::data::symbol::BATCH;
use crate::file::attribute::int_attribute;
use crate::file::node::Node;

/// A FLOAT sum below this is one of an INT32, whatever the rounding.
const FITS: f32 = ((1u32 << 31) - (1 << 12)) as f32;

/// The most elements that are summed where the file leaves it open.
const ELEMENTS_MAX: usize = 1 << 26;

/// Has every request checked for INT64 sums and products of a node that do not fit 32 bits. `outputs` are the node's.
///
/// # Errors
/// Where one of its numbers does not fit them.
pub(in crate::analysis) fn check_overflow(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
    outputs: &[Val],
) -> Result<(), String> {
    let is_wide = |val: &Val| val.element().is_some_and(|e| e.stored() == ElementType::I64);
    let Some(output @ Val::View(view)) = outputs.first() else { return Ok(()) };
    if matches!(view.source, Source::Op(op, 0) if analysis.ops[op].is_derivable) {
        return Ok(());
    }
    let operator = &node.operator[..];
    let is_of_pairs = ["Add", "Sub", "Mul", "Sum"].contains(&operator);
    let is_of_one = is_reduction(operator) || ["Abs", "Neg"].contains(&operator);
    if !is_wide(output) || !analysis.can_check() || !(is_of_pairs || is_of_one) {
        return Ok(());
    }
    let ranges: Vec<IntRange> = inputs.iter().flatten().map(|val| range(analysis, val)).collect();
    let operands = if is_of_pairs { &ranges[..] } else { &ranges[..1] };
    if is_of_pairs && operands.iter().any(|range| !range.is_within(IntRange::ALL)) {
        return Err("a number of it passes 32 bits, which integers have in programs".to_owned());
    }
    let fits = match operator {
        "ReduceProd" | "ReduceSumSquare" => false,
        "Abs" | "Neg" => operands[0].low > IntRange::ALL.low,
        "CumSum" | "ReduceSum" => {
            let elements = elements(analysis, &inputs[0]) as i64;
            operands[0].times(IntRange { low: 0, high: elements }).is_within(IntRange::ALL)
        }
        _ => {
            let all = operands.iter().copied().reduce(|a, b| match operator {
                "Mul" => a.times(b),
                "Sub" => IntRange { low: a.low - b.high, high: a.high - b.low },
                _ => IntRange { low: a.low + b.low, high: a.high + b.high },
            });
            all.is_some_and(|range| range.is_within(IntRange::ALL))
        }
    };
    if fits {
        return Ok(());
    }
    let mut floats = inputs.to_vec();
    let mut to = Composer { analysis, node };
    let summed = if is_of_pairs { floats.len() } else { 1 };
    for val in floats[..summed].iter_mut().flatten() {
        *val = to.op_with("Cast", vec![int_attribute("to", DataType::FLOAT.0.into())], &[val])?;
    }
    let about = evaluate(to.analysis, node, &floats)?;
    let Some(about) = about.first() else { return Ok(()) };
    let size = to.op("Abs", &[about])?;
    let passes = to.op("GreaterOrEqual", &[&size, &number(FITS)])?;
    let to_int = vec![int_attribute("to", DataType::INT32.0.into())];
    if let Val::View(passes) = to.op_with("Cast", to_int, &[&passes])? {
        analysis.check_fits(node, &passes);
    }
    Ok(())
}

fn is_reduction(operator: &str) -> bool {
    ["CumSum", "ReduceSum", "ReduceProd", "ReduceSumSquare"].contains(&operator)
}

/// The integers that a value may hold.
fn range(analysis: &Analysis, val: &Val) -> IntRange {
    match val {
        Val::View(View { source: Source::Length(_), .. }) => {
            IntRange { low: 0, high: ELEMENTS_MAX as i64 }
        }
        Val::View(view) => analysis.range(view.source),
        Val::Literal(literal) | Val::Fill(literal, _) | Val::Repeat(literal, _) => {
            IntRange::of_numbers(literal, ELEMENTS_MAX as i64)
        }
        _ => IntRange::ALL,
    }
}

/// The most elements of a value that one sum may have.
fn elements(analysis: &Analysis, val: &Option<Val>) -> usize {
    let dims = val.as_ref().map(Val::dims).unwrap_or_default();
    let of = |dim: &Dim| match dim.as_symbol() {
        Some(BATCH) => Some(1),
        _ => analysis.fixed(dim),
    };
    let lengths: Option<Vec<usize>> = dims.iter().map(of).collect();
    let all = lengths.map(|lengths| lengths.into_iter().fold(1, usize::saturating_mul));
    all.unwrap_or(ELEMENTS_MAX).min(ELEMENTS_MAX)
}
