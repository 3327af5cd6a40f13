//! The priorities of a file's cells.

use std::collections::BTreeSet;

use crate::analysis::state::Analysis;
use crate::analysis::value::Source;
use crate::partition::segment::{Cut, Part};

/// The priority of each part's cell, from 0 on: later in the computation is higher (section 4.3 of the
/// BatchMaker paper). The number of recurrent operators upstream comes first; parts with equally many are in the
/// order in which they wait for each other. Parts that do not wait for each other may have equal priorities.
pub(super) fn priorities(analysis: &Analysis, cut: &Cut) -> Vec<i32> {
    let recurrence_depth = |part: Part| match part {
        Part::Segment(index) => 2 * cut.segments[index].recurrence_depth,
        Part::Recurrent(index) => 2 * analysis.recurrents[index].recurrence_depth + 1,
    };
    // The place of a part: its rank by recurrence depth, and the number of parts of that rank on the longest
    // path to it.
    let mut places: Vec<(usize, usize)> = Vec::new();
    for &part in &cut.parts {
        let reads = match part {
            Part::Segment(index) => cut.segments[index].inputs.clone(),
            Part::Recurrent(index) => cut.recurrent_reads(analysis, index),
        };
        let is_read = |before: Part| {
            reads.iter().any(|&reference| match (before, reference.source) {
                (Part::Recurrent(index), Source::Recurrent(read, _)) => index == read,
                (Part::Segment(index), Source::Op(..)) => {
                    cut.segments[index].outputs.contains(&cut.produced(reference))
                }
                _ => false,
            })
        };
        let before = cut
            .parts
            .iter()
            .zip(&places)
            .filter(|(before, (of, _))| *of == recurrence_depth(part) && is_read(**before));
        let depth = before.map(|(_, (_, depth))| depth + 1).max().unwrap_or(0);
        places.push((recurrence_depth(part), depth));
    }
    let ranks: BTreeSet<(usize, usize)> = places.iter().copied().collect();
    let rank = |place: &(usize, usize)| ranks.range(..place).count() as i32;
    places.iter().map(rank).collect()
}
