//! The elements of a convolution's windows, as they lie in memory.
//!
//! An output row is computed a block of pixels at a time. Windows that lie within the image are read where they are, those over
//! its edge from a copy with zeros around it ([`Strip`]); a row of taps above or below the image is one of zeros.

use std::ops::Range;

use crate::layers::window::Window;

/// Pixels of a block.
pub(super) const BLOCK_PIXELS: usize = 64;

/// Elements of a window that are summed up by themselves.
const PART_LEN: usize = 256;

/// The parts of windows of `length` elements that are summed up by themselves.
pub(super) fn parts(length: usize) -> Vec<Range<usize>> {
    let count = length.div_ceil(PART_LEN).max(1);
    (0..count).map(|part| length * part / count..length * (part + 1) / count).collect()
}

/// The shape of the windows over one group of channels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taps {
    /// Channels of x.
    pub(super) inputs: usize,
    /// Channels of x in the group.
    pub(super) of_group: usize,
    /// The windows along height and width.
    pub(super) windows: [Window; 2],
}

/// Elements of a window that lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The row of taps.
    pub(super) row: usize,
    /// Elements of x before them, from where the row of taps begins.
    pub(super) skip: usize,
    pub(super) len: usize,
}

/// Where the rows of taps of a block's pixels lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowOfTaps {
    /// The first pixel's.
    pub(super) first: *const f32,
    /// Elements from a pixel's to the next one's.
    pub(super) step: usize,
}

/// Some pixels of y, and where the windows of these lie.
///
/// **Contract**, which whoever computes them relies on: all elements of the windows of `count` pixels are readable at `rows`, from
/// which the group's channels are `skip` elements further; as many pixels of the group's outputs are writable at `y`, `y_step`
/// elements apart. Nobody else accesses the latter meanwhile, and nobody writes the former. The weights were packed for the
/// vectors of the unit that computes.
#[derive(Clone, Copy)]
pub(super) struct Pixels<'a> {
    pub(super) rows: &'a [RowOfTaps],
    pub(super) skip: usize,
    pub(super) count: usize,
    pub(super) y: *mut f32,
    pub(super) y_step: usize,
}

impl Taps {
    /// Elements of a window.
    pub(super) fn len(&self) -> usize {
        self.of_group * self.windows[0].kernel * self.windows[1].kernel
    }

    /// Elements from the first to the last of a row of taps, of all groups.
    fn reach(&self) -> usize {
        let along = self.windows[1];
        ((along.kernel - 1) * along.dilation + 1) * self.inputs
    }

    /// The elements `part` of a window, counted row of taps by row, tap by tap, channel by channel, in as few pieces as there can be.
    pub(super) fn pieces(&self, part: Range<usize>) -> Vec<Piece> {
        let [down, along] = self.windows;
        let is_line = along.dilation == 1 && self.of_group == self.inputs;
        let (len, step) = match is_line {
            true => (along.kernel * self.of_group, 0),
            false => (self.of_group, along.dilation * self.inputs),
        };
        let in_row = if is_line { 1 } else { along.kernel };
        let runs = (0..down.kernel).flat_map(|row| (0..in_row).map(move |at| (row, at * step)));
        let mut pieces = Vec::new();
        for (number, (row, skip)) in runs.enumerate() {
            let (start, end) = (number * len, (number + 1) * len);
            let (from, to) = (start.max(part.start), end.min(part.end));
            if from < to {
                pieces.push(Piece { row, skip: skip + from - start, len: to - from });
            }
        }
        pieces
    }

    /// The most elements of a [`Strip`].
    pub(super) fn strip_len(&self) -> usize {
        let [down, along] = self.windows;
        let pixels = (BLOCK_PIXELS - 1) * along.stride + (along.kernel - 1) * along.dilation + 1;
        (pixels * down.kernel + 1) * self.inputs
    }
}

/// The part of an image that the windows of a block reach, with zeros for what is outside of the image.
#[derive(Default)]
pub(super) struct Strip {
    copy: Vec<f32>,
    zeros: Vec<f32>,
    rows: Vec<RowOfTaps>,
}

/// A block of pixels of one output row.
#[derive(Debug, Clone)]
pub(super) struct Block<'a> {
    /// The image, `[height, width, inputs]`.
    pub(super) x: &'a [f32],
    /// Height and width.
    pub(super) size: [usize; 2],
    /// The output row.
    pub(super) row: usize,
    /// The pixels of the row.
    pub(super) columns: Range<usize>,
}

