//! Which ops a request needs only where an `If` on data takes one of its branches.
//!
//! An op is of a branch if all that it is computed for is of that branch: it is a node of the graph that the branch dominates.
//! Operators that take little are left where they are: a cell of their own would cost more than they do.

use std::collections::BTreeSet;

use batchmaker_graph::ElementType;

use crate::analysis::recurrence::Recurrent;
use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{RowOp, Scope, Source, ValueRef};
use crate::partition::heavy::is_heavy;

/// The truth value, one for each sequence or for the request, by which an op is needed: a branch of the `If`s that read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpGuard {
    pub(crate) condition: ValueRef,
    pub(crate) when: bool,
}

/// The guard of each op; none of one that every request needs.
pub(super) fn guards(analysis: &Analysis) -> Vec<Option<OpGuard>> {
    let branches = branches(analysis);
    let heavy: BTreeSet<OpGuard> = (0..branches.len())
        .filter(|&op| is_heavy(&analysis.ops[op].operator))
        .flat_map(|op| branches[op].clone().unwrap_or_default())
        .collect();
    let guard = |op: usize| {
        let of_op = branches[op].as_deref().unwrap_or_default().iter();
        let is_one = |guard: &&OpGuard| heavy.contains(guard) && is_of_rows(analysis, op, guard);
        of_op.filter(is_one).copied().reduce(|outer, inner| {
            // Where the inner condition is left out with the outer branch, it stands for both.
            let Source::Op(decides, _) = inner.condition.source else { return outer };
            let known = branches[decides].as_deref().unwrap_or_default();
            if known.contains(&outer) { inner } else { outer }
        })
    };
    (0..branches.len()).map(guard).collect()
}

/// Whether an op is computed for each sequence by itself, if the condition is one for each.
fn is_of_rows(analysis: &Analysis, op: usize, guard: &OpGuard) -> bool {
    let RowOp { scope, domain, .. } = &analysis.ops[op];
    let has_batch = match scope {
        Scope::Row => domain.batch,
        Scope::Sequence => true,
        Scope::Request => false,
    };
    has_batch || !analysis.domain(guard.condition.source).batch
}

/// The truth value of an `If` on data, if a request can be asked for it: rows without steps, which an operator computes.
pub(super) fn condition(analysis: &Analysis, op: usize) -> Option<ValueRef> {
    let row_op = &analysis.ops[op];
    if row_op.operator != "If" {
        return None;
    }
    let condition = analysis.reads(row_op.operands.first()?, None)?;
    let row = row_of(analysis, condition.source);
    let is_one = row.element == ElementType::Bool && row.elements() == 1;
    let is_whole = analysis.domain(condition.source).time.is_none();
    let is_computed = matches!(condition.source, Source::Op(..));
    (is_one && is_whole && is_computed).then_some(condition)
}

/// The branches in which each op lies, from the outermost on; none of an op that nothing reads.
fn branches(analysis: &Analysis) -> Vec<Option<Vec<OpGuard>>> {
    let mut branches: Vec<Option<Vec<OpGuard>>> = vec![None; analysis.ops.len()];
    let views = analysis.recurrents.iter().flat_map(Recurrent::views);
    for view in views.chain(analysis.outputs.iter().map(|(_, view)| view)) {
        meet(&mut branches, view.source, &[]);
    }
    for op in (0..analysis.ops.len()).rev() {
        let Some(of) = branches[op].clone() else { continue };
        let condition = condition(analysis, op);
        for (at, operand) in analysis.ops[op].operands.iter().enumerate() {
            let Some(read) = analysis.reads(operand, None) else { continue };
            let mut of_use = of.clone();
            if let Some(condition) = condition.filter(|_| at > 0) {
                of_use.push(OpGuard { condition, when: at == 1 });
            }
            meet(&mut branches, read.source, &of_use);
        }
    }
    branches
}

/// Takes note of one more use of a source.
fn meet(branches: &mut [Option<Vec<OpGuard>>], source: Source, of_use: &[OpGuard]) {
    let Source::Op(op, _) = source else { return };
    let known = branches[op].get_or_insert_with(|| of_use.to_vec());
    let common = known.iter().zip(of_use).take_while(|(known, other)| known == other).count();
    known.truncate(common);
}
