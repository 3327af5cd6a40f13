//! The elements of a convolution's windows, as they lie in memory.
//!
//! Pixels are computed a block at a time, whatever rows and images they belong to. Windows that lie within their image are read where
//! they are, those over its edge from a copy with zeros around it ([`Strip`]); a row of taps above or below the image is one of zeros.

use std::ops::Range;

use crate::layers::window::Window;

/// Pixels of a block.
pub(super) const BLOCK_PIXELS: usize = 128;

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

/// Some pixels of y, and where the windows of these lie.
///
/// **Contract**, which whoever computes them relies on: all elements of the windows of `count` pixels are readable at `taps`, from
/// which the group's channels are `skip` elements further; the outputs that are asked for of each pixel are writable at its address in
/// `y`. Nobody else accesses the latter meanwhile, and nobody writes the former. The weights were packed for the
/// vectors of the unit that computes.
#[derive(Clone, Copy)]
pub(super) struct Pixels<'a> {
    /// Where each row of taps of each pixel begins, `[row of taps][pixel]`.
    pub(super) taps: &'a [*const f32],
    pub(super) skip: usize,
    pub(super) count: usize,
    /// Where the outputs of each pixel go, `[pixel]`.
    pub(super) y: &'a [*mut f32],
}

impl Pixels<'_> {
    /// Where a piece of the windows of `PIXELS` pixels lies, from pixel `first` on.
    ///
    /// # Safety
    /// The contract of [`Pixels`] holds, these are some of its pixels, and the piece is one of their windows.
    #[inline(always)]
    pub(super) unsafe fn piece<const PIXELS: usize>(
        &self,
        piece: &Piece,
        first: usize,
    ) -> [*const f32; PIXELS] {
        let skip = self.skip + piece.skip;
        std::array::from_fn(
            #[inline(always)]
            |pixel| {
                // SAFETY: `taps` has an address for each row of taps of each pixel, from which the piece is readable.
                unsafe { self.taps.get_unchecked(piece.row * self.count + first + pixel).add(skip) }
            },
        )
    }
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

    /// Elements along an image's row that the windows of `pixels` pixels of one output row reach, of all groups.
    fn line_len(&self, pixels: usize) -> usize {
        let along = self.windows[1];
        (pixels - 1) * along.stride * self.inputs + self.reach()
    }

    /// The most elements of a [`Strip`].
    pub(super) fn strip_len(&self) -> usize {
        let [down, along] = self.windows;
        // Each pixel may be of a row of its own. The addresses of its rows of taps, and of its outputs, are as long as two elements.
        let of_pixel = self.reach().max(along.stride * self.inputs);
        BLOCK_PIXELS * (down.kernel * of_pixel + 2 * down.kernel + 2) + self.reach()
    }
}

/// The images that windows lie in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    /// `[image, height, width, inputs]`.
    pub(super) x: &'a [f32],
    /// Height and width of an image.
    pub(super) size: [usize; 2],
    /// Rows and columns of the windows over an image.
    pub(super) windows: [usize; 2],
}

/// The rows of taps of a block of pixels: of windows over the edge of an image a copy, with zeros for what is outside of it.
#[derive(Default)]
pub(super) struct Strip {
    copy: Vec<f32>,
    zeros: Vec<f32>,
    taps: Vec<*const f32>,
}

/// Pixels of a block that belong to one output row.
struct Segment<'a> {
    /// The image, `[height, width, inputs]`.
    image: &'a [f32],
    row: usize,
    columns: Range<usize>,
}

impl<'a> Places<'a> {
    /// The segments of some pixels, counted over all images.
    fn segments(&self, pixels: Range<usize>, inputs: usize) -> impl Iterator<Item = Segment<'a>> {
        let Self { x, size: [height, width], windows: [rows, columns] } = *self;
        let image_len = height * width * inputs;
        let mut at = pixels.start;
        std::iter::from_fn(move || {
            let (line, column) = (at / columns, at % columns);
            let count = (pixels.end - at).min(columns - column);
            at += count;
            (count > 0).then(|| Segment {
                image: &x[line / rows * image_len..][..image_len],
                row: line % rows,
                columns: column..column + count,
            })
        })
    }
}

impl Segment<'_> {
    /// Whether no window reaches over the left or the right edge of the image, `width` pixels wide.
    fn is_inside(&self, along: Window, width: usize) -> bool {
        let reach = (along.kernel - 1) * along.dilation + 1;
        let end = (self.columns.end - 1) * along.stride + reach;
        self.columns.start * along.stride >= along.before && end <= width + along.before
    }
}

