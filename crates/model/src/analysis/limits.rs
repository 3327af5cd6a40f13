//! Limits of an analysis, beyond which a file is refused: the elements of computed constants, the lengths of
//! rows, the number of operators, the parts of products and sums.

use batchmaker_graph::RowSpec;

use crate::analysis::operator::ExecutorForm;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp, Source};

/// The most elements of constants computed in a file, beside four times the elements that it holds.
pub(super) const BUDGET: usize = 1 << 23;

/// The most elements of a row between two operators.
const ROW_MAX: usize = 1 << 26;

/// The most parts of a product or sum, multiplied out.
const PARTS_MAX: usize = 4096;

/// The most elements in all of weights that a file states as one number in a shape (`ConstantOfShape`).
const FILLED_MAX: usize = 5 << 25;

/// The most operators that a file may come to.
const OPERATORS_MAX: usize = 20_000;

impl Analysis {
    /// Checks that no operator gives rows too long to have many of them.
    pub(crate) fn check_rows(&mut self) {
        if self.ops.len() > OPERATORS_MAX {
            let reason =
                format!("it comes to {} operators; at most {OPERATORS_MAX}", self.ops.len());
            self.diagnose("graph", "graph", &reason);
        }
        let too_long = |op: &&RowOp| {
            let elements = |row: &RowSpec| {
                row.shape.iter().try_fold(1usize, |count, &length| count.checked_mul(length))
            };
            op.outputs.iter().any(|row| elements(row).is_none_or(|count| count > ROW_MAX))
        };
        let found: Vec<(String, String)> = self
            .ops
            .iter()
            .filter(too_long)
            .map(|op| (op.operator.clone(), op.label.clone()))
            .collect();
        for (operator, label) in found {
            self.diagnose(
                &operator,
                &label,
                &format!("its rows have more than {ROW_MAX} elements"),
            );
        }
        self.check_factors();
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
    let count = shape.iter().try_fold(1usize, |count, &length| count.checked_mul(length));
    let left = count.and_then(|count| budget.checked_sub(count));
    left.ok_or_else(|| "constants computed in the file grow beyond all reason".to_owned())
}
