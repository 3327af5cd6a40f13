//! Convolutions.

use std::fmt;
use std::ops::Range;

use batchmaker_kernels::{
    Activation, ConvolutionParameters, Epilogue, Factors, Images, Isa, PackedConvolution, Window,
};
use rten_onnx::onnx::NodeProto;

use crate::error::ExecutorError;
use crate::sections::buffers::Buffers;
use crate::sections::constants::{Constants, int, ints};
use crate::sections::parts::{even_parts, split, split_columns};
use crate::sections::tensor::ChannelsLast;
use crate::sections::windows::{resized, size, windows};
use crate::threads::ExecutorThreads;

/// A `Conv` with the factors and shifts of its outputs that follow it (batch normalisation), before its weights are packed.
pub(super) struct UnpackedConvolution {
    /// Channels of x in a group.
    of_group: usize,
    groups: usize,
    windows: [Window; 2],
    factors: Factors,
    /// Rows and columns of pixels that each pixel of x becomes, `outputs / (rows * columns)` channels each; one, but of a
    /// `ConvTranspose`.
    spread: [usize; 2],
    /// `[outputs, of_group, ...kernel]`.
    w: Vec<f32>,
    /// `[outputs]`.
    b: Vec<f32>,
    /// Whether the height and the width of its output are one axis.
    is_flat: bool,
}

impl fmt::Display for UnpackedConvolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of_group, groups, windows: [down, along], spread: [rows, columns], b, .. } =
            self;
        let (inputs, outputs) = (of_group * groups, b.len() / (rows * columns));
        if self.is_transposed() {
            return write!(f, "ConvTranspose {rows}x{columns}, {inputs} to {outputs}");
        }
        write!(f, "Conv {}x{}, {inputs} to {outputs}", down.kernel, along.kernel)?;
        if *groups > 1 {
            write!(f, " in {groups} groups")?;
        }
        Ok(())
    }
}

impl UnpackedConvolution {
    /// The convolution of `factors` that a node is; none if its weights are computed, or it is over more than two axes.
    pub(super) fn of(
        node: &NodeProto,
        constants: &Constants<'_>,
        factors: Factors,
    ) -> Option<Self> {
        let (shape, w) = constants.floats(node.input.get(1)?)?;
        let (&[outputs, of_group], kernel) = shape.split_first_chunk::<2>()?;
        let b = match node.input.get(2).filter(|name| !name.is_empty()) {
            Some(name) => constants.floats(name)?.1,
            None => vec![0.0; outputs],
        };
        let windows = windows(node, kernel)?;
        let groups = usize::try_from(int(node, "group", 1)).ok()?;
        let is_sane = groups > 0 && outputs > 0 && outputs.is_multiple_of(groups);
        let is_sane = is_sane && b.len() == outputs && of_group.checked_mul(groups).is_some();
        let (spread, is_flat) = ([1, 1], false);
        is_sane.then_some(Self { of_group, groups, windows, factors, spread, w, b, is_flat })
    }

    /// The `ConvTranspose` that a node is, if its weights are constant and its windows lie side by side: then each pixel becomes some
    /// of its own.
    pub(super) fn of_transposed(node: &NodeProto, constants: &Constants<'_>) -> Option<Self> {
        let (shape, from) = constants.floats(node.input.get(1)?)?;
        let (&[inputs, channels], kernel) = shape.split_first_chunk::<2>()?;
        let b = match node.input.get(2).filter(|name| !name.is_empty()) {
            Some(name) => constants.floats(name)?.1,
            None => vec![0.0; channels],
        };
        let windows = windows(node, kernel)?;
        let spread = windows.map(|window| window.kernel);
        let is_side_by_side = |of: &Window| {
            let aside = (of.dilation, of.before, of.after);
            of.stride == of.kernel && aside == (1, 0, 0)
        };
        let padding = ints(node, "output_padding", 0, kernel.len())?;
        let has_shape = node.attribute.iter().any(|a| a.name.as_deref() == Some("output_shape"));
        let is_plain = windows.iter().all(is_side_by_side)
            && padding.iter().all(|&n| n == 0)
            && !has_shape
            && int(node, "group", 1) == 1
            && inputs > 0
            && b.len() == channels
            && channels > 0;
        if !is_plain {
            return None;
        }
        let taps = spread[0] * spread[1];
        // From [input, channel, tap] to [tap, channel, input].
        let mut w = Vec::with_capacity(from.len());
        for tap in 0..taps {
            for channel in 0..channels {
                w.extend(from[channel * taps + tap..].iter().step_by(channels * taps));
            }
        }
        let b = b.repeat(taps);
        let (windows, factors) = ([Window::POINT; 2], Factors::Any);
        let (of_group, groups, is_flat) = (inputs, 1, false);
        Some(Self { of_group, groups, windows, factors, spread, w, b, is_flat })
    }

