//! Convolutions of few outputs: the elements of a window lie in the lanes of vectors, not the outputs.
//!
//! ```text
//! y[pixel][output] = b[output] + sum over k of window(pixel)[k] * w[output][k]
//! ```
//! **Order.** A sum has 16 parts on every instruction set, however long its vectors are: each piece of a window that lies side by
//! side in memory is dealt out to them element by element, and each takes one fused multiply-add an element. At the end the
//! parts are added in pairs, 8 apart, then 4, 2 and 1; then comes the bias. The factors may be bytes where so few products are added that the
//! sum is exact but for the last addition: it is that of products of bytes.

#![expect(clippy::needless_range_loop, reason = "one index into several arrays of registers")]

use crate::layers::sum_parts::{PARTS, total};
use crate::layers::taps::{Piece, Pixels, Taps};
use crate::packing::lines::Lines;
use crate::simd::operations::{Simd, SimdOp};

/// The weights of one group of a convolution.
pub(super) struct WindowDots {
    pieces: Vec<Piece>,
    /// `[output][piece][element]`, each piece filled up with zeros to whole [`PARTS`].
    weights: Lines,
    /// Elements of the weights of an output.
    step: usize,
    /// `[output]`.
    bias: Vec<f32>,
}

impl WindowDots {
    /// Packs the weights `[outputs, window element]` and the bias.
    pub(super) fn new(taps: &Taps, w: &[f32], b: Option<&[f32]>, outputs: usize) -> Self {
        let pieces = taps.pieces(0..taps.len());
        let step: usize = pieces.iter().map(|piece| piece.len.next_multiple_of(PARTS)).sum();
        let mut weights = Lines::zeros(step * outputs);
        for (output, w) in w.chunks_exact(taps.len().max(1)).enumerate() {
            let (mut from, mut to) = (0, output * step);
            for piece in &pieces {
                let of_piece = &w[from..][..piece.len];
                weights.as_mut_slice()[to..][..piece.len].copy_from_slice(of_piece);
                from += piece.len;
                to += piece.len.next_multiple_of(PARTS);
            }
        }
        // Never -0: the sign of a zero would tell how many lanes a vector has.
        let bias = b.map_or_else(|| vec![0.0; outputs], |b| b.iter().map(|b| b + 0.0).collect());
        Self { pieces, weights, step, bias }
    }

    /// Whether a convolution to so few outputs is faster with the elements of windows in vectors, by the number of vectors that
    /// both ways take. It is no matter of the instruction set: bits depend on it.
    pub(super) fn is_faster(taps: &Taps, outputs: usize) -> bool {
        Self::vectors(taps) * outputs < taps.len() * outputs.div_ceil(PARTS)
    }

    /// Whether a convolution of bytes to so few outputs has the sums that products of bytes have, exact and then rounded once, and is faster
    /// so. Products of bytes multiply four of them in a lane.
    pub(super) fn suits_bytes(taps: &Taps, outputs: usize) -> bool {
        const PRODUCT_MAX: usize = 255 * 255;
        // The last two sums, of every other element each, are whole numbers that f32 holds; their sum is rounded once.
        let pieces = taps.pieces(0..taps.len());
        let half: usize = pieces.iter().map(|piece| piece.len.div_ceil(2)).sum();
        let is_exact = half * PRODUCT_MAX <= 1 << f32::MANTISSA_DIGITS;
        is_exact && Self::vectors(taps) * outputs * 4 < taps.len() * outputs.div_ceil(PARTS)
    }

    /// The cost of an output's sum, in multiplications of a vector.
    fn vectors(taps: &Taps) -> usize {
        /// The cost of adding the parts of a sum.
        const ADDING: usize = 8;
        let pieces = taps.pieces(0..taps.len());
        let vectors: usize = pieces.iter().map(|piece| piece.len.div_ceil(PARTS)).sum();
        // A vector takes longer than one of a panel: each multiplication loads its weights.
        vectors * 3 / 2 + ADDING
    }

    pub(super) fn bytes(&self) -> usize {
        self.weights.bytes() + size_of_val(&self.bias[..])
    }
}

/// The dot products of some pixels' windows, by the contract of [`Pixels`].
pub(super) struct PixelDots<'a> {
    pub(super) weights: &'a WindowDots,
    pub(super) at: Pixels<'a>,
}

impl SimdOp for PixelDots<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // The vectors that hold the parts of a sum.
        match PARTS / S::LANES {
            0 | 1 => self.outputs::<S, 1>(simd),
            2 => self.outputs::<S, 2>(simd),
            _ => self.outputs::<S, PARTS>(simd),
        }
    }
}

