//! Recognises operators on scalars, and tensors that repeat one.

use batchmaker_kernels::Activation;
use rten_onnx::onnx::NodeProto;

use crate::operator::operator;
use crate::sections::element_pattern::{binary, unary};
use crate::sections::native_section::{NativeKind, ScalarGroup};
use crate::sections::scalars::{
    ScalarOperand, ScalarOperator, ScalarResult, ScalarShape, ScalarStep,
};
use crate::sections::sorter::Sorter;

/// An operator on scalars.
struct ScalarNode {
    operator: ScalarOperator,
    /// The names of its operands, with the numbers of those that are constants.
    operands: Vec<(String, Option<f32>)>,
    shape: ScalarShape,
}

impl Sorter<'_> {
    /// Adds an operator on scalars to a section of these: one that computes an operand or can run no earlier. Returns the position of the
    /// section.
    pub(super) fn add_scalar(&mut self, node: &NodeProto) -> Option<usize> {
        let scalar = self.scalar_node(node)?;
        let tensors = || scalar.operands.iter().filter(|(_, constant)| constant.is_none());
        let depth = 1 + tensors().map(|(name, _)| self.depth(name)).max()?;
        let at = self.native.iter().rposition(|section| {
            let NativeKind::Scalars(group) = &section.kind else { return false };
            section.depth == depth || tensors().any(|(name, _)| group.step_of(name).is_some())
        })?;
        let is_there = |name: &str| self.native[at].produces(name) || self.is_before(at, name);
        if !tensors().all(|(name, _)| is_there(name)) {
            return None;
        }
        let section = &mut self.native[at];
        let NativeKind::Scalars(group) = &mut section.kind else { return None };
        group.add(node, scalar, &mut section.reads);
        Some(at)
    }

    /// The section that an operator on scalars begins, and the tensors that it reads.
    pub(super) fn scalar_section(&self, node: &NodeProto) -> Option<(NativeKind, Vec<String>)> {
        let (mut group, mut reads) = (ScalarGroup::default(), Vec::new());
        group.add(node, self.scalar_node(node)?, &mut reads);
        Some((NativeKind::Scalars(group), reads))
    }

    /// The scalar that an operand of an elementwise operator is the product of, with ones; the operand itself if it is no such. The model
    /// crate writes these products, since the general executor divides by one number as it multiplies by its reciprocal.
    pub(super) fn unrepeated<'b>(&'b self, operand: &'b String) -> &'b String {
        let scalar = || {
            let product =
                self.producers.get(operand.as_str()).filter(|of| operator(of) == "Mul")?;
            let [scalar, ones] = &product.input[..] else { return None };
            let is_repeated = self.constants.has(ones)
                && self.is_uniform(ones)
                && self.constants.floats(ones)?.1.first() == Some(&1.0);
            (is_repeated && self.scalar(scalar).is_some() && self.is_there(scalar))
                .then_some(scalar)
        };
        scalar().unwrap_or(operand)
    }

    /// The shape of a computed scalar; none of any other tensor.
    pub(super) fn scalar(&self, name: &str) -> Option<ScalarShape> {
        let rank = self.probe.shapes(name).filter(|_| self.scalars.contains(name))?[0].len();
        Some(ScalarShape { rank, batch_axis: self.probe.batch_axis(name) })
    }

    /// The operator on scalars that `node` is.
    fn scalar_node(&self, node: &NodeProto) -> Option<ScalarNode> {
        let shape = self.scalar(node.output.first()?)?;
        let (operator, operands) = match (operator(node), &node.input[..]) {
            ("Identity" | "Reshape" | "Squeeze" | "Unsqueeze", [x, ..]) => {
                (ScalarOperator::Same, vec![x])
            }
            ("Clip" | "Relu", [x, ..]) => match self.activation(node)? {
                Activation::Clip { low, high } => (ScalarOperator::Clip { low, high }, vec![x]),
                _ => return None,
            },
            ("Where", [condition, x, y]) => {
                let equal = self.producers.get(condition.as_str());
                let equal = equal.filter(|of| operator(of) == "Equal")?;
                let [a, b] = &equal.input[..] else { return None };
                (ScalarOperator::WhereEqual, vec![a, b, x, y])
            }
            (_, [x]) => (ScalarOperator::Unary(unary(node)?), vec![x]),
            (_, [a, b]) => {
                let [binary, _] = binary(node)?;
                (ScalarOperator::Binary(binary), vec![a, b])
            }
            _ => return None,
        };
        let operand = |name: &String| match self.constants.has(name) {
            true => Some((name.clone(), Some(self.constants.number(name)?))),
            false => {
                self.scalar(name).filter(|_| self.is_there(name)).map(|_| (name.clone(), None))
            }
        };
        let operands = operands.into_iter().map(operand).collect::<Option<Vec<_>>>()?;
        let is_computed = operands.iter().any(|(_, constant)| constant.is_none());
        is_computed.then_some(ScalarNode { operator, operands, shape })
    }
}

impl ScalarGroup {
    /// The step whose result is the tensor of that name.
    fn step_of(&self, name: &str) -> Option<usize> {
        self.outputs.iter().position(|output| output == name)
    }

    /// Keeps the results of those names.
    pub(super) fn keep(&mut self, is_read: impl Fn(&str) -> bool) {
        let outputs = std::mem::take(&mut self.outputs);
        let results = std::mem::take(&mut self.scalars.results);
        let read = outputs.into_iter().zip(results).filter(|(name, _)| is_read(name));
        (self.outputs, self.scalars.results) = read.unzip();
    }

    /// Adds an operator.
    fn add(&mut self, node: &NodeProto, scalar: ScalarNode, reads: &mut Vec<String>) {
        let operands = scalar.operands.into_iter().map(|(name, constant)| {
            if let Some(constant) = constant {
                return ScalarOperand::Constant(constant);
            }
            if let Some(step) = self.step_of(&name) {
                return ScalarOperand::Step(step);
            }
            ScalarOperand::Read(reads.iter().position(|read| *read == name).unwrap_or_else(|| {
                reads.push(name);
                reads.len() - 1
            }))
        });
        let operands = operands.collect();
        let step = self.scalars.steps.len();
        self.scalars.steps.push(ScalarStep { operator: scalar.operator, operands });
        self.scalars.results.push(ScalarResult { step, shape: scalar.shape });
        self.outputs.extend(node.output.first().cloned());
        self.operators.push(operator(node).to_owned());
    }
}
