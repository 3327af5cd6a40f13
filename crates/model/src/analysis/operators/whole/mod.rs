//! Operators that are no function of rows: convolutions and pools along steps, reductions and softmax
//! over them, products between steps. They run on whole tensors, a sequence at a time where no operator
//! looks from one sequence at another.
//!
//! An operator whose tensors are `[rows, ...]` with all else fixed is a row's after all, and becomes
//! one.

use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::{AttributeProto, DataType};

use crate::analysis::operators::elementwise::is_elementwise;
use crate::analysis::operators::layout::int_list;
use crate::analysis::operators::{Inputs, input};
use crate::analysis::{Analysis, Domain, Operand, RowOp, Scope, Source, Val, View};
use crate::data::literal::Literal;
use crate::data::symbolic::{BATCH, Dim, Int, row_shape, steps};
use crate::file::node::Node;

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
    analysis.on_whole = true;
    let whole = match node.operator.as_str() {
        "Cast" if node.int("to") == Some(DataType::BOOL.0.into()) => {
            return elements::is_not_zero(analysis, node, inputs).map(|val| vec![val]);
        }
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
        "Dropout" => return crate::analysis::operators::layout::dropout(node, inputs),
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

/// Whether constants are repeated along steps alone: what is made of them depends on lengths, and on no
/// other sequence.
pub(crate) fn varies(inputs: &Inputs) -> bool {
    let is_filled = |val: &Val| matches!(val, Val::Fill(_, dims) if !steps(dims).is_empty());
    let of_batch = |val: &Val| has_batch(&val.dims());
    inputs.iter().flatten().any(is_filled) && !inputs.iter().flatten().any(of_batch)
}

/// The inputs, those that are constants repeated along steps as tensors.
pub(crate) fn made(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Option<Val>>, String> {
    let make = |val: &Option<Val>| match val {
        Some(Val::Fill(value, dims)) if !steps(dims).is_empty() => {
            let lengths = dims.iter().map(|dim| analysis.axes.int(dim)).collect();
            let mut operands = vec![Operand::Constant(value.clone()), Operand::Lengths(lengths)];
            operands.extend(steps(dims).into_iter().map(Operand::Length));
            let whole = Whole {
                operator: "Expand".to_owned(),
                attributes: Vec::new(),
                operands,
                outputs: vec![(value.element(), dims.clone())],
                is_independent: true,
                is_along_first: false,
            };
            Ok(emit(analysis, node, whole)?.pop())
        }
        other => Ok(other.clone()),
    };
    inputs.iter().map(make).collect()
}

/// As many first rows of a constant along `axis` as `dims` say.
pub(super) fn first_rows(
    analysis: &mut Analysis,
    node: &Node,
    literal: &Rc<Literal>,
    axis: usize,
    dims: Vec<Dim>,
) -> Result<Val, String> {
    let end = Operand::Lengths(vec![analysis.axes.int(&dims[axis])]);
    let mut operands =
        vec![Operand::Constant(literal.clone()), ints([0]), end, ints([axis as i64])];
    operands.extend(steps(&dims).into_iter().map(Operand::Length));
    let whole = Whole {
        operator: "Slice".to_owned(),
        attributes: Vec::new(),
        operands,
        outputs: vec![(literal.element(), dims)],
        is_independent: true,
        is_along_first: false,
    };
    emit(analysis, node, whole)?.pop().ok_or_else(|| "it gives nothing".to_owned())
}

/// A value as an operand of a loop.
pub(crate) fn operand_of(
    analysis: &mut Analysis,
    node: &Node,
    val: &Val,
) -> Result<Operand, String> {
    match made(analysis, node, &[Some(val.clone())])?.pop().flatten() {
        Some(Val::Fill(value, dims)) => {
            let shape: Vec<usize> = dims.iter().map(Dim::fixed_part).collect();
            Ok(Operand::Constant(Rc::new(value.expanded(&shape))))
        }
        Some(val) => elements::operand(&val),
        None => Err("a state that nothing makes".to_owned()),
    }
}

/// A `Loop` whose body is in its attributes.
pub(crate) fn emit_loop(
    analysis: &mut Analysis,
    node: &Node,
    attributes: Vec<AttributeProto>,
    operands: Vec<Operand>,
    outputs: Vec<(ElementType, Vec<Dim>)>,
) -> Result<Vec<Val>, String> {
    let operator = "Loop".to_owned();
    let (is_independent, is_along_first) = (false, false);
    let whole = Whole { operator, attributes, operands, outputs, is_independent, is_along_first };
    emit(analysis, node, whole)
}

/// Whether a tensor is made of the request's lengths alone.
fn is_of_lengths(analysis: &Analysis, source: Source) -> bool {
    let Source::Op(op, _) = source else { return false };
    analysis.ops[op].operands.iter().all(|operand| match operand {
        Operand::Whole { source, .. } | Operand::Rows { source, .. } => {
            is_of_lengths(analysis, *source)
        }
        _ => true,
    })
}

/// What is made of lengths and varies along several axes of steps, once more for a reader of that scope
/// and level: such tensors do not leave the segment that they are read in.
fn beside(analysis: &mut Analysis, operand: Operand, scope: Scope, level: usize) -> Operand {
    let Operand::Whole { source: Source::Op(index, port), at, dims } = operand else {
        return operand;
    };
    if steps(&dims).len() < 2 || !is_of_lengths(analysis, Source::Op(index, port)) {
        return Operand::Whole { source: Source::Op(index, port), at, dims };
    }
    let mut op = analysis.ops[index].clone();
    let operands = std::mem::take(&mut op.operands);
    op.operands = operands.into_iter().map(|o| beside(analysis, o, scope, level)).collect();
    (op.scope, op.level) = (scope, level);
    analysis.ops.push(op);
    Operand::Whole { source: Source::Op(analysis.ops.len() - 1, port), at, dims }
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
    let level = sources_of(&operands).map(|source| analysis.level(source)).max().unwrap_or(0);
    let mut domain = Domain::default();
    for (_, dims) in &outputs {
        domain = domain.union(Domain::of(dims));
    }
    let scope = if is_batched { Scope::Sequence } else { Scope::Request };
    let of_lengths = sources_of(&operands).all(|source| is_of_lengths(analysis, source));
    let operands = operands.into_iter().map(|operand| match of_lengths {
        true => operand,
        false => beside(analysis, operand, scope, level),
    });
    let operands = operands.collect();
    let index = analysis.ops.len();
    analysis.ops.push(RowOp {
        label: node.label.clone(),
        operator,
        attributes,
        operands,
        outputs: outputs.iter().map(|(e, dims)| RowSpec::new(*e, row_shape(dims))).collect(),
        domain,
        scope,
        whole: outputs.iter().map(|(_, dims)| dims.clone()).collect(),
        level,
        bound: None,
        counts: None,
    });
    let views = outputs.into_iter().enumerate().map(|(port, (element, dims))| {
        Val::View(View { source: Source::Op(index, port), at: None, element, dims })
    });
    Ok(views.collect())
}

fn sources_of(operands: &[Operand]) -> impl Iterator<Item = Source> + '_ {
    operands.iter().filter_map(|operand| match operand {
        Operand::Whole { source, .. } => Some(*source),
        _ => None,
    })
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
        Operand::Lengths(_) | Operand::Length(_) => None,
        other => Some(other.clone()),
    };
    operands.iter().map(operand).collect()
}
