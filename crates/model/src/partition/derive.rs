//! Inputs that are derived of those that a request brings: see [`Derivation`].

use std::collections::BTreeMap;

use batchmaker_graph::{ElementType, RowSpec};

use crate::analysis::derivation::{Derivation, Derived, DerivedOperand};
use crate::analysis::recurrence::Recurrent;
use crate::analysis::references::needed;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, InputInfo, Operand, RowOp, Source, View};
use crate::data::dim::{Dim, row_shape, steps};
use crate::data::elements::Elements;
use crate::data::symbol::BATCH;

/// Puts a derived input in the place of each op that can be derived.
pub(super) fn derive_inputs(analysis: &mut Analysis) {
    let outputs = analysis.outputs.iter().map(|(_, view)| view);
    let views = analysis.recurrents.iter().flat_map(Recurrent::views);
    let needed = needed(analysis, outputs.chain(views).map(|view| view.source));
    let mut derived: BTreeMap<usize, usize> = BTreeMap::new();
    for op in (0..analysis.ops.len()).filter(|&op| needed[op] && analysis.ops[op].is_derivable) {
        if let Some(input) = input_of(analysis, &analysis.ops[op], &derived) {
            derived.insert(op, analysis.inputs.len());
            analysis.inputs.push(input);
        }
    }
    let replace = |source: &mut Source| {
        if let Source::Op(op, _) = source
            && let Some(&input) = derived.get(op)
        {
            *source = Source::Input(input);
        }
    };
    for operand in analysis.ops.iter_mut().flat_map(|op| &mut op.operands) {
        if let Operand::Rows { source, .. } | Operand::Tensor { source, .. } = operand {
            replace(source);
        }
    }
    let views = analysis.recurrents.iter_mut().flat_map(Recurrent::views_mut);
    let outputs = analysis.outputs.iter_mut().map(|(_, view)| view);
    views.chain(outputs).for_each(|view| replace(&mut view.source));
    copy_outputs(analysis);
}

/// Derives a copy for each output that is a tensor of the request of 64-bit integers: a program would copy 32 bits.
fn copy_outputs(analysis: &mut Analysis) {
    for at in 0..analysis.outputs.len() {
        let view = analysis.outputs[at].1.clone();
        if let Source::Input(index) = view.source
            && let input = &analysis.inputs[index]
            && input.element.stored() == ElementType::I64
            && input.derived.is_none()
            && steps(&input.dims).len() <= 1
        {
            let row = RowSpec::new(ElementType::I64, row_shape(&view.dims));
            let operand = DerivedOperand::Rows {
                input: index,
                at: analysis.resolve(view.source, view.at).at,
                shape: row.shape.clone(),
            };
            let derivation = Derivation::Identity;
            let derived = Derived { derivation, operands: vec![operand], row };
            let (name, domain) = (input.name.clone(), analysis.domain_of(&view.dims));
            let copy = derived_input(name, domain, derived);
            analysis.outputs[at].1 =
                View { source: Source::Input(analysis.inputs.len()), at: None, ..view };
            analysis.inputs.push(copy);
        }
    }
}

/// The input that stands for an op, of whose operands those in `derived` are inputs; none if one is not.
fn input_of(
    analysis: &Analysis,
    op: &RowOp,
    derived: &BTreeMap<usize, usize>,
) -> Option<InputInfo> {
    let derivation = Derivation::of(&op.operator, &op.attributes)?;
    let operand = |operand: &Operand| match operand {
        Operand::Rows { source, at, shape } => {
            let input = match source {
                Source::Input(input) => *input,
                Source::Op(op, _) => *derived.get(op)?,
                _ => return None,
            };
            let at = analysis.resolve(*source, *at).at;
            Some(DerivedOperand::Rows { input, at, shape: shape.clone() })
        }
        Operand::Constant(literal) => Elements::of_literal(literal).map(DerivedOperand::Constant),
        _ => Some(DerivedOperand::Absent),
    };
    let operands = op.operands.iter().map(operand).collect::<Option<_>>()?;
    let [output] = &op.outputs[..] else { return None };
    let derived = Derived { derivation, operands, row: output.clone() };
    Some(derived_input(op.label.clone(), op.domain, derived))
}

/// An input of this name whose rows run along the axes of `domain`.
fn derived_input(name: String, domain: Domain, derived: Derived) -> InputInfo {
    let axes = domain.batch.then_some(BATCH).into_iter().chain(domain.time);
    let inside = derived.row.shape.iter().map(|&n| Dim::fixed(n));
    InputInfo {
        name,
        element: derived.row.element,
        dims: axes.map(Dim::symbol).chain(inside).collect(),
        ids: None,
        derived: Some(derived),
    }
}
