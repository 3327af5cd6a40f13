//! The cut: which row ops become one cell, and what runs after what.
//!
//! Row ops that the outputs and the recurrent operators need are *instances*: an op over
//! all rows of its domain, or at one step (where only that step is needed, it alone is
//! computed). Instances with equally many recurrent operators upstream, on the same
//! domain, of one stage, needed by one condition and connected to each other make one segment; so do the ops of a fused arg-max.
//! Where the file fixes all lengths, row ops between operators on whole tensors are cut with these.

use std::collections::BTreeSet;

use crate::analysis::state::Analysis;
use crate::analysis::value::{Scope, Source, ValueRef};
use crate::partition::arg_max::ArgMax;
use crate::partition::choices::choices;
use crate::partition::copies::copy_plain_outputs;
use crate::partition::derive::derive_inputs;
use crate::partition::group::group;
use crate::partition::guards::guards;
use crate::partition::lookups::find_lookups;
use crate::partition::order::order;
use crate::partition::segment::{Cut, Instance};
use crate::partition::stacks;
use crate::partition::stages::stages;
use crate::partition::widen::widen;

/// Cuts an analysed file that has no diagnostics; `arg_maxes` are to be segments of their own. Each node of `stage_starts` begins a
/// stage, and a segment is of one.
pub(crate) fn cut(analysis: &mut Analysis, arg_maxes: Vec<ArgMax>, stage_starts: &[String]) -> Cut {
    let written = analysis.ops.len();
    derive_inputs(analysis);
    widen(analysis, &arg_maxes);
    let mut guards = guards(analysis);
    let choices = choices(analysis);
    copy_plain_outputs(analysis);
    guards.resize(analysis.ops.len(), None);
    let mut cut = Cut {
        segments: Vec::new(),
        parts: Vec::new(),
        lookups: find_lookups(analysis),
        stacks: stacks::find(analysis),
        choices,
        arg_maxes,
        full: (0..analysis.ops.len()).filter(|&op| analysis.ops[op].scope != Scope::Row).collect(),
    };
    let mut crossing: BTreeSet<ValueRef> = BTreeSet::new();
    for (index, (_, view)) in analysis.outputs.iter().enumerate() {
        if !cut.stacks.outputs.contains_key(&index) {
            crossing.insert(analysis.resolve(view.source, view.at));
        }
    }
    for (condition, other) in cut.choices.iter().flat_map(|choices| &choices.others) {
        crossing.extend([*condition, *other]);
    }
    crossing.extend(guards.iter().flatten().map(|guard| guard.condition));
    for index in 0..analysis.recurrents.len() {
        crossing.extend(cut.recurrent_reads(analysis, index));
    }
    let instances = loop {
        let instances = demanded(analysis, &cut, &crossing);
        let every_step = |instance: &Instance| Instance { at: None, ..*instance };
        let both =
            instances.iter().filter(|i| i.at.is_some() && instances.contains(&every_step(i)));
        let both: Vec<usize> = both.map(|instance| instance.op).collect();
        if both.is_empty() {
            break instances;
        }
        cut.full.extend(both);
    };
    let stages = stages(analysis, written, stage_starts, &guards);
    cut.segments = group(analysis, &cut, (&stages, &guards), &instances, crossing);
    cut.parts = order(analysis, &cut);
    cut
}

/// All instances that `references` need.
fn demanded(analysis: &Analysis, cut: &Cut, references: &BTreeSet<ValueRef>) -> BTreeSet<Instance> {
    let mut instances = BTreeSet::new();
    let mut open: Vec<ValueRef> = references.iter().copied().collect();
    while let Some(reference) = open.pop() {
        let Source::Op(op, _) = reference.source else { continue };
        let instance = Instance { op, at: cut.produced(reference).at };
        if instances.insert(instance) {
            let operands = analysis.ops[op].operands.iter();
            open.extend(operands.filter_map(|operand| analysis.reads(operand, instance.at)));
        }
    }
    instances
}
