//! Outputs that an `If` on data chooses between: the reply takes the rows of one branch or the other, so that nobody has to copy them
//! once a sequence has left by an early exit.

use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand, Scope, Source, ValueRef};
use crate::partition::guards::condition;

/// The other values that rows of an output may be, each where its condition is true. The first that is true holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) others: Vec<(ValueRef, ValueRef)>,
}

/// Lets each output that ends in such `If`s be what their last branch computes, and returns what it may be instead.
pub(super) fn choices(analysis: &mut Analysis) -> Vec<Choices> {
    let mut all = vec![Choices::default(); analysis.outputs.len()];
    // The last outputs are checked, and in no reply.
    for index in 0..analysis.outputs.len() - analysis.checks.len() {
        let wanted = analysis.domain_of(&analysis.outputs[index].1.dims);
        while let Source::Op(op, _) = analysis.outputs[index].1.source
            && let Some((condition, then, otherwise)) = alternatives(analysis, op, wanted)
            && !is_shared(analysis, &all, index, otherwise)
        {
            all[index].others.push((condition, then));
            analysis.outputs[index].1.source = otherwise;
        }
    }
    all
}

/// Whether the reply takes a source for another output too, or for another choice: then its rows stay as they are.
fn is_shared(analysis: &Analysis, all: &[Choices], index: usize, source: Source) -> bool {
    let mut outputs = analysis.outputs.iter().enumerate();
    outputs.any(|(at, (_, view))| at != index && view.source == source)
        || all.iter().flat_map(|of| &of.others).any(|(_, other)| other.source == source)
}

/// The condition of an `If` whose branches are rows over the wanted axes, and what they compute.
fn alternatives(
    analysis: &Analysis,
    op: usize,
    wanted: Domain,
) -> Option<(ValueRef, ValueRef, Source)> {
    let row_op = &analysis.ops[op];
    let condition = condition(analysis, op)
        .filter(|of| row_op.scope == Scope::Row && analysis.domain(of.source) == wanted)?;
    let branch = |operand: &Operand| {
        let Operand::Rows { source: source @ Source::Op(..), at: None, .. } = operand else {
            return None;
        };
        let is_plain = analysis.domain(*source) == wanted
            && row_of(analysis, *source) == row_of(analysis, Source::Op(op, 0));
        is_plain.then_some(*source)
    };
    let [_, then, otherwise] = &row_op.operands[..] else { return None };
    let then = ValueRef { source: branch(then)?, at: None };
    Some((condition, then, branch(otherwise)?))
}
