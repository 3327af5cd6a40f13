//! Integers that index tables: their origin, and checks that none is out of range.

use batchmaker_graph::ElementType;

use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source, View};
use crate::data::int::Int;
use crate::data::int_range::IntRange;

/// Ensures that integers index a table of `rows` rows: where nothing proves it, requests are checked for those that
/// their tensors bring before they are admitted. False: the integers are computed, and not known to fit.
pub(crate) fn try_limit_ids(analysis: &mut Analysis, ids: &View, rows: usize) -> bool {
    match origin(analysis, ids.source) {
        _ if analysis.is_index(ids.source, &Int::number(rows as i64)) => true,
        Source::Op(op, _) if analysis.ops[op].counts.is_some() => {
            let along = analysis.ops[op].counts;
            along.into_iter().for_each(|symbol| analysis.limit_steps(symbol, 1, rows));
            true
        }
        Source::Input(index) => {
            let known = &mut analysis.inputs[index].ids;
            *known = Some(known.map_or(rows, |known| known.min(rows)));
            true
        }
        _ => false,
    }
}

/// As [`try_limit_ids`], where integers that are computed cannot be checked; fails for those.
pub(crate) fn limit_ids(analysis: &mut Analysis, ids: &View, rows: usize) -> Result<(), String> {
    match try_limit_ids(analysis, ids, rows) || !analysis.has_roles() {
        true => Ok(()),
        false => Err("its indices are computed: a bad one could not be refused".to_owned()),
    }
}

/// The source that integers come from, seen through operators that keep them as they are.
pub(crate) fn origin(analysis: &Analysis, source: Source) -> Source {
    let Source::Op(index, _) = source else { return source };
    let op = &analysis.ops[index];
    let integer = |element: ElementType| element.is_integer();
    let operator = analysis.operators.find(&op.operator);
    let keeps_ids = operator.is_some_and(|operator| operator.keeps_ids);
    match op.operands.first() {
        Some(Operand::Rows { source: from, .. }) if keeps_ids => match origin(analysis, *from) {
            Source::Input(input) if !integer(analysis.inputs[input].element) => source,
            from => from,
        },
        _ => source,
    }
}

/// A number that all elements, which are at least 0, are below, if the file implies one.
pub(crate) fn id_bound(analysis: &Analysis, view: &View) -> Option<usize> {
    let range = analysis.range(view.source);
    let is_known = range.low >= 0 && range.high < IntRange::ALL.high;
    is_known.then(|| range.high as usize + 1)
}
