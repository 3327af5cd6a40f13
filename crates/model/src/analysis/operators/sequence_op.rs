//! Adds sequence-level operators to the analysis: on whole tensors, a sequence at a time where no operator
//! looks from one sequence at another.
//!
//! An operator whose tensors are `[rows, ...]` with all else fixed is a row's after all, and becomes
//! one.

use std::rc::Rc;

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::analysis::operator::Inputs;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand, RowOp, Scope, Source, Val, View};
use crate::data::dim::{Dim, row_shape, steps};
use crate::data::int::Int;
use crate::data::int_range::IntRange;
use crate::data::literal::Literal;
use crate::data::symbol::BATCH;
use crate::file::node::Node;

/// An operator on whole tensors.
pub(crate) struct SequenceOp {
    pub(crate) operator: String,
    pub(crate) attributes: Vec<AttributeProto>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) outputs: Vec<(ElementType, Vec<Dim>)>,
    /// Whether a sequence's part of the outputs depends on its part of the inputs alone.
    pub(crate) is_independent: bool,
    /// Whether each part of the outputs along axis 0 depends on the same part of the inputs alone.
    pub(crate) is_along_first: bool,
}

impl SequenceOp {
    /// Adds the operator; gives a view of each output.
    pub(crate) fn add(self, analysis: &mut Analysis, node: &Node) -> Result<Vec<Val>, String> {
        self.add_as(analysis, node, None)
    }

    /// As [`Self::add`]. `of_rows` writes it in other operators, if it turns out to be an operator on rows.
    pub(crate) fn add_as(
        self,
        analysis: &mut Analysis,
        node: &Node,
        of_rows: Option<OfRows>,
    ) -> Result<Vec<Val>, String> {
        let Self { operator, attributes, operands, outputs, is_independent, is_along_first } = self;
        let batches =
            |dims: &Vec<Dim>| dims.iter().flat_map(Dim::symbols).filter(|&a| a == BATCH).count();
        let has_batch_twice = outputs.iter().any(|(_, dims)| batches(dims) > 1);
        analysis.require(!has_batch_twice, || "the batch is two of its axes".to_owned())?;
        // What only reads whole tensors stays with the operators that make them.
        let stays_whole = is_independent && are_whole(analysis, &operands);
        let is_of_rows = is_along_first && analysis.has_roles() && !stays_whole;
        let on_rows = on_rows(&operands, &outputs).filter(|_| is_of_rows);
        if let Some(operands) = on_rows {
            if let Some(of_rows) = of_rows
                && let Some(val) = of_rows(analysis, node, &attributes, &operands, &outputs[0].1)
            {
                return Ok(vec![val]);
            }
            return Ok(analysis.emit(node, &operator, attributes, operands, outputs));
        }
        let mut of = operands.iter().filter_map(|operand| match operand {
            Operand::Tensor { dims, .. } => Some(dims),
            _ => None,
        });
        let is_batched =
            of.any(|dims| has_batch(dims)) || outputs.iter().any(|(_, dims)| has_batch(dims));
        if analysis.has_roles() && (analysis.is_cell() || (is_batched && !is_independent)) {
            if !analysis.is_cell() && analysis.axes.length(BATCH).is_none() {
                // The next pass takes one sequence a request.
                analysis.bind(BATCH, 1);
            } else {
                return Err("rows of the batch interact".to_owned());
            }
        }
        let recurrence_depth = sources_of(&operands)
            .map(|source| analysis.recurrence_depth(source))
            .max()
            .unwrap_or(0);
        let mut domain = Domain::default();
        for (_, dims) in &outputs {
            analysis.join_steps(dims);
            domain = domain.union(analysis.domain_of(dims));
        }
        let scope = if is_batched { Scope::Sequence } else { Scope::Request };
        let of_lengths = sources_of(&operands).all(|source| is_of_lengths(analysis, source));
        let operands = operands.into_iter().map(|operand| match of_lengths {
            true => operand,
            false => beside(analysis, operand, scope, recurrence_depth),
        });
        let operands: Vec<Operand> = operands.collect();
        let index = analysis.ops.len();
        let range = analysis.range_of(&operator, &attributes, &operands, IntRange::ALL);
        analysis.ops.push(RowOp {
            label: node.label.clone(),
            operator,
            attributes,
            operands,
            outputs: outputs.iter().map(|(e, dims)| RowSpec::new(*e, row_shape(dims))).collect(),
            domain,
            scope,
            tensor_dims: outputs.iter().map(|(_, dims)| dims.clone()).collect(),
            recurrence_depth,
            range,
            is_derivable: false,
            counts: None,
        });
        let views = outputs.into_iter().enumerate().map(|(port, (element, dims))| {
            Val::View(View { source: Source::Op(index, port), at: None, element, dims })
        });
        Ok(views.collect())
    }
}