impl Strip {
    /// Where the rows of taps of all pixels of a block lie, of the first group of channels. `BLOCK_PIXELS` pixels are the most.
    pub(super) fn rows(&mut self, taps: &Taps, block: &Block<'_>) -> &[RowOfTaps] {
        let [down, along] = taps.windows;
        let [height, width] = block.size;
        let inputs = taps.inputs;
        let (rows, first_row) = down.inside(block.row, height);
        let last = block.columns.end - 1;
        let from = (block.columns.start * along.stride) as isize - along.before as isize;
        let to = last * along.stride + (along.kernel - 1) * along.dilation + 1;
        let is_inside = from >= 0 && to <= width + along.before;
        let pixels = to - block.columns.start * along.stride;
        self.rows.clear();
        self.zeros.resize(taps.reach(), 0.0);
        if !is_inside {
            self.copy.clear();
            let (before, first) = ((-from).max(0) as usize, from.max(0) as usize);
            let end = (from + pixels as isize).clamp(0, width as isize) as usize;
            let count = end.saturating_sub(first);
            for tap in 0..rows.len() {
                let line = (first_row + tap * down.dilation) * width;
                self.copy.resize(self.copy.len() + before.min(pixels) * inputs, 0.0);
                if count > 0 {
                    self.copy
                        .extend_from_slice(&block.x[(line + first) * inputs..][..count * inputs]);
                }
                self.copy.resize((tap + 1) * pixels * inputs, 0.0);
            }
        }
        for tap in 0..down.kernel {
            let step = along.stride * inputs;
            let row = match (rows.contains(&tap), is_inside) {
                (false, _) => RowOfTaps { first: self.zeros.as_ptr(), step: 0 },
                (true, false) => {
                    let at = (tap - rows.start) * pixels * inputs;
                    RowOfTaps { first: self.copy[at..].as_ptr(), step }
                }
                (true, true) => {
                    let line = (first_row + (tap - rows.start) * down.dilation) * width;
                    let at = (line + from as usize) * inputs;
                    RowOfTaps { first: block.x[at..].as_ptr(), step }
                }
            };
            self.rows.push(row);
        }
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taps(along: Window, [inputs, of_group]: [usize; 2]) -> Taps {
        let down = Window { kernel: 2, ..Window::POINT };
        Taps { inputs, of_group, windows: [down, along] }
    }

    #[test]
    fn pieces_are_as_long_as_taps_lie_side_by_side() {
        let along = Window { kernel: 3, ..Window::POINT };
        let line = taps(along, [5, 5]);
        let piece = |row, skip, len| Piece { row, skip, len };
        assert_eq!(line.pieces(0..30), [piece(0, 0, 15), piece(1, 0, 15)]);
        assert_eq!(line.pieces(10..20), [piece(0, 10, 5), piece(1, 0, 5)]);
        let of_group = taps(Window { dilation: 2, ..along }, [8, 4]);
        assert_eq!(of_group.pieces(2..9), [piece(0, 2, 2), piece(0, 16, 4), piece(0, 32, 1)]);
    }

    #[test]
    fn windows_over_the_edge_are_copied() {
        let along = Window { kernel: 3, before: 1, after: 1, ..Window::POINT };
        let taps = taps(along, [1, 1]);
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let mut strip = Strip::default();
        let mut window = |columns: Range<usize>, pixel: usize| -> Vec<f32> {
            let block = Block { x: &x, size: [2, 4], row: 0, columns };
            let rows = strip.rows(&taps, &block).to_vec();
            // SAFETY: the pixel is one of the block's, whose windows the strip or `x` holds.
            let element = |row: &RowOfTaps, at| unsafe { *row.first.add(pixel * row.step + at) };
            rows.iter().flat_map(|row| (0..3).map(move |at| element(row, at))).collect()
        };
        assert_eq!(window(0..4, 0), [0.0, 1.0, 2.0, 0.0, 5.0, 6.0]);
        assert_eq!(window(0..4, 3), [3.0, 4.0, 0.0, 7.0, 8.0, 0.0]);
        assert_eq!(window(1..3, 1), [2.0, 3.0, 4.0, 6.0, 7.0, 8.0]);
    }
}
