//! Operators that are no function of rows: convolutions and pools along steps, reductions and softmax
//! over them, products between steps. They run on whole tensors, a sequence at a time where no operator
//! looks from one sequence at another.
//!
//! An operator whose tensors are `[rows, ...]` with all else fixed is a row's after all, and becomes
//! one.

use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::AttributeProto;

use super::elementwise::is_elementwise;
use super::layout::int_list;
use super::{Inputs, input};
use crate::analysis::{Analysis, Domain, Operand, RowOp, Scope, Source, Val, View};
use crate::literal::Literal;
use crate::onnx_file::Node;
use crate::symbolic::{BATCH, Dim, Int, row_shape, steps};

mod along;
mod elements;
mod layout;
mod windows;

/// What a node is on whole tensors.
struct Whole {
    operator: String,
    attributes: Vec<AttributeProto>,
    operands: Vec<Operand>,
    outputs: Vec<(ElementType, Vec<Dim>)>,
    /// Whether a sequence's part of the outputs depends on its part of the inputs alone.
    is_independent: bool,
    /// Whether so does each part along axis 0, which is that of the outputs too.
    is_along_first: bool,
}

/// Operators on rows that are known on whole tensors too.
pub(crate) fn is_known(operator: &str) -> bool {
    const OTHERS: &[&str] = &[
        "ArgMax",
        "ArgMin",
        "Cast",
        "Concat",
        "Dropout",
        "Expand",
        "Flatten",
        "Identity",
        "LayerNormalization",
        "LogSoftmax",
        "MatMul",
        "Reshape",
        "Slice",
        "Softmax",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    ];
    let on_rows_alone = matches!(operator, "Celu" | "PRelu" | "Selu" | "Sign" | "Softplus");
    let is_elementwise = is_elementwise(operator) && !on_rows_alone;
    OTHERS.contains(&operator) || operator.starts_with("Reduce") || is_elementwise
}