/// Writes an operator on rows in others, given its attributes, operands and the dimensions of its output;
/// none: it stays as it is.
pub(crate) type OfRows =
    fn(&mut Analysis, &Node, &[AttributeProto], &[Operand], &[Dim]) -> Option<Val>;

/// Whether constants are repeated along steps, and nothing depends on the batch: the result depends on lengths
/// alone, and on no other sequence. Constants of several numbers may be repeated along the batch.
pub(crate) fn varies(inputs: &Inputs) -> bool {
    let is_filled = |val: &Val| matches!(val, Val::Fill(_, dims) if !steps(dims).is_empty());
    let of_batch = |val: &Val| has_batch(&val.dims());
    let is_repeated = |val: &Val| matches!(val, Val::Repeat(..));
    (inputs.iter().flatten().any(is_filled) && !inputs.iter().flatten().any(of_batch))
        || inputs.iter().flatten().any(is_repeated)
}

/// Whether a constant is repeated along steps, or, if it is not one number, along the batch.
fn varies_along(val: &Option<Val>) -> bool {
    match val {
        Some(Val::Fill(_, dims)) => !steps(dims).is_empty(),
        Some(Val::Repeat(..)) => true,
        _ => false,
    }
}

/// The inputs with constants that are repeated along steps or the batch turned into tensors.
pub(crate) fn materialised(
    analysis: &mut Analysis,
    node: &Node,
    inputs: &Inputs,
) -> Result<Vec<Option<Val>>, String> {
    let make = |val: &Option<Val>| match val {
        Some(Val::Fill(value, dims) | Val::Repeat(value, dims)) if varies_along(val) => {
            let lengths = dims.iter().map(|dim| analysis.axes.open_int(dim)).collect();
            let mut operands = vec![Operand::Constant(value.clone()), Operand::Lengths(lengths)];
            operands.extend(steps(dims).into_iter().map(Operand::Length));
            let op = SequenceOp {
                operator: "Expand".to_owned(),
                attributes: Vec::new(),
                operands,
                outputs: vec![(value.element(), dims.clone())],
                is_independent: true,
                is_along_first: false,
            };
            Ok(op.add(analysis, node)?.pop())
        }
        other => Ok(other.clone()),
    };
    inputs.iter().map(make).collect()
}

/// The first rows of a constant along `axis`: as many as `dims[axis]`.
pub(crate) fn first_rows_of(
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
    let op = SequenceOp {
        operator: "Slice".to_owned(),
        attributes: Vec::new(),
        operands,
        outputs: vec![(literal.element(), dims)],
        is_independent: true,
        is_along_first: false,
    };
    op.add(analysis, node)?.pop().ok_or_else(|| "it gives nothing".to_owned())
}

