//! The greatest element or the mean of each window, for each channel by itself (the ONNX operators MaxPool and AveragePool, on
//! tensors whose channels come last).

use std::ops::Range;

use crate::error::KernelError;
use crate::layers::convolution::Images;
use crate::layers::window::Window;
use crate::packing::checks::check_len;
use crate::simd::isa::Isa;
use crate::simd::operations::{Simd, SimdOp};
use crate::simd::vector_unit::VectorUnit;

/// The function that makes one element of each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// Its greatest element.
    Max,
    /// The mean of its elements, those in the padding left out.
    Mean,
    /// The mean of its elements, with zeros in the padding.
    MeanOfPadded,
}

/// Pools images, each channel by itself.
///
/// `y` is `[count, height, width, channels]`, where `out` are its height and width: as many windows along each axis as
/// [`Window::count`] says, or fewer, or more that begin inside of the axis. `y` has those of its rows, counted over all images,
/// that are in `rows`.
///
/// # Errors
/// [`KernelError::IsaUnavailable`] where this machine lacks the instructions, [`KernelError::Length`] where a tensor has
/// another length.
pub fn pool(
    isa: Isa,
    pooling: Pooling,
    windows: [Window; 2],
    images: Images<'_>,
    (channels, out): (usize, [usize; 2]),
    rows: Range<usize>,
    y: &mut [f32],
) -> Result<(), KernelError> {
    let unit = VectorUnit::new(isa).ok_or(KernelError::IsaUnavailable(isa))?;
    let Images { count, size: [height, width], x } = images;
    check_len("x", x, count * height * width * channels)?;
    let rows_max = count * out[0];
    let rows = rows.start.min(rows_max)..rows.end.min(rows_max);
    check_len("y", y, rows.len() * out[1] * channels)?;
    let (image_len, row_len) = (height * width * channels, out[1] * channels);
    for (at, y) in rows.zip(y.chunks_exact_mut(row_len.max(1))) {
        let x = &x[at / out[0] * image_len..][..image_len];
        let row = at % out[0];
        unit.vectorize(PoolRow { pooling, windows, x, size: images.size, row, channels, y });
    }
    Ok(())
}

/// One row of the outputs of one image, `[width, channels]`.
struct PoolRow<'a> {
    pooling: Pooling,
    windows: [Window; 2],
    /// The image, `[height, width, channels]`.
    x: &'a [f32],
    size: [usize; 2],
    row: usize,
    channels: usize,
    y: &'a mut [f32],
}

impl SimdOp for PoolRow<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { pooling, windows: [down, along], x, size: [height, width], row, channels, y } =
            self;
        let (rows, first_row) = down.inside(row, height);
        for (at, y) in y.chunks_exact_mut(channels).enumerate() {
            let (columns, first_column) = along.inside(at, width);
            let counted = match pooling {
                Pooling::MeanOfPadded => down.kernel * along.kernel,
                _ => rows.len() * columns.len(),
            };
            let taps = PoolTaps {
                rows: 0..rows.len(),
                columns: 0..columns.len(),
                first: (first_row * width + first_column) * channels,
                steps: [down.dilation * width * channels, along.dilation * channels],
                counted: counted as f32,
            };
            for channel in (0..channels).step_by(S::LANES) {
                let count = S::LANES.min(channels - channel);
                // SAFETY: `count` channels follow, and the taps lie inside of the image.
                unsafe {
                    let y = &mut y[channel..][..count];
                    match (pooling, count == S::LANES) {
                        (Pooling::Max, true) => taps.run::<S, true, true>(simd, x, channel, y),
                        (Pooling::Max, false) => taps.run::<S, true, false>(simd, x, channel, y),
                        (_, true) => taps.run::<S, false, true>(simd, x, channel, y),
                        (_, false) => taps.run::<S, false, false>(simd, x, channel, y),
                    }
                }
            }
        }
    }
}

/// The taps of a window that lie inside of an image.
struct PoolTaps {
    rows: Range<usize>,
    columns: Range<usize>,
    /// The element of the image where the first of them begins.
    first: usize,
    /// Elements from a row of taps to the next, and from a tap to the next.
    steps: [usize; 2],
    /// The elements that a mean is of.
    counted: f32,
}

impl PoolTaps {
    /// The window of the channels that `y` has, from `channel`.
    ///
    /// # Safety
    /// `y` has as many channels as a vector if `WHOLE`, else fewer. The taps lie inside of the image `x`.
    #[inline(always)]
    unsafe fn run<S: Simd, const MAX: bool, const WHOLE: bool>(
        &self,
        simd: S,
        x: &[f32],
        channel: usize,
        y: &mut [f32],
    ) {
        // SAFETY: what this function's caller promises.
        unsafe {
            let load = |from: *const f32| match WHOLE {
                true => simd.load(from),
                false => simd.load_partial(from, y.len()),
            };
            let mut all = simd.splat(if MAX { f32::NEG_INFINITY } else { 0.0 });
            for row in self.rows.clone() {
                let line = x.as_ptr().wrapping_add(self.first + row * self.steps[0] + channel);
                for column in self.columns.clone() {
                    let x = load(line.add(column * self.steps[1]));
                    all = if MAX { simd.max(all, x) } else { simd.add(all, x) };
                }
            }
            if !MAX {
                all = simd.div(all, simd.splat(self.counted));
            }
            match WHOLE {
                true => simd.store(y.as_mut_ptr(), all),
                false => simd.store_partial(y.as_mut_ptr(), all, y.len()),
            }
        }
    }
}
