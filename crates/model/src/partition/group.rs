//! Groups instances into segments: those of one stage, equally many recurrent operators upstream and one domain that are connected.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::state::Analysis;
use crate::analysis::value::{RowOp, Scope, Source, ValueRef};
use crate::data::dim::steps;
use crate::partition::guards::OpGuard;
use crate::partition::segment::{Cut, Instance, Segment};

pub(super) fn group(
    analysis: &Analysis,
    cut: &Cut,
    (stages, guards): (&[usize], &[Option<OpGuard>]),
    instances: &BTreeSet<Instance>,
    mut crossing: BTreeSet<ValueRef>,
) -> Vec<Segment> {
    let list: Vec<Instance> = instances.iter().copied().collect();
    let position: BTreeMap<Instance, usize> =
        list.iter().enumerate().map(|(i, &instance)| (instance, i)).collect();
    let after = phases(analysis, cut, guards, &list);
    let key = |i: usize| {
        let Instance { op, .. } = list[i];
        let fused = cut.arg_maxes.iter().position(|arg_max| arg_max.ops.contains(&op));
        let RowOp { recurrence_depth, scope, .. } = analysis.ops[op];
        let domain = analysis.instance_domain(list[i]);
        (recurrence_depth, stages[op], domain, after[i], fused, guards[op], scope)
    };
    let mut parent: Vec<usize> = (0..list.len()).collect();
    fn find(parent: &mut [usize], mut i: usize) -> usize {
        while parent[i] != i {
            parent[i] = parent[parent[i]];
            i = parent[i];
        }
        i
    }
    // Connected: one feeds the other, or both read the same rows.
    let mut readers = BTreeMap::new();
    for (i, instance) in list.iter().enumerate() {
        for operand in &analysis.ops[instance.op].operands {
            let Some(reference) = analysis.reads(operand, instance.at) else { continue };
            let producer = match reference.source {
                Source::Op(op, _) => {
                    position.get(&Instance { op, at: cut.produced(reference).at }).copied()
                }
                _ => None,
            };
            let other = match producer.filter(|&producer| key(producer) == key(i)) {
                Some(producer) => producer,
                None => *readers.entry((reference, key(i))).or_insert(i),
            };
            let (a, b) = (find(&mut parent, i), find(&mut parent, other));
            parent[a.max(b)] = a.min(b);
        }
    }
    let mut members: BTreeMap<usize, Vec<Instance>> = BTreeMap::new();
    for (i, &instance) in list.iter().enumerate() {
        members.entry(find(&mut parent, i)).or_default().push(instance);
    }
    let segment = |(root, instances): (usize, Vec<Instance>)| {
        let (recurrence_depth, stage, domain, .., guard, scope) = key(root);
        let inside: BTreeSet<Instance> = instances.iter().copied().collect();
        let is_produced_inside = |reference: &ValueRef| match reference.source {
            Source::Op(op, _) => inside.contains(&Instance { op, at: cut.produced(*reference).at }),
            _ => false,
        };
        let mut inputs = Vec::new();
        for instance in &instances {
            for operand in &analysis.ops[instance.op].operands {
                let reference = analysis.reads(operand, instance.at);
                if let Some(reference) =
                    reference.filter(|reference| !is_produced_inside(reference))
                    && !inputs.contains(&reference)
                {
                    inputs.push(reference);
                }
            }
        }
        // Rows along several axes tell none of their lengths.
        let read = inputs.clone();
        let along = read.iter().filter(|reference| reference.at.is_none() && scope != Scope::Row);
        for time in along.filter_map(|reference| analysis.domain(reference.source).time) {
            let factors = analysis.axes.factors(time);
            for &factor in factors.iter().filter(|_| factors.len() > 1) {
                let base = analysis.axes.base(factor);
                let length = ValueRef { source: Source::Length(base), at: None };
                if !inputs.contains(&length) {
                    inputs.push(length);
                }
            }
        }
        let outputs = Vec::new();
        Segment { instances, domain, scope, recurrence_depth, stage, guard, inputs, outputs }
    };
    let mut segments: Vec<Segment> = members.into_iter().map(segment).collect();
    crossing.extend(segments.iter().flat_map(|segment| segment.inputs.iter().copied()));
    let crossing: BTreeSet<ValueRef> =
        crossing.into_iter().map(|reference| cut.produced(reference)).collect();
    for segment in &mut segments {
        let inside: BTreeSet<Instance> = segment.instances.iter().copied().collect();
        let outputs = crossing.iter().copied().filter(|reference| match reference.source {
            Source::Op(op, _) => inside.contains(&Instance { op, at: reference.at }),
            _ => false,
        });
        segment.outputs = outputs.collect();
    }
    segments
}

