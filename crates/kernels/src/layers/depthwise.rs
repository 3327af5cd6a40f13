//! Convolutions of each channel by itself.
//!
//! ```text
//! y[channel] = b[channel] + sum over taps of w[tap][channel] x[tap][channel]
//! ```
//! A sum takes its taps in ascending order, those in the padding left out.

use std::ops::Range;

use crate::layers::window::Window;
use crate::simd::operations::{Simd, SimdOp};

/// The weights of a depth-wise convolution.
pub(super) struct Depthwise {
    channels: usize,
    /// `[tap, channel]`.
    weights: Vec<f32>,
    /// `[channel]`.
    bias: Vec<f32>,
}

impl Depthwise {
    /// `w` is `[channel, tap]`.
    pub(super) fn new(channels: usize, w: &[f32], bias: Option<&[f32]>) -> Self {
        let taps = w.len() / channels;
        let weights = (0..w.len()).map(|at| w[at % channels * taps + at / channels]).collect();
        Self { channels, weights, bias: bias.map_or(vec![0.0; channels], <[f32]>::to_vec) }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<f32>() * (self.weights.len() + self.bias.len())
    }
}

/// One row of the outputs of one image, `[width, channels]`.
pub(super) struct DepthwiseRow<'a> {
    pub(super) layer: &'a Depthwise,
    /// The windows along height and width.
    pub(super) windows: [Window; 2],
    /// The image, `[height, width, channels]`.
    pub(super) x: &'a [f32],
    pub(super) size: [usize; 2],
    /// The row's place.
    pub(super) row: usize,
    pub(super) y: &'a mut [f32],
}

impl SimdOp for DepthwiseRow<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { layer, windows: [down, along], x, size: [height, width], row, y } = self;
        let channels = layer.channels;
        let (rows, first_row) = down.inside(row, height);
        for (at, y) in y.chunks_exact_mut(channels).enumerate() {
            let (columns, first_column) = along.inside(at, width);
            let taps = Taps {
                rows: rows.clone(),
                columns,
                first: (first_row * width + first_column) * channels,
                weight_steps: [along.kernel * channels, channels],
                pixel_steps: [down.dilation * width * channels, along.dilation * channels],
            };
            let whole = channels / S::LANES * S::LANES;
            for channel in (0..whole).step_by(S::LANES) {
                // SAFETY: a vector of channels follows.
                unsafe { layer.sum::<S, true>(simd, x, &taps, channel, S::LANES, y) }
            }
            if whole < channels {
                // SAFETY: the channels left are fewer than a vector has.
                unsafe { layer.sum::<S, false>(simd, x, &taps, whole, channels - whole, y) }
            }
        }
    }
}

/// The taps of a window that lie inside of an image.
struct Taps {
    rows: Range<usize>,
    columns: Range<usize>,
    /// The element of the image where the first of them begins.
    first: usize,
    /// Elements of the weights from a row of taps to the next, and from a tap to the next.
    weight_steps: [usize; 2],
    /// Elements of the image, likewise.
    pixel_steps: [usize; 2],
}

impl Depthwise {
    /// Computes `count` channels from `channel` of the pixel `y`.
    ///
    /// # Safety
    /// There are as many channels, which are a vector if `WHOLE`, else fewer. The taps lie inside of the image `x`.
    #[inline(always)]
    unsafe fn sum<S: Simd, const WHOLE: bool>(
        &self,
        simd: S,
        x: &[f32],
        taps: &Taps,
        channel: usize,
        count: usize,
        y: &mut [f32],
    ) {
        // SAFETY: what this function's caller promises.
        unsafe {
            let load = |from: *const f32| match WHOLE {
                true => simd.load(from),
                false => simd.load_partial(from, count),
            };
            let mut sum = load(self.bias.as_ptr().add(channel));
            for (line, row) in taps.rows.clone().enumerate() {
                let weights = self.weights.as_ptr().add(row * taps.weight_steps[0] + channel);
                let pixels =
                    x.as_ptr().wrapping_add(taps.first + line * taps.pixel_steps[0] + channel);
                for (at, tap) in taps.columns.clone().enumerate() {
                    let w = load(weights.add(tap * taps.weight_steps[1]));
                    sum = simd.mul_add(load(pixels.add(at * taps.pixel_steps[1])), w, sum);
                }
            }
            let to = y.as_mut_ptr().add(channel);
            match WHOLE {
                true => simd.store(to, sum),
                false => simd.store_partial(to, sum, count),
            }
        }
    }
}
