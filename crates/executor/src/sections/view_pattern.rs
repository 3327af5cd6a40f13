//! Recognises operators that only put elements in another place or shape.

use rten_onnx::onnx::NodeProto;

use crate::operator::operator;
use crate::sections::constants::{int, ints};
use crate::sections::native_section::NativeKind;
use crate::sections::sorter::Sorter;
use crate::sections::strided_view::{Cut, StridedView, ViewStep};

impl Sorter<'_> {
    /// Adds a step to the view whose elements `node` alone reads. Returns the position of that section.
    pub(super) fn add_view_step(&mut self, node: &NodeProto) -> Option<usize> {
        let step = self.view_step(node)?;
        let at = self.only_read(node.input.first()?)?;
        let section = &mut self.native[at];
        let NativeKind::View(steps, operators) = &mut section.kind else { return None };
        steps.push(step);
        let shapes = self.probe.shapes(&section.reads[0])?;
        if !shapes.iter().all(|shape| StridedView::is_one_copy(steps, shape)) {
            steps.pop();
            return None;
        }
        operators.push(operator(node).to_owned());
        Some(at)
    }

    /// The step of a view that `node` is, if its operands are constant.
    pub(super) fn view_step(&self, node: &NodeProto) -> Option<ViewStep> {
        let x = node.input.first().filter(|x| !self.constants.has(x))?;
        let rank = self.probe.shapes(x)?[0].len();
        let operand = |at: usize| node.input.get(at).filter(|name| !name.is_empty());
        let numbers = |at: usize| operand(at).map(|name| self.constants.ints(name));
        let place = |axis: i64, rank: usize| {
            let axis = if axis < 0 { axis + rank as i64 } else { axis };
            usize::try_from(axis).ok().filter(|&axis| axis < rank)
        };
        let places = |axes: &[i64], rank| -> Option<Vec<usize>> {
            axes.iter().map(|&axis| place(axis, rank)).collect()
        };
        match operator(node) {
            "Reshape" => {
                let dims = numbers(1)??;
                let is_plain = int(node, "allowzero", 0) == 0;
                is_plain.then_some(ViewStep::Reshape(dims))
            }
            "Transpose" => {
                let has_order = node.attribute.iter().any(|a| a.name.as_deref() == Some("perm"));
                let order = match has_order {
                    true => ints(node, "perm", 0, rank),
                    false => Some((0..rank).rev().collect()),
                };
                order.map(ViewStep::Transpose)
            }
            "Slice" => {
                let (starts, ends) = (numbers(1)??, numbers(2)??);
                let axes = match numbers(3) {
                    Some(axes) => places(&axes?, rank)?,
                    None => (0..starts.len()).collect(),
                };
                let steps = match numbers(4) {
                    Some(steps) => steps?,
                    None => vec![1; starts.len()],
                };
                let are_alike = [ends.len(), axes.len(), steps.len()] == [starts.len(); 3];
                let cut = |at: usize| {
                    let step = usize::try_from(steps[at]).ok().filter(|&step| step > 0)?;
                    Some(Cut { axis: axes[at], start: starts[at], end: ends[at], step })
                };
                let cuts = (0..starts.len()).filter(|_| are_alike).map(cut);
                cuts.collect::<Option<_>>().filter(|_| are_alike).map(ViewStep::Slice)
            }
            "Squeeze" => Some(ViewStep::Squeeze(places(&numbers(1)??, rank)?)),
            "Unsqueeze" => {
                let axes = numbers(1)??;
                let mut places = places(&axes, rank + axes.len())?;
                places.sort_unstable();
                Some(ViewStep::Unsqueeze(places))
            }
            _ => None,
        }
    }
}
