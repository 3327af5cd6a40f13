//! Where it shows that a cast of FLOAT to INT64 cut a number off at the ends of 32 bits.
//!
//! What compares and chooses does so by order, which a number at an end keeps: `Clip(Cast(Log(x)), 0, 15)` is right for a
//! logarithm of 0. Sums, products and indices are checked by themselves.

use std::collections::BTreeSet;

use crate::analysis::index_check::{CheckKind, Unchecked};
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source};
use crate::data::int_range::IntRange;

/// Operators that hand numbers on, or choose among them by order.
const PASSING: [&str; 14] = [
    "Clip",
    "Concat",
    "Expand",
    "Identity",
    "If",
    "Max",
    "Min",
    "ReduceMax",
    "ReduceMin",
    "Reshape",
    "Slice",
    "Squeeze",
    "Transpose",
    "Where",
];

/// Operators to which the end of 32 bits is as good as what lies beyond, or whose results are checked.
const CHECKED: [&str; 13] = [
    "Abs",
    "Add",
    "ArgMax",
    "ArgMin",
    "CumSum",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Mul",
    "Neg",
    "Sub",
];

impl Analysis {
    /// The checks that a check stands for: of a cast, one of each output that shows its cut-off numbers, or itself where another
    /// operator reads such.
    pub(super) fn where_cuts_show(&self, check: Unchecked) -> Vec<Unchecked> {
        if check.kind != CheckKind::Cast {
            return vec![check];
        }
        let mut cut: BTreeSet<Source> = [check.view.source].into();
        for (index, op) in self.ops.iter().enumerate() {
            let is_cut = |operand: &Operand| match operand {
                Operand::Rows { source, .. } | Operand::Tensor { source, .. } => {
                    cut.contains(source)
                }
                _ => false,
            };
            if !op.operands.iter().any(is_cut) || CHECKED.contains(&&*op.operator) {
                continue;
            }
            if !PASSING.contains(&&*op.operator) {
                return vec![check];
            }
            let IntRange { low, high } = IntRange::ALL;
            if op.range.low <= low || op.range.high >= high {
                cut.insert(Source::Op(index, 0));
            }
        }
        if self.recurrents.iter().flat_map(|of| of.views()).any(|view| cut.contains(&view.source)) {
            return vec![check];
        }
        let shown = self.outputs.iter().filter(|(_, view)| cut.contains(&view.source));
        shown.map(|(_, view)| Unchecked { view: view.clone(), ..check.clone() }).collect()
    }
}
