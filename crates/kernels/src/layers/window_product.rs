//! Convolutions whose windows are read where they lie: a register tile of pixels and outputs.
//!
//! ```text
//! y[pixel][output] = b[output] + sum over k of window(pixel)[k] * w[k][output]
//! ```
//! **Order.** That of `convolution.rs`: the elements of a window in parts, of which the first starts from the bias; each part's sum
//! takes its elements in ascending order, one fused multiply-add each, and is added to those before. So the bits are those of
//! products of copied windows.

#![expect(clippy::needless_range_loop, reason = "one index into several arrays of registers")]

use std::mem::MaybeUninit;
use std::ops::Range;

use crate::layers::panels::{Panel, Panels};
use crate::layers::taps::{Piece, Pixels, Taps};
use crate::packing::lines::LINE_LEN;
use crate::products::panel_product::FETCH_AHEAD_BYTES;
use crate::products::register_tile::{
    PrefetchStream, UNROLL, Weights, accumulate, load_vectors, store_vectors,
};
use crate::simd::operations::{Simd, SimdOp};

/// The weights of one group of a convolution.
pub(super) struct WindowProduct {
    /// The elements of a window, part by part.
    parts: Vec<Vec<Piece>>,
    panels: Panels,
    /// Whether the weights do not stay in a near cache from one product to the next.
    is_far: bool,
}

impl WindowProduct {
    /// Packs the weights `[outputs, window element]` and the bias for vectors of `lanes` elements. `parts` divide a window.
    pub(super) fn new(
        lanes: usize,
        taps: &Taps,
        parts: &[Range<usize>],
        w: &[f32],
        b: Option<&[f32]>,
        outputs: usize,
    ) -> Self {
        let len = taps.len();
        let mut panels = Panels::new(lanes, [len, outputs], b);
        for (output, w) in w.chunks_exact(len.max(1)).enumerate() {
            panels.set_column(output, w);
        }
        Self::with_panels(taps, parts, panels)
    }

    /// The product of windows with a matrix `[window element, outputs]`.
    pub(super) fn with_panels(taps: &Taps, parts: &[Range<usize>], panels: Panels) -> Self {
        let parts = parts.iter().map(|part| taps.pieces(part.clone())).collect();
        let is_far = panels.bytes() > FETCH_AHEAD_BYTES;
        Self { parts, panels, is_far }
    }

    /// Notes that other matrices are read before this one is read again, `bytes` of weights in all: whether these stay in a near cache decides
    /// whether weights are fetched ahead.
    pub(super) fn set_turn(&mut self, bytes: usize) {
        self.is_far = bytes > FETCH_AHEAD_BYTES;
    }

    /// The number of its panels.
    pub(super) fn panel_count(&self) -> usize {
        self.panels.panels().len()
    }

    /// The panels that have these outputs, which begin and end with one.
    pub(super) fn panels_of(&self, outputs: &Range<usize>) -> Range<usize> {
        let before = |output: usize| {
            self.panels.panels().iter().take_while(|panel| panel.first < output).count()
        };
        before(outputs.start)..before(outputs.end)
    }

    /// The outputs of some panels.
    pub(super) fn outputs(&self, panels: Range<usize>) -> Range<usize> {
        let all = self.panels.panels();
        let first = |at: usize| all.get(at).map_or(self.panels.outputs(), |panel| panel.first);
        first(panels.start)..first(panels.end)
    }

    /// The elements of a window.
    pub(super) fn inputs(&self) -> usize {
        self.panels.inputs()
    }

    /// The matrix.
    pub(super) fn panels_mut(&mut self) -> &mut Panels {
        &mut self.panels
    }

    pub(super) fn bytes(&self) -> usize {
        self.panels.bytes()
    }
}

/// The products of some pixels' windows, by the contract of [`Pixels`].
pub(super) struct PixelProducts<'a> {
    pub(super) weights: &'a WindowProduct,
    /// The numbers of the panels that are asked for.
    pub(super) panels: Range<usize>,
    pub(super) at: Pixels<'a>,
}

