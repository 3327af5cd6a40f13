//! Operators on rows between operators on whole tensors, which join these where the file fixes all lengths.
//!
//! By itself an operator on rows is a cell that shares its batches with sequences of other lengths. Where there are
//! no other lengths that gains nothing, and each cell costs a task, and copies of what it reads and writes.

use crate::analysis::recurrence::Recurrent;
use crate::analysis::references::needed;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand, RowOp, Scope, Source};
use crate::data::dim::{Dim, Factor, steps};
use crate::data::symbol::BATCH;
use crate::partition::arg_max::ArgMax;

/// Makes operators on whole tensors of those on rows that lie between such operators of their recurrence depth, if the file fixes
/// all lengths.
pub(super) fn widen(analysis: &mut Analysis, arg_maxes: &[ArgMax]) {
    let axes = analysis.inputs.iter().flat_map(|input| steps(&input.dims));
    if axes.into_iter().any(|axis| analysis.axes.length(axis).is_none()) {
        return;
    }
    let is_fused = |op: usize| arg_maxes.iter().any(|arg_max| arg_max.ops.contains(&op));
    let outputs = analysis.outputs.iter().map(|(_, view)| view);
    let views = analysis.recurrents.iter().flat_map(Recurrent::views);
    let needed = needed(analysis, outputs.chain(views).map(|view| view.source));
    let fits: Vec<bool> = (0..analysis.ops.len())
        .map(|op| needed[op] && !is_fused(op) && can_widen(analysis, op))
        .collect();
    let mut is_after = vec![false; fits.len()];
    for op in 0..fits.len() {
        is_after[op] =
            fits[op] && neighbours(analysis, op).any(|of| is_whole(analysis, of) || is_after[of]);
    }
    let mut is_before = vec![false; fits.len()];
    for reader in (0..fits.len()).rev().filter(|&op| needed[op]) {
        if is_whole(analysis, reader) || (fits[reader] && is_before[reader]) {
            neighbours(analysis, reader).for_each(|op| is_before[op] = true);
        }
    }
    for op in (0..fits.len()).filter(|&op| is_after[op] && is_before[op]) {
        let widened = widened(analysis, &analysis.ops[op]);
        analysis.ops[op] = widened;
    }
}

fn is_whole(analysis: &Analysis, op: usize) -> bool {
    analysis.ops[op].scope == Scope::Sequence
}

/// The operators of the same recurrence depth that an operator reads.
fn neighbours(analysis: &Analysis, op: usize) -> impl Iterator<Item = usize> + '_ {
    let reader = &analysis.ops[op];
    let sources = reader.operands.iter().filter_map(|operand| match operand {
        Operand::Rows { source: Source::Op(of, _), .. }
        | Operand::Tensor { source: Source::Op(of, _), .. } => Some(*of),
        _ => None,
    });
    sources.filter(|&of| analysis.ops[of].recurrence_depth == reader.recurrence_depth)
}

/// Whether an operator on rows is one on whole tensors, too: it reads rows of its own domain, and steps that are there.
fn can_widen(analysis: &Analysis, index: usize) -> bool {
    let op = &analysis.ops[index];
    let of_one_domain = op.operands.iter().all(|operand| match operand {
        Operand::Rows { source, .. } => {
            let own = analysis.domain(*source);
            let at = analysis.reads(operand, None).and_then(|read| read.at);
            let is_there = |at| own.time.is_some_and(|time| analysis.has_step(time, at));
            let read = Domain { time: own.time.filter(|_| at.is_none()), ..own };
            at.is_none_or(is_there) && same(analysis, read, op.domain)
        }
        Operand::Constant(_) | Operand::Absent => true,
        Operand::Tensor { .. } | Operand::Lengths(_) | Operand::Length(_) => false,
    });
    let reads_rows = op.operands.iter().any(|operand| matches!(operand, Operand::Rows { .. }));
    let is_on_rows = op.scope == Scope::Row && op.domain.batch && !op.is_derivable;
    is_on_rows && reads_rows && of_one_domain && !is_picked(analysis, index)
}

fn same(analysis: &Analysis, a: Domain, b: Domain) -> bool {
    let time = |domain: Domain| domain.time.map(|time| analysis.axes.find(time));
    a.batch == b.batch && time(a) == time(b)
}

/// Whether one step of an operator's output is read: then that step alone may be computed.
fn is_picked(analysis: &Analysis, op: usize) -> bool {
    let is_step = |source: Source, at: Option<i64>| {
        matches!(source, Source::Op(of, _) if of == op) && analysis.resolve(source, at).at.is_some()
    };
    let operands = analysis.ops.iter().flat_map(|reader| &reader.operands);
    let views = analysis.recurrents.iter().flat_map(Recurrent::views);
    let outputs = analysis.outputs.iter().map(|(_, view)| view);
    operands
        .filter_map(|operand| match operand {
            Operand::Rows { source, at, .. } | Operand::Tensor { source, at, .. } => {
                Some((*source, *at))
            }
            _ => None,
        })
        .chain(views.chain(outputs).map(|view| (view.source, view.at)))
        .any(|(source, at)| is_step(source, at))
}

/// An operator on `[rows, ...]` as one on `[batch * steps, ...]`.
fn widened(analysis: &Analysis, op: &RowOp) -> RowOp {
    let time = op.domain.time.map(|time| analysis.axes.factors(time)).unwrap_or_default();
    let rows = Dim([BATCH].into_iter().chain(time).map(Factor::Symbol).collect());
    let of_rows = |shape: &[usize]| -> Vec<Dim> {
        [rows.clone()].into_iter().chain(shape.iter().map(|&n| Dim::fixed(n))).collect()
    };
    let operands = op.operands.iter().map(|operand| match operand {
        Operand::Rows { source, at, shape } => {
            Operand::Tensor { source: *source, at: *at, dims: of_rows(shape) }
        }
        other => other.clone(),
    });
    RowOp {
        operands: operands.collect(),
        scope: Scope::Sequence,
        tensor_dims: op.outputs.iter().map(|output| of_rows(&output.shape)).collect(),
        ..op.clone()
    }
}