/// For each instance of `list`, which is in the order of ops, counts how often its inputs change on the longest
/// path between recurrent operators: from rows of one domain to those of another, between rows and whole
/// tensors, to a step that sequences may lack, before and after a fused arg-max, into and out of a branch of an `If`. Instances of one segment are of one
/// phase, so that segments never wait for each other.
fn phases(
    analysis: &Analysis,
    cut: &Cut,
    guards: &[Option<OpGuard>],
    list: &[Instance],
) -> Vec<usize> {
    let place = |reference: ValueRef| match reference.source {
        Source::Op(op, _) => {
            list.binary_search(&Instance { op, at: cut.produced(reference).at }).ok()
        }
        _ => None,
    };
    let reads = |at: usize| {
        let Instance { op, at } = list[at];
        let operands = analysis.ops[op].operands.iter();
        operands.filter_map(move |operand| {
            let reference = analysis.reads(operand, at)?;
            // One step of a value that is produced at all steps, where sequences may lack it.
            let time = analysis.domain(reference.source).time;
            let may_lack = |at| !time.is_some_and(|time| analysis.has_step(time, at));
            let is_all = cut.produced(reference).at.is_none();
            Some((place(reference)?, is_all && reference.at.is_some_and(may_lack)))
        })
    };
    let kind = |at: usize| {
        let Instance { op, .. } = list[at];
        (analysis.ops[op].scope, analysis.instance_domain(list[at]), guards[op])
    };
    // What decides whether an instance is needed comes before it, too.
    let decided_by = |at: usize| guards[list[at].op].and_then(|guard| place(guard.condition));
    let mut phases: Vec<usize> = vec![0; list.len()];
    loop {
        let before = phases.clone();
        for at in 0..list.len() {
            let after = |(before, is_step): (usize, bool)| {
                let is_last = cut.arg_maxes.iter().any(|arg_max| arg_max.ops[0] == list[before].op);
                phases[before] + usize::from(is_last || is_step || kind(before) != kind(at))
            };
            let read = reads(at).map(after).max();
            let decided = decided_by(at).map(|decides| phases[decides] + 1);
            phases[at] = read.max(decided).unwrap_or(0);
        }
        // Mostly at once: an instance may be decided by one that the file has later.
        if phases == before || guards.iter().all(Option::is_none) {
            break;
        }
    }
    // A tensor along several axes of steps stays inside a segment where it can, and so does one that is made of
    // constants and lengths alone: it is produced when it is first read.
    for before in (0..list.len()).rev() {
        let op = &analysis.ops[list[before].op];
        let reads_nothing = op.scope != Scope::Row && reads(before).next().is_none();
        if !reads_nothing && !op.tensor_dims.iter().any(|dims| steps(dims).len() > 1) {
            continue;
        }
        let readers = (before + 1..list.len()).filter(|&at| reads(at).any(|(of, _)| of == before));
        let is_alike = |at: &usize| {
            let reader = &analysis.ops[list[*at].op];
            reader.recurrence_depth == op.recurrence_depth && reader.scope == op.scope
        };
        let (alike, others): (Vec<usize>, Vec<usize>) = readers.partition(is_alike);
        let first = |of: Vec<usize>| of.into_iter().map(|at| phases[at]).min();
        // Others do not wait for it longer than they did.
        if let Some(phase) = first(alike)
            && first(others).is_none_or(|other| phase <= other)
        {
            phases[before] = phase.max(phases[before]);
        }
    }
    phases
}
