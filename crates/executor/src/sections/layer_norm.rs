//! Layer normalisation of rows.

use std::ops::Range;

use batchmaker_kernels::{Isa, LayerNormParameters, layer_norm};
use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::attention::{PART_ELEMENTS, floats};
use crate::sections::buffers::Buffers;
use crate::sections::parts::{even_parts, split};
use crate::threads::ExecutorThreads;

/// A `LayerNormalization` over the last axis, of the sum of two tensors or of one.
pub(super) struct LayerNorm {
    pub(super) epsilon: f32,
    /// The factor of each element of a row.
    pub(super) scale: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
}

impl LayerNorm {
    /// Normalises the rows of `x`, or of the sum of `x` and a residual.
    pub(super) fn run(
        &self,
        x: &Value,
        residual: Option<&Value>,
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<Value, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a layer norm: {reason}"));
        let x = floats(x)?;
        let shape = x.shape().to_vec();
        let residual = residual.map(floats).transpose()?;
        if residual.is_some_and(|residual| residual.shape() != shape) {
            return Err(fails(format!("{shape:?} and another shape are added")));
        }
        let length = self.scale.len();
        if length == 0 || shape.last() != Some(&length) {
            return Err(fails(format!("{shape:?} with rows of {length}")));
        }
        let (x, residual) = (x.to_contiguous(), residual.map(|residual| residual.to_contiguous()));
        let (x, residual) = (x.data(), residual.as_ref().map(|residual| residual.data()));
        let mut y = buffers.take(x.len());
        let Self { epsilon, scale, bias } = self;
        let parameters = LayerNormParameters { epsilon: *epsilon, scale, bias: bias.as_deref() };
        let run = |(rows, y): (Range<usize>, &mut [f32])| {
            let of = rows.start * length..rows.end * length;
            let residual = residual.map(|residual| &residual[of.clone()]);
            let ran = layer_norm(Isa::best(), parameters, &x[of.clone()], residual, y);
            ran.map_err(|error| fails(error.to_string()))
        };
        let rows = y.len() / length;
        let worth = (y.len() / PART_ELEMENTS).clamp(1, rows.max(1));
        threads.share(worth, |count| split(&mut y, even_parts(rows, count), length), run)?;
        Value::from_shape(&shape, y).map_err(|error| fails(error.to_string()))
    }
}
