//! Operators on rows, added to the analysis one by one.

use batchmaker_graph::{ElementType, RowSpec};
use rten_onnx::onnx::AttributeProto;

use crate::analysis::state::Analysis;
use crate::analysis::value::{Domain, Operand, RowOp, Scope, Source, Val, View};
use crate::data::dim::{Dim, row_shape};
use crate::data::int_range::IntRange;
use crate::file::node::Node;

impl Analysis {
    /// Adds a row op; gives a view of each output.
    pub(crate) fn emit(
        &mut self,
        node: &Node,
        operator: &str,
        attributes: Vec<AttributeProto>,
        operands: Vec<Operand>,
        outputs: Vec<(ElementType, Vec<Dim>)>,
    ) -> Vec<Val> {
        let index = self.ops.len();
        let mut domain = Domain::default();
        for (_, dims) in &outputs {
            domain = domain.union(Domain::of(dims));
        }
        let sources = operands.iter().filter_map(|operand| match operand {
            Operand::Rows { source, .. } => Some(*source),
            _ => None,
        });
        let recurrence_depth =
            sources.map(|source| self.recurrence_depth(source)).max().unwrap_or(0);
        let specs: Vec<RowSpec> =
            outputs.iter().map(|(element, dims)| RowSpec::new(*element, row_shape(dims))).collect();
        let is_derivable = self.can_derive(operator, &attributes, &operands, &specs);
        let all = if is_derivable { IntRange::ALL_64 } else { IntRange::ALL };
        let range = self.range_of(operator, &attributes, &operands, all);
        self.ops.push(RowOp {
            label: node.label.clone(),
            operator: operator.to_owned(),
            attributes,
            operands,
            outputs: specs,
            domain,
            scope: Scope::Row,
            tensor_dims: Vec::new(),
            recurrence_depth,
            range,
            is_derivable,
            counts: None,
        });
        outputs
            .into_iter()
            .enumerate()
            .map(|(port, (element, dims))| {
                Val::View(View { source: Source::Op(index, port), at: None, element, dims })
            })
            .collect()
    }

    /// A view as an operand under its own row shape.
    pub(crate) fn operand(&self, view: &View) -> Operand {
        Operand::Rows { source: view.source, at: view.at, shape: row_shape(&view.dims) }
    }
}
