//! The FLOATs that INT32 numbers round to, where they are known without going through INT32.
//!
//! Files add a bias of INT32 to the sums of quantised products, and cast what that gives to FLOAT. Both terms are held as FLOAT before they
//! are cast to INT32: where their sum fits 32 bits, it is the same number in FLOAT, rounded once. So what lies between a product and the next
//! stays in FLOAT, but for scales that each sequence of a batch has for itself.

use batchmaker_graph::ElementType;

use crate::analysis::operator::Inputs;
use crate::analysis::operators::dispatch::{apply, evaluate};
use crate::analysis::operators::fold;
use crate::analysis::state::Analysis;
use crate::analysis::value::{Operand, Source, Val, View};
use crate::data::array::Array;
use crate::data::literal::Literal;
use crate::file::node::Node;

/// The magnitude up to which FLOAT holds every whole number.
const EXACT_MAX: i64 = 1 << 24;

/// Operators that give whole numbers.
const WHOLE: [&str; 3] = ["Ceil", "Floor", "Round"];

/// Operators that move numbers.
const MOVING: [&str; 3] = ["Reshape", "Squeeze", "Unsqueeze"];

impl Analysis {
    /// The FLOATs that a view of INT32 numbers rounds to.
    pub(crate) fn rounded_to_float(&self, view: &View) -> Option<View> {
        let sum = self.rounded_to_float.sum(view).cloned();
        sum.or_else(|| self.held_as_float(view))
    }

    /// The FLOATs that hold the numbers of a view.
    fn held_as_float(&self, view: &View) -> Option<View> {
        if let Some(known) = self.rounded_to_float.exact(view) {
            return Some(known.clone());
        }
        let Source::Op(index, 0) = view.source else { return None };
        let op = &self.ops[index];
        let source = match op.operands[..] {
            [Operand::Rows { source, at: None, .. } | Operand::Tensor { source, at: None, .. }] => {
                source
            }
            _ => return None,
        };
        let is_cast_sum = op.operator == "Cast" && self.whole.contains(&source);
        is_cast_sum.then(|| View { source, element: ElementType::F32, ..view.clone() })
    }

    /// Notes what the outputs of a node round to. Operators that nothing reads are left out of cells, so that they cost nothing.
    pub(crate) fn note_rounded_to_float(&mut self, node: &Node, inputs: &Inputs, outputs: &[Val]) {
        let Some(Val::View(view)) = outputs.first() else { return };
        if view.element != ElementType::I32 || view.at.is_some() {
            return;
        }
        if let Some(floats) = self.exact_of(node, inputs) {
            self.rounded_to_float.add_exact(view, floats);
        } else if let Some(floats) = self.sum_of(node, inputs) {
            self.rounded_to_float.add_sum(view, floats);
        }
    }

    fn exact_of(&mut self, node: &Node, inputs: &Inputs) -> Option<View> {
        let Some(Val::View(x)) = inputs.first()?.as_ref() else { return None };
        let operator = &*node.operator;
        if operator == "Cast" && x.element == ElementType::F32 {
            let Source::Op(index, 0) = x.source else { return None };
            if !WHOLE.contains(&&*self.ops[index].operator) {
                return None;
            }
            // A cast cuts numbers off at the ends of INT32.
            let end = |of: i32| Val::literal(Literal::F32(Array::scalar(of as f32)));
            let bounds = vec![Val::View(x.clone()), end(i32::MIN), end(i32::MAX)];
            return as_view(apply(self, node, "Clip", vec![], bounds).ok()?);
        }
        if !MOVING.contains(&operator) {
            return None;
        }
        let x = self.held_as_float(x)?;
        let mut inputs: Vec<Option<Val>> = inputs.to_vec();
        inputs[0] = Some(Val::View(x));
        as_view(evaluate(self, node, &inputs).ok()?.into_iter().next()?)
    }

    fn sum_of(&mut self, node: &Node, inputs: &Inputs) -> Option<View> {
        if &*node.operator != "Add" {
            return None;
        }
        let term = |val: &Option<Val>| match val.as_ref()? {
            Val::View(view) => self.held_as_float(view).map(Val::View),
            Val::Literal(literal) => {
                let is_exact = |n: &i64| n.abs() <= EXACT_MAX;
                let is_exact = literal.as_numbers()?.iter().all(is_exact);
                fold::cast(literal, ElementType::F32).filter(|_| is_exact).map(Val::literal)
            }
            _ => None,
        };
        let terms = inputs.iter().map(term).collect::<Option<Vec<Val>>>()?;
        as_view(apply(self, node, "Add", vec![], terms).ok()?)
    }
}

fn as_view(val: Val) -> Option<View> {
    match val {
        Val::View(view) if view.at.is_none() => Some(view),
        _ => None,
    }
}