impl SimdOp for PixelProducts<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for &panel in &self.weights.panels.panels()[self.panels.clone()] {
            match panel.vectors {
                1 => self.panel::<S, 1>(simd, panel),
                2 => self.panel::<S, 2>(simd, panel),
                _ => self.panel::<S, 3>(simd, panel),
            }
        }
    }
}

/// Pixels of a register tile: as many as leave registers for the operands.
const fn tile_pixels_max<S: Simd, const VECTORS: usize>() -> usize {
    let most = (S::REGISTERS - 1 - VECTORS) / VECTORS;
    if most < PIXELS_MAX { most } else { PIXELS_MAX }
}

/// Lines of weights that a tile fetches in [`UNROLL`] elements of a window. With the longest vectors a tile reads 12 of them, so that 6 tiles fetch
/// as many as each reads.
const FETCHES: usize = 2;

/// The most outputs of a panel: 3 of the longest vectors.
const PANEL_LEN_MAX: usize = 48;

/// The most pixels of a tile: each takes a register of addresses.
const PIXELS_MAX: usize = 8;

impl PixelProducts<'_> {
    #[inline(always)]
    fn panel<S: Simd, const VECTORS: usize>(&self, simd: S, panel: Panel) {
        let pixels_max = const { tile_pixels_max::<S, VECTORS>() };
        let tiles = self.at.count.div_ceil(pixels_max).max(1);
        // Part by part, so that its weights stay in a near cache while all tiles go over them.
        let mut skip = 0;
        for (number, pieces) in self.weights.parts.iter().enumerate() {
            let len: usize = pieces.iter().map(|piece| piece.len).sum();
            let part = Part { is_first: number == 0, pieces, skip };
            let mut stream = self.next_part::<S, VECTORS>(panel, skip..skip + len, tiles);
            for tile in 0..tiles {
                let first = self.at.count * tile / tiles;
                let height = self.at.count * (tile + 1) / tiles - first;
                // SAFETY: the pixels are some of those that the contract is about, `height` of them.
                unsafe {
                    match height {
                        0 => {}
                        1 => self.tile::<S, 1, VECTORS>(simd, panel, &part, first, &mut stream),
                        2 => self.tile::<S, 2, VECTORS>(simd, panel, &part, first, &mut stream),
                        3 => self.tile::<S, 3, VECTORS>(simd, panel, &part, first, &mut stream),
                        4 if pixels_max >= 4 => {
                            self.tile::<S, 4, VECTORS>(simd, panel, &part, first, &mut stream)
                        }
                        5 if pixels_max >= 5 => {
                            self.tile::<S, 5, VECTORS>(simd, panel, &part, first, &mut stream)
                        }
                        6 if pixels_max >= 6 => {
                            self.tile::<S, 6, VECTORS>(simd, panel, &part, first, &mut stream)
                        }
                        7 if pixels_max >= 7 => {
                            self.tile::<S, 7, VECTORS>(simd, panel, &part, first, &mut stream)
                        }
                        8 if pixels_max >= 8 => {
                            self.tile::<S, 8, VECTORS>(simd, panel, &part, first, &mut stream)
                        }
                        _ => unreachable!("no tile of {height} pixels"),
                    }
                }
            }
            skip += len;
        }
    }

    /// What `tiles` tiles over a part of the windows fetch: the weights of the part after it, or of the next panel. None if all weights
    /// stay in a near cache, or are read once anyway.
    #[inline(always)]
    fn next_part<S: Simd, const VECTORS: usize>(
        &self,
        panel: Panel,
        part: Range<usize>,
        tiles: usize,
    ) -> Option<PrefetchStream> {
        let width = VECTORS * S::LANES;
        let is_far = self.weights.is_far && tiles > 1;
        let fetches = (tiles * (part.len() / UNROLL) * FETCHES).max(1);
        let next = self.weights.panels.of(panel).0.as_ptr().wrapping_add(part.end * width);
        is_far.then(|| {
            PrefetchStream::new(next, (part.len() * width).div_ceil(fetches).max(LINE_LEN))
        })
    }

    /// `PIXELS` pixels from `first` on, over the outputs of a panel and a part of the windows.
    ///
    /// # Safety
    /// The contract of [`Pixels`] holds, these are some of its pixels, and the panel has `VECTORS` vectors. The parts before have
    /// been added.
    #[inline(always)]
    unsafe fn tile<S: Simd, const PIXELS: usize, const VECTORS: usize>(
        &self,
        simd: S,
        panel: Panel,
        part: &Part<'_>,
        first: usize,
        stream: &mut Option<PrefetchStream>,
    ) {
        let width = VECTORS * S::LANES;
        let (weights, bias) = self.weights.panels.of(panel);
        let count = (self.weights.panels.outputs() - panel.first).min(width);
        let first_output = self.weights.panels.panels()[self.panels.start].first;
        let mut sums = [[simd.splat(0.0); VECTORS]; PIXELS];
        // SAFETY: pieces lie within the windows of these pixels; the panel has a row of weights for each element of a window, and as
        // many outputs as the matrix has.
        unsafe {
            if part.is_first {
                sums = [load_vectors(simd, bias.as_ptr()); PIXELS];
            }
            let mut weights = weights.as_ptr().add(part.skip * width);
            match stream {
                Some(stream) => {
                    for piece in part.pieces {
                        let inputs = self.at.piece(piece, first);
                        let of_piece = Weights { first: weights, stride: width };
                        sums = accumulate::<S, PIXELS, VECTORS, FETCHES>(
                            simd, sums, of_piece, inputs, piece.len, stream,
                        );
                        weights = weights.add(piece.len * width);
                    }
                }
                None => {
                    for piece in part.pieces {
                        let inputs = self.at.piece(piece, first);
                        let of_piece = Weights { first: weights, stride: width };
                        let mut none = PrefetchStream::of_weights(of_piece);
                        sums = accumulate::<S, PIXELS, VECTORS, 0>(
                            simd, sums, of_piece, inputs, piece.len, &mut none,
                        );
                        weights = weights.add(piece.len * width);
                    }
                }
            }
            let y = |pixel: usize| {
                self.at.y.get_unchecked(first + pixel).add(panel.first - first_output)
            };
            match (count == width, part.is_first) {
                (true, true) => {
                    for pixel in 0..PIXELS {
                        store_vectors(simd, y(pixel), sums[pixel]);
                    }
                }
                (true, false) => {
                    for pixel in 0..PIXELS {
                        add_vectors(simd, y(pixel), sums[pixel]);
                    }
                }
                (false, is_first) => {
                    let mut elements = [MaybeUninit::<[f32; PANEL_LEN_MAX]>::uninit(); PIXELS];
                    for pixel in 0..PIXELS {
                        store_vectors(simd, elements[pixel].as_mut_ptr().cast(), sums[pixel]);
                    }
                    for (pixel, elements) in elements.iter().enumerate() {
                        write_some(y(pixel), elements.as_ptr().cast(), count, is_first);
                    }
                }
            }
        }
    }
}

