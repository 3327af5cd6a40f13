//! Applies operators one after the other, in the place of a node.

use rten_onnx::onnx::AttributeProto;

use crate::analysis::operators::dispatch::apply;
use crate::analysis::state::Analysis;
use crate::analysis::value::Val;
use crate::data::array::Array;
use crate::data::int::Int;
use crate::data::literal::Literal;
use crate::file::node::Node;

/// The node that is written in other operators.
pub(in crate::analysis::operators) struct Composer<'a> {
    pub(in crate::analysis::operators) analysis: &'a mut Analysis,
    pub(in crate::analysis::operators) node: &'a Node,
}

impl Composer<'_> {
    /// The first output of an operator without attributes.
    pub(in crate::analysis::operators) fn op(
        &mut self,
        operator: &str,
        inputs: &[&Val],
    ) -> Result<Val, String> {
        self.op_with(operator, vec![], inputs)
    }

    /// The first output of an operator.
    pub(in crate::analysis::operators) fn op_with(
        &mut self,
        operator: &str,
        attributes: Vec<AttributeProto>,
        inputs: &[&Val],
    ) -> Result<Val, String> {
        let inputs = inputs.iter().map(|&val| val.clone()).collect();
        apply(self.analysis, self.node, operator, attributes, inputs)
    }

    /// The lengths of a value's axes.
    pub(super) fn lengths(&self, val: &Val) -> Vec<Int> {
        val.dims().iter().map(|dim| self.analysis.axes.int(dim)).collect()
    }

    /// The value under another shape.
    pub(super) fn reshaped(&mut self, val: &Val, shape: Vec<Int>) -> Result<Val, String> {
        self.op("Reshape", &[val, &Val::literal(Literal::ints(shape))])
    }
}

/// A FLOAT without axes.
pub(in crate::analysis::operators) fn number(x: f32) -> Val {
    Val::literal(Literal::F32(Array::scalar(x)))
}

/// A vector of INT64.
pub(super) fn ints(values: impl IntoIterator<Item = i64>) -> Val {
    Val::literal(Literal::ints(values.into_iter().map(Int::number).collect()))
}
