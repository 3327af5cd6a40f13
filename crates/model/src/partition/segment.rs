//! The parts of an analysed file: segments, each of which becomes one cell, and recurrent operators.

use std::collections::BTreeSet;
use std::sync::Arc;

use batchmaker_graph::Lookup;

use crate::analysis::recurrence::Initial;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Scope, Source, ValueRef, View};
use crate::data::direction::Direction;
use crate::partition::arg_max::ArgMax;
use crate::partition::choices::Choices;
use crate::partition::guards::OpGuard;
use crate::partition::stacks::Stacks;

/// A row op over all rows, or at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instance {
    pub(crate) op: usize,
    pub(crate) at: Option<i64>,
}

/// Instances that are compiled together into one cell.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// In order of computation.
    pub(crate) instances: Vec<Instance>,
    pub(crate) domain: Domain,
    pub(crate) scope: Scope,
    pub(crate) recurrence_depth: usize,
    /// The stage of a file that is cut into stages, else 0.
    pub(crate) stage: usize,
    /// The truth value by which a sequence needs it; none if every one does.
    pub(crate) guard: Option<OpGuard>,
    /// The values that it reads, in order of first use.
    pub(crate) inputs: Vec<ValueRef>,
    /// The values of it that others read.
    pub(crate) outputs: Vec<ValueRef>,
}

/// A part of a file that becomes one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Recurrent(usize),
    Segment(usize),
}

/// The whole file, cut.
pub(crate) struct Cut {
    pub(crate) segments: Vec<Segment>,
    /// All parts, producers first.
    pub(crate) parts: Vec<Part>,
    /// For each recurrent operator, the embedding op that it absorbs, and its table.
    pub(crate) lookups: Vec<Option<(usize, Arc<[f32]>)>>,
    pub(crate) stacks: Stacks,
    /// The values that rows of each output may be instead.
    pub(crate) choices: Vec<Choices>,
    /// Products under an arg-max, each a segment of its own.
    pub(crate) arg_maxes: Vec<ArgMax>,
    /// Ops that are computed at every step, so that a reader of one step takes it from there.
    pub(super) full: BTreeSet<usize>,
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

impl Cut {
    /// The value as it is produced: at all steps, unless the one step alone is computed.
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

    /// The values that a recurrent operator's steps read, by input port.
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

    /// All values that a recurrent operator reads of other parts: its steps' inputs, then first states.
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
