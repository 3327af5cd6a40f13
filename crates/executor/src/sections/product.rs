//! Products with weights.

use std::sync::Arc;

use batchmaker_kernels::{
    Activation, ConvolutionParameters, Epilogue, Factors, Images, PackedConvolution, Packing,
    Precision, Window,
};
use rten::Value;
use rten_tensor::prelude::*;

use crate::error::ExecutorError;
use crate::sections::buffers::Buffers;
use crate::sections::constants::Constants;
use crate::sections::convolution::run_in_parts;
use crate::threads::ExecutorThreads;

/// A `MatMul` of rows with constant weights, with the bias and the activation that follow it.
pub(super) struct Product {
    /// Rows are pixels.
    packed: Arc<PackedConvolution>,
    inputs: usize,
    is_reduced: bool,
    activation: Activation,
}

/// The packed weights of a program's products, which share them: unrolled steps have the weights of one step.
#[derive(Default)]
pub(super) struct PackedWeights(Vec<(Operands, Arc<PackedConvolution>)>);

/// The constants of a product: its weights and its bias.
#[derive(PartialEq)]
pub(super) struct Operands {
    /// The name of the constant `[inputs, outputs]`.
    pub(super) weights: String,
    /// Added to each row.
    pub(super) bias: Option<Vec<f32>>,
    pub(super) factors: Factors,
}

impl PackedWeights {
    /// The product with `operands`, packed by `packing`; none if there are no such weights.
    pub(super) fn product(
        &mut self,
        packing: Packing,
        constants: &Constants<'_>,
        operands: Operands,
        activation: Activation,
    ) -> Option<Product> {
        let [inputs, _] = constants.float_dims(&operands.weights)?.try_into().ok()?;
        let is_reduced = packing.precision != Precision::F32 && operands.factors == Factors::Any;
        let known = self.0.iter().find(|(known, _)| *known == operands);
        let packed = match known {
            Some((_, packed)) => packed.clone(),
            None => {
                let packed = Arc::new(operands.packed(packing, constants)?);
                self.0.push((operands, packed.clone()));
                packed
            }
        };
        Some(Product { packed, inputs, is_reduced, activation })
    }
}

impl Operands {
    fn packed(&self, packing: Packing, constants: &Constants<'_>) -> Option<PackedConvolution> {
        let (shape, w) = constants.floats(&self.weights)?;
        let [inputs, outputs] = shape.try_into().ok()?;
        let mut turned = Vec::with_capacity(w.len());
        for output in 0..outputs {
            turned.extend(w[output..].iter().step_by(outputs));
        }
        let (windows, b) = ([Window::POINT; 2], self.bias.as_deref());
        let factors = self.factors;
        let parameters =
            ConvolutionParameters { inputs, outputs, groups: 1, windows, w: &turned, b, factors };
        PackedConvolution::new(packing, parameters).ok()
    }
}

impl Product {
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
    pub(super) fn run(
        &self,
        x: &Value,
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<Value, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a product: {reason}"));
        let Value::FloatTensor(tensor) = x else { return Err(fails(x.dtype().to_string())) };
        let mut shape = tensor.shape().to_vec();
        let Some(last) = shape.last_mut().filter(|last| **last == self.inputs) else {
            return Err(fails(format!("of {:?} with {} rows", tensor.shape(), self.inputs)));
        };
        *last = self.packed.outputs();
        let x = tensor.to_contiguous();
        let x = x.data();
        let mut data = buffers.take(shape.iter().product());
        let images = Images { count: 1, size: [1, x.len() / self.inputs.max(1)], x };
        let epilogue = Epilogue { residual: None, activation: self.activation };
        run_in_parts(&self.packed, images, epilogue, &mut data, threads)?;
        Value::from_shape(&shape, data).map_err(|error| fails(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use rten_onnx::onnx::{DataType, GraphProto, TensorProto};

    use super::*;

    #[test]
    fn products_of_the_same_operands_share_packed_weights() {
        let weights = TensorProto {
            name: Some("w".to_owned()),
            dims: vec![2, 3],
            data_type: Some(DataType::FLOAT),
            float_data: vec![1.0; 6],
            ..TensorProto::default()
        };
        let graph = GraphProto { initializer: vec![weights], ..GraphProto::default() };
        let constants = Constants::of(&graph);
        let mut all = PackedWeights::default();
        let mut product = |bias: Option<f32>, activation| {
            let bias = bias.map(|b| vec![b; 3]);
            let operands = Operands { weights: "w".to_owned(), bias, factors: Factors::Any };
            let packing = batchmaker_kernels::Isa::best().into();
            all.product(packing, &constants, operands, activation).unwrap().packed
        };
        let first = product(Some(1.0), Activation::Identity);
        assert!(Arc::ptr_eq(&first, &product(Some(1.0), Activation::Tanh)));
        assert!(!Arc::ptr_eq(&first, &product(Some(2.0), Activation::Identity)));
        assert!(!Arc::ptr_eq(&first, &product(None, Activation::Identity)));
    }
}
