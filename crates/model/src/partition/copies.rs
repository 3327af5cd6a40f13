//! Copies of rows, for outputs that no cell writes as they are.

use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp, Scope, Source};
use crate::data::dim::{Dim, row_shape};
use crate::data::symbol::BATCH;

/// Adds an op that copies rows for each output that is not a matrix over exactly its own axes, written by a cell.
pub(crate) fn copy_plain_outputs(analysis: &mut Analysis) {
    for index in 0..analysis.outputs.len() {
        let (name, view) = analysis.outputs[index].clone();
        let reference = analysis.resolve(view.source, view.at);
        let wanted = analysis.domain_of(&view.dims);
        // After a sequence-level op the rows of a sequence stand together; a joint axis with time first has
        // another order.
        let is_time_first = |dim: &Dim| {
            let mut symbols = dim.symbols();
            symbols.next().is_some_and(|first| first != BATCH) && symbols.next().is_some()
        };
        let is_reordered =
            view.dims.iter().any(is_time_first) && is_sequence_level(analysis, reference.source);
        let plain =
            analysis.domain(reference.source) == wanted && reference.at.is_none() && !is_reordered;
        // A derived input stands in the place of an op.
        let is_joint = view.dims.iter().any(|dim| dim.symbols().count() > 1);
        let is_written = match reference.source {
            Source::Input(input) => analysis.inputs[input].derived.is_some() && !is_joint,
            _ => true,
        };
        if plain && is_written {
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
            range: analysis.range(view.source),
            is_derivable: false,
            counts: None,
        };
        analysis.ops.push(op);
        let source = Source::Op(analysis.ops.len() - 1, 0);
        analysis.outputs[index].1.source = source;
        analysis.outputs[index].1.at = None;
    }
}

/// Whether a sequence-level op writes or reads a source.
fn is_sequence_level(analysis: &Analysis, source: Source) -> bool {
    let is_made = matches!(source, Source::Op(op, _) if analysis.ops[op].scope != Scope::Row);
    let reads = |operand: &Operand| matches!(operand, Operand::Tensor { source: read, .. } if *read == source);
    is_made || analysis.ops.iter().flat_map(|op| &op.operands).any(reads)
}
