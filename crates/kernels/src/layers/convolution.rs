//! Convolutions as products of windows with weights.
//!
//! ```text
//! y[pixel][output] = b[output] + sum over taps, channels of w[output][channel][tap] x[pixel * stride + tap][channel]
//! ```
//! (the ONNX operator Conv over one or two axes, on tensors whose channels come last.)
//!
//! **Order.** A window's elements, its taps row by row and the channels of each, are divided into parts of at most 256. The sum of
//! the first part starts from the bias; each takes its elements in ascending order, one fused multiply-add each, and is then added
//! to those before. So rounding errors grow with the number of parts, not with that of elements. Where weights are bfloat16 or bytes
//! there is one part, as in recurrent cells, unless windows are longer than sums of bytes may be. Convolutions to a few outputs have an order
//! of their own (`window_dots.rs`). Neither the number of images nor an image's place among them changes a bit.
//!
//! **Windows.** Weights of f32 are multiplied with windows where these lie (`window_product.rs`). Where weights are bfloat16 or bytes,
//! windows are copied a block at a time, as many as stay in a second-level cache; a window that lies in memory as it is (one tap, or one row
//! of taps without padding) is not.

use std::fmt;
use std::ops::Range;

use crate::cells::linear::{LinearParameters, LinearRow, PackedLinear};
use crate::error::KernelError;
use crate::layers::activation::{Activation, Finish};
use crate::layers::depthwise::{Depthwise, DepthwiseRow};
use crate::layers::taps::{BLOCK_PIXELS, Pixels, Places, Strip, Taps, parts};
use crate::layers::window::Window;
use crate::layers::window_dots::{PixelDots, WindowDots};
use crate::layers::window_product::{PixelProducts, WindowProduct};
use crate::packing::checks::check_len;
use crate::packing::lines::LINE_LEN;
use crate::packing::precision::Packing;
use crate::packing::reduced::INT8_INPUTS_MAX;
use crate::packing::target::Target;
use crate::products::tiling::ROWS_MAX;

/// Elements of the windows that are copied at a time.
const BLOCK_LEN: usize = 32 << 10;

/// Weights of this many bytes are worth that several threads read a part of them each, if there are few pixels: they are more than a
/// first-level cache holds.
const OUTPUT_PARTS_BYTES_MIN: usize = 128 << 10;

/// Panels of outputs that are worth being divided: so that threads get about as many each.
const OUTPUT_PANELS_MIN: usize = 4;

/// Bytes of a panel that make two or three panels worth being divided as well: to read one takes longer than to wake a thread.
const PANEL_BYTES_MIN: usize = 256 << 10;

/// The fewest and the most windows of a block.
const BLOCK_WINDOWS: [usize; 2] = [32, 256];

/// The weights of a convolution.
#[derive(Debug, Clone, Copy)]
pub struct ConvolutionParameters<'a> {
    /// Channels of x.
    pub inputs: usize,
    /// Channels of y.
    pub outputs: usize,
    /// Parts that the channels of x and y are divided into, each of y's computed from one of x's; at least 1.
    pub groups: usize,
    /// The windows along height and width.
    pub windows: [Window; 2],
    /// `[outputs, inputs / groups, kernel height, kernel width]`.
    pub w: &'a [f32],
    /// `[outputs]`; `None` is zero.
    pub b: Option<&'a [f32]>,
    /// The numbers that `w` and x hold.
    pub factors: Factors,
}

/// The numbers that a convolution multiplies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Factors {
    /// Any.
    #[default]
    Any,
    /// Whole numbers from -255 to 255, at most 255 apart: the weights of an output; x in a window, and 0. The sum of their products is
    /// exact, and rounded once. They are multiplied as bytes; as f32 where there are few outputs, or each channel is convolved by itself.
    Bytes,
}

/// Images to convolve.
#[derive(Debug, Clone, Copy)]
pub struct Images<'a> {
    /// Their number.
    pub count: usize,
    /// Height and width.
    pub size: [usize; 2],
    /// `[count, height, width, inputs]`.
    pub x: &'a [f32],
}

/// The operations that are applied to the sums of a convolution.
#[derive(Debug, Clone, Copy)]
pub struct Epilogue<'a> {
    /// The numbers that are added to the sums: a tensor of the shape of y.
    pub residual: Option<&'a [f32]>,
    /// The function that is applied to each result.
    pub activation: Activation,
}

