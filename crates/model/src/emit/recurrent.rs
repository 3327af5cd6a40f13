//! The steps of recurrent operators and loops as cells.

use batchmaker_graph::{
    Cell, CellBody, CompositeCell, ElementType, Lookup, LstmBytes, Operation, OperationBody,
    Precision, RecurrentCell, RecurrentKind, RowSpec,
};

use crate::analysis::recurrence::{OperatorStep, Recurrent, Step, operator_name};
use crate::data::direction::Direction;
use crate::emit::quantising::quantising_program;
use crate::emit::step_program::step_program;

/// The cell of a chain's steps, a description of it, and whether a fused kernel runs it.
pub(crate) fn cell(recurrent: &Recurrent, lookup: Option<Lookup>) -> (Cell, String, bool) {
    match &recurrent.step {
        Step::Operator(step) => {
            let (cell, description) = operator_cell(step, recurrent.directions[0], lookup);
            (cell, description, step.rule.is_none())
        }
        Step::Body(named) => {
            let description =
                format!("a loop over the steps of each sequence, {}", named.description);
            (named.cell.clone(), description, named.fused)
        }
    }
}

/// The cell of a recurrent operator's steps, and a description of it: a fused kernel, or where the step has a rule, a program. If
/// that does not quantise h, a program before it does.
fn operator_cell(
    step: &OperatorStep,
    direction: Direction,
    lookup: Option<Lookup>,
) -> (Cell, String) {
    let states = vec![RowSpec::flat(ElementType::F32, step.hidden_size); step.kind.states()];
    let (body, mut description) = match step_program(step, &vec![true; states.len()]) {
        Some(program) => {
            let (summary, steps) = (&program.summary, describe(direction));
            let text = format!("{summary}, {steps} for each sequence, general executor");
            (OperationBody::Program(program), text)
        }
        None => {
            let step = fused_step(step, lookup);
            let text = chain_summary(&step, direction);
            (OperationBody::Step(step), text)
        }
    };
    let quantises_h = step.quantises_h;
    let body = match body {
        OperationBody::Step(step) if !quantises_h => return (Cell::recurrent(step), description),
        body => body,
    };
    let inputs = vec![RowSpec::flat(ElementType::F32, step.input_size)];
    let mut registers = [&inputs[..], &states].concat();
    let mut reads: Vec<Option<usize>> = (0..registers.len()).map(Some).collect();
    let mut operations = Vec::new();
    if step.quantises_h {
        let quantised = registers.len();
        registers.push(states[0].clone());
        let body = OperationBody::Program(quantising_program(step.hidden_size));
        operations.push(Operation { body, reads: vec![Some(1)], writes: vec![quantised] });
        reads[1] = Some(quantised);
        description.push_str("; h is quantised");
    }
    let writes: Vec<usize> = (registers.len()..registers.len() + states.len()).collect();
    registers.extend_from_slice(&states);
    operations.push(Operation { body, reads, writes: writes.clone() });
    let body = CellBody::Composite(CompositeCell { registers, operations, outputs: writes });
    (Cell { body, precision: Precision::F32, inputs, outputs: states.clone(), states }, description)
}

/// A step for a fused kernel, over an embedding if that is absorbed.
pub(crate) fn fused_step(step: &OperatorStep, lookup: Option<Lookup>) -> RecurrentCell {
    RecurrentCell {
        kind: step.kind.clone(),
        input_size: step.input_size,
        hidden_size: step.hidden_size,
        w: step.w.clone(),
        r: step.r.clone(),
        b: step.b.clone(),
        lookup,
    }
}

fn describe(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "a chain of steps",
        Direction::Reverse => "a chain of steps from the last row to the first",
    }
}

/// A description of a chain of the cell.
pub(crate) fn chain_summary(cell: &RecurrentCell, direction: Direction) -> String {
    let (operator, steps) = (operator_name(&cell.kind), describe(direction));
    let mut text = format!("{operator}, {steps} for each sequence, fused kernel");
    if let RecurrentKind::Lstm { bytes: Some(LstmBytes { w_scale, .. }), .. } = &cell.kind {
        text.push_str(match w_scale {
            Some(_) => " of bytes; h is quantised, x is whole numbers and their scale",
            None => " of bytes for h, which is quantised",
        });
    }
    if let Some(lookup) = &cell.lookup {
        text.push_str(&format!("; x is looked up in a table of {} ids", lookup.rows()));
    }
    text
}
