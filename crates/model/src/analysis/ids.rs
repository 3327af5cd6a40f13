//! Integers that index tables: their origin, and checks that none is out of range.

use batchmaker_graph::ElementType;

use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source, View};

/// Ensures that integers are at least 0 and less than `rows`, or says why it cannot.
pub(crate) fn limit_ids(analysis: &mut Analysis, ids: &View, rows: usize) -> Result<(), String> {
    let origin = origin(analysis, ids.source);
    match (origin, id_bound(analysis, ids)) {
        (_, Some(bound)) if bound <= rows => {}
        (Source::Op(op, _), _) if analysis.ops[op].counts.is_some() => {
            let along = analysis.ops[op].counts;
            along.into_iter().for_each(|symbol| analysis.limit_steps(symbol, 1, rows));
        }
        (Source::Input(index), _) => {
            let known = &mut analysis.inputs[index].ids;
            *known = Some(known.map_or(rows, |known| known.min(rows)));
        }
        _ if !analysis.has_roles() => {}
        _ => return Err("its indices are computed: a bad one could not be refused".to_owned()),
    }
    Ok(())
}

/// The source that integers come from, seen through operators that keep them as they are.
pub(crate) fn origin(analysis: &Analysis, source: Source) -> Source {
    let Source::Op(index, _) = source else { return source };
    let op = &analysis.ops[index];
    let integer = |element| matches!(element, ElementType::I64 | ElementType::I32);
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

/// A number that all elements are below, if the file implies one.
pub(crate) fn id_bound(analysis: &Analysis, view: &View) -> Option<usize> {
    match view.source {
        Source::Op(index, _) => analysis.ops[index].bound,
        _ => None,
    }
}
