//! The integers that a value may hold, as far as the file tells: an interval that operators carry on.
//!
//! Programs compute with integers of 32 bits, which wrap, so every value lies within them.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::AttributeProto;

use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source};
use crate::data::int_range::IntRange;
use crate::file::attribute::named_int;

impl Analysis {
    /// The integers that a source may hold.
    pub(crate) fn range(&self, source: Source) -> IntRange {
        match source {
            Source::Op(op, _) => self.ops[op].range,
            // A cell's inputs and those of a loop's body may have been computed.
            Source::Input(input) if !self.is_cell() && self.body.is_none() => {
                match self.inputs[input].element.stored() {
                    ElementType::I64 => IntRange::OF_INPUT,
                    _ => IntRange::ALL,
                }
            }
            _ => IntRange::ALL,
        }
    }

    fn operand_range(&self, operand: &Operand) -> IntRange {
        match operand {
            Operand::Rows { source, .. } | Operand::Tensor { source, .. } => self.range(*source),
            Operand::Constant(literal) => IntRange::of_literal(literal),
            Operand::Lengths(_) | Operand::Length(_) | Operand::Absent => IntRange::ALL,
        }
    }

    fn is_truth(&self, operand: &Operand) -> bool {
        match operand {
            Operand::Rows { source, .. } | Operand::Tensor { source, .. } => {
                row_of(self, *source).element == ElementType::Bool
            }
            Operand::Constant(literal) => literal.element() == ElementType::Bool,
            _ => false,
        }
    }

    fn is_integer(&self, operand: &Operand) -> bool {
        let is_integer = |element: ElementType| element.is_integer();
        match operand {
            Operand::Rows { source, .. } | Operand::Tensor { source, .. } => {
                is_integer(row_of(self, *source).element)
            }
            Operand::Constant(literal) => is_integer(literal.element()),
            _ => false,
        }
    }

    /// The integers that an operator's first output may hold.
    pub(crate) fn range_of(
        &self,
        operator: &str,
        attributes: &[AttributeProto],
        operands: &[Operand],
    ) -> IntRange {
        let of = |at: usize| operands.get(at).map_or(IntRange::ALL, |o| self.operand_range(o));
        let all = |from: usize| {
            let ranges = operands[from..].iter().map(|operand| self.operand_range(operand));
            ranges.reduce(IntRange::union).unwrap_or(IntRange::ALL)
        };
        match operator {
            "Identity" | "Reshape" | "Transpose" | "Expand" | "Slice" | "Gather" | "Squeeze"
            | "Unsqueeze" | "ReduceMax" | "ReduceMin" => of(0),
            "Concat" => all(0),
            "Where" | "If" if operands.len() == 3 => all(1),
            "Cast" => match operands.first() {
                Some(operand) if self.is_truth(operand) => IntRange::from([0, 1]),
                Some(operand) if self.is_integer(operand) => of(0),
                _ => IntRange::ALL,
            },
            "Add" => of(0).combined(of(1), |a, b| a + b),
            "Sub" => of(0).combined(of(1), |a, b| a - b),
            "Mul" => of(0).combined(of(1), |a, b| a * b),
            "Max" if operands.len() == 2 => of(0).combined(of(1), i64::max),
            "Min" if operands.len() == 2 => of(0).combined(of(1), i64::min),
            "Clip" => {
                let bounded = match operands.get(1) {
                    Some(Operand::Constant(_)) => of(0).combined(of(1), i64::max),
                    _ => of(0),
                };
                match operands.get(2) {
                    Some(Operand::Constant(_)) => bounded.combined(of(2), i64::min),
                    _ => bounded,
                }
            }
            "Neg" => IntRange::from([0, 0]).combined(of(0), |a, b| a - b),
            "Mod" if named_int(attributes, "fmod").unwrap_or(0) == 0 && of(1).low > 0 => {
                IntRange::from([0, of(1).high - 1])
            }
            "Div" if of(1).low > 0 => of(0).combined(of(1), |a, b| a / b),
            _ => IntRange::ALL,
        }
    }
}
