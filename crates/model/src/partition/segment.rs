//! The cut: which row ops become one program, and what runs after what.
//!
//! Row ops that the outputs and the recurrent operators need are *instances*: an op over
//! all rows of its domain, or at one step (where only that step is needed, it alone is
//! computed). Instances with equally many recurrent operators upstream, on the same
//! domain and connected to each other make one segment; so do the ops of a fused arg-max.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use batchmaker_graph::Lookup;

use crate::analysis::recurrence::{Initial, Recurrent};
use crate::analysis::references::uses;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand, RowOp, Scope, Source, ValueRef, View};
use crate::data::dim::{Dim, row_shape, steps};
use crate::data::direction::Direction;
use crate::data::symbol::BATCH;
use crate::partition::arg_max::ArgMax;
use crate::partition::stacks::{self, Stacks};

/// A row op over all rows, or at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instance {
    pub(crate) op: usize,
    pub(crate) at: Option<i64>,
}

/// Instances that become one program.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// In order of computation.
    pub(crate) instances: Vec<Instance>,
    pub(crate) domain: Domain,
    pub(crate) scope: Scope,
    pub(crate) recurrence_depth: usize,
    /// What the program reads, in order of first use.
    pub(crate) inputs: Vec<ValueRef>,
    /// What others read of it.
    pub(crate) outputs: Vec<ValueRef>,
}

/// A cell to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Recurrent(usize),
    Segment(usize),
}

/// The whole file, cut.
pub(crate) struct Cut {
    pub(crate) segments: Vec<Segment>,
    /// Producers first.
    pub(crate) parts: Vec<Part>,
    /// For each recurrent operator, the embedding op that it absorbs, and its table.
    pub(crate) lookups: Vec<Option<(usize, Arc<[f32]>)>>,
    pub(crate) stacks: Stacks,
    /// Products under an arg-max, each a segment of its own.
    pub(crate) arg_maxes: Vec<ArgMax>,
    /// Ops that someone needs at every step: who needs one step reads it there.
    full: BTreeSet<usize>,
}

impl Analysis {
    /// The domain of an instance.
    pub(crate) fn instance_domain(&self, instance: Instance) -> Domain {
        let op = &self.ops[instance.op];
        if op.scope != Scope::Row {
            return Domain { time: None, batch: op.scope == Scope::Sequence };
        }
        let domain = op.domain;
        Domain { time: domain.time.filter(|_| instance.at.is_none()), ..domain }
    }
}

/// Cuts an analysed file that has no diagnostics; `arg_maxes` are to be segments of their own.
pub(crate) fn cut(analysis: &mut Analysis, arg_maxes: Vec<ArgMax>) -> Cut {
    copy_plain_outputs(analysis);
    let mut cut = Cut {
        segments: Vec::new(),
        parts: Vec::new(),
        lookups: find_lookups(analysis),
        stacks: stacks::find(analysis),
        arg_maxes,
        full: (0..analysis.ops.len()).filter(|&op| analysis.ops[op].scope != Scope::Row).collect(),
    };
    let mut crossing: BTreeSet<ValueRef> = BTreeSet::new();
    for (index, (_, view)) in analysis.outputs.iter().enumerate() {
        if !cut.stacks.outputs.contains_key(&index) {
            crossing.insert(analysis.resolve(view.source, view.at));
        }
    }
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
    cut.segments = group(analysis, &cut, &instances, crossing);
    cut.parts = order(analysis, &cut);
    cut
}

impl Cut {
    /// What a reading is made as: a step is read of all steps, unless it alone is computed.
    pub(crate) fn produced(&self, reference: ValueRef) -> ValueRef {
        match reference.source {
            Source::Op(op, _) if !self.full.contains(&op) => reference,
            source => ValueRef { source, at: None },
        }
    }

    /// The embedding that a recurrent operator absorbs.
    pub(crate) fn lookup_table(&self, analysis: &Analysis, index: usize) -> Option<Lookup> {
        let (_, table) = self.lookups[index].as_ref()?;
        let width = analysis.recurrents[index].operator()?.input_size;
        Some(Lookup { table: table.clone(), width })
    }

    /// What a recurrent operator's steps read, by input port.
    pub(crate) fn step_reads(&self, analysis: &Analysis, index: usize) -> Vec<ValueRef> {
        let of_view = |(view, _): &(View, Direction)| analysis.resolve(view.source, view.at);
        let absorbed = self.lookups[index].as_ref();
        let ids = absorbed.and_then(|(op, _)| analysis.reads(&analysis.ops[*op].operands[1], None));
        match ids {
            Some(ids) => vec![ids],
            None => analysis.recurrents[index].inputs.iter().map(of_view).collect(),
        }
    }