/// The node's outputs, or why it cannot be served.
pub(crate) fn evaluate(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Val>, String> {
    let whole = match node.operator.as_str() {
        "Conv" => windows::convolution(analysis, node, inputs),
        "MaxPool" | "AveragePool" => windows::pool(analysis, node, inputs),
        "GlobalAveragePool" | "GlobalMaxPool" => windows::global_pool(node, inputs),
        "Pad" => windows::pad(analysis, node, inputs),
        "Softmax" | "LogSoftmax" => along::softmax(analysis, node, inputs),
        "ArgMax" | "ArgMin" => along::arg(node, inputs),
        "MatMul" => elements::matmul(analysis, inputs),
        "Transpose" => layout::transpose(node, inputs),
        "Reshape" => {
            let target = int_list(inputs, 1).ok_or("its shape is not constant")?;
            let keep_zero = node.int("allowzero").unwrap_or(0) != 0;
            let out =
                layout::reshaped(analysis, &view(inputs, 0)?.dims.clone(), target, keep_zero)?;
            layout::relabelled(analysis, inputs, out)
        }
        "Flatten" | "Squeeze" | "Unsqueeze" => layout::regrouped(analysis, node, inputs),
        "Expand" => layout::expand(analysis, inputs),
        "Cast" => elements::cast(node, inputs),
        "Identity" => return Ok(vec![input(inputs, 0)?.clone()]),
        "Dropout" => return super::layout::dropout(node, inputs),
        "Concat" => layout::concat(analysis, node, inputs),
        "Slice" => layout::slice(analysis, node, inputs),
        "LayerNormalization" => along::layer_normalization(analysis, node, inputs),
        "Trilu" => along::trilu(analysis, node, inputs),
        "CumSum" => along::cumulative_sum(node, inputs),
        operator if operator.starts_with("Reduce") => along::reduce(node, inputs),
        operator if is_elementwise(operator) => elements::elementwise(analysis, node, inputs),
        _ => Err("not supported".to_owned()),
    }?;
    emit(analysis, node, whole)
}

fn view(inputs: &Inputs, index: usize) -> Result<&View, String> {
    match input(inputs, index)? {
        Val::View(view) => Ok(view),
        _ => Err(format!("its input {index} does not depend on the request")),
    }
}

fn literal(inputs: &Inputs, index: usize, name: &str) -> Result<Rc<Literal>, String> {
    match input(inputs, index)? {
        Val::Literal(literal) if literal.data().is_some() => Ok(literal.clone()),
        _ => Err(format!("its {name} is not constant")),
    }
}

fn whole(view: &View) -> Operand {
    Operand::Whole { source: view.source, at: view.at, dims: view.dims.clone() }
}

fn ints(values: impl IntoIterator<Item = i64>) -> Operand {
    Operand::Constant(Rc::new(Literal::ints(values.into_iter().map(Int::number).collect())))
}

fn has_batch(dims: &[Dim]) -> bool {
    dims.iter().any(|dim| dim.atoms().any(|atom| atom == BATCH))
}

/// Adds the operator; gives a view of each output.
fn emit(analysis: &mut Analysis, node: &Node, whole: Whole) -> Result<Vec<Val>, String> {
    let Whole { operator, attributes, operands, outputs, is_independent, is_along_first } = whole;
    let batches =
        |dims: &Vec<Dim>| dims.iter().flat_map(Dim::atoms).filter(|&a| a == BATCH).count();
    if !analysis.draft && outputs.iter().any(|(_, dims)| batches(dims) > 1) {
        return Err("the batch is two of its axes".to_owned());
    }
    let on_rows = on_rows(&operands, &outputs).filter(|_| is_along_first && !analysis.draft);
    if let Some(operands) = on_rows {
        if operator == "Conv"
            && let Some(val) =
                windows::convolution_of_rows(analysis, node, &attributes, &operands, &outputs[0].1)
        {
            return Ok(vec![val]);
        }
        return Ok(analysis.emit(node, &operator, attributes, operands, outputs));
    }
    let mut of = operands.iter().filter_map(|operand| match operand {
        Operand::Whole { dims, .. } => Some(dims),
        _ => None,
    });
    let is_batched = of.any(|dims| has_batch(dims));
    if !analysis.draft && (analysis.is_cell || (is_batched && !is_independent)) {
        if !analysis.is_cell && analysis.axes.length(BATCH).is_none() {
            // The next pass takes one sequence a request.
            analysis.bind(BATCH, 1);
        } else {
            return Err("rows of the batch interact".to_owned());
        }
    }
    let sources = operands.iter().filter_map(|operand| match operand {
        Operand::Whole { source, .. } => Some(*source),
        _ => None,
    });
    let level = sources.map(|source| analysis.level(source)).max().unwrap_or(0);
    let mut domain = Domain::default();
    for (_, dims) in &outputs {
        domain = domain.union(Domain::of(dims));
    }
    let index = analysis.ops.len();
    analysis.ops.push(RowOp {
        label: node.label.clone(),
        operator,
        attributes,
        operands,
        outputs: outputs.iter().map(|(e, dims)| RowSpec::new(*e, row_shape(dims))).collect(),
        domain,
        scope: if is_batched { Scope::Sequence } else { Scope::Request },
        whole: outputs.iter().map(|(_, dims)| dims.clone()).collect(),
        level,
        bound: None,
    });
    let views = outputs.into_iter().enumerate().map(|(port, (element, dims))| {
        Val::View(View { source: Source::Op(index, port), at: None, element, dims })
    });
    Ok(views.collect())
}

/// The operands as those of a row's operator: all tensors are `[rows, ...]`, and the rest is fixed.
fn on_rows(operands: &[Operand], outputs: &[(ElementType, Vec<Dim>)]) -> Option<Vec<Operand>> {
    let lead = outputs.first()?.1.first()?;
    let is_of_rows = |dims: &[Dim]| {
        dims.split_first().is_some_and(|(first, rest)| {
            first == lead && !first.in_row() && rest.iter().all(|dim| dim.atoms().next().is_none())
        })
    };
    if steps(std::slice::from_ref(lead)).len() > 1 || !outputs.iter().all(|(_, d)| is_of_rows(d)) {
        return None;
    }
    let operand = |operand: &Operand| match operand {
        Operand::Whole { source, at, dims } => {
            let rows = Operand::Rows { source: *source, at: *at, shape: row_shape(dims) };
            is_of_rows(dims).then_some(rows)
        }
        Operand::Lengths(_) => None,
        other => Some(other.clone()),
    };
    operands.iter().map(operand).collect()
}
