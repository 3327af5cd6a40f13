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
}