    /// The arg-max that a segment is.
    pub(crate) fn arg_max(&self, segment: &Segment) -> Option<&ArgMax> {
        let op = segment.instances.first()?.op;
        self.arg_maxes.iter().find(|arg_max| arg_max.ops.contains(&op))
    }

    /// All that a recurrent operator reads of other stages: its steps' inputs, then first states.
    pub(crate) fn recurrent_reads(&self, analysis: &Analysis, index: usize) -> Vec<ValueRef> {
        let states = analysis.recurrents[index].initial.iter().enumerate();
        let states = states.filter_map(|(state, initial)| match initial {
            Initial::View(_) if self.stacks.initial.contains_key(&(index, state)) => None,
            Initial::View(view) => Some(analysis.resolve(view.source, view.at)),
            _ => None,
        });
        self.step_reads(analysis, index).into_iter().chain(states).collect()
    }
}

/// An output must be a matrix over exactly its own axes that a cell writes; whatever is
/// not gets an op that copies rows.
pub(crate) fn copy_plain_outputs(analysis: &mut Analysis) {
    for index in 0..analysis.outputs.len() {
        let (name, view) = analysis.outputs[index].clone();
        let reference = analysis.resolve(view.source, view.at);
        let wanted = Domain::of(&view.dims);
        // Of whole sequences the rows of one stand together; an axis of both with time first is another
        // order.
        let is_time_first = |dim: &Dim| {
            let mut symbols = dim.symbols();
            symbols.next().is_some_and(|first| first != BATCH) && symbols.next().is_some()
        };
        let is_reordered =
            view.dims.iter().any(is_time_first) && is_sequence_level(analysis, reference.source);
        let plain =
            analysis.domain(reference.source) == wanted && reference.at.is_none() && !is_reordered;
        if plain && !matches!(reference.source, Source::Input(_)) {
            continue;
        }
        let shape = row_shape(&view.dims);
        let recurrence_depth = analysis.recurrence_depth(view.source);
        let label = match view.source {
            Source::Op(op, _) => analysis.ops[op].label.clone(),
            _ => format!("copy of {name}"),
        };
        let op = RowOp {
            label,
            operator: "Identity".to_owned(),
            attributes: Vec::new(),
            operands: vec![Operand::Rows {
                source: view.source,
                at: view.at,
                shape: shape.clone(),
            }],
            outputs: vec![batchmaker_graph::RowSpec::new(view.element, shape)],
            domain: wanted,
            scope: Scope::Row,
            tensor_dims: Vec::new(),
            recurrence_depth,
            bound: None,
            counts: None,
        };
        analysis.ops.push(op);
        let source = Source::Op(analysis.ops.len() - 1, 0);
        analysis.outputs[index].1.source = source;
        analysis.outputs[index].1.at = None;
    }
}

/// Whether whole sequences are made or read of a source.
fn is_sequence_level(analysis: &Analysis, source: Source) -> bool {
    let is_made = matches!(source, Source::Op(op, _) if analysis.ops[op].scope != Scope::Row);
    let reads = |operand: &Operand| matches!(operand, Operand::Tensor { source: read, .. } if *read == source);
    is_made || analysis.ops.iter().flat_map(|op| &op.operands).any(reads)
}

/// Embeddings that feed recurrent operators and nothing else.
fn find_lookups(analysis: &Analysis) -> Vec<Option<(usize, Arc<[f32]>)>> {
    let lookup = |recurrent: &Recurrent| {
        recurrent.operator()?;
        let x = &recurrent.inputs[0].0;
        let Source::Op(index, _) = x.source else { return None };
        let op = &analysis.ops[index];
        let ([Operand::Constant(table), Operand::Rows { source, at: None, shape }], "Gather") =
            (&op.operands[..], op.operator.as_str())
        else {
            return None;
        };
        let ids = match source {
            Source::Input(input) => analysis.inputs[*input].element,
            Source::Op(op, port) => analysis.ops[*op].outputs[*port].element,
            Source::Recurrent(..) | Source::Length(_) => return None,
        };
        let one_id = shape.iter().product::<usize>() == 1;
        let is_every_step = x.at.is_none() && op.domain == Domain::of(&x.dims);
        let is_fused = |other: &Recurrent| other.operator().is_some_and(|step| step.rule.is_none());
        let reads =
            |other: &&Recurrent| other.inputs.iter().any(|(view, _)| view.source == x.source);
        let readers = analysis.recurrents.iter().filter(reads);
        let fits = table.shape().len() == 2
            && table.as_f32().is_some()
            && ids == batchmaker_graph::ElementType::I64
            && readers.clone().all(|reader| is_fused(reader) && reader.inputs[0].0.at.is_none())
            && uses(analysis, x.source) == readers.count();
        (fits && one_id && is_every_step).then_some(index)
    };
    // Of an op that several absorb, one table.
    let mut tables: BTreeMap<usize, Arc<[f32]>> = BTreeMap::new();
    let mut with_table = |op: usize| {
        let Operand::Constant(literal) = &analysis.ops[op].operands[0] else { return None };
        let data = &literal.as_f32()?.data;
        Some((op, tables.entry(op).or_insert_with(|| data[..].into()).clone()))
    };
    let found: Vec<Option<usize>> = analysis.recurrents.iter().map(lookup).collect();
    found.into_iter().map(|op| op.and_then(&mut with_table)).collect()
}

