//! The stage of each op: a file without recurrence is cut at nodes, each of which begins one (DVABatch, section 7.1).

use crate::analysis::state::Analysis;
use crate::analysis::value::{RowOp, Scope, Source};
use crate::partition::guards::OpGuard;

/// The stage of each op. The first `written` are those of the file's nodes; those behind them belong to what they read. `starts` names
/// the nodes that begin stages 1, 2, …, in the order of computation. No op reads what one of a later stage writes.
pub(super) fn stages(
    analysis: &Analysis,
    written: usize,
    starts: &[String],
    guards: &[Option<OpGuard>],
) -> Vec<usize> {
    let mut stages = vec![0; analysis.ops.len()];
    if starts.is_empty() {
        return stages;
    }
    let order = order(analysis, guards);
    let first = |label: &String| order.iter().position(|&op| analysis.ops[op].label == *label);
    let firsts: Vec<Option<usize>> = starts.iter().map(first).collect();
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &op)| places[op] = place);
    let of_place = |op: usize| {
        let begun = |first: &Option<usize>| first.is_some_and(|first| first <= places[op]);
        firsts.iter().rposition(begun).map_or(0, |start| start + 1)
    };
    loop {
        let before = stages.clone();
        for op in 0..stages.len() {
            let own = if op < written { of_place(op) } else { 0 };
            // Nor is one needed or not by what a later stage computes.
            let before = producers(analysis, op).chain(decider(guards[op]));
            let read = before.map(|of| stages[of]).max();
            stages[op] = own.max(read.unwrap_or(0));
        }
        if stages == before {
            break;
        }
    }
    // What is made of constants and lengths alone is made where it is first read.
    for op in (0..stages.len()).rev() {
        let readers =
            (op + 1..stages.len()).filter(|&reader| producers(analysis, reader).any(|of| of == op));
        if is_constant(analysis, op)
            && let Some(stage) = readers.map(|reader| stages[reader]).min()
        {
            stages[op] = stage;
        }
    }
    stages
}

/// The ops in the order of the file, but for those that decide whether another is needed, and what these read: they come before it. (A file may
/// compute all its heads at its end.)
pub(super) fn order(analysis: &Analysis, guards: &[Option<OpGuard>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(analysis.ops.len());
    let mut is_open = vec![true; analysis.ops.len()];
    // Ops to place, each with whether what comes before it was placed.
    let mut stack: Vec<(usize, bool)> =
        (0..analysis.ops.len()).rev().map(|op| (op, false)).collect();
    while let Some((op, is_due)) = stack.pop() {
        if is_due {
            order.push(op);
        } else if std::mem::take(&mut is_open[op]) {
            stack.push((op, true));
            let before: Vec<usize> = producers(analysis, op).chain(decider(guards[op])).collect();
            stack.extend(before.into_iter().rev().filter(|&of| is_open[of]).map(|of| (of, false)));
        }
    }
    order
}

/// The op that computes whether one with this guard is needed.
fn decider(guard: Option<OpGuard>) -> Option<usize> {
    match guard?.condition.source {
        Source::Op(of, _) => Some(of),
        _ => None,
    }
}

/// Whether an op computes the same for every row: of constants and lengths alone.
pub(super) fn is_constant(analysis: &Analysis, op: usize) -> bool {
    let RowOp { scope, operands, .. } = &analysis.ops[op];
    let reads_rows = operands.iter().any(|operand| {
        let source = analysis.reads(operand, None).map(|read| read.source);
        source.is_some_and(|source| !matches!(source, Source::Length(_)))
    });
    *scope != Scope::Row && !reads_rows
}

/// The ops that an op reads.
pub(super) fn producers(analysis: &Analysis, op: usize) -> impl Iterator<Item = usize> + '_ {
    let operands = analysis.ops[op].operands.iter();
    operands.filter_map(|operand| match analysis.reads(operand, None)?.source {
        Source::Op(of, _) => Some(of),
        _ => None,
    })
}