/// Adds `VECTORS` vectors to those from `to` on.
///
/// # Safety
/// `VECTORS * LANES` elements at `to` are writable, and nobody else accesses them meanwhile.
#[inline(always)]
unsafe fn add_vectors<S: Simd, const VECTORS: usize>(
    simd: S,
    to: *mut f32,
    vectors: [S::Vector; VECTORS],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums: [S::Vector; VECTORS] = load_vectors(simd, to);
        for at in 0..VECTORS {
            sums[at] = simd.add(sums[at], vectors[at]);
        }
        store_vectors(simd, to, sums);
    }
}

/// Writes `count` elements to `to`, or adds them to what is there.
///
/// # Safety
/// As many elements are readable at `from` and writable at `to`, and nobody else accesses the latter meanwhile.
#[inline(always)]
unsafe fn write_some(to: *mut f32, from: *const f32, count: usize, is_first: bool) {
    for at in 0..count {
        // SAFETY: these elements are among those of the caller's promise.
        unsafe {
            let sum = *from.add(at);
            *to.add(at) = if is_first { sum } else { *to.add(at) + sum };
        }
    }
}

/// A part of the windows.
struct Part<'a> {
    is_first: bool,
    pieces: &'a [Piece],
    /// Elements of a window before it.
    skip: usize,
}
