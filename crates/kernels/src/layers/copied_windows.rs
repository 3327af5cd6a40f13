//! Convolutions whose weights are bfloat16 or bytes: products of copies of windows.
//!
//! Windows are copied a block at a time, as many as stay in a second-level cache; a window that lies in memory as it is (one tap, or one row
//! of taps without padding) is not. The order of sums is that of `convolution.rs`.

use std::ops::Range;

use crate::cells::linear::{LinearParameters, LinearRow, PackedLinear};
use crate::error::KernelError;
use crate::layers::taps::{Places, Taps};
use crate::packing::lines::LINE_LEN;
use crate::packing::reduced::INT8_INPUTS_MAX;
use crate::packing::target::Target;
use crate::products::tiling::ROWS_MAX;

/// Elements of the windows that are copied at a time.
const BLOCK_LEN: usize = 32 << 10;

/// The fewest and the most windows of a block.
const BLOCK_WINDOWS: [usize; 2] = [32, 256];

/// Packs a matrix.
type Pack = fn(Target, LinearParameters<'_>) -> Result<PackedLinear, KernelError>;

/// The weights of a convolution.
pub(super) struct CopiedWindows {
    taps: Taps,
    outputs: usize,
    /// For each group, a matrix for each part of its windows.
    groups: Vec<Vec<PackedLinear>>,
}

impl CopiedWindows {
    /// Packs with `pack`, for each group, the weights `[outputs, window element]` and the bias, to `to_group` outputs.
    ///
    /// # Errors
    /// Those of `pack`.
    pub(super) fn new<'a>(
        target: Target,
        taps: Taps,
        to_group: usize,
        groups: impl Iterator<Item = (Vec<f32>, Option<&'a [f32]>)>,
        pack: Pack,
    ) -> Result<Self, KernelError> {
        let of = |(w, b): (Vec<f32>, Option<&[f32]>)| {
            products(target, &w, [taps.len(), to_group], b, pack)
        };
        let groups: Vec<_> = groups.map(of).collect::<Result<_, _>>()?;
        Ok(Self { taps, outputs: to_group * groups.len(), groups })
    }

    /// The number of groups.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.groups.iter().flatten().map(PackedLinear::bytes).sum()
    }

    /// Bytes that a run on one thread needs beside its tensors.
    pub(super) fn scratch_bytes(&self) -> usize {
        let [down, along] = self.taps.windows;
        let longest = self.taps.inputs * down.kernel * along.kernel;
        size_of::<f32>() * BLOCK_LEN.max(BLOCK_WINDOWS[0] * longest)
            + (size_of::<LinearRow>() + size_of::<f32>() * self.outputs) * BLOCK_WINDOWS[1]
            // Windows in the precision of the weights, at most widened.
            + size_of::<f32>() * ROWS_MAX * (longest + 8 * LINE_LEN)
    }

    /// Computes y, `[pixels, outputs]`, of the pixels from `from` on, counted over all images. `done` is called with elements of y that are
    /// complete, and their place in it.
    pub(super) fn run(
        &self,
        places: &Places<'_>,
        from: usize,
        y: &mut [f32],
        mut done: impl FnMut(usize, &mut [f32]),
    ) {
        let windows =
            (BLOCK_LEN / self.taps.len().max(1)).clamp(BLOCK_WINDOWS[0], BLOCK_WINDOWS[1]);
        let (mut copies, mut addresses, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for (block, y) in y.chunks_mut(windows * self.outputs).enumerate() {
            let first = from + block * windows;
            for group in 0..self.groups.len() {
                let pixels = first..first + y.len() / self.outputs;
                addresses.clear();
                self.addresses(places, group, pixels, &mut copies, &mut addresses);
                self.multiply_parts(group, &addresses, &mut sums, y);
            }
            done(block * windows * self.outputs, y);
        }
    }

    /// The products of windows at `addresses` with a group's parts, in y: `[windows, outputs]`.
    fn multiply_parts(
        &self,
        group: usize,
        addresses: &[*const f32],
        sums: &mut Vec<f32>,
        y: &mut [f32],
    ) {
        let to_group = self.outputs / self.groups();
        let first = group * to_group;
        let mut skip = 0;
        for (part, linear) in self.groups[group].iter().enumerate() {
            sums.resize(if part == 0 { 0 } else { addresses.len() * to_group }, 0.0);
            let (to, step) = match part {
                0 => (y.as_mut_ptr().wrapping_add(first), self.outputs),
                _ => (sums.as_mut_ptr(), to_group),
            };
            let of_window = |(at, x): (usize, &*const f32)| LinearRow {
                x: x.wrapping_add(skip),
                y: to.wrapping_add(at * step),
            };
            let products: Vec<LinearRow> = addresses.iter().enumerate().map(of_window).collect();
            // SAFETY: a window's elements are readable, as `addresses` says; its outputs are those of the group in `y`, or
            // lie in `sums`, which nobody else has.
            unsafe { linear.multiply(&products, 0..linear.panels()) }
            skip += linear.input_size();
            for (y, sums) in y.chunks_exact_mut(self.outputs).zip(sums.chunks_exact(to_group)) {
                y[first..][..to_group].iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
            }
        }
    }

    /// Where each window of some pixels lies: in x, or copied to `copies`.
    fn addresses(
        &self,
        places: &Places<'_>,
        group: usize,
        pixels: Range<usize>,
        copies: &mut Vec<f32>,
        addresses: &mut Vec<*const f32>,
    ) {
        let Places { x, size: [height, width], windows: [rows, columns] } = *places;
        let Taps { inputs, of_group, windows: [down, along] } = self.taps;
        let image_len = height * width * inputs;
        let pixel = |image: usize, row: usize, column: usize| {
            image * image_len + (row * width + column) * inputs + group * of_group
        };
        let is_line =
            down.kernel == 1 && (along.kernel == 1 || (along.dilation == 1 && of_group == inputs));
        let is_direct = is_line && down.is_inside() && along.is_inside();
        let longest = self.taps.len();
        copies.clear();
        copies.reserve(if is_direct { 0 } else { pixels.len() * longest });
        for at in pixels {
            let (image, row, column) = (at / (rows * columns), at / columns % rows, at % columns);
            if is_direct {
                let from = pixel(image, row * down.stride, column * along.stride);
                addresses.push(x[from..][..longest].as_ptr());
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
                if along.dilation == 1 && of_group == inputs {
                    copies.extend_from_slice(&x[from..][..taps_along.len() * of_group]);
                } else {
                    for tap in 0..taps_along.len() {
                        let from = from + tap * along.dilation * inputs;
                        copies.extend_from_slice(&x[from..][..of_group]);
                    }
                }
                copies.resize(copies.len() + (along.kernel - taps_along.end) * of_group, 0.0);
            }
            copies.resize(copies.len() + (down.kernel - taps_down.end) * line, 0.0);
        }
        if !is_direct {
            addresses.extend(copies.chunks_exact(longest.max(1)).map(<[f32]>::as_ptr));
        }
    }
}

/// The weights `[outputs, length]` of windows, packed for each part of them.
fn products(
    target: Target,
    w: &[f32],
    [length, outputs]: [usize; 2],
    b: Option<&[f32]>,
    pack: Pack,
) -> Result<Vec<PackedLinear>, KernelError> {
    let part = |(number, of): (usize, Range<usize>)| {
        let rows = w.chunks_exact(length.max(1)).flat_map(|row| &row[of.clone()]);
        let w: Vec<f32> = rows.copied().collect();
        let b = b.filter(|_| number == 0);
        pack(target, LinearParameters { input_size: of.len(), output_size: outputs, w: &w, b })
    };
    // Of bytes, both factors may be 255.
    let count = length.div_ceil(INT8_INPUTS_MAX / 2).max(1);
    let parts = (0..count).map(|at| length * at / count..length * (at + 1) / count);
    parts.enumerate().map(part).collect()
}