    /// Whether it is a `ConvTranspose`.
    pub(super) fn is_transposed(&self) -> bool {
        self.spread != [1, 1]
    }

    /// Makes one axis of the height and the width of its output.
    pub(super) fn flatten(&mut self) {
        self.is_flat = true;
    }

    /// Multiplies the outputs by `by`, one number or one for each channel. Returns false if sums would no longer be those of bytes,
    /// or numbers not finite.
    pub(super) fn scale(&mut self, by: &[f32]) -> bool {
        let is_possible = self.factors == Factors::Any && by.iter().all(|by| by.is_finite());
        if is_possible {
            let of_output = self.w.len() / self.b.len();
            for (output, b) in self.b.iter_mut().enumerate() {
                let by = by[output % by.len()];
                *b *= by;
                self.w[output * of_output..][..of_output].iter_mut().for_each(|w| *w *= by);
            }
        }
        is_possible
    }

    /// Adds `shift`, one number or one for each channel, to the outputs.
    pub(super) fn shift(&mut self, shift: &[f32]) {
        let shifts = shift.iter().cycle();
        self.b.iter_mut().zip(shifts).for_each(|(b, shift)| *b += shift);
    }

    /// Packs the weights of the convolution, which ends with an activation, for the kernels of `isa`.
    pub(super) fn pack(self, isa: Isa, activation: Activation) -> Option<Convolution> {
        let Self { of_group, groups, windows, factors, spread, w, b, is_flat } = self;
        let (inputs, outputs) = (of_group * groups, b.len());
        let parameters =
            ConvolutionParameters { inputs, outputs, groups, windows, w: &w, b: Some(&b), factors };
        let packed = PackedConvolution::new(isa, parameters).ok()?;
        Some(Convolution { packed, spread, is_flat, activation })
    }
}

/// A convolution with the activation that follows it.
pub(super) struct Convolution {
    packed: PackedConvolution,
    /// See [`UnpackedConvolution`].
    spread: [usize; 2],
    is_flat: bool,
    activation: Activation,
}

impl Convolution {
    /// Bytes that a run needs beside its tensors.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.packed.scratch_bytes()
    }

    /// Multiplications for an element of the output, and bytes of weights.
    pub(super) fn work(&self) -> (u64, u64) {
        (self.packed.multiplications() as u64, self.packed.bytes() as u64)
    }

    /// Convolves `x`, adds `residual` and applies the activation.
    pub(super) fn run(
        &self,
        x: &ChannelsLast,
        residual: Option<&ChannelsLast>,
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<ChannelsLast, ExecutorError> {
        let fails = |reason: String| ExecutorError::Run(format!("a convolution: {reason}"));
        let size = size(&x.shape).ok_or_else(|| fails(format!("of {:?}", x.shape)))?;
        if self.spread != [1, 1] {
            return self.run_transposed(x, size, buffers, threads);
        }
        let out = self.packed.size(size).ok_or_else(|| fails("windows wider than x".to_owned()))?;
        let shape = self.shaped(resized(&x.shape, self.packed.outputs(), out));
        if residual.is_some_and(|residual| residual.shape != shape) {
            return Err(fails(format!("{shape:?} and another shape are added")));
        }
        let mut data = buffers.take(shape.iter().product());
        let epilogue = Epilogue {
            residual: residual.map(|residual| &residual.data[..]),
            activation: self.activation,
        };
        let images = Images { count: x.shape[0], size, x: &x.data };
        run_in_parts(&self.packed, images, epilogue, &mut data, threads)?;
        Ok(ChannelsLast { shape, data })
    }
}

