//! Embeddings that recurrent operators absorb.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::analysis::recurrence::Recurrent;
use crate::analysis::references::uses;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand, Source};

/// Finds embeddings that feed recurrent operators and nothing else: for each recurrent operator, the op and its
/// table.
pub(super) fn find_lookups(analysis: &Analysis) -> Vec<Option<(usize, Arc<[f32]>)>> {
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
    // Recurrent operators that absorb the same op share its table.
    let mut tables: BTreeMap<usize, Arc<[f32]>> = BTreeMap::new();
    let mut with_table = |op: usize| {
        let Operand::Constant(literal) = &analysis.ops[op].operands[0] else { return None };
        let data = &literal.as_f32()?.data;
        Some((op, tables.entry(op).or_insert_with(|| data[..].into()).clone()))
    };
    let found: Vec<Option<usize>> = analysis.recurrents.iter().map(lookup).collect();
    found.into_iter().map(|op| op.and_then(&mut with_table)).collect()
}
