//! Convolutions of each channel by itself.
//!
//! ```text
//! y[channel] = b[channel] + sum over taps of w[tap][channel] x[tap][channel]
//! ```
//! A sum takes its taps in ascending order, those in the padding left out. Pixels side by side whose windows lie within the row
//! are computed together, so that their sums take turns and share the weights.

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

/// Pixels that are computed together.
const PIXELS: usize = 6;

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
        let pixels = y.len() / channels;
        let mut at = 0;
        while at < pixels {
            let (columns, first_column) = along.inside(at, width);
            let taps = Taps {
                rows: rows.clone(),
                first: (first_row * width + first_column) * channels,
                weight_steps: [along.kernel * channels, channels],
                pixel_steps: [down.dilation * width * channels, along.dilation * channels],
                step: along.stride * channels,
                columns,
            };
            let is_whole = |at: usize| along.inside(at, width).0 == (0..along.kernel);
            let together = at + PIXELS <= pixels && is_whole(at) && is_whole(at + PIXELS - 1);
            let count = if together { PIXELS } else { 1 };
            let y = &mut y[at * channels..][..count * channels];
            // SAFETY: the taps lie inside of the image, those of all pixels if they are computed together.
            unsafe {
                match together {
                    true => layer.pixels::<S, PIXELS>(simd, x, &taps, y),
                    false => layer.pixels::<S, 1>(simd, x, &taps, y),
                }
            }
            at += count;
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
    /// Elements of the image from a pixel of y to the next.
    step: usize,
}

impl Depthwise {
    /// Computes `PIXELS` pixels, which are `y`.
    ///
    /// # Safety
    /// The taps of all of them lie inside of the image `x`, and `y` has as many pixels.
    #[inline(always)]
    unsafe fn pixels<S: Simd, const PIXELS: usize>(
        &self,
        simd: S,
        x: &[f32],
        taps: &Taps,
        y: &mut [f32],
    ) {
        let whole = self.channels / S::LANES * S::LANES;
        // SAFETY: what this function's caller promises; a vector of channels follows each multiple of its length below `whole`,
        // fewer follow that.
        unsafe {
            for channel in (0..whole).step_by(S::LANES) {
                self.sum::<S, PIXELS, true>(simd, x, taps, channel, S::LANES, y);
            }
            if whole < self.channels {
                self.sum::<S, PIXELS, false>(simd, x, taps, whole, self.channels - whole, y);
            }
        }
    }

    /// Computes `count` channels from `channel` of the `PIXELS` pixels `y`.
    ///
    /// # Safety
    /// There are as many channels, which are a vector if `WHOLE`, else fewer, and as many pixels. The taps of these lie inside of the image
    /// `x`.
    #[inline(always)]
    unsafe fn sum<S: Simd, const PIXELS: usize, const WHOLE: bool>(
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
            let mut sums = [load(self.bias.as_ptr().add(channel)); PIXELS];
            for (line, row) in taps.rows.clone().enumerate() {
                let weights = self.weights.as_ptr().add(row * taps.weight_steps[0] + channel);
                let pixels =
                    x.as_ptr().wrapping_add(taps.first + line * taps.pixel_steps[0] + channel);
                for (at, tap) in taps.columns.clone().enumerate() {
                    let w = load(weights.add(tap * taps.weight_steps[1]));
                    let pixels = pixels.add(at * taps.pixel_steps[1]);
                    for (pixel, sum) in sums.iter_mut().enumerate() {
                        *sum = simd.mul_add(load(pixels.add(pixel * taps.step)), w, *sum);
                    }
                }
            }
            for (pixel, sum) in sums.into_iter().enumerate() {
                let to = y.as_mut_ptr().add(pixel * self.channels + channel);
                match WHOLE {
                    true => simd.store(to, sum),
                    false => simd.store_partial(to, sum, count),
                }
            }
        }
    }
}
