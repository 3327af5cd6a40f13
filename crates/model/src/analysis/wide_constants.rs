//! Constants of integers that pass 32 bits, which programs do not have.

use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, RowOp};
use crate::data::int_range::IntRange;
use crate::data::literal::Literal;

impl Analysis {
    /// Refuses operators of programs that compute with such a constant or hand it on.
    pub(super) fn check_constants(&mut self) {
        let is_bad = |op: &&RowOp| !op.is_derivable && has_wide_constant(op);
        let bad = self.ops.iter().filter(is_bad);
        let bad: Vec<(String, String)> =
            bad.map(|op| (op.operator.clone(), op.label.clone())).collect();
        for (operator, label) in bad {
            self.diagnose(&operator, &label, "a constant integer of it does not fit 32 bits");
        }
    }
}

fn has_wide_constant(op: &RowOp) -> bool {
    let wide = |at: usize| match op.operands.get(at) {
        Some(Operand::Constant(literal)) => outside(literal),
        _ => (false, false),
    };
    let is_wide = |at: usize| wide(at) != (false, false);
    match &*op.operator {
        // A bound beyond all integers bounds nothing.
        "Clip" => wide(1).1 || wide(2).0,
        "Max" => (0..op.operands.len()).any(|at| wide(at).1),
        "Min" => (0..op.operands.len()).any(|at| wide(at).0),
        "Gather" | "GatherElements" | "GatherND" => is_wide(0),
        "ScatterElements" | "ScatterND" => is_wide(0) || is_wide(2),
        "Pad" | "OneHot" => is_wide(0) || is_wide(2),
        "Concat" | "Where" | "If" => (0..op.operands.len()).any(is_wide),
        _ => false,
    }
}

/// Whether integers are below those of 32 bits, and whether some are above.
fn outside(literal: &Literal) -> (bool, bool) {
    let (low, high) = (IntRange::ALL.low, IntRange::ALL.high);
    let numbers = literal.as_ints().map(|ints| &ints.data[..]).unwrap_or_default();
    let numbers = || numbers.iter().filter_map(|int| int.as_number());
    (numbers().any(|n| n < low), numbers().any(|n| n > high))
}
