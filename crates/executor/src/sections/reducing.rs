//! Sums, means and extremes along axes that lie side by side.

use std::ops::Range;

use batchmaker_kernels::{Isa, Reduction, extremes, reduce};
use rten::Value;

use crate::error::ExecutorError;
use crate::sections::attention::PART_ELEMENTS;
use crate::sections::parts::{even_parts, split};
use crate::threads::ExecutorThreads;

/// An operator that makes one element of those along some axes (`ReduceSum`, `ReduceMean`, `ReduceMax`, `ReduceMin`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reduce {
    pub(super) reduction: Reduction,
    pub(super) axes: Range<usize>,
    /// Whether the axes stay, with one element each.
    pub(super) keeps_axes: bool,
}

/// The numbers of elements before, along and behind the axes of a reduction, and the shape of its result.
struct Sizes {
    outer: usize,
    length: usize,
    inner: usize,
    shape: Vec<usize>,
}

impl Reduce {
    /// Whether one of the two finds the least and the other the greatest elements, along the same axes.
    pub(super) fn is_other_extreme(&self, other: &Self) -> bool {
        let are_extremes = matches!(
            (self.reduction, other.reduction),
            (Reduction::Least, Reduction::Greatest) | (Reduction::Greatest, Reduction::Least)
        );
        are_extremes && self.axes == other.axes && self.keeps_axes == other.keeps_axes
    }

    /// Whether it depends neither on the order of channels and pixels nor on that of all elements: an extreme of each image, or of all.
    pub(super) fn is_of_any_order(&self, rank: usize) -> bool {
        let is_extreme = matches!(self.reduction, Reduction::Least | Reduction::Greatest);
        is_extreme && self.axes.start <= 1 && self.axes.end == rank
    }

    /// Reduces `x`, which has this shape.
    pub(super) fn run(
        &self,
        of_shape: &[usize],
        x: &[f32],
        threads: &ExecutorThreads,
    ) -> Result<Value, ExecutorError> {
        let Sizes { outer, length, inner, shape } = self.sizes(of_shape)?;
        let column = match self.reduction {
            Reduction::Least => Some(0),
            Reduction::Greatest => Some(1),
            Reduction::Sum | Reduction::Mean => None,
        };
        if let Some(column) = column.filter(|_| inner == 1 && length > PART_ELEMENTS) {
            let pairs = extremes_of_rows(x, length, threads)?;
            return value(&shape, pairs.into_iter().map(|pair| pair[column]).collect());
        }
        let mut y = vec![0.0; outer * inner];
        let run = |(part, y): (Range<usize>, &mut [f32])| {
            let of_part = &x[part.start * length * inner..part.end * length * inner];
            let sizes = [part.len(), length, inner];
            reduce(Isa::best(), self.reduction, sizes, of_part, y).map_err(|error| fails(&error))
        };
        let worth = (x.len() / PART_ELEMENTS).clamp(1, outer.max(1));
        threads.share(worth, |count| split(&mut y, even_parts(outer, count), inner), run)?;
        value(&shape, y)
    }

    /// The least and the greatest elements along these axes, in one pass over long rows.
    pub(super) fn run_both_extremes(
        &self,
        of_shape: &[usize],
        x: &[f32],
        threads: &ExecutorThreads,
    ) -> Result<[Value; 2], ExecutorError> {
        let Sizes { length, inner, shape, .. } = self.sizes(of_shape)?;
        if inner != 1 || length <= PART_ELEMENTS {
            let by = |reduction| Self { reduction, ..self.clone() }.run(of_shape, x, threads);
            return Ok([by(Reduction::Least)?, by(Reduction::Greatest)?]);
        }
        let pairs = extremes_of_rows(x, length, threads)?;
        let column = |at: usize| value(&shape, pairs.iter().map(|pair| pair[at]).collect());
        Ok([column(0)?, column(1)?])
    }