/// A value as an operand of a loop.
pub(crate) fn operand_of(
    analysis: &mut Analysis,
    node: &Node,
    val: &Val,
) -> Result<Operand, String> {
    match materialised(analysis, node, &[Some(val.clone())])?.pop().flatten() {
        Some(Val::Fill(value, dims)) => {
            let shape: Vec<usize> = dims.iter().map(Dim::fixed_part).collect();
            Ok(Operand::Constant(Rc::new(value.expanded(&shape))))
        }
        Some(val) => operand(&val),
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
    let op = SequenceOp { operator, attributes, operands, outputs, is_independent, is_along_first };
    op.add(analysis, node)
}

/// Whether a tensor is made of the request's lengths alone.
fn is_of_lengths(analysis: &Analysis, source: Source) -> bool {
    let Source::Op(op, _) = source else { return false };
    analysis.ops[op].operands.iter().all(|operand| match operand {
        Operand::Tensor { source, .. } | Operand::Rows { source, .. } => {
            is_of_lengths(analysis, *source)
        }
        _ => true,
    })
}

/// Duplicates the operator behind an operand that is made of lengths and varies along several axes of steps, for
/// a reader of that scope and recurrence depth: such tensors do not leave the segment that reads them.
fn beside(
    analysis: &mut Analysis,
    operand: Operand,
    scope: Scope,
    recurrence_depth: usize,
) -> Operand {
    let Operand::Tensor { source: Source::Op(index, port), at, dims } = operand else {
        return operand;
    };
    let is_alone = steps(&dims).len() < 2 && !has_batch(&dims);
    if is_alone || !is_of_lengths(analysis, Source::Op(index, port)) {
        return Operand::Tensor { source: Source::Op(index, port), at, dims };
    }
    let mut op = analysis.ops[index].clone();
    let operands = std::mem::take(&mut op.operands);
    op.operands =
        operands.into_iter().map(|o| beside(analysis, o, scope, recurrence_depth)).collect();
    (op.scope, op.recurrence_depth) = (scope, recurrence_depth);
    analysis.ops.push(op);
    Operand::Tensor { source: Source::Op(analysis.ops.len() - 1, port), at, dims }
}

pub(crate) fn tensor(view: &View) -> Operand {
    Operand::Tensor { source: view.source, at: view.at, dims: view.dims.clone() }
}

pub(crate) fn ints(values: impl IntoIterator<Item = i64>) -> Operand {
    Operand::Constant(Rc::new(Literal::ints(values.into_iter().map(Int::number).collect())))
}

/// A vector of lengths with the operands that make them known. The number of sequences is that of the run.
pub(crate) fn lengths(ints: Vec<Int>) -> Vec<Operand> {
    let all = ints.iter().flat_map(Int::symbols);
    let mut symbols: Vec<_> = all.filter(|&symbol| symbol != BATCH).collect();
    symbols.sort_unstable();
    symbols.dedup();
    let mut operands = vec![Operand::Lengths(ints)];
    operands.extend(symbols.into_iter().map(Operand::Length));
    operands
}

pub(crate) fn has_batch(dims: &[Dim]) -> bool {
    dims.iter().any(|dim| dim.symbols().any(|symbol| symbol == BATCH))
}

fn sources_of(operands: &[Operand]) -> impl Iterator<Item = Source> + '_ {
    operands.iter().filter_map(|operand| match operand {
        Operand::Tensor { source, .. } => Some(*source),
        _ => None,
    })
}

/// Whether all operands that depend on the request are outputs of operators on whole tensors.
fn are_whole(analysis: &Analysis, operands: &[Operand]) -> bool {
    let is_whole = |operand: &Operand| match operand {
        Operand::Tensor { source, at, .. } => {
            at.is_none()
                && matches!(*source, Source::Op(op, _) if analysis.ops[op].scope != Scope::Row)
        }
        Operand::Constant(_) | Operand::Absent => true,
        _ => false,
    };
    operands.iter().any(|operand| matches!(operand, Operand::Tensor { .. }))
        && !analysis.is_cell()
        && operands.iter().all(is_whole)
}

/// The operands as those of a row's operator: all tensors are `[rows, ...]`, and the rest is fixed.
fn on_rows(operands: &[Operand], outputs: &[(ElementType, Vec<Dim>)]) -> Option<Vec<Operand>> {
    let lead = outputs.first()?.1.first()?;
    let is_of_rows = |dims: &[Dim]| {
        dims.split_first().is_some_and(|(first, rest)| {
            first == lead
                && !first.in_row()
                && rest.iter().all(|dim| dim.symbols().next().is_none())
        })
    };
    if steps(std::slice::from_ref(lead)).len() > 1 || !outputs.iter().all(|(_, d)| is_of_rows(d)) {
        return None;
    }
    let operand = |operand: &Operand| match operand {
        Operand::Tensor { source, at, dims } => {
            let rows = Operand::Rows { source: *source, at: *at, shape: row_shape(dims) };
            is_of_rows(dims).then_some(rows)
        }
        Operand::Lengths(_) | Operand::Length(_) => None,
        other => Some(other.clone()),
    };
    operands.iter().map(operand).collect()
}

/// A value that depends on the request, or a constant tensor, as it is.
pub(crate) fn operand(val: &Val) -> Result<Operand, String> {
    match val {
        Val::View(view) => Ok(tensor(view)),
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
        // It broadcasts with a tensor that has these axes.
        Val::Repeat(literal, _) => Ok(Operand::Constant(literal.clone())),
        Val::PerSequence(_) | Val::List(_) | Val::Unknown => {
            Err("an operand is unknown".to_owned())
        }
    }
}
