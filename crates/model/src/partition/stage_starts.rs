//! The nodes that stages may begin with: those before which few tensors lie that later ones read (DVABatch, section 7.1).

use crate::analysis::references::needed;
use crate::analysis::state::Analysis;
use crate::analysis::value::View;
use crate::partition::heavy::is_heavy;
use crate::partition::stages::{is_constant, producers};

/// The nodes of a file without recurrence that stages may begin with, in the order of the file: heavy operators before which no
/// more tensors cross than before the heavy ones around them. None of a file with recurrent operators.
pub(crate) fn stage_starts(analysis: &Analysis) -> Vec<String> {
    if !analysis.recurrents.is_empty() {
        return Vec::new();
    }
    let ops = &analysis.ops;
    let needed = needed(analysis, analysis.outputs.iter().map(|(_, view): &(_, View)| view.source));
    let reads: Vec<Vec<usize>> =
        (0..ops.len()).map(|op| producers(analysis, op).collect()).collect();
    // The last op that reads what an op computes for a request.
    let mut last_reader = vec![0; ops.len()];
    // What a branch computes waits for nobody: the reply takes it, or a copy at the end.
    for reader in (0..ops.len()).filter(|&op| needed[op] && ops[op].operator != "If") {
        for &of in &reads[reader] {
            last_reader[of] = if is_constant(analysis, of) { 0 } else { reader };
        }
    }
    let crossing = |at: usize| last_reader[..at].iter().filter(|&&reader| reader >= at).count();
    let is_heavy =
        |&op: &usize| needed[op] && !is_constant(analysis, op) && is_heavy(&ops[op].operator);
    let heavy: Vec<(usize, usize)> =
        (0..ops.len()).filter(is_heavy).map(|op| (op, crossing(op))).collect();
    // The first stage has the first of them. A node that became several ops begins with the first of these.
    let around = heavy.windows(2).enumerate().filter(|(before, pair)| {
        let (at, count) = pair[1];
        let is_least_before = *before == 0 || count <= pair[0].1;
        let is_least_behind = heavy.get(before + 2).is_none_or(|next| count <= next.1);
        let is_first = !ops[..at].iter().any(|op| op.label == ops[at].label);
        is_least_before && is_least_behind && is_first
    });
    around.map(|(_, pair)| ops[pair[1].0].label.clone()).collect()
}
