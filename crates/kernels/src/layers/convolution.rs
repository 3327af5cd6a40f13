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
//! Windows of 3 by 3 over many channels are computed by tiles (`winograd.rs`).
//!
//! **Windows.** Weights of f32 are multiplied with windows where these lie (`window_product.rs`), weights of bfloat16 or bytes with copies
//! of them (`copied_windows.rs`).

use std::fmt;
use std::ops::Range;

use crate::cells::linear::PackedLinear;
use crate::error::KernelError;
use crate::layers::activation::{Activation, Finish};
use crate::layers::copied_windows::CopiedWindows;
use crate::layers::depthwise::{Depthwise, DepthwiseRow};
use crate::layers::taps::{BLOCK_PIXELS, Pixels, Places, Strip, Taps, parts};
use crate::layers::window::Window;
use crate::layers::window_dots::{PixelDots, WindowDots};
use crate::layers::window_product::{PixelProducts, WindowProduct};
use crate::layers::winograd::{TileGrid, Winograd};
use crate::packing::checks::check_len;
use crate::packing::precision::Packing;
use crate::packing::target::Target;

/// Weights of this many bytes are worth that several threads read a part of them each, if there are few pixels: they are more than a
/// first-level cache holds.
const OUTPUT_PARTS_BYTES_MIN: usize = 128 << 10;

/// Panels of outputs that are worth being divided: so that threads get about as many each.
const OUTPUT_PANELS_MIN: usize = 4;

/// The most tiles, each of four pixels, whose outputs are divided: transforms are repeated for each part.
const OUTPUT_PARTS_TILES_MAX: usize = 64;

