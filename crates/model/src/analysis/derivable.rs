//! Which operators can be derived of what a request brings: see [`Derivation`].

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::analysis::derivation::Derivation;
use crate::analysis::references::row_of;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source};
use crate::data::dim::steps;
use crate::data::elements::Elements;

/// The most elements of a derived row that has more than the rows that it is derived of.
const ELEMENTS_MAX: usize = 16;

impl Analysis {
    /// Whether an operator on rows is one that can be derived: of INT64 that the request brings, and with no more elements than these.
    pub(crate) fn can_derive(
        &self,
        operator: &str,
        attributes: &[AttributeProto],
        operands: &[Operand],
        outputs: &[RowSpec],
    ) -> bool {
        let derivation = Derivation::of(operator, attributes);
        let ([output], Some(derivation)) = (outputs, derivation) else { return false };
        if !self.has_roles() || self.is_cell() || self.body.is_some() {
            return false;
        }
        let is_given = match output.element {
            ElementType::I64 | ElementType::Bool => true,
            ElementType::F32 | ElementType::I32 => operator == "Cast",
            _ => false,
        };
        let sources = || operands.iter().filter_map(source_of);
        let read = sources().map(|source| row_of(self, source).elements());
        let read = read.fold(0, usize::saturating_add);
        let has_integers = sources().any(|source| {
            matches!(source, Source::Op(..)) || row_of(self, source).element == ElementType::I64
        });
        let are_integers = operands.iter().map(|operand| self.is_of_integers(operand));
        let are_integers: Option<Vec<Option<bool>>> = are_integers.collect();
        let rows_first = match operator {
            "Concat" => operands.len(),
            "Gather" => 1,
            _ => 0,
        };
        is_given
            && has_integers
            && are_integers.is_some_and(|of| derivation.takes(&of))
            && operands[..rows_first].iter().all(|operand| source_of(operand).is_some())
            && output.elements() <= ELEMENTS_MAX.max(read)
    }

    /// Whether an operand that is derivable or constant holds integers, rather than truth values; none of an absent one. None for any
    /// other.
    fn is_of_integers(&self, operand: &Operand) -> Option<Option<bool>> {
        match operand {
            Operand::Rows { source, .. } => match row_of(self, *source).element {
                ElementType::I64 if self.is_derivable(*source) => Some(Some(true)),
                ElementType::Bool if self.is_derivable(*source) => Some(Some(false)),
                _ => None,
            },
            Operand::Constant(literal) => match Elements::of_literal(literal)? {
                Elements::Ints(_) => Some(Some(true)),
                Elements::Bools(_) => Some(Some(false)),
                Elements::Floats(_) => None,
            },
            Operand::Absent => Some(None),
            Operand::Tensor { .. } | Operand::Lengths(_) | Operand::Length(_) => None,
        }
    }

    /// Whether rows are those of an INT64 or BOOL tensor of the request, or can be derived of such.
    fn is_derivable(&self, source: Source) -> bool {
        match source {
            Source::Input(index) => {
                let input = &self.inputs[index];
                matches!(input.element, ElementType::I64 | ElementType::Bool)
                    && steps(&input.dims).len() <= 1
            }
            Source::Op(op, 0) => self.ops[op].is_derivable,
            _ => false,
        }
    }
}

/// The source of an operand that is rows.
fn source_of(operand: &Operand) -> Option<Source> {
    match operand {
        Operand::Rows { source, .. } => Some(*source),
        _ => None,
    }
}
