//! Which ops a request needs only where an `If` on data takes one of its branches.
//!
//! An op is of a branch if all that it is computed for is of that branch: it is a node of the graph that the branch dominates.
//! Operators that take little are left where they are: a cell of their own would cost more than they do.

use std::collections::BTreeSet;

use batchmaker_graph::ElementType;

use crate::analysis::recurrence::Recurrent;
use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Source, ValueRef};
use crate::partition::heavy::is_heavy;

/// The truth value, one for each sequence or for the request, by which an op is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpGuard {
    pub(crate) condition: ValueRef,
    pub(crate) when: bool,
}

/// A branch of an `If`, which is an op.
type Branch = (usize, bool);

/// The guard of each op; none of one that every request needs.
pub(super) fn guards(analysis: &Analysis) -> Vec<Option<OpGuard>> {
    let mut branches = branches(analysis);
    let heavy: BTreeSet<Branch> = (0..branches.len())
        .filter(|&op| is_heavy(&analysis.ops[op].operator))
        .flat_map(|op| branches[op].clone().unwrap_or_default())
        .collect();
    let guard = |of: &mut Option<Vec<Branch>>| {
        let of = of.take().unwrap_or_default();
        let (op, when) = of.into_iter().rfind(|branch| heavy.contains(branch))?;
        Some(OpGuard { condition: condition(analysis, op)?, when })
    };
    branches.iter_mut().map(guard).collect()
}

/// The truth value of an `If` on data, if a request can be asked for it: rows without steps, which an operator computes.
pub(super) fn condition(analysis: &Analysis, op: usize) -> Option<ValueRef> {
    let row_op = &analysis.ops[op];
    if row_op.operator != "If" || row_op.domain.time.is_some() {
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
fn branches(analysis: &Analysis) -> Vec<Option<Vec<Branch>>> {
    let mut branches: Vec<Option<Vec<Branch>>> = vec![None; analysis.ops.len()];
    let views = analysis.recurrents.iter().flat_map(Recurrent::views);
    for view in views.chain(analysis.outputs.iter().map(|(_, view)| view)) {
        meet(&mut branches, view.source, &[]);
    }
    for op in (0..analysis.ops.len()).rev() {
        let Some(of) = branches[op].clone() else { continue };
        let is_if = condition(analysis, op).is_some();
        for (at, operand) in analysis.ops[op].operands.iter().enumerate() {
            let Some(read) = analysis.reads(operand, None) else { continue };
            let mut of_use = of.clone();
            if is_if && at > 0 {
                of_use.push((op, at == 1));
            }
            meet(&mut branches, read.source, &of_use);
        }
    }
    branches
}

/// Takes note of one more use of a source.
fn meet(branches: &mut [Option<Vec<Branch>>], source: Source, of_use: &[Branch]) {
    let Source::Op(op, _) = source else { return };
    let known = branches[op].get_or_insert_with(|| of_use.to_vec());
    let common = known.iter().zip(of_use).take_while(|(known, other)| known == other).count();
    known.truncate(common);
}