    fn sizes(&self, shape: &[usize]) -> Result<Sizes, ExecutorError> {
        let Range { start, end } = self.axes;
        if end > shape.len() {
            return Err(fails(&format!("along axes {:?} of {shape:?}", self.axes)));
        }
        let count = |dims: &[usize]| dims.iter().product::<usize>();
        let [outer, length, inner] =
            [&shape[..start], &shape[start..end], &shape[end..]].map(count);
        let kept = if self.keeps_axes { vec![1; end - start] } else { Vec::new() };
        let shape = [&shape[..start], &kept, &shape[end..]].concat();
        Ok(Sizes { outer, length, inner, shape })
    }
}

/// The least and the greatest element of each row of `length` elements, by parts of a row: always the same ones.
fn extremes_of_rows(
    x: &[f32],
    length: usize,
    threads: &ExecutorThreads,
) -> Result<Vec<[f32; 2]>, ExecutorError> {
    let rows = x.chunks_exact(length);
    let parts: Vec<&[f32]> = rows.flat_map(|row| row.chunks(PART_ELEMENTS)).collect();
    let mut of_parts = vec![0.0; 2 * parts.len()];
    let run = |(range, found): (Range<usize>, &mut [f32])| {
        let mut pairs = parts[range].iter().zip(found.chunks_exact_mut(2));
        let of = |part: &[f32], y: &mut [f32]| extremes(Isa::best(), [1, part.len()], part, y);
        pairs.try_for_each(|(part, y)| of(part, y)).map_err(|error| fails(&error))
    };
    let count = parts.len();
    threads.share(count, |many| split(&mut of_parts, even_parts(count, many), 2), run)?;
    let of_row = length.div_ceil(PART_ELEMENTS);
    let mut found = vec![[0.0; 2]; count / of_row];
    for (column, reduction) in [Reduction::Least, Reduction::Greatest].into_iter().enumerate() {
        // Of the pairs of a row, the least and the greatest of both columns.
        let mut y = vec![0.0; 2 * found.len()];
        reduce(Isa::best(), reduction, [found.len(), of_row, 2], &of_parts, &mut y)
            .map_err(|error| fails(&error))?;
        found.iter_mut().zip(y.chunks_exact(2)).for_each(|(pair, y)| pair[column] = y[column]);
    }
    Ok(found)
}

fn value(shape: &[usize], y: Vec<f32>) -> Result<Value, ExecutorError> {
    Value::from_shape(shape, y).map_err(|error| fails(&error))
}

fn fails(reason: &dyn std::fmt::Display) -> ExecutorError {
    ExecutorError::Run(format!("a reduction: {reason}"))
}

#[cfg(test)]
mod tests {
    use rten_tensor::Tensor;

    use super::*;
    use crate::sections::attention::floats;

    #[test]
    fn extremes_of_long_rows_are_found_in_every_part() {
        let (rows, length) = (2, 2 * PART_ELEMENTS + 7);
        let threads = ExecutorThreads::with_threads(2);
        for place in [0, PART_ELEMENTS - 1, PART_ELEMENTS, 2 * PART_ELEMENTS + 6] {
            for (reduction, extreme) in [(Reduction::Least, -9.5), (Reduction::Greatest, 9.5)] {
                let mut data: Vec<f32> =
                    (0..rows * length).map(|n| (n % 13) as f32 - 6.0).collect();
                data[length + place] = extreme;
                let operator = Reduce { reduction, axes: 1..2, keeps_axes: false };
                let y =
                    threads.pool().run(|| operator.run(&[rows, length], &data, &threads)).unwrap();
                let wanted = [6.0_f32.copysign(extreme), extreme];
                assert_eq!(floats(&y).unwrap(), &Tensor::from_data(&[rows], wanted.to_vec()));
                let both = || operator.run_both_extremes(&[rows, length], &data, &threads);
                let both = threads.pool().run(both);
                let mut both = both.unwrap();
                if reduction == Reduction::Greatest {
                    both.reverse();
                }
                assert_eq!(floats(&both[0]).unwrap(), floats(&y).unwrap());
                let wanted = vec![6.0_f32.copysign(-extreme); rows];
                assert_eq!(floats(&both[1]).unwrap(), &Tensor::from_data(&[rows], wanted));
            }
        }
    }
}
