//! Convolutions.

use batchmaker_kernels::{
    Activation, ConvolutionParameters, Epilogue, Factors, Images, Isa, PackedConvolution,
};
use rten_onnx::onnx::NodeProto;

use crate::error::ExecutorError;
use crate::sections::constants::{Constants, int};
use crate::sections::tensor::ChannelsLast;
use crate::sections::windows::{resized, size, windows};

/// A `Conv` with the activation that follows it.
pub(super) struct Convolution {
    packed: PackedConvolution,
    activation: Activation,
}

impl Convolution {
    /// The convolution of `factors` that a node is; none if its weights are computed, or it is over more than two axes.
    pub(super) fn of(
        node: &NodeProto,
        constants: &Constants<'_>,
        factors: Factors,
    ) -> Option<Self> {
        let (shape, w) = constants.floats(node.input.get(1)?)?;
        let b = match node.input.get(2).filter(|name| !name.is_empty()) {
            Some(name) => Some(constants.floats(name)?.1),
            None => None,
        };
        let (&[outputs, of_group], kernel) = shape.split_first_chunk::<2>()?;
        let windows = windows(node, kernel)?;
        let groups = usize::try_from(int(node, "group", 1)).ok().filter(|&groups| groups > 0)?;
        let parameters = ConvolutionParameters {
            inputs: of_group.checked_mul(groups)?,
            outputs,
            groups,
            windows,
            w: &w,
            b: b.as_deref(),
            factors,
        };
        let packed = PackedConvolution::new(Isa::best(), parameters).ok()?;
        Some(Self { packed, activation: Activation::Identity })
    }

    /// The activation that follows.
    pub(super) fn activate(&mut self, activation: Activation) {
        self.activation = activation;
    }

    /// Bytes that a run needs beside its tensors.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.packed.scratch_bytes()
    }

    /// Convolves `x`, adds `residual` and applies the activation.
    pub(super) fn run(
        &self,
        x: &ChannelsLast,
        residual: Option<&ChannelsLast>,
    ) -> Result<ChannelsLast, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a convolution: {reason}"));
        let size = size(&x.shape).ok_or_else(|| fails(format!("of {:?}", x.shape)))?;
        let out = self.packed.size(size).ok_or_else(|| fails("windows wider than x".to_owned()))?;
        let shape = resized(&x.shape, self.packed.outputs(), out);
        if residual.is_some_and(|residual| residual.shape != shape) {
            return Err(fails(format!("{shape:?} and another shape are added")));
        }
        let mut data = vec![0.0; shape.iter().product()];
        let epilogue = Epilogue {
            residual: residual.map(|residual| &residual.data[..]),
            activation: self.activation,
        };
        let images = Images { count: x.shape[0], size, x: &x.data };
        self.packed.run(images, epilogue, &mut data).map_err(|error| fails(error.to_string()))?;
        Ok(ChannelsLast { shape, data })
    }
}