/// A convolution with its weights packed.
pub struct PackedConvolution {
    target: Target,
    inputs: usize,
    outputs: usize,
    windows: [Window; 2],
    weights: ConvolutionWeights,
}

enum ConvolutionWeights {
    /// For each group, a matrix for each part of its windows.
    Products(Vec<Vec<PackedLinear>>),
    /// For each group, weights for windows that are read where they lie.
    Windows(Vec<WindowProduct>),
    /// For each group, weights for a few outputs.
    Dots(Vec<WindowDots>),
    /// Each channel by itself.
    Depthwise(Depthwise),
}

impl PackedConvolution {
    /// Packs a copy of the weights for a target.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; an error that names the
    /// argument where sizes and lengths do not agree.
    pub fn new(
        packing: impl Into<Packing>,
        parameters: ConvolutionParameters<'_>,
    ) -> Result<Self, KernelError> {
        Self::for_target(Target::new(packing.into())?, parameters)
    }

    pub(crate) fn for_target(
        target: Target,
        parameters: ConvolutionParameters<'_>,
    ) -> Result<Self, KernelError> {
        let ConvolutionParameters { inputs, outputs, groups, windows, w, b, factors } = parameters;
        let taps = windows[0].kernel * windows[1].kernel;
        let (of_group, to_group) = (inputs / groups.max(1), outputs / groups.max(1));
        if of_group * groups != inputs || to_group * groups != outputs || outputs == 0 {
            return Err(KernelError::NoHiddenUnits);
        }
        check_len("w", w, outputs * of_group * taps)?;
        if let Some(b) = b {
            check_len("b", b, outputs)?;
        }
        let len = of_group * taps;
        // From [output, channel, tap] to [output, tap, channel].
        let turned = |group: usize| {
            let of = &w[group * to_group * len..][..to_group * len];
            let mut turned = Vec::with_capacity(of.len());
            for output in of.chunks_exact(len) {
                for tap in 0..taps {
                    turned.extend(output[tap..].iter().step_by(taps));
                }
            }
            turned
        };
        let bias = |group: usize| b.map(|b| &b[group * to_group..][..to_group]);
        let of_groups = Taps { inputs, of_group, windows };
        let is_f32 = factors == Factors::Any && target.reduced.is_none() && len > 0;
        let is_dots = match factors {
            Factors::Any => is_f32 && WindowDots::is_faster(&of_groups, to_group),
            Factors::Bytes => WindowDots::suits_bytes(&of_groups, to_group),
        };
        let weights = if of_group == 1 && to_group == 1 && groups > 1 {
            ConvolutionWeights::Depthwise(Depthwise::new(outputs, w, b))
        } else if is_dots {
            let of = |group| WindowDots::new(&of_groups, &turned(group), bias(group), to_group);
            ConvolutionWeights::Dots((0..groups).map(of).collect())
        } else if is_f32 {
            let (lanes, parts) = (target.lanes(), parts(len));
            let of = |group| {
                let (w, b) = (turned(group), bias(group));
                WindowProduct::new(lanes, &of_groups, &parts, &w, b, to_group)
            };
            ConvolutionWeights::Windows((0..groups).map(of).collect())
        } else {
            let of = |group| products(target, &turned(group), len, bias(group), factors);
            ConvolutionWeights::Products((0..groups).map(of).collect::<Result<_, _>>()?)
        };
        Ok(Self { target, inputs, outputs, windows, weights })
    }

    /// Channels of y.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Multiplications for an element of y.
    pub fn multiplications(&self) -> usize {
        self.inputs / self.groups() * self.windows[0].kernel * self.windows[1].kernel
    }

    /// The height and width of y for images of this size; none if not even one window fits.
    pub fn size(&self, [height, width]: [usize; 2]) -> Option<[usize; 2]> {
        Some([self.windows[0].count(height)?, self.windows[1].count(width)?])
    }

    /// Bytes of packed weights.
    pub fn bytes(&self) -> usize {
        match &self.weights {
            ConvolutionWeights::Products(groups) => {
                groups.iter().flatten().map(PackedLinear::bytes).sum()
            }
            ConvolutionWeights::Windows(groups) => groups.iter().map(WindowProduct::bytes).sum(),
            ConvolutionWeights::Dots(groups) => groups.iter().map(WindowDots::bytes).sum(),
            ConvolutionWeights::Depthwise(depthwise) => depthwise.bytes(),
        }
    }

