//! The nodes that stages may begin with: those before which few tensors lie that later ones read (DVABatch, section 7.1), and those that
//! an early exit or a skip leaves out or not.

use crate::analysis::references::needed;
use crate::analysis::state::Analysis;
use crate::analysis::value::View;
use crate::partition::guards::guards;
use crate::partition::heavy::is_heavy;
use crate::partition::stages::{is_constant, order, producers};

/// Nodes of a file without recurrence that stages may begin with, in the order of computation.
#[derive(Clone, Debug, Default)]
pub(crate) struct StageNodes {
    /// All of them.
    pub(crate) starts: Vec<String>,
    /// Those that other requests need than the heavy operator before them: some have left before them, or skip them, or come back to the others.
    pub(crate) decided: Vec<String>,
}

/// The nodes that stages may begin with: heavy operators before which no more tensors cross than before the heavy ones around them, and those that
/// other requests need. None of a file with recurrent operators.
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
        let (place, count) = (pair[1], crossing(pair[1]));
        let (op, label) = (order[place], &ops[order[place]].label);
        // A node that became several ops begins with the first of these.
        if order[..place].iter().any(|&op| ops[op].label == *label) {
            continue;
        }
        let is_least_before = before == 0 || count <= crossing(pair[0]);
        let is_least_behind = heavy.get(before + 2).is_none_or(|&next| count <= crossing(next));
        let is_decided = guards[op] != guards[order[pair[0]]];
        if is_decided {
            nodes.decided.push(label.clone());
        }
        if is_decided || (is_least_before && is_least_behind) {
            nodes.starts.push(label.clone());
        }
    }
    nodes
}
