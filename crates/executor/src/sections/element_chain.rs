//! Elementwise operators, one after the other, in one pass over a tensor.

use std::borrow::Cow;
use std::ops::Range;

use batchmaker_kernels::{Activation, Binary, ElementStep, Isa, Operand, Unary, elementwise};
use rten::Value;
use rten_tensor::prelude::*;
use rten_tensor::{Tensor, TensorView};

use crate::error::ExecutorError;
use crate::sections::attention::{PART_ELEMENTS, floats};
use crate::sections::parts::{even_parts, split};
use crate::threads::ExecutorThreads;

/// Elementwise operators, each of which reads the one before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ElementChain(pub(super) Vec<ChainStep>);

/// An operator of an [`ElementChain`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChainStep {
    Activation(Activation),
    Unary(Unary),
    Binary(Binary, ChainOperand),
}

/// The other operand of an operator.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ChainOperand {
    Constant(Tensor<f32>),
    /// A tensor that the section reads, by its position.
    Read(usize),
    /// Beside tensors with their channels last, a tensor with its channels first that has one pixel, by its position.
    Pixel(usize),
}

impl ChainStep {
    /// Whether its operand is a tensor of one pixel that the section reads at this position.
    fn reads_pixel(&self, at: usize) -> bool {
        matches!(self, Self::Binary(_, ChainOperand::Pixel(read)) if *read == at)
    }
}

impl ElementChain {
    /// Whether it reads a tensor of one pixel at this position, which has its channels first.
    pub(super) fn reads_pixel(&self, at: usize) -> bool {
        self.0.iter().any(|step| step.reads_pixel(at))
    }

    /// Whether the first tensor is an operand too.
    pub(super) fn reads_whole(&self) -> bool {
        let is_whole =
            |step: &ChainStep| matches!(step, ChainStep::Binary(_, ChainOperand::Read(0)));
        self.0.iter().any(is_whole)
    }

    /// Computes the last operator of the first tensor, `x` or `reads[0]`. The memory of `x` is written over.
    pub(super) fn run(
        &self,
        x: Option<Value>,
        reads: &[Option<&Value>],
        threads: &ExecutorThreads,
    ) -> Result<Value, ExecutorError> {
        let misfit = || fails("without a tensor");
        let mut y = match x {
            Some(Value::FloatTensor(x)) => x,
            Some(other) => floats(&other)?.clone(),
            None => floats(reads.first().copied().flatten().ok_or_else(misfit)?)?.clone(),
        };
        let mut operands = Vec::with_capacity(self.0.len());
        for step in &self.0 {
            let operand = match step {
                ChainStep::Binary(_, ChainOperand::Constant(constant)) => Some(constant),
                ChainStep::Binary(_, ChainOperand::Read(at) | ChainOperand::Pixel(at)) => {
                    Some(floats(reads.get(*at).copied().flatten().ok_or_else(misfit)?)?)
                }
                ChainStep::Activation(_) | ChainStep::Unary(_) => None,
            };
            operands.push(operand);
        }
        // All operators have the last one's shape.
        for operand in operands.iter().flatten() {
            let shape = broadcast(y.shape(), operand.shape());
            let shape = shape.ok_or_else(|| fails("of shapes that do not fit"))?;
            if shape != y.shape() {
                y = y.broadcast(&shape[..]).to_tensor();
            }
        }
        let shape = y.shape().to_vec();
        let laid_out = operands.iter().map(|operand| operand.map(|b| LaidOut::of(&shape, b)));
        let laid_out: Vec<Option<LaidOut<'_>>> = laid_out.collect();
        let steps: Vec<ElementStep<'_>> = self
            .0
            .iter()
            .zip(&laid_out)
            .filter_map(|(step, operand)| {
                Some(match step {
                    ChainStep::Activation(activation) => ElementStep::Activation(*activation),
                    ChainStep::Unary(unary) => ElementStep::Unary(*unary),
                    ChainStep::Binary(binary, _) => {
                        let &LaidOut { ref data, block, repeat } = operand.as_ref()?;
                        ElementStep::Binary(*binary, Operand { data, block, repeat })
                    }
                })
            })
            .collect();
        let mut y = y.into_data();
        let count = y.len();
        let run = |(part, y): (std::ops::Range<usize>, &mut [f32])| {
            let ran = elementwise(Isa::best(), &steps, part.start, y);
            ran.map_err(|error| fails(&error.to_string()))
        };
        if count > 0 {
            let worth = (count / PART_ELEMENTS).max(1);
            threads.share(worth, |parts| split(&mut y, even_parts(count, parts), 1), run)?;
        }
        Value::from_shape(&shape, y).map_err(|error| fails(&error.to_string()))
    }
}

