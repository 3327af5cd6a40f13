//! Sums, means and extremes along axes that lie side by side.

use std::ops::Range;

use batchmaker_kernels::{Isa, Reduction, reduce};
use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::attention::{PART_ELEMENTS, floats};
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

impl Reduce {
    pub(super) fn run(&self, x: &Value, threads: &ExecutorThreads) -> Result<Value, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a reduction: {reason}"));
        let x = floats(x)?;
        let shape = x.shape();
        let Range { start, end } = self.axes;
        if end > shape.len() {
            return Err(fails(format!("along axes {:?} of {shape:?}", self.axes)));
        }
        let count = |dims: &[usize]| dims.iter().product::<usize>();
        let [outer, length, inner] =
            [&shape[..start], &shape[start..end], &shape[end..]].map(count);
        let kept = if self.keeps_axes { vec![1; end - start] } else { Vec::new() };
        let shape = [&shape[..start], &kept, &shape[end..]].concat();
        let x = x.to_contiguous();
        let x = x.data();
        let is_extreme = matches!(self.reduction, Reduction::Greatest | Reduction::Least);
        if is_extreme && inner == 1 && length > PART_ELEMENTS {
            let y = self.extremes(x, length, threads)?;
            return Value::from_shape(&shape, y).map_err(|error| fails(error.to_string()));
        }
        let mut y = vec![0.0; outer * inner];
        let run = |(part, y): (Range<usize>, &mut [f32])| {
            let of_part = &x[part.start * length * inner..part.end * length * inner];
            let ran = reduce(Isa::best(), self.reduction, [part.len(), length, inner], of_part, y);
            ran.map_err(|error| fails(error.to_string()))
        };
        let worth = (x.len() / PART_ELEMENTS).clamp(1, outer.max(1));
        threads.share(worth, |count| split(&mut y, even_parts(outer, count), inner), run)?;
        Value::from_shape(&shape, y).map_err(|error| fails(error.to_string()))
    }

    /// The greatest or the least element of each row of `length` elements, by parts of a row: always the same ones.
    fn extremes(
        &self,
        x: &[f32],
        length: usize,
        threads: &ExecutorThreads,
    ) -> Result<Vec<f32>, ExecutorError> {
        let of = |sizes: [usize; 3], x: &[f32], y: &mut [f32]| {
            let found = reduce(Isa::best(), self.reduction, sizes, x, y);
            found.map_err(|error| ExecutorError::Run(format!("a reduction: {error}")))
        };
        let rows = x.chunks_exact(length);
        let parts: Vec<&[f32]> = rows.flat_map(|row| row.chunks(PART_ELEMENTS)).collect();
        let mut of_parts = vec![0.0; parts.len()];
        let run = |(range, found): (Range<usize>, &mut [f32])| {
            let mut pairs = parts[range].iter().zip(found);
            pairs.try_for_each(|(part, y)| of([1, part.len(), 1], part, std::slice::from_mut(y)))
        };
        let count = parts.len();
        threads.share(count, |many| split(&mut of_parts, even_parts(count, many), 1), run)?;
        let of_row = length.div_ceil(PART_ELEMENTS);
        let mut y = vec![0.0; count / of_row];
        of([y.len(), of_row, 1], &of_parts, &mut y)?;
        Ok(y)
    }
}

#[cfg(test)]
mod tests {
    use rten_tensor::Tensor;

    use super::*;

    #[test]
    fn extremes_of_long_rows_are_found_in_every_part() {
        let (rows, length) = (2, 2 * PART_ELEMENTS + 7);
        let threads = ExecutorThreads::with_threads(2);
        for place in [0, PART_ELEMENTS - 1, PART_ELEMENTS, 2 * PART_ELEMENTS + 6] {
            for (reduction, extreme) in [(Reduction::Least, -9.5), (Reduction::Greatest, 9.5)] {
                let mut data: Vec<f32> =
                    (0..rows * length).map(|n| (n % 13) as f32 - 6.0).collect();
                data[length + place] = extreme;
                let x = Value::FloatTensor(Tensor::from_data(&[rows, length], data));
                let operator = Reduce { reduction, axes: 1..2, keeps_axes: false };
                let y = threads.pool().run(|| operator.run(&x, &threads)).unwrap();
                let wanted = [6.0_f32.copysign(extreme), extreme];
                assert_eq!(floats(&y).unwrap(), &Tensor::from_data(&[rows], wanted.to_vec()));
            }
        }
    }
}