/// All instances that `readings` need.
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

fn group(
    analysis: &Analysis,
    cut: &Cut,
    instances: &BTreeSet<Instance>,
    mut crossing: BTreeSet<ValueRef>,
) -> Vec<Segment> {
    let list: Vec<Instance> = instances.iter().copied().collect();
    let position: BTreeMap<Instance, usize> =
        list.iter().enumerate().map(|(i, &instance)| (instance, i)).collect();
    let after = phases(analysis, cut, &list);
    let key = |i: usize| {
        let Instance { op, .. } = list[i];
        let fused = cut.arg_maxes.iter().position(|arg_max| arg_max.ops.contains(&op));
        let RowOp { recurrence_depth, scope, .. } = analysis.ops[op];
        (recurrence_depth, analysis.instance_domain(list[i]), after[i], fused, scope)
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
        let (recurrence_depth, domain, .., scope) = key(root);
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
        Segment { instances, domain, scope, recurrence_depth, inputs, outputs: Vec::new() }
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

/// By instance (`list`, in the order of their ops), how often what it is made of changes on the longest
/// path between recurrent operators: from rows of one domain to those of another, between rows and whole
/// tensors, before and after a fused arg-max. Instances of one segment are of one phase, so that segments
/// never wait for each other.
fn phases(analysis: &Analysis, cut: &Cut, list: &[Instance]) -> Vec<usize> {
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
            // A step of what is made at all steps.
            let is_step = reference.at.is_some() && cut.produced(reference).at.is_none();
            Some((place(reference)?, is_step))
        })
    };
    let kind = |at: usize| (analysis.ops[list[at].op].scope, analysis.instance_domain(list[at]));
    let mut phases: Vec<usize> = vec![0; list.len()];
    for at in 0..list.len() {
        let after = |(before, is_step): (usize, bool)| {
            let is_last = cut.arg_maxes.iter().any(|arg_max| arg_max.ops[0] == list[before].op);
            phases[before] + usize::from(is_last || is_step || kind(before) != kind(at))
        };
        phases[at] = reads(at).map(after).max().unwrap_or(0);
    }
    // A tensor along several axes of steps stays inside a segment: it is made when it is first read.
    for before in (0..list.len()).rev() {
        let op = &analysis.ops[list[before].op];
        if !op.tensor_dims.iter().any(|dims| steps(dims).len() > 1) {
            continue;
        }
        let is_reader = |&at: &usize| {
            let reader = &analysis.ops[list[at].op];
            reader.recurrence_depth == op.recurrence_depth
                && reader.scope == op.scope
                && reads(at).any(|(read, _)| read == before)
        };
        let first = (before + 1..list.len()).filter(is_reader).map(|at| phases[at]).min();
        phases[before] = first.unwrap_or(0).max(phases[before]);
    }
    phases
}

/// Producers before consumers; what is later in the file is later where both may be.
fn order(analysis: &Analysis, cut: &Cut) -> Vec<Part> {
    let segments = &cut.segments;
    let recurrents = (0..analysis.recurrents.len()).map(Part::Recurrent);
    let mut waiting: Vec<Part> = recurrents.chain((0..segments.len()).map(Part::Segment)).collect();
    let reads = |part: Part| match part {
        Part::Recurrent(index) => cut.recurrent_reads(analysis, index),
        Part::Segment(index) => segments[index].inputs.clone(),
    };
    let rank = |part: &Part| match *part {
        Part::Recurrent(index) => (analysis.recurrents[index].recurrence_depth, 1),
        Part::Segment(index) => (segments[index].recurrence_depth, 0),
    };
    waiting.sort_by_key(rank);
    let mut produced: BTreeSet<ValueRef> = BTreeSet::new();
    let mut done = Vec::new();
    while !waiting.is_empty() {
        let ready = |part: &Part| {
            reads(*part).iter().all(|reference| match reference.source {
                Source::Input(_) | Source::Length(_) => true,
                Source::Recurrent(index, _) => done.contains(&Part::Recurrent(index)),
                Source::Op(..) => produced.contains(&cut.produced(*reference)),
            })
        };
        let next = waiting.iter().position(ready).expect("stages wait for each other");
        let part = waiting.remove(next);
        if let Part::Segment(index) = part {
            produced.extend(segments[index].outputs.iter().copied());
        }
        done.push(part);
    }
    done
}
