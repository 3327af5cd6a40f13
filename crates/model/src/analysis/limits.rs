//! Limits of an analysis, beyond which a file is refused: the elements of computed constants, the lengths of
//! rows, the number of operators, the parts of products and sums.

use batchmaker_graph::RowSpec;

use crate::analysis::operator::ExecutorForm;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp, Source};
use crate::data::dim::Dim;

/// The most elements of constants computed in a file, beside four times the elements that it holds.
pub(super) const BUDGET: usize = 1 << 23;

/// The most elements of a row between two operators.
const ROW_MAX: usize = 1 << 26;

/// The most elements of a tensor of whole sequences, of the lengths that the file fixes.
const TENSOR_MAX: usize = 1 << 28;

/// The most parts of a product or sum, multiplied out.
const PARTS_MAX: usize = 4096;

/// The most elements in all of weights that a file states as one number in a shape (`ConstantOfShape`).
const FILLED_MAX: usize = 5 << 25;

/// The most operators that a file may come to.
const OPERATORS_MAX: usize = 20_000;

impl Analysis {
    /// Checks that no operator gives rows too long to have many of them, or tensors too large.
    pub(crate) fn check_rows(&mut self) {
        if self.ops.len() > OPERATORS_MAX {
            let reason =
                format!("it comes to {} operators; at most {OPERATORS_MAX}", self.ops.len());
            self.diagnose("graph", "graph", &reason);
        }
        let found: Vec<(String, String, String)> = self
            .ops
            .iter()
            .filter_map(|op| {
                self.too_long(op).map(|reason| (op.operator.clone(), op.label.clone(), reason))
            })
            .collect();
        for (operator, label, reason) in found {
            self.diagnose(&operator, &label, &reason);
        }
        self.check_factors();
    }

    /// Why an output of an operator is too large, if one is.
    fn too_long(&self, op: &RowOp) -> Option<String> {
        let more = |count: Option<usize>, most| count.is_none_or(|count| count > most);
        let is_long = |row: &RowSpec| more(elements(row.shape.iter().copied()), ROW_MAX);
        if op.outputs.iter().any(is_long) {
            return Some(format!("its rows have more than {ROW_MAX} elements"));
        }
        let is_large = |dims: &Vec<Dim>| {
            let steps = dims.iter().flat_map(Dim::symbols).filter_map(|of| self.axes.length(of));
            more(elements(dims.iter().map(Dim::fixed_part).chain(steps)), TENSOR_MAX)
        };
        let is_tensor_large = op.tensor_dims.iter().any(is_large);
        is_tensor_large.then(|| format!("its output has more than {TENSOR_MAX} elements"))
    }

    /// Checks that no product or sum, multiplied out, has more parts than the executor can look through: a value
    /// multiplied by itself again and again doubles them each time.
    fn check_factors(&mut self) {
        let mut parts: Vec<usize> = Vec::new();
        let mut too_many = None;
        for op in &self.ops {
            let form = self.operators.find(&op.operator).map(|operator| operator.executor);
            let is_chain = form == Some(ExecutorForm::MultipliedOut);
            let of = |operand: &Operand| match operand {
                Operand::Rows { source: Source::Op(before, 0), .. }
                | Operand::Tensor { source: Source::Op(before, 0), .. }
                    if self.ops[*before].operator == op.operator =>
                {
                    parts[*before]
                }
                _ => 1,
            };
            let count = match is_chain {
                true => op.operands.iter().map(of).fold(0, usize::saturating_add),
                false => 1,
            };
            if count > PARTS_MAX && too_many.is_none() {
                too_many = Some((op.operator.clone(), op.label.clone()));
            }
            parts.push(count);
        }
        if let Some((operator, label)) = too_many {
            self.diagnose(
                &operator,
                &label,
                &format!("multiplied out it has more than {PARTS_MAX} parts"),
            );
        }
    }

    /// Takes the elements of a constant of `shape` off the budget for computed constants.
    pub(crate) fn afford(&mut self, shape: &[usize]) -> Result<(), String> {
        self.budget = less(self.budget, shape)?;
        Ok(())
    }

    /// As [`Self::afford`], for weights that are one number everywhere.
    pub(crate) fn afford_filled(&mut self, shape: &[usize]) -> Result<(), String> {
        self.filled_elements = FILLED_MAX - less(FILLED_MAX - self.filled_elements, shape)?;
        Ok(())
    }
}

/// A budget less the elements of a tensor of `shape`.
fn less(budget: usize, shape: &[usize]) -> Result<usize, String> {
    let left = elements(shape.iter().copied()).and_then(|count| budget.checked_sub(count));
    left.ok_or_else(|| "constants computed in the file grow beyond all reason".to_owned())
}

/// The product of lengths, if it is a number.
fn elements(mut lengths: impl Iterator<Item = usize>) -> Option<usize> {
    lengths.try_fold(1, |count: usize, length| count.checked_mul(length))
}
