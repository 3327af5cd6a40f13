//! The integers that a value may hold, as far as the file tells: an interval that operators carry on.
//!
//! Programs compute with integers of 32 bits, which wrap, so every value in them lies within these. What is derived of a request's
//! own INT64 ([`Derivation`](crate::analysis::derivation::Derivation)) has 64; a program that reads it is given such of 32 bits
//! alone.

use batchmaker_graph::ElementType;
use rten_onnx::onnx::{AttributeProto, DataType};

use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source};
use crate::data::int_range::IntRange;
use crate::file::attribute::named_int;

impl Analysis {
    /// The integers that a source may hold where a program reads it.
    pub(crate) fn range(&self, source: Source) -> IntRange {
        match source {
            Source::Op(op, _) => self.ops[op].range.within_32_bits(),
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

    /// The integers that an operand may hold: integers of 32 bits where `all` are these, else of 64.
    fn operand_range(&self, operand: &Operand, all: IntRange) -> IntRange {
        match operand {
            Operand::Rows { source, .. } | Operand::Tensor { source, .. } => match source {
                _ if all == IntRange::ALL => self.range(*source),
                Source::Op(op, _) => self.ops[*op].range,
                _ => all,
            },
            Operand::Constant(literal) if all == IntRange::ALL => IntRange::of_literal(literal),
            Operand::Constant(literal) => IntRange::of_numbers(literal, 0),
            Operand::Lengths(_) | Operand::Length(_) | Operand::Absent => all,
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

    /// The integers that an operator's first output may hold, if it computes with `all` integers of 32 bits or of 64.
    pub(crate) fn range_of(
        &self,
        operator: &str,
        attributes: &[AttributeProto],
        operands: &[Operand],
        all: IntRange,
    ) -> IntRange {
        let of = |at: usize| operands.get(at).map_or(all, |o| self.operand_range(o, all));
        let union = |from: usize| {
            let ranges = operands[from..].iter().map(|operand| self.operand_range(operand, all));
            ranges.reduce(IntRange::union).unwrap_or(all)
        };
        let both = |f: fn(i128, i128) -> i128| of(0).combined(of(1), all, f);
        match operator {
            "Identity" | "Reshape" | "Transpose" | "Expand" | "Slice" | "Gather" | "Squeeze"
            | "Unsqueeze" | "ReduceMax" | "ReduceMin" => of(0),
            "Concat" => union(0),
            "Where" | "If" if operands.len() == 3 => union(1),
            "Cast" => match operands.first() {
                Some(operand) if self.is_truth(operand) => IntRange::from([0, 1]),
                Some(operand) if self.is_integer(operand) => {
                    let to = named_int(attributes, "to").map(|to| DataType(to as i32));
                    let possible = match to {
                        Some(DataType::INT32) => IntRange::ALL,
                        Some(DataType::UINT32) => IntRange { low: 0, high: u32::MAX.into() },
                        _ => all,
                    };
                    if of(0).is_within(possible) { of(0) } else { possible }
                }
                _ => all,
            },
            "Add" => both(|a, b| a + b),
            "Sub" => both(|a, b| a - b),
            "Mul" => both(|a, b| a * b),
            "Max" if operands.len() == 2 => both(i128::max),
            "Min" if operands.len() == 2 => both(i128::min),
            "Clip" => {
                let bounded = match operands.get(1) {
                    Some(Operand::Constant(_)) => both(i128::max),
                    _ => of(0),
                };
                match operands.get(2) {
                    Some(Operand::Constant(_)) => bounded.combined(of(2), all, i128::min),
                    _ => bounded,
                }
            }
            "Neg" => IntRange::from([0, 0]).combined(of(0), all, |a, b| a - b),
            "Mod" if named_int(attributes, "fmod").unwrap_or(0) == 0 && of(1).low > 0 => {
                IntRange { low: 0, high: of(1).high - 1 }
            }
            "Div" if of(1).low > 0 => both(|a, b| a / b),
            _ => all,
        }
    }
}
