//! Gates: the means of an image's pixels, and the product of an image with a number for each of its channels, which a network
//! computes from them (squeeze and excitation).

use rten_onnx::onnx::NodeProto;

use crate::error::ExecutorError;
use crate::growth::Growth;
use crate::sections::buffers::Buffers;
use crate::sections::constants::int;
use crate::sections::sorter::Sorter;
use crate::sections::tensor::ChannelsLast;

impl Sorter<'_> {
    /// Whether a mean is over all axes behind the channels, and keeps them.
    pub(super) fn is_mean_of_pixels(&self, node: &NodeProto, x: &str) -> bool {
        let axes = node.input.get(1).and_then(|axes| self.constants.ints(axes));
        let Some((mut axes, shapes)) = axes.zip(self.probe.shapes(x)) else { return false };
        let rank = shapes[0].len() as i64;
        axes.iter_mut().filter(|axis| **axis < 0).for_each(|axis| *axis += rank);
        axes.sort_unstable();
        int(node, "keepdims", 1) == 1
            && self.has_channels(x)
            && self.reads_channels_last(node)
            && axes.into_iter().eq(2..rank)
    }

    /// Whether an operator multiplies a tensor of several channels by one that had a single element along the axes behind these. If other
    /// lengths give both such elements, it is a product of equal shapes.
    pub(super) fn is_gate(&self, node: &NodeProto) -> bool {
        let (Some(y), [a, b]) = (node.output.first(), &node.input[..]) else { return false };
        let dims = |name| self.probe.growth(name).map(|of| &of.dims[..]);
        let (Some(of_a), Some(of_b), Some(of_y)) = (dims(a), dims(b), dims(y)) else {
            return false;
        };
        let gate = if of_a == of_y { of_b } else { of_a };
        let lead = |name| Some(self.probe.shapes(name)?.each_ref().map(|dims| dims.get(..2)));
        let is_computed = !self.constants.has(a) && !self.constants.has(b) && a != b;
        is_computed
            && (of_a == of_y || of_b == of_y)
            && [3, 4].contains(&of_y.len())
            && gate.len() == of_y.len()
            && !gate[1].is_one()
            && gate[2..].iter().all(Growth::is_one)
            && lead(a) == lead(y)
            && lead(b) == lead(y)
            && self.reads_channels_last(node)
    }
}

impl ChannelsLast {
    /// The means of all pixels of each image.
    pub(super) fn mean(&self) -> Self {
        /// Pixels that are summed up by themselves, so that rounding errors stay small.
        const PART_LEN: usize = 64;
        let [images, channels, pixels] = Self::sizes(&self.shape);
        let mut data = vec![0.0; images * channels];
        let mut sums = vec![0.0; channels];
        for (image, means) in data.chunks_exact_mut(channels.max(1)).enumerate() {
            let image = &self.data[image * pixels * channels..][..pixels * channels];
            for part in image.chunks(PART_LEN * channels.max(1)) {
                sums.fill(0.0);
                for pixel in part.chunks_exact(channels.max(1)) {
                    sums.iter_mut().zip(pixel).for_each(|(sum, x)| *sum += x);
                }
                means.iter_mut().zip(&sums).for_each(|(mean, sum)| *mean += sum);
            }
            means.iter_mut().for_each(|mean| *mean /= pixels as f32);
        }
        let mut shape = self.shape.clone();
        shape[2..].fill(1);
        Self { shape, data }
    }

    /// All pixels times the only one of each image of `gate`.
    pub(super) fn gated(&self, gate: &Self, buffers: &mut Buffers) -> Result<Self, ExecutorError> {
        let [images, channels, pixels] = Self::sizes(&self.shape);
        if gate.data.len() != images * channels || gate.shape[..2] != self.shape[..2] {
            return Err(ExecutorError::Run(format!("{:?} times {:?}", self.shape, gate.shape)));
        }
        let mut data = buffers.take(self.data.len());
        let (channels, image_len) = (channels.max(1), (pixels * channels).max(1));
        let images = data.chunks_mut(image_len).zip(self.data.chunks(image_len));
        for ((to, image), gate) in images.zip(gate.data.chunks(channels)) {
            let pixels = to.chunks_exact_mut(channels).zip(image.chunks_exact(channels));
            for (to, pixel) in pixels {
                let products = pixel.iter().zip(gate).map(|(x, gate)| x * gate);
                to.iter_mut().zip(products).for_each(|(to, product)| *to = product);
            }
        }
        Ok(Self { shape: self.shape.clone(), data })
    }
}
