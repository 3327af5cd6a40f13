//! Products with weights.

use batchmaker_kernels::{
    Activation, ConvolutionParameters, Epilogue, Factors, Images, PackedConvolution, Packing,
    Precision, Window,
};
use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::convolution::run_in_parts;
use crate::threads::ExecutorThreads;

/// A `MatMul` of rows with constant weights, with the bias and the activation that follow it.
pub(super) struct Product {
    /// Rows are pixels.
    packed: PackedConvolution,
    inputs: usize,
    is_reduced: bool,
    activation: Activation,
}

impl Product {
    /// The product of `factors` with weights `[inputs, outputs]`, packed by `packing`; `b` is added to each row.
    pub(super) fn new(
        packing: Packing,
        &[inputs, outputs]: &[usize; 2],
        w: &[f32],
        b: Option<&[f32]>,
        factors: Factors,
        activation: Activation,
    ) -> Option<Self> {
        let mut turned = Vec::with_capacity(w.len());
        for output in 0..outputs {
            turned.extend(w[output..].iter().step_by(outputs));
        }
        let windows = [Window::POINT; 2];
        let parameters =
            ConvolutionParameters { inputs, outputs, groups: 1, windows, w: &turned, b, factors };
        let packed = PackedConvolution::new(packing, parameters).ok()?;
        let is_reduced = packing.precision != Precision::F32 && factors == Factors::Any;
        Some(Self { packed, inputs, is_reduced, activation })
    }

    /// Bytes that a run needs beside its tensors.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.packed.scratch_bytes()
    }

    /// Whether its weights are in another precision than f32.
    pub(super) fn is_reduced(&self) -> bool {
        self.is_reduced
    }

    /// Multiplications for an element of the output, and bytes of weights.
    pub(super) fn work(&self) -> (u64, u64) {
        (self.packed.multiplications() as u64, self.packed.bytes() as u64)
    }

    /// The product of the rows of `x`, `[..., inputs]`.
    pub(super) fn run(&self, x: &Value, threads: &ExecutorThreads) -> Result<Value, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a product: {reason}"));
        let Value::FloatTensor(tensor) = x else { return Err(fails(x.dtype().to_string())) };
        let mut shape = tensor.shape().to_vec();
        let Some(last) = shape.last_mut().filter(|last| **last == self.inputs) else {
            return Err(fails(format!("of {:?} with {} rows", tensor.shape(), self.inputs)));
        };
        *last = self.packed.outputs();
        let x = tensor.to_contiguous();
        let x = x.data();
        let mut data = vec![0.0; shape.iter().product()];
        let images = Images { count: 1, size: [1, x.len() / self.inputs.max(1)], x };
        let epilogue = Epilogue { residual: None, activation: self.activation };
        run_in_parts(&self.packed, images, epilogue, &mut data, threads)?;
        Value::from_shape(&shape, data).map_err(|error| fails(error.to_string()))
    }
}
