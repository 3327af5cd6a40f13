//! The order in which the parts of a file are computed.

use std::collections::BTreeSet;

use crate::analysis::state::Analysis;
use crate::analysis::value::{Source, ValueRef};
use crate::partition::segment::{Cut, Part};

/// Orders the parts of a file: producers before consumers, else by recurrence depth and position in the file.
pub(super) fn order(analysis: &Analysis, cut: &Cut) -> Vec<Part> {
    let segments = &cut.segments;
    let recurrents = (0..analysis.recurrents.len()).map(Part::Recurrent);
    let mut waiting: Vec<Part> = recurrents.chain((0..segments.len()).map(Part::Segment)).collect();
    let reads = |part: Part| match part {
        Part::Recurrent(index) => cut.recurrent_reads(analysis, index),
        Part::Segment(index) => {
            let guard = segments[index].guard.map(|guard| guard.condition);
            segments[index].inputs.iter().copied().chain(guard).collect()
        }
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
        let next = waiting.iter().position(ready).expect("parts wait for each other");
        let part = waiting.remove(next);
        if let Part::Segment(index) = part {
            produced.extend(segments[index].outputs.iter().copied());
        }
        done.push(part);
    }
    done
}