impl Convolution {
    /// Computes the pixels that each pixel of `x` becomes, a row of `x` at a time.
    fn run_transposed(
        &self,
        x: &ChannelsLast,
        [height, width]: [usize; 2],
        buffers: &mut Buffers,
        threads: &ExecutorThreads,
    ) -> Result<ChannelsLast, ExecutorError> {
        let [down, along] = self.spread;
        let channels = self.packed.outputs() / (down * along);
        let shape = resized(&x.shape, channels, [height * down, width * along]);
        let mut data = buffers.take(shape.iter().product());
        let (rows, row_len) = (x.shape[0] * height, width * x.shape[1]);
        let of_row = width * along * channels;
        let run = |(of, y): (Range<usize>, &mut [f32])| {
            let mut products = vec![0.0; width * self.packed.outputs()];
            let epilogue = Epilogue { residual: None, activation: self.activation };
            for (row, y) in of.zip(y.chunks_exact_mut((down * of_row).max(1))) {
                let x = &x.data[row * row_len..][..row_len];
                let images = Images { count: 1, size: [1, width], x };
                let ran = self.packed.run(images, epilogue, &mut products);
                ran.map_err(|error| ExecutorError::Run(format!("a convolution: {error}")))?;
                let step = (along * channels).max(1);
                for (pixel, products) in products.chunks_exact(down * step).enumerate() {
                    for (line, products) in products.chunks_exact(step).enumerate() {
                        y[line * of_row + pixel * step..][..step].copy_from_slice(products);
                    }
                }
            }
            Ok(())
        };
        let worth = data.len().saturating_mul(self.packed.multiplications());
        let worth = (worth / PART_MULTIPLICATIONS).clamp(1, rows.max(1));
        threads.share(
            worth,
            |count| split(&mut data, even_parts(rows, count), down * of_row),
            run,
        )?;
        Ok(ChannelsLast { shape: self.shaped(shape), data })
    }

    /// The shape of the output, of which `shape` is that of a convolution.
    fn shaped(&self, shape: Vec<usize>) -> Vec<usize> {
        match self.is_flat {
            true => ChannelsLast::sizes(&shape).to_vec(),
            false => shape,
        }
    }
}

/// Multiplications of a convolution, or of each part of it, that are worth another thread which waits for them: some microseconds.
const PART_MULTIPLICATIONS: usize = 1 << 18;

/// Bytes of weights that a few pixels are multiplied with, and that are worth another thread: a core reads them in some microseconds.
const PART_WEIGHT_BYTES: usize = 1 << 17;

/// A part of a convolution.
enum Part<'a> {
    /// All outputs of some pixels.
    Pixels(Range<usize>, &'a mut [f32]),
    /// Some outputs of all pixels.
    Outputs(Range<usize>, Vec<&'a mut [f32]>),
}

/// Runs a convolution on several threads, if it is worth that. Parts differ in no bit from the whole.
pub(super) fn run_in_parts(
    packed: &PackedConvolution,
    images: Images<'_>,
    epilogue: Epilogue<'_>,
    y: &mut [f32],
    threads: &ExecutorThreads,
) -> Result<(), ExecutorError> {
    let of_products = y.len().saturating_mul(packed.multiplications()) / PART_MULTIPLICATIONS;
    let worth = of_products.max(packed.divided_bytes(images) / PART_WEIGHT_BYTES);
    let run = |part: Part<'_>| {
        let ran = match part {
            Part::Pixels(pixels, y) => {
                let first = pixels.start * packed.outputs();
                let residual = epilogue.residual.map(|residual| &residual[first..][..y.len()]);
                packed.run_part(images, Epilogue { residual, ..epilogue }, pixels, y)
            }
            Part::Outputs(outputs, mut y) => packed.run_outputs(images, epilogue, &outputs, &mut y),
        };
        ran.map_err(|error| ExecutorError::Run(format!("a convolution: {error}")))
    };
    let divide = |y, count: usize| match packed.output_parts(images, count).filter(|_| count > 1) {
        Some(parts) => {
            let parts = split_columns(y, parts, packed.outputs()).into_iter();
            parts.map(|(outputs, y)| Part::Outputs(outputs, y)).collect()
        }
        None => {
            let parts = split(y, packed.parts(images, count), packed.outputs()).into_iter();
            parts.map(|(pixels, y)| Part::Pixels(pixels, y)).collect()
        }
    };
    threads.share(worth.max(1), |count| divide(y, count), run)
}
