//! Recognises operators that only put elements in another place or shape.

use rten_onnx::onnx::NodeProto;

use crate::growth::Growth;
use crate::operator::operator;
use crate::sections::constants::{int, ints};
use crate::sections::joining::Join;
use crate::sections::native_section::NativeKind;
use crate::sections::sorter::Sorter;
use crate::sections::strided_view::{Cut, StridedView, ViewStep};
use crate::sections::tensor::{ChannelsLast, laid_out};

impl Sorter<'_> {
    /// The concatenation that `node` is, if all that it reads are computed floats.
    pub(super) fn join(&self, node: &NodeProto) -> Option<Join> {
        let is_computed = |name: &String| self.floats.has(name) && !self.constants.has(name);
        let rank = self.probe.shapes(node.input.first()?)?[0].len() as i64;
        let axis = int(node, "axis", 0);
        let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
        let fits = node.input.iter().all(is_computed) && axis < rank as usize;
        fits.then_some(Join { axis })
    }

    /// Adds a step to the view whose elements `node` alone reads. Returns the position of that section.
    pub(super) fn add_view_step(&mut self, node: &NodeProto) -> Option<usize> {
        let step = self.view_step(node)?;
        let at = self.only_read(node.input.first()?)?;
        let section = &mut self.native[at];
        let NativeKind::View { steps, operators, of_channels_last } = &mut section.kind else {
            return None;
        };
        steps.push(step);
        let is_one_copy = |shape: &Vec<usize>| match of_channels_last {
            true => StridedView::is_one_copy(steps, &laid_out(shape)),
            false => StridedView::is_one_copy(steps, shape),
        };
        if !self.probe.shapes(&section.reads[0])?.iter().all(is_one_copy) {
            steps.pop();
            return None;
        }
        operators.push(operator(node).to_owned());
        Some(at)
    }

    /// The view that begins with a step. Of a tensor that is produced with its channels last it reads the elements where they
    /// are.
    pub(super) fn view(&self, node: &NodeProto, step: ViewStep) -> NativeKind {
        let operators = vec![operator(node).to_owned()];
        let x = node.input.first().filter(|x| self.is_channels_last(x));
        let shapes = x.and_then(|x| self.probe.shapes(x));
        let (mut steps, of_channels_last) = (Vec::new(), shapes.is_some());
        if let Some(shapes) = shapes {
            let rank = shapes[0].len();
            steps.push(ViewStep::Transpose([0, rank - 1].into_iter().chain(1..rank - 1).collect()));
        }
        steps.push(step);
        NativeKind::View { steps, operators, of_channels_last }
    }

    /// Lets the convolution whose output `node` alone reads put its pixels along one axis, if that is what `node` does.
    pub(super) fn add_flattening(&mut self, node: &NodeProto, output: &str) -> Option<usize> {
        let x = node.input.first()?;
        let at = self.only_read(x)?;
        let (from, to) = (self.probe.shapes(x)?, self.probe.shapes(output)?);
        let is_flat = |(from, to): (&Vec<usize>, &Vec<usize>)| {
            from.len() == 4 && to[..] == ChannelsLast::sizes(from)
        };
        let has_one_length = self.probe.lengths().count() == 0;
        let has_fixed_pixels = || {
            let growth = self.probe.growth(x);
            growth.is_some_and(|growth| growth.dims.iter().skip(2).all(Growth::is_fixed))
        };
        let keeps_channels = match self.view_step(node)? {
            ViewStep::Squeeze(_) => true,
            ViewStep::Reshape(dims) => {
                let channels = from[0].get(1).map(|&n| n as i64);
                has_one_length
                    || matches!(dims[..], [0, n, -1] if n == 0 || Some(n) == channels)
                    || matches!(dims[..], [-1, ..] if has_fixed_pixels())
            }
            _ => false,
        };
        let fits = keeps_channels && from.iter().zip(to).all(is_flat);
        let section = &mut self.native[at];
        let has_residual = section.reads.len() > 1;
        match &mut section.kind {
            NativeKind::Convolution(convolution) if fits && !has_residual => convolution.flatten(),
            _ => return None,
        }
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
            // A tensor whose channels come last is put in the layout of the file on several threads instead.
            "Identity" => (!self.is_channels_last(x)).then(|| ViewStep::Squeeze(Vec::new())),
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