    /// The windows of a group.
    fn taps(&self) -> Taps {
        let of_group = self.inputs / self.groups();
        Taps { inputs: self.inputs, of_group, windows: self.windows }
    }

    /// Bytes that a run on one thread needs beside its tensors.
    pub fn scratch_bytes(&self) -> usize {
        if matches!(self.weights, ConvolutionWeights::Windows(_) | ConvolutionWeights::Dots(_)) {
            return size_of::<f32>() * self.taps().strip_len();
        }
        let longest = self.inputs * self.windows[0].kernel * self.windows[1].kernel;
        size_of::<f32>() * BLOCK_LEN.max(BLOCK_WINDOWS[0] * longest)
            + (size_of::<LinearRow>() + size_of::<f32>() * self.outputs) * BLOCK_WINDOWS[1]
            // Windows in the precision of the weights, at most widened.
            + size_of::<f32>() * ROWS_MAX * (longest + 8 * LINE_LEN)
    }

    /// Computes y, `[count, height, width, outputs]` of [`Self::size`].
    ///
    /// # Errors
    /// [`KernelError::Length`] where a tensor has another length.
    pub fn run(
        &self,
        images: Images<'_>,
        epilogue: Epilogue<'_>,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        let [rows, columns] = self.size(images.size).unwrap_or([0, 0]);
        self.run_part(images, epilogue, 0..images.count * rows * columns, y)
    }

    /// Divides the pixels of y into at most `count` parts, about equal, each of which may run by itself: ranges of the windows of all
    /// images, row by row.
    pub fn parts(&self, images: Images<'_>, count: usize) -> Vec<Range<usize>> {
        let [rows, columns] = self.size(images.size).unwrap_or([0, 0]);
        // A channel by itself is convolved a row at a time.
        let unit = match &self.weights {
            ConvolutionWeights::Depthwise(_) => columns,
            _ => 1,
        };
        let units = (images.count * rows * columns).checked_div(unit).unwrap_or(0);
        let count = count.clamp(1, units.max(1));
        let end = |part: usize| units * part / count * unit;
        (0..count).map(|part| end(part)..end(part + 1)).collect()
    }

