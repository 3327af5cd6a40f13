//! The nodes that stages may begin with: those before which few tensors lie that later ones read (DVABatch, section 7.1), and those that
//! an early exit or a skip leaves out or not.

use std::collections::BTreeSet;

use crate::analysis::references::needed;
use crate::analysis::state::Analysis;
use crate::analysis::value::View;
use crate::partition::guards::guards;
use crate::partition::heavy::is_heavy;
use crate::partition::stages::{is_constant, order, producers};

/// A model that decisions would divide into more stages than this is not divided by them.
const STAGES_MAX: usize = 8;

/// Nodes of a file without recurrence that stages may begin with, in the order of computation.
#[derive(Clone, Debug, Default)]
pub(crate) struct StageNodes {
    /// All of them.
    pub(crate) starts: Vec<String>,
    /// Those with which operators begin that other requests need than the heavy one before them: some have left before them, or skip them, or
    /// come back to the others.
    pub(crate) decided: Vec<String>,
}

/// The nodes that stages may begin with: heavy operators before which no more tensors cross than before the heavy ones around them, and what leads
/// to those that other requests need. None of a file with recurrent operators.
pub(crate) fn stage_nodes(analysis: &Analysis) -> StageNodes {
    if !analysis.recurrents.is_empty() {
        return StageNodes::default();
    }
    let ops = &analysis.ops;
    let needed = needed(analysis, analysis.outputs.iter().map(|(_, view): &(_, View)| view.source));
    let guards = guards(analysis);
    let order = order(analysis, &guards);
    // The place of the last op that reads what an op computes for a request, by the op's place.
    let mut last_reader = vec![0; ops.len()];
    let mut places = vec![0; ops.len()];
    order.iter().enumerate().for_each(|(place, &op)| places[op] = place);
    // What a branch computes waits for nobody: the reply takes it, or a copy at the end.
    for (place, &reader) in order.iter().enumerate() {
        if !needed[reader] || ops[reader].operator == "If" {
            continue;
        }
        for of in producers(analysis, reader) {
            last_reader[places[of]] = if is_constant(analysis, of) { 0 } else { place };
        }
    }
    let crossing =
        |place: usize| last_reader[..place].iter().filter(|&&reader| reader >= place).count();
    let is_heavy =
        |op: usize| needed[op] && !is_constant(analysis, op) && is_heavy(&ops[op].operator);
    let heavy: Vec<usize> = (0..ops.len()).filter(|&place| is_heavy(order[place])).collect();
    let mut nodes = StageNodes::default();
    // The first stage has the first of them.
    for (before, pair) in heavy.windows(2).enumerate() {
        // A node that became several ops begins with the first of these.
        let is_first = |place: usize| {
            let label = &ops[order[place]].label;
            !order[..place].iter().any(|&op| ops[op].label == *label)
        };
        let guard = guards[order[pair[1]]];
        if guard != guards[order[pair[0]]] {
            let leads = leading_to(analysis, &order[pair[0] + 1..=pair[1]]).into_iter();
            let of_guard = |&at: &usize| guards[order[pair[0] + 1 + at]] == guard;
            let mut places = leads.filter(of_guard).map(|at| pair[0] + 1 + at);
            if let Some(place) = places.find(|&place| is_first(place)) {
                nodes.decided.push(ops[order[place]].label.clone());
                nodes.starts.push(ops[order[place]].label.clone());
                continue;
            }
        }
        let count = crossing(pair[1]);
        let is_least_before = before == 0 || count <= crossing(pair[0]);
        let is_least_behind = heavy.get(before + 2).is_none_or(|&next| count <= crossing(next));
        if is_least_before && is_least_behind && is_first(pair[1]) {
            nodes.starts.push(ops[order[pair[1]]].label.clone());
        }
    }
    if nodes.decided.len() >= STAGES_MAX {
        nodes.decided.clear();
    }
    nodes
}

/// The places of those of some ops, in the order of computation, that the last of them is computed of, and its own; but for constants.
fn leading_to(analysis: &Analysis, ops: &[usize]) -> Vec<usize> {
    let mut read: BTreeSet<usize> = ops.last().copied().into_iter().collect();
    let mut places = Vec::new();
    for (place, &op) in ops.iter().enumerate().rev() {
        if read.contains(&op) && !is_constant(analysis, op) {
            read.extend(producers(analysis, op));
            places.push(place);
        }
    }
    places.reverse();
    places
}
