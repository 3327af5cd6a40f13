//! Convolutions.

use batchmaker_kernels::{
    Activation, After, ConvolutionParameters, Images, Isa, PackedConvolution,
};
use rten_onnx::onnx::NodeProto;

use crate::error::ExecutorError;
use crate::steps::held::Pixels;
use crate::steps::weights::{Constants, int};
use crate::steps::windows::{resized, size, windows};

/// A `Conv`, with what follows it.
pub(super) struct Convolution {
    packed: PackedConvolution,
    activation: Activation,
}

impl Convolution {
    /// The convolution that a node is; none if its weights are computed, or it is over more axes than two.
    pub(super) fn of(node: &NodeProto, constants: &Constants<'_>) -> Option<Self> {
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

    /// The convolution of `x`; `more` is added to it.
    pub(super) fn run(&self, x: &Pixels, more: Option<&Pixels>) -> Result<Pixels, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a convolution: {reason}"));
        let size = size(&x.shape).ok_or_else(|| fails(format!("of {:?}", x.shape)))?;
        let out = self.packed.size(size).ok_or_else(|| fails("windows wider than x".to_owned()))?;
        let shape = resized(&x.shape, self.packed.outputs(), out);
        if more.is_some_and(|more| more.shape != shape) {
            return Err(fails(format!("{shape:?} and another shape are added")));
        }
        let mut data = vec![0.0; shape.iter().product()];
        let after = After { more: more.map(|more| &more.data[..]), activation: self.activation };
        let images = Images { count: x.shape[0], size, x: &x.data };
        self.packed.run(images, after, &mut data).map_err(|error| fails(error.to_string()))?;
        Ok(Pixels { shape, data })
    }
}