    /// Computes the pixels of y that belong to a part, one of [`Self::parts`]; `epilogue` and `y` have these pixels alone.
    ///
    /// # Errors
    /// [`KernelError::Length`] where a tensor has another length.
    pub fn run_part(
        &self,
        images: Images<'_>,
        epilogue: Epilogue<'_>,
        part: Range<usize>,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        let Images { count, size: [height, width], x } = images;
        let [rows, columns] = self.size(images.size).unwrap_or([0, 0]);
        check_len("x", x, count * height * width * self.inputs)?;
        let pixels = part.len().min((count * rows * columns).saturating_sub(part.start));
        check_len("y", y, pixels * self.outputs)?;
        if let Some(residual) = epilogue.residual {
            check_len("residual", residual, y.len())?;
        }
        match &self.weights {
            ConvolutionWeights::Products(groups) => {
                self.products(groups, images, ([rows, columns], part.start), epilogue, y);
            }
            ConvolutionWeights::Windows(groups) => {
                let run = |group: usize, at: Pixels<'_>| {
                    let weights = &groups[group];
                    let panels = 0..weights.panel_count();
                    self.target.unit.vectorize(PixelProducts { weights, panels, at });
                };
                self.by_blocks(images, ([rows, columns], part.start), epilogue, run, y);
            }
            ConvolutionWeights::Dots(groups) => {
                let run = |group: usize, at: Pixels<'_>| {
                    let weights = &groups[group];
                    self.target.unit.vectorize(PixelDots { weights, at });
                };
                self.by_blocks(images, ([rows, columns], part.start), epilogue, run, y);
            }
            ConvolutionWeights::Depthwise(layer) => {
                let (image_len, row_len) = (height * width * self.inputs, columns * self.outputs);
                let first = part.start.checked_div(columns).unwrap_or(0);
                for (at, y) in y.chunks_exact_mut(row_len.max(1)).enumerate() {
                    let (image, row) = ((first + at) / rows, (first + at) % rows);
                    let x = &x[image * image_len..][..image_len];
                    self.target.unit.vectorize(DepthwiseRow {
                        layer,
                        windows: self.windows,
                        x,
                        size: images.size,
                        row,
                        y: &mut *y,
                    });
                    let residual =
                        epilogue.residual.map(|residual| &residual[at * row_len..][..row_len]);
                    self.finish(y, residual, epilogue.activation);
                }
            }
        }
        Ok(())
    }

    /// Divides the outputs into at most `count` parts, about equal, each of which may run by itself: a few pixels with much weight are so
    /// divided that each weight is read once. None where pixels are better divided, as there are more of them, or too few panels of
    /// outputs, or too small ones.
    pub fn output_parts(&self, images: Images<'_>, count: usize) -> Option<Vec<Range<usize>>> {
        let weights = self.divided_outputs(images)?;
        let panels = weights.panel_count();
        let count = count.clamp(1, panels.max(1));
        let part =
            |part: usize| weights.outputs(panels * part / count..panels * (part + 1) / count);
        Some((0..count).map(part).collect())
    }

    /// The bytes of the weights that [`Self::output_parts`] divides; 0 where pixels are better divided.
    pub fn divided_bytes(&self, images: Images<'_>) -> usize {
        self.divided_outputs(images).map_or(0, WindowProduct::bytes)
    }

    /// The weights, if their outputs are better divided than the pixels.
    fn divided_outputs(&self, images: Images<'_>) -> Option<&WindowProduct> {
        let ConvolutionWeights::Windows(groups) = &self.weights else { return None };
        let [weights] = &groups[..] else { return None };
        let [rows, columns] = self.size(images.size).unwrap_or([0, 0]);
        let (panels, bytes) = (weights.panel_count(), weights.bytes());
        let is_even =
            panels >= OUTPUT_PANELS_MIN || (panels > 1 && bytes / panels >= PANEL_BYTES_MIN);
        let is_better =
            images.count * rows * columns <= BLOCK_PIXELS && bytes >= OUTPUT_PARTS_BYTES_MIN;
        (is_better && is_even).then_some(weights)
    }

    /// Computes the outputs of all pixels that belong to a part, one of [`Self::output_parts`]: those of each pixel in `y`. The rows of
    /// `residual` have all outputs.
    ///
    /// # Errors
    /// [`KernelError::Length`] where a tensor has another length.
    pub fn run_outputs(
        &self,
        images: Images<'_>,
        epilogue: Epilogue<'_>,
        part: &Range<usize>,
        y: &mut [&mut [f32]],
    ) -> Result<(), KernelError> {
        let windows = self.size(images.size).unwrap_or([0, 0]);
        let pixels = images.count * windows[0] * windows[1];
        check_len("x", images.x, images.count * images.size[0] * images.size[1] * self.inputs)?;
        if y.len() != pixels {
            return Err(KernelError::Length { tensor: "y", expected: pixels, actual: y.len() });
        }
        for y in &*y {
            check_len("y", y, part.len())?;
        }
        if let Some(residual) = epilogue.residual {
            check_len("residual", residual, pixels * self.outputs)?;
        }
        let weights = match &self.weights {
            ConvolutionWeights::Windows(groups) if groups.len() == 1 => &groups[0],
            _ => {
                return Err(KernelError::Length {
                    tensor: "part",
                    expected: 0,
                    actual: part.len(),
                });
            }
        };
        let panels = weights.panels_of(part);
        let outputs = weights.outputs(panels.clone());
        if &outputs != part {
            let (expected, actual) = (outputs.len(), part.len());
            return Err(KernelError::Length { tensor: "part", expected, actual });
        }
        let places = Places { x: images.x, size: images.size, windows };
        let (taps, mut strip) = (self.taps(), Strip::default());
        for (block, y) in y.chunks_mut(BLOCK_PIXELS).enumerate() {
            let first = block * BLOCK_PIXELS;
            let of_taps = strip.taps(&taps, &places, first..first + y.len());
            let of_pixels: Vec<*mut f32> = y.iter_mut().map(|y| y.as_mut_ptr()).collect();
            // The windows of these pixels lie at `of_taps`, and `y` has as many pixels, each with the outputs of `panels`.
            let at = Pixels { taps: of_taps, skip: 0, count: y.len(), y: &of_pixels };
            self.target.unit.vectorize(PixelProducts { weights, panels: panels.clone(), at });
            for (pixel, y) in y.iter_mut().enumerate() {
                let own = (first + pixel) * self.outputs;
                let own = own + part.start..own + part.end;
                let residual = epilogue.residual.map(|residual| &residual[own]);
                self.finish(y, residual, epilogue.activation);
            }
        }
        Ok(())
    }

    fn finish(&self, y: &mut [f32], residual: Option<&[f32]>, activation: Activation) {
        if residual.is_some() || activation != Activation::Identity {
            self.target.unit.vectorize(Finish { y, residual, activation });
        }
    }

    /// Computes y, pixels from `from` on, a block at a time: calls `run` for each group.
    fn by_blocks(
        &self,
        Images { size, x, .. }: Images<'_>,
        (windows, from): ([usize; 2], usize),
        epilogue: Epilogue<'_>,
        run: impl Fn(usize, Pixels<'_>),
        y: &mut [f32],
    ) {
        let (taps, places) = (self.taps(), Places { x, size, windows });
        let to_group = self.outputs / self.groups();
        let (mut strip, mut of_pixels) = (Strip::default(), Vec::new());
        let pixels = y.len() / self.outputs;
        let blocks = pixels.div_ceil(BLOCK_PIXELS);
        for block in 0..blocks {
            let (first, end) = (pixels * block / blocks, pixels * (block + 1) / blocks);
            let count = end - first;
            let of_taps = strip.taps(&taps, &places, from + first..from + end);
            let own = first * self.outputs..end * self.outputs;
            let y = &mut y[own.clone()];
            for group in 0..self.groups() {
                of_pixels.clear();
                let of_group = |y: &mut [f32]| y[group * to_group..].as_mut_ptr();
                of_pixels.extend(y.chunks_exact_mut(self.outputs).map(of_group));
                // The windows of `count` pixels lie at `of_taps`, and `y` has as many pixels.
                let skip = group * taps.of_group;
                run(group, Pixels { taps: of_taps, skip, count, y: &of_pixels });
            }
            let residual = epilogue.residual.map(|residual| &residual[own]);
            self.finish(y, residual, epilogue.activation);
        }
    }

    fn products(
        &self,
        groups: &[Vec<PackedLinear>],
        images: Images<'_>,
        ([rows, columns], from): ([usize; 2], usize),
        epilogue: Epilogue<'_>,
        y: &mut [f32],
    ) {
        let longest: usize = groups[0].iter().map(PackedLinear::input_size).sum();
        let windows = (BLOCK_LEN / longest.max(1)).clamp(BLOCK_WINDOWS[0], BLOCK_WINDOWS[1]);
        let (mut copies, mut places, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for (block, y) in y.chunks_mut(windows * self.outputs).enumerate() {
            let first = block * windows;
            for (group, parts) in groups.iter().enumerate() {
                let of_group = self.inputs / groups.len();
                let (first, count) = (from + first, y.len() / self.outputs);
                let windows = BlockWindows { first, count, group, of_group };
                places.clear();
                self.places(images, [rows, columns], &windows, &mut copies, &mut places);
                self.multiply_parts(parts, group, &places, &mut sums, y);
            }
            let residual =
                epilogue.residual.map(|residual| &residual[first * self.outputs..][..y.len()]);
            self.finish(y, residual, epilogue.activation);
        }
    }

    /// The products of windows at `places` with a group's parts, in y: `[windows, outputs]`.
    fn multiply_parts(
        &self,
        parts: &[PackedLinear],
        group: usize,
        places: &[*const f32],
        sums: &mut Vec<f32>,
        y: &mut [f32],
    ) {
        let to_group = self.outputs / self.groups();
        let first = group * to_group;
        let mut skip = 0;
        for (part, linear) in parts.iter().enumerate() {
            sums.resize(if part == 0 { 0 } else { places.len() * to_group }, 0.0);
            let (to, step) = match part {
                0 => (y.as_mut_ptr().wrapping_add(first), self.outputs),
                _ => (sums.as_mut_ptr(), to_group),
            };
            let of_window = |(at, x): (usize, &*const f32)| LinearRow {
                x: x.wrapping_add(skip),
                y: to.wrapping_add(at * step),
            };
            let products: Vec<LinearRow> = places.iter().enumerate().map(of_window).collect();
            // SAFETY: a window's elements are readable, as `places` says; its outputs are those of the group in `y`, or
            // lie in `sums`, which nobody else has.
            unsafe { linear.multiply(&products, 0..linear.panels()) }
            skip += linear.input_size();
            for (y, sums) in y.chunks_exact_mut(self.outputs).zip(sums.chunks_exact(to_group)) {
                y[first..][..to_group].iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
            }
        }
    }

    /// The number of groups.
    fn groups(&self) -> usize {
        match &self.weights {
            ConvolutionWeights::Products(groups) => groups.len(),
            ConvolutionWeights::Windows(groups) => groups.len(),
            ConvolutionWeights::Dots(groups) => groups.len(),
            ConvolutionWeights::Depthwise(_) => self.outputs,
        }
    }

    /// Where each window of a block lies: in x, or copied to `copies`.
    fn places(
        &self,
        Images { size: [height, width], x, .. }: Images<'_>,
        [rows, columns]: [usize; 2],
        windows: &BlockWindows,
        copies: &mut Vec<f32>,
        places: &mut Vec<*const f32>,
    ) {
        let [down, along] = self.windows;
        let of_group = windows.of_group;
        let image_len = height * width * self.inputs;
        let pixel = |image: usize, row: usize, column: usize| {
            image * image_len + (row * width + column) * self.inputs + windows.group * of_group
        };
        let is_line = down.kernel == 1
            && (along.kernel == 1 || (along.dilation == 1 && of_group == self.inputs));
        let is_direct = is_line && down.is_inside() && along.is_inside();
        let longest = of_group * down.kernel * along.kernel;
        copies.clear();
        copies.reserve(if is_direct { 0 } else { windows.count * longest });
        for at in windows.first..windows.first + windows.count {
            let (image, row, column) = (at / (rows * columns), at / columns % rows, at % columns);
            if is_direct {
                let from = pixel(image, row * down.stride, column * along.stride);
                places.push(x[from..][..longest].as_ptr());
                continue;
            }
            let (taps_down, first_row) = down.inside(row, height);
            let (taps_along, first_column) = along.inside(column, width);
            let line = along.kernel * of_group;
            if taps_down.is_empty() || taps_along.is_empty() {
                copies.resize(copies.len() + longest, 0.0);
                continue;
            }
            copies.resize(copies.len() + taps_down.start * line, 0.0);
            for tap in 0..taps_down.len() {
                let row = first_row + tap * down.dilation;
                copies.resize(copies.len() + taps_along.start * of_group, 0.0);
                let from = pixel(image, row, first_column);
                if along.dilation == 1 && of_group == self.inputs {
                    copies.extend_from_slice(&x[from..][..taps_along.len() * of_group]);
                } else {
                    for tap in 0..taps_along.len() {
                        let from = from + tap * along.dilation * self.inputs;
                        copies.extend_from_slice(&x[from..][..of_group]);
                    }
                }
                copies.resize(copies.len() + (along.kernel - taps_along.end) * of_group, 0.0);
            }
            copies.resize(copies.len() + (down.kernel - taps_down.end) * line, 0.0);
        }
        if !is_direct {
            places.extend(copies.chunks_exact(longest.max(1)).map(<[f32]>::as_ptr));
        }
    }
}

/// The weights `[outputs, length]` of windows, packed for each part of them.
fn products(
    target: Target,
    w: &[f32],
    length: usize,
    b: Option<&[f32]>,
    factors: Factors,
) -> Result<Vec<PackedLinear>, KernelError> {
    let outputs = w.len().checked_div(length).unwrap_or(b.map_or(0, <[f32]>::len));
    let part = |(number, of): (usize, Range<usize>)| {
        let rows = w.chunks_exact(length.max(1)).flat_map(|row| &row[of.clone()]);
        let w: Vec<f32> = rows.copied().collect();
        let b = b.filter(|_| number == 0);
        let parameters = LinearParameters { input_size: of.len(), output_size: outputs, w: &w, b };
        match factors {
            Factors::Any => PackedLinear::for_target(target, parameters),
            Factors::Bytes => PackedLinear::of_bytes(target, parameters),
        }
    };
    // Of bytes, both factors may be 255.
    let count = length.div_ceil(INT8_INPUTS_MAX / 2).max(1);
    let parts = (0..count).map(|at| length * at / count..length * (at + 1) / count);
    parts.enumerate().map(part).collect()
}

/// Windows that are computed together.
struct BlockWindows {
    /// The first of them, counted over all images.
    first: usize,
    count: usize,
    group: usize,
    /// Channels of x in the group.
    of_group: usize,
}

impl fmt::Debug for PackedConvolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedConvolution")
            .field("isa", &self.target.isa)
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("windows", &self.windows)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