impl PixelDots<'_> {
    #[inline(always)]
    fn outputs<S: Simd, const VECTORS: usize>(&self, simd: S) {
        let outputs = self.weights.bias.len();
        let mut output = 0;
        while output < outputs {
            // SAFETY: the contract of `Pixels`; there are as many outputs from `output` on.
            unsafe {
                match (outputs - output, VECTORS) {
                    (1, 1) => self.pixels::<S, VECTORS, 1, 8>(simd, output),
                    (2, 1) => self.pixels::<S, VECTORS, 2, 6>(simd, output),
                    (3, 1) => self.pixels::<S, VECTORS, 3, 4>(simd, output),
                    (_, 1) => self.pixels::<S, VECTORS, 4, 4>(simd, output),
                    (1, _) => self.pixels::<S, VECTORS, 1, 4>(simd, output),
                    (2, _) => self.pixels::<S, VECTORS, 2, 2>(simd, output),
                    (3, _) => self.pixels::<S, VECTORS, 3, 1>(simd, output),
                    _ => self.pixels::<S, VECTORS, 4, 1>(simd, output),
                }
            }
            output += 4;
        }
    }

    /// `OUTPUTS` outputs from `output` on of all pixels, `PIXELS` at a time.
    ///
    /// # Safety
    /// The contract of [`Pixels`] holds, and there are these outputs.
    #[inline(always)]
    unsafe fn pixels<S: Simd, const VECTORS: usize, const OUTPUTS: usize, const PIXELS: usize>(
        &self,
        simd: S,
        output: usize,
    ) {
        let mut pixel = 0;
        // SAFETY: the pixels are some of those of the contract.
        unsafe {
            while pixel + PIXELS <= self.at.count {
                self.dots::<S, VECTORS, OUTPUTS, PIXELS>(simd, output, pixel);
                pixel += PIXELS;
            }
            while pixel < self.at.count {
                self.dots::<S, VECTORS, OUTPUTS, 1>(simd, output, pixel);
                pixel += 1;
            }
        }
    }

    /// `OUTPUTS` outputs from `output` on of `PIXELS` pixels from `pixel` on.
    ///
    /// # Safety
    /// The contract of [`Pixels`] holds, and there are these outputs and pixels.
    #[inline(always)]
    unsafe fn dots<S: Simd, const VECTORS: usize, const OUTPUTS: usize, const PIXELS: usize>(
        &self,
        simd: S,
        output: usize,
        pixel: usize,
    ) {
        let mut sums = [[[simd.splat(0.0); VECTORS]; OUTPUTS]; PIXELS];
        let WindowDots { pieces, weights, step, bias } = self.weights;
        // SAFETY: pieces lie within the windows of these pixels, and each output has weights for them, filled up.
        unsafe {
            let mut w = weights.as_slice().as_ptr().add(output * step);
            for piece in pieces {
                let x: [_; PIXELS] = self.at.piece(piece, pixel);
                let whole = piece.len / PARTS * PARTS;
                for at in (0..whole).step_by(PARTS) {
                    for vector in 0..VECTORS {
                        let at = at + vector * S::LANES;
                        let mut elements = [simd.splat(0.0); PIXELS];
                        for pixel in 0..PIXELS {
                            elements[pixel] = simd.load(x[pixel].add(at));
                        }
                        sums = multiply(simd, sums, w.add(at), *step, elements, vector);
                    }
                }
                for vector in 0..VECTORS {
                    let at = whole + vector * S::LANES;
                    if at < piece.len {
                        let count = (piece.len - at).min(S::LANES);
                        let mut elements = [simd.splat(0.0); PIXELS];
                        for pixel in 0..PIXELS {
                            elements[pixel] = simd.load_partial(x[pixel].add(at), count);
                        }
                        sums = multiply(simd, sums, w.add(at), *step, elements, vector);
                    }
                }
                w = w.add(piece.len.next_multiple_of(PARTS));
            }
            for (number, sums) in sums.iter().enumerate() {
                let y = self.at.y.get_unchecked(pixel + number).add(output);
                for (at, sums) in sums.iter().enumerate() {
                    let mut parts = [0.0; PARTS];
                    for (vector, sum) in sums.iter().enumerate() {
                        simd.store(parts.as_mut_ptr().add(vector * S::LANES), *sum);
                    }
                    *y.add(at) = total(parts) + bias[output + at];
                }
            }
        }
    }
}

/// Adds the products of a vector of elements of each pixel with the weights of each output, `step` elements apart, to the sums.
///
/// # Safety
/// A vector of weights is readable at `w` for each output.
#[inline(always)]
unsafe fn multiply<S: Simd, const VECTORS: usize, const OUTPUTS: usize, const PIXELS: usize>(
    simd: S,
    mut sums: [[[S::Vector; VECTORS]; OUTPUTS]; PIXELS],
    w: *const f32,
    step: usize,
    elements: [S::Vector; PIXELS],
    vector: usize,
) -> [[[S::Vector; VECTORS]; OUTPUTS]; PIXELS] {
    for output in 0..OUTPUTS {
        // SAFETY: what this function's caller promises.
        let w = unsafe { simd.load(w.add(output * step)) };
        for pixel in 0..PIXELS {
            let sum = sums[pixel][output][vector];
            sums[pixel][output][vector] = simd.mul_add(w, elements[pixel], sum);
        }
    }
    sums
}
