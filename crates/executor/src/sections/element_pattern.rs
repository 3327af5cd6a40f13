//! Recognises elementwise operators and reductions of floats.

use std::collections::BTreeSet;

use batchmaker_kernels::{Binary, Reduction, Unary};
use rten_onnx::onnx::NodeProto;
use rten_tensor::Tensor;

use crate::operator::operator;
use crate::sections::constants::int;
use crate::sections::element_chain::{ChainOperand, ChainStep};
use crate::sections::native_section::{NativeKind, NativeSection};
use crate::sections::reducing::Reduce;
use crate::sections::sorter::Sorter;

/// An elementwise operator of a tensor `x`.
struct Elementwise<'a> {
    x: &'a String,
    /// The computed operand beside it.
    other: Option<String>,
    /// The step, whose computed operand is the first that its section reads.
    step: ChainStep,
}

impl Sorter<'_> {
    /// The chain that an elementwise operator begins, and the tensors that it reads.
    pub(super) fn element_chain(&self, node: &NodeProto) -> Option<(NativeKind, Vec<String>)> {
        let Elementwise { x, other, mut step } = self.elementwise(node)?;
        let mut reads = vec![x.clone()];
        if let (ChainStep::Binary(_, ChainOperand::Read(at)), Some(other)) = (&mut step, other)
            && other != *x
        {
            *at = 1;
            reads.push(other);
        }
        Some((NativeKind::Chain(vec![step], vec![operator(node).to_owned()]), reads))
    }

    /// Adds an elementwise operator to the chain whose last element it alone reads. Returns the position of that section.
    pub(super) fn add_element_step(&mut self, node: &NodeProto) -> Option<usize> {
        let Elementwise { x, other, mut step } = self.elementwise(node)?;
        let at = self.only_read(x)?;
        if !matches!(self.native[at].kind, NativeKind::Chain(..)) {
            return None;
        }
        if other.as_ref() == Some(x) {
            return None;
        }
        if let Some(other) = other.as_ref().filter(|other| !self.is_before(at, other)) {
            let shapes = [Some(other), node.output.first()];
            let shapes = shapes.map(|name| name.and_then(|name| self.probe.shapes(name)));
            if shapes[0] == shapes[1] {
                // It might begin another pattern, which the chain would be in the way of.
                return None;
            }
            // Nobody else waits for the chain.
            self.native[at].depth = self.depth(other) + 1;
        }
        let section = &mut self.native[at];
        if let (ChainStep::Binary(_, ChainOperand::Read(at)), Some(other)) = (&mut step, other) {
            *at = section.reads.iter().position(|read| *read == other).unwrap_or_else(|| {
                section.reads.push(other);
                section.reads.len() - 1
            });
        }
        if let NativeKind::Chain(steps, operators) = &mut section.kind {
            steps.push(step);
            operators.push(operator(node).to_owned());
        }
        Some(at)
    }

    fn elementwise<'b>(&self, node: &'b NodeProto) -> Option<Elementwise<'b>> {
        let output = node.output.first().filter(|output| self.floats.has(output))?;
        let is_whole = |name: &String| {
            let dims = |name: &str| self.probe.growth(name).map(|growth| &growth.dims[..]);
            !self.constants.has(name)
                && self.floats.has(name)
                && self.probe.shapes(name) == self.probe.shapes(output)
                && dims(name) == dims(output)
                && dims(name).is_some()
        };
        let x = node.input.first()?;
        if let Some(activation) = self.activation(node).filter(|_| is_whole(x)) {
            return Some(Elementwise { x, other: None, step: ChainStep::Activation(activation) });
        }
        if let Some(unary) = unary(node) {
            let step = ChainStep::Unary(unary);
            return is_whole(x).then_some(Elementwise { x, other: None, step });
        }
        let [a, b] = &node.input[..] else { return None };
        let [binary, turned] = binary(node)?;
        let is_chain = |name: &String| {
            let at = self.only_read(name);
            at.is_some_and(|at| matches!(self.native[at].kind, NativeKind::Chain(..)))
        };
        let ways = [(a, b, binary), (b, a, turned)];
        // A constant may have an element for each that is made of a scalar.
        let has_elements = |name: &String| self.constants.has(name) && !self.is_uniform(name);
        let begins = |x: &String, other: &String| {
            is_whole(x) || (has_elements(other) && self.scalar(x).is_some())
        };
        let mut ways: Vec<_> = ways.into_iter().filter(|(x, other, _)| begins(x, other)).collect();
        // A chain that only repeats a scalar is not continued: its scalar is read instead.
        ways.sort_by_key(|(x, ..)| (self.unrepeated(x) != *x, !is_chain(x)));
        let ways = ways.into_iter().map(|(x, other, of)| (x, self.unrepeated(other), of));
        let (x, other, binary) =
            ways.into_iter().find(|(_, other, _)| self.meets(other, output))?;
        let (other, operand) = match self.constants.has(other) {
            true => {
                let (dims, data) = self.constants.floats(other)?;
                (None, ChainOperand::Constant(Tensor::from_data(&dims[..], data)))
            }
            false => (Some(other.clone()), ChainOperand::Read(0)),
        };
        Some(Elementwise { x, other, step: ChainStep::Binary(binary, operand) })
    }

    /// The chain of elementwise operators over tensors with their channels last, which read `reads`; none if one of them is not a step
    /// of a chain.
    pub(super) fn pixel_chain(
        &self,
        nodes: &[NodeProto],
        reads: &[String],
    ) -> Option<Vec<ChainStep>> {
        let mut x = reads.first()?;
        if self.is_pixel(x, nodes.first()?.output.first()?) {
            return None;
        }
        let mut steps = Vec::with_capacity(nodes.len());
        for node in nodes {
            steps.push(self.pixel_step(node, x, reads)?);
            x = node.output.first()?;
        }
        Some(steps)
    }

    /// The tensors that an operator reads as a step of such a chain, beginning with the one whose elements the step is of; none if it
    /// is no such step.
    pub(super) fn pixel_reads(&self, node: &NodeProto) -> Option<Vec<String>> {
        let whole = node.output.first()?;
        let mut reads: Vec<String> =
            self.tensors(node).map(|name| self.unrepeated(name).clone()).collect();
        reads.sort_by_key(|name| self.is_pixel(name, whole));
        let mut seen = BTreeSet::new();
        reads.retain(|name| seen.insert(name.clone()));
        self.pixel_chain(std::slice::from_ref(node), &reads).map(|_| reads)
    }

    /// Whether a computed tensor has one pixel that serves all pixels of an image of `whole`, with one channel or as many as `whole`; or is
    /// one number.
    pub(super) fn is_pixel(&self, name: &str, whole: &str) -> bool {
        let dims = |name: &str| self.probe.growth(name).map(|growth| &growth.dims[..]);
        let (Some(of), Some(all)) = (dims(name), dims(whole)) else { return false };
        let shapes = [name, whole].map(|name| self.probe.shapes(name));
        let [Some([_, of_two]), Some([_, all_two])] = shapes else { return false };
        let is_one = |axis: usize| of[axis].is_one() && of_two[axis] == 1;
        let is_like =
            |axis: usize| axis < 2 && of[axis] == all[axis] && of_two[axis] == all_two[axis];
        let fits = match of.len() == all.len() {
            true => (0..of.len()).all(|axis| is_one(axis) || is_like(axis)),
            false => of.len() < all.len() && (0..of.len()).all(is_one),
        };
        let is_computed = self.floats.has(name) && !self.constants.has(name);
        // Where both have one pixel at the lengths that were probed, others might give one of them more.
        let is_other = of != all || self.probe.shapes(name) != self.probe.shapes(whole);
        fits && is_computed && is_other
    }

    /// The step that an operator is of a chain whose last element is `x`.
    fn pixel_step(&self, node: &NodeProto, x: &String, reads: &[String]) -> Option<ChainStep> {
        let is_first = node.input.first() == Some(x);
        if let Some(activation) = self.activation(node).filter(|_| is_first) {
            return Some(ChainStep::Activation(activation));
        }
        if let Some(unary) = unary(node).filter(|_| is_first) {
            return Some(ChainStep::Unary(unary));
        }
        let [straight, turned] = binary(node)?;
        let (other, binary) = match &node.input[..] {
            [a, b] if a == x && b != x => (b, straight),
            [a, b] if b == x && a != x => (a, turned),
            _ => return None,
        };
        let other = self.unrepeated(other);
        let whole = node.output.first()?;
        let read = || reads.iter().position(|read| read == other);
        let operand = match self.constants.has(other) {
            true => ChainOperand::Constant(self.pixel_constant(other, whole)?),
            false if self.is_pixel(other, whole) => ChainOperand::Pixel(read()?),
            false => ChainOperand::Read(read()?),
        };
        Some(ChainStep::Binary(binary, operand))
    }

    /// A constant that is the same for all pixels of `whole`: one number, or one for each channel.
    fn pixel_constant(&self, name: &str, whole: &str) -> Option<Tensor<f32>> {
        let (_, mut data) = self.constants.floats(name)?;
        if self.is_uniform(name) {
            data.truncate(1);
            return Some(Tensor::from_data(&[], data));
        }
        let is_of_channels = self.is_of_channels(name, &self.probe.shapes(whole)?[0]);
        is_of_channels.then(|| Tensor::from_data(&[data.len()], data))
    }

    /// Whether all elements of a constant are the same number.
    pub(super) fn is_uniform(&self, name: &str) -> bool {
        let data = self.constants.floats(name).map(|(_, data)| data).unwrap_or_default();
        let first = data.first().map(|x| x.to_bits());
        first.is_some() && data.iter().all(|x| Some(x.to_bits()) == first)
    }

    /// Whether an operand has elements for axes of `whole` that lie side by side, or for some and the last ones, and one element along all
    /// others.
    fn meets(&self, operand: &str, whole: &str) -> bool {
        let dims = |name: &str| self.probe.growth(name).map(|growth| &growth.dims[..]);
        let (Some(of), Some(all)) = (dims(operand), dims(whole)) else { return false };
        let shapes = [operand, whole].map(|name| self.probe.shapes(name));
        let [Some([_, of_two]), Some([_, all_two])] = shapes else { return false };
        let Some(missing) = all.len().checked_sub(of.len()) else { return false };
        // The axis of the batch is one of a single row, and not of two.
        let is_one = |axis: usize| of[axis].is_one() && of_two[axis] == 1;
        let axes: Vec<usize> = (0..of.len()).filter(|&axis| !is_one(axis)).collect();
        let is_axis = |&axis: &usize| {
            of[axis] == all[axis + missing] && of_two[axis] == all_two[axis + missing]
        };
        let is_alone = |axis: usize| {
            let is_one_of_all = all[axis + missing].is_one() && all_two[axis + missing] == 1;
            is_one_of_all || axes.contains(&axis)
        };
        // The axes at the end, and those before them.
        let end = (0..of.len()).rev().take_while(|&axis| is_alone(axis)).last().unwrap_or(of.len());
        let before: Vec<usize> = axes.iter().copied().filter(|&axis| axis < end).collect();
        let are_together = match before[..] {
            [first, .., last] => (first..=last).all(is_alone),
            _ => true,
        };
        self.floats.has(operand) && axes.iter().all(is_axis) && are_together
    }

    /// The reduction of floats along axes side by side that `node` is.
    pub(super) fn reduction(&self, node: &NodeProto) -> Option<Reduce> {
        let reduction = match operator(node) {
            "ReduceSum" => Reduction::Sum,
            "ReduceMean" => Reduction::Mean,
            "ReduceMax" => Reduction::Greatest,
            "ReduceMin" => Reduction::Least,
            _ => return None,
        };
        let x = node.input.first().filter(|x| self.floats.has(x) && !self.constants.has(x))?;
        let rank = self.probe.shapes(x)?[0].len() as i64;
        let mut axes = self.constants.ints(node.input.get(1)?)?;
        axes.iter_mut().filter(|axis| **axis < 0).for_each(|axis| *axis += rank);
        axes.sort_unstable();
        let start = usize::try_from(*axes.first()?).ok()?;
        let end = start + axes.len();
        let are_together = axes.iter().zip(start..).all(|(&axis, at)| axis == at as i64);
        let keeps_axes = int(node, "keepdims", 1) == 1;
        // Else the elements of a single row might lie side by side, and be summed in another order.
        let is_behind = |axis: usize| axis < start;
        let is_of_rows =
            !self.probe.is_batched(x) || self.probe.batch_axis(x).is_some_and(is_behind);
        let is_sane = are_together && end <= rank as usize && is_of_rows;
        is_sane.then_some(Reduce { reduction, axes: start..end, keeps_axes })
    }

    /// Whether an operator runs by itself: in rten, or in a chain that no other operator has joined.
    pub(super) fn is_by_itself(&self, node: &NodeProto) -> bool {
        let is_chain_of_it = |section: &NativeSection| {
            Some(&section.output) == node.output.first()
                && matches!(&section.kind, NativeKind::Chain(steps, _) if steps.len() == 1)
        };
        self.is_of_rten(node) || self.native.iter().any(is_chain_of_it)
    }
}

/// A binary operator of the tensor before it with an operand; then with the two in the other order.
pub(super) fn binary(node: &NodeProto) -> Option<[Binary; 2]> {
    Some(match operator(node) {
        "Add" => [Binary::Add; 2],
        "Sub" => [Binary::Subtract, Binary::SubtractFrom],
        "Mul" => [Binary::Multiply; 2],
        "Div" => [Binary::Divide, Binary::DivideInto],
        "Max" => [Binary::Greatest; 2],
        "Min" => [Binary::Least; 2],
        _ => return None,
    })
}

/// An operator of one tensor.
pub(super) fn unary(node: &NodeProto) -> Option<Unary> {
    Some(match operator(node) {
        "Sqrt" => Unary::Root,
        "Neg" => Unary::Negative,
        "Abs" => Unary::Magnitude,
        "Floor" => Unary::Floor,
        "Ceil" => Unary::Ceiling,
        "Round" => Unary::Nearest,
        _ => return None,
    })
}