impl Strip {
    /// Where each row of taps of some pixels begins, `[row of taps][pixel]`, of the first group of channels. The pixels are counted over all
    /// images; `BLOCK_PIXELS` are the most.
    pub(super) fn taps(
        &mut self,
        taps: &Taps,
        places: &Places<'_>,
        pixels: Range<usize>,
    ) -> &[*const f32] {
        let [down, along] = taps.windows;
        let [height, width] = places.size;
        let (count, inputs) = (pixels.len(), taps.inputs);
        self.zeros.resize(taps.reach(), 0.0);
        self.copy.clear();
        self.copy.reserve_exact(taps.strip_len());
        for segment in places.segments(pixels.clone(), inputs) {
            if !segment.is_inside(along, width) {
                self.copy_lines(taps, &segment, places.size);
            }
        }
        self.taps.clear();
        self.taps.resize(down.kernel * count, self.zeros.as_ptr());
        let (mut copied, mut pixel) = (0, 0);
        for segment in places.segments(pixels, inputs) {
            let (inside, first_row) = down.inside(segment.row, height);
            let line_len = taps.line_len(segment.columns.len());
            let is_copied = !segment.is_inside(along, width);
            for tap in inside.clone() {
                let from = if is_copied {
                    self.copy[copied + (tap - inside.start) * line_len..].as_ptr()
                } else {
                    let row = first_row + (tap - inside.start) * down.dilation;
                    let column = segment.columns.start * along.stride - along.before;
                    segment.image[(row * width + column) * inputs..].as_ptr()
                };
                let to = &mut self.taps[tap * count + pixel..][..segment.columns.len()];
                for (at, to) in to.iter_mut().enumerate() {
                    *to = from.wrapping_add(at * along.stride * inputs);
                }
            }
            copied += if is_copied { inside.len() * line_len } else { 0 };
            pixel += segment.columns.len();
        }
        &self.taps
    }

    /// Copies the rows of taps of a segment that lie within the image, with zeros for what is left and right of it.
    fn copy_lines(&mut self, taps: &Taps, segment: &Segment<'_>, [height, width]: [usize; 2]) {
        let ([down, along], inputs) = (taps.windows, taps.inputs);
        let (inside, first_row) = down.inside(segment.row, height);
        let line_len = taps.line_len(segment.columns.len());
        let from = segment.columns.start * along.stride;
        let before = along.before.saturating_sub(from).min(line_len / inputs.max(1));
        let first = from.saturating_sub(along.before);
        let of_image = width.saturating_sub(first).min(line_len / inputs.max(1) - before);
        for tap in 0..inside.len() {
            let end = self.copy.len() + line_len;
            self.copy.resize(self.copy.len() + before * inputs, 0.0);
            if of_image > 0 {
                let row = first_row + tap * down.dilation;
                let line = &segment.image[(row * width + first) * inputs..][..of_image * inputs];
                self.copy.extend_from_slice(line);
            }
            self.copy.resize(end, 0.0);
        }
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
        // Two images of two rows; the second row of windows has a row of taps below the image.
        let x: Vec<f32> = (1..=16).map(|n| n as f32).collect();
        let down = Window { after: 1, ..taps.windows[0] };
        let taps = Taps { windows: [down, along], ..taps };
        let places = Places { x: &x, size: [2, 4], windows: [2, 4] };
        let mut strip = Strip::default();
        let mut window = |pixels: Range<usize>, pixel: usize| -> Vec<f32> {
            let count = pixels.len();
            let of_taps = strip.taps(&taps, &places, pixels).to_vec();
            // SAFETY: the pixel is one of the block's, whose windows the strip or `x` holds.
            let element = |row: usize, at| unsafe { *of_taps[row * count + pixel].add(at) };
            (0..2)
                .flat_map(|row| (0..3).map(move |at| (row, at)))
                .map(|(row, at)| element(row, at))
                .collect()
        };
        assert_eq!(window(0..4, 0), [0.0, 1.0, 2.0, 0.0, 5.0, 6.0]);
        assert_eq!(window(0..4, 3), [3.0, 4.0, 0.0, 7.0, 8.0, 0.0]);
        assert_eq!(window(1..3, 1), [2.0, 3.0, 4.0, 6.0, 7.0, 8.0]);
        assert_eq!(window(3..10, 1), [0.0, 5.0, 6.0, 0.0, 0.0, 0.0]);
        // An image without columns, between two of padding.
        let (windows, size) = ([2, 1], [2, 0]);
        let none = Places { x: &[], size, windows };
        let mut strip = Strip::default();
        let of_taps = strip.taps(&taps, &none, 0..2);
        // SAFETY: the strip holds zeros.
        assert!(of_taps.iter().all(|tap| unsafe { **tap } == 0.0));
        assert_eq!(window(3..10, 6), [9.0, 10.0, 11.0, 13.0, 14.0, 15.0]);
    }
}