/// Bytes of a panel that make two or three panels worth being divided as well: to read one takes longer than to wake a thread.
const PANEL_BYTES_MIN: usize = 256 << 10;

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
    /// Weights for copies of windows.
    Copies(CopiedWindows),
    /// For each group, weights for windows that are read where they lie.
    Windows(Vec<WindowProduct>),
    /// Weights for tiles.
    Winograd(Winograd),
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
        } else if is_f32 && Winograd::suits(&of_groups, outputs) {
            ConvolutionWeights::Winograd(Winograd::new(target.lanes(), &of_groups, &turned(0), b))
        } else if is_f32 {
            let (lanes, parts) = (target.lanes(), parts(len));
            let of = |group| {
                let (w, b) = (turned(group), bias(group));
                WindowProduct::new(lanes, &of_groups, &parts, &w, b, to_group)
            };
            ConvolutionWeights::Windows((0..groups).map(of).collect())
        } else {
            let weights = (0..groups).map(|group| (turned(group), bias(group)));
            let pack = match factors {
                Factors::Any => PackedLinear::for_target,
                Factors::Bytes => PackedLinear::of_bytes,
            };
            let copies = CopiedWindows::new(target, of_groups, to_group, weights, pack)?;
            ConvolutionWeights::Copies(copies)
        };
        Ok(Self { target, inputs, outputs, windows, weights })
    }

    /// Channels of y.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Multiplications for an element of y.
    pub fn multiplications(&self) -> usize {
        if let ConvolutionWeights::Winograd(weights) = &self.weights {
            return weights.multiplications();
        }
        self.inputs / self.groups() * self.windows[0].kernel * self.windows[1].kernel
    }

    /// The height and width of y for images of this size; none if not even one window fits.
    pub fn size(&self, [height, width]: [usize; 2]) -> Option<[usize; 2]> {
        Some([self.windows[0].count(height)?, self.windows[1].count(width)?])
    }

    /// Bytes of packed weights.
    pub fn bytes(&self) -> usize {
        match &self.weights {
            ConvolutionWeights::Copies(copies) => copies.bytes(),
            ConvolutionWeights::Windows(groups) => groups.iter().map(WindowProduct::bytes).sum(),
            ConvolutionWeights::Winograd(weights) => weights.bytes(),
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
        match &self.weights {
            ConvolutionWeights::Copies(copies) => copies.scratch_bytes(),
            ConvolutionWeights::Windows(_) | ConvolutionWeights::Dots(_) => {
                size_of::<f32>() * self.taps().strip_len()
            }
            ConvolutionWeights::Winograd(weights) => weights.scratch_bytes(),
            ConvolutionWeights::Depthwise(_) => 0,
        }
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
        let grid = TileGrid::new([rows, columns]);
        let units = match &self.weights {
            // A channel by itself is convolved a row at a time.
            ConvolutionWeights::Depthwise(_) if columns == 0 => 0,
            ConvolutionWeights::Depthwise(_) => images.count * rows,
            ConvolutionWeights::Winograd(_) => images.count * grid.lines(),
            _ => images.count * rows * columns,
        };
        let count = count.clamp(1, units.max(1));
        let end = |part: usize| match &self.weights {
            ConvolutionWeights::Depthwise(_) => units * part / count * columns,
            ConvolutionWeights::Winograd(_) => grid.first_pixel(units * part / count),
            _ => units * part / count,
        };
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
            ConvolutionWeights::Copies(copies) => {
                let places = Places { x, size: images.size, windows: [rows, columns] };
                copies.run(&places, part.start, y, |at, y| {
                    let residual = epilogue.residual.map(|residual| &residual[at..][..y.len()]);
                    self.finish(y, residual, epilogue.activation);
                });
            }
            ConvolutionWeights::Windows(groups) => {
                let run = |group: usize, at: Pixels<'_>| {
                    let weights = &groups[group];
                    let panels = 0..weights.panel_count();
                    self.target.unit.vectorize(PixelProducts { weights, panels, at });
                };
                self.by_blocks(images, ([rows, columns], part.start), epilogue, run, y);
            }
            ConvolutionWeights::Winograd(weights) => {
                self.tiles(weights, images, ([rows, columns], part.start), epilogue, y)?;
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

    /// Divides the outputs into parts, each of which may run by itself: `count` equal ones, or one for each panel if there are fewer. Panels that
    /// are left over, fewer than `count`, are parts of their own, which come last. A few pixels with much weight are so divided that each
    /// weight is read once. None where pixels are better divided, as there are more of them, or too few panels of outputs, or too small
    /// ones.
    pub fn output_parts(&self, images: Images<'_>, count: usize) -> Option<Vec<Range<usize>>> {
        let (weights, _) = self.divided_outputs(images)?;
        let (panels, count) = (weights.panel_count(), count.max(1));
        let of_part = (panels / count).max(1);
        let equal = count.min(panels / of_part) * of_part;
        let firsts = (0..equal).step_by(of_part).map(|first| first..first + of_part);
        let parts = firsts.chain((equal..panels).map(|panel| panel..panel + 1));
        Some(parts.map(|panels| weights.outputs(panels)).collect())
    }

    /// The bytes of the weights that [`Self::output_parts`] divides; 0 where pixels are better divided.
    pub fn divided_bytes(&self, images: Images<'_>) -> usize {
        self.divided_outputs(images).map_or(0, |(_, bytes)| bytes)
    }

    /// A matrix whose panels divide the outputs, and the bytes of all weights, if outputs are better divided than the pixels.
    fn divided_outputs(&self, images: Images<'_>) -> Option<(&WindowProduct, usize)> {
        let windows = self.size(images.size).unwrap_or([0, 0]);
        let (weights, bytes, are_few) = match &self.weights {
            ConvolutionWeights::Windows(groups) => {
                let [weights] = &groups[..] else { return None };
                let pixels = images.count * windows[0] * windows[1];
                (weights, weights.bytes(), pixels <= BLOCK_PIXELS)
            }
            ConvolutionWeights::Winograd(weights) => {
                let grid = TileGrid::new(windows);
                let tiles = images.count * grid.lines() * grid.along();
                (weights.of_position(), weights.bytes(), tiles <= OUTPUT_PARTS_TILES_MAX)
            }
            _ => return None,
        };
        let panels = weights.panel_count();
        let is_even =
            panels >= OUTPUT_PANELS_MIN || (panels > 1 && bytes / panels >= PANEL_BYTES_MIN);
        (are_few && bytes >= OUTPUT_PARTS_BYTES_MIN && is_even).then_some((weights, bytes))
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
            ConvolutionWeights::Winograd(weights) => weights.of_position(),
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
        if let ConvolutionWeights::Winograd(weights) = &self.weights {
            let of_pixels: Vec<*mut f32> = y.iter_mut().map(|y| y.as_mut_ptr()).collect();
            let lines = 0..images.count * TileGrid::new(windows).lines();
            let at = |pixel: usize| of_pixels[pixel];
            // SAFETY: each pixel has the outputs of `panels`, which nobody else accesses; the weights were packed for the unit, and
            // these are all rows of tiles.
            unsafe { weights.run(self.target.unit, &places, panels, lines, at, |_| {}) }
            for (pixel, y) in y.iter_mut().enumerate() {
                let own = pixel * self.outputs + part.start..pixel * self.outputs + part.end;
                let residual = epilogue.residual.map(|residual| &residual[own]);
                self.finish(y, residual, epilogue.activation);
            }
            return Ok(());
        }
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

    /// Computes y, pixels from `from` on, tile by tile.
    ///
    /// # Errors
    /// [`KernelError::Length`] where they are not whole rows of tiles.
    fn tiles(
        &self,
        weights: &Winograd,
        Images { size, x, .. }: Images<'_>,
        (windows, from): ([usize; 2], usize),
        epilogue: Epilogue<'_>,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        let (grid, places) = (TileGrid::new(windows), Places { x, size, windows });
        let pixels = from..from + y.len() / self.outputs;
        if pixels.is_empty() {
            return Ok(());
        }
        let lines = grid.line_of(pixels.start)..grid.line_of(pixels.end - 1) + 1;
        let whole = grid.first_pixel(lines.start)..grid.first_pixel(lines.end);
        if whole != pixels {
            let (expected, actual) = (whole.len() * self.outputs, y.len());
            return Err(KernelError::Length { tensor: "y", expected, actual });
        }
        let start = y.as_mut_ptr();
        let at = |pixel: usize| start.wrapping_add((pixel - from) * self.outputs);
        let done = |pixels: Range<usize>| {
            let own = (pixels.start - from) * self.outputs..(pixels.end - from) * self.outputs;
            // SAFETY: the pixels are among those of `y`, and complete, so that nobody else accesses them.
            let y = unsafe { std::slice::from_raw_parts_mut(start.add(own.start), own.len()) };
            let residual = epilogue.residual.map(|residual| &residual[own]);
            self.finish(y, residual, epilogue.activation);
        };
        let panels = 0..weights.of_position().panel_count();
        // SAFETY: each pixel of these rows of tiles has its outputs in `y`, and the weights were packed for the unit.
        unsafe { weights.run(self.target.unit, &places, panels, lines, at, done) }
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

    /// The number of groups.
    fn groups(&self) -> usize {
        match &self.weights {
            ConvolutionWeights::Copies(copies) => copies.groups(),
            ConvolutionWeights::Windows(groups) => groups.len(),
            ConvolutionWeights::Winograd(_) => 1,
            ConvolutionWeights::Dots(groups) => groups.len(),
            ConvolutionWeights::Depthwise(_) => self.outputs,
        }
    }
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