/// The elements of an operand in the order of the elements that they meet: see [`Operand`].
struct LaidOut<'a> {
    data: Cow<'a, [f32]>,
    block: usize,
    repeat: usize,
}

impl<'a> LaidOut<'a> {
    /// The elements of `b`, which broadcasts to `shape`. They are copied only if the axes that `b` has lie apart otherwise than in two
    /// groups, of which the second has the last axis.
    fn of(shape: &[usize], b: &'a Tensor<f32>) -> Self {
        let missing = shape.len() - b.ndim();
        let is_one = |axis: usize| shape[axis] == 1;
        let has = |axis: usize| axis >= missing && b.shape()[axis - missing] != 1;
        let are_there = |axes: Range<usize>| axes.into_iter().all(|axis| has(axis) || is_one(axis));
        let len = |axes: Range<usize>| shape[axes].iter().product::<usize>().max(1);
        let end_before =
            |end: usize| (0..end).rev().find(|&axis| has(axis)).map_or(0, |axis| axis + 1);
        let rank = shape.len();
        let first = (0..rank).find(|&axis| has(axis)).unwrap_or(rank);
        let end = end_before(rank).max(first);
        // The second group, if there are two.
        let second =
            (0..rank).rev().take_while(|&axis| has(axis) || is_one(axis)).last().unwrap_or(rank);
        let before = end_before(second);
        match b.data() {
            Some(data) if are_there(first..end) => {
                Self { data: data.into(), block: 1, repeat: len(end..rank) }
            }
            Some(data) if are_there(first..before) => {
                Self { data: data.into(), block: len(second..rank), repeat: len(before..second) }
            }
            _ => {
                let whole: TensorView<'_, f32> = b.broadcast(shape);
                Self { data: whole.to_vec().into(), block: 1, repeat: 1 }
            }
        }
    }
}

/// The shape that tensors of two shapes broadcast to.
fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let rank = a.len().max(b.len());
    let dim = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis])
    };
    let dims = (0..rank).map(|axis| match [dim(a, axis), dim(b, axis)] {
        [a, b] if a == b || b == 1 => Some(a),
        [1, b] => Some(b),
        _ => None,
    });
    dims.collect()
}

fn fails(reason: &str) -> ExecutorError {
    ExecutorError::Run(format!("elementwise operators: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(shape: &[usize]) -> Tensor<f32> {
        let count = shape.iter().product::<usize>();
        Tensor::from_data(shape, (0..count).map(|n| n as f32 - 3.0).collect::<Vec<_>>())
    }

    #[test]
    fn operands_broadcast_as_in_onnx() {
        let threads = ExecutorThreads::new();
        let shapes: [(&[usize], &[usize]); 14] = [
            (&[2, 3, 2, 4], &[2, 1, 1, 4]),
            (&[2, 3, 2, 4], &[2, 3, 1, 4]),
            (&[2, 3, 2, 1, 4, 1], &[3, 1, 1, 4, 1]),
            (&[2, 3, 2, 4], &[1, 3, 1, 4]),
            (&[2, 3, 4], &[2, 3, 4]),
            (&[2, 3, 4], &[4]),
            (&[2, 3, 4], &[3, 1]),
            (&[2, 3, 4], &[2, 1, 1]),
            (&[2, 3, 4], &[2, 1, 4]),
            (&[2, 3, 4], &[]),
            (&[2, 1, 4], &[2, 3, 1]),
            (&[4], &[2, 1, 4]),
            (&[0, 3], &[3]),
            (&[2, 1, 4], &[2, 1, 4]),
        ];
        for (of_x, of_b) in shapes {
            let (x, b) = (numbers(of_x), numbers(of_b));
            let wanted = {
                let shape = broadcast(of_x, of_b).unwrap();
                let (x, b) = (x.broadcast(&shape[..]), b.broadcast(&shape[..]));
                let differences = x.iter().zip(b.iter()).map(|(x, b)| 2.0 * (b - x));
                Tensor::from_data(&shape[..], differences.collect::<Vec<f32>>())
            };
            let two = ChainOperand::Constant(Tensor::from_data(&[], vec![2.0]));
            let steps = vec![
                ChainStep::Binary(Binary::SubtractFrom, ChainOperand::Read(1)),
                ChainStep::Binary(Binary::Multiply, two),
            ];
            let (x, b) = (Value::FloatTensor(x), Value::FloatTensor(b));
            let chain = ElementChain(steps);
            for owned in [None, Some(x.clone())] {
                let y = threads
                    .pool()
                    .run(|| chain.run(owned.clone(), &[Some(&x), Some(&b)], &threads));
                assert_eq!(floats(&y.unwrap()).unwrap(), &wanted, "{of_x:?} {of_b:?}");
            }
        }
        assert_eq!(broadcast(&[2, 3], &[2, 2]), None);
    }
}
