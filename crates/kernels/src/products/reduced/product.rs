//! The product with reduced weights: which instructions make its sums over k, and what is done with them.

use std::ops::Range;

use super::matrix::ReducedMatrix;
use super::operand::{Fill, Operand};
use super::vectors::{LANES_MAX, VECTORS_MAX, WidenedSums};
use crate::packing::lines::LINE_LEN;
use crate::packing::panel_matrix::PanelRow;
use crate::packing::reduced::{Format, Instructions};
use crate::products::panel_product::ProductRow;
use crate::simd::operations::{Simd, SimdOp, prefetch};

/// The [product](crate::products::weights::Product) with reduced weights; its contract holds.
pub(crate) struct ReducedProduct<'a> {
    pub(crate) matrix: &'a ReducedMatrix,
    pub(crate) panels: Range<usize>,
    pub(crate) rows: &'a [ProductRow],
    pub(crate) start_stride: usize,
    pub(crate) sums_stride: usize,
    pub(crate) last_start: Option<&'a PanelRow>,
}

impl ReducedProduct<'_> {
    /// Computes the product. `operand` holds what was made of the rows' inputs for other panels, or is
    /// empty and filled here.
    ///
    /// # Safety
    /// The matrix was packed for `simd` with `VECTORS` vectors a panel and has the product's panels. For
    /// each panel and row, `matrix.inputs` elements of the input and `VECTORS * LANES` elements of the start
    /// are readable, and as many of the sums are writable. Until this returns nobody else accesses the sums,
    /// nobody writes inputs or starts, and no sums overlap an input, other sums, or a start other than their own. `operand` is empty or was filled from
    /// the same rows' inputs for the same matrix.
    #[inline(always)]
    pub(crate) unsafe fn multiply<S: Simd, const VECTORS: usize>(
        &self,
        simd: S,
        operand: &mut Operand,
    ) {
        let (matrix, product) = (self.matrix, self);
        if operand.is_empty() {
            simd.vectorize(Fill { matrix, rows: product.rows, operand });
        }
        let (operand, rows) = (&*operand, product.rows.len());
        let combine = |index: usize, first: usize, count: usize, sums: *const u32| {
            simd.vectorize(Combine::<VECTORS> {
                product,
                operand,
                index,
                rows: first..first + count,
                sums,
            });
        };
        #[cfg(target_arch = "x86_64")]
        if let Instructions::Tiles(tiles) = matrix.reduced.instructions {
            let panels = product.panels.clone();
            // SAFETY: the matrix has the panels; the operand was filled with the product's rows.
            return unsafe { tiles.sums::<VECTORS>(matrix, panels, operand, rows, combine) };
        }
        for (index, panel) in product.panels.clone().enumerate() {
            let combine = |row, count, sums| combine(index, row, count, sums);
            // SAFETY: the matrix has the panel; the operand was filled with the product's rows.
            unsafe {
                match matrix.reduced.instructions {
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx2(dot) => {
                        let (first, groups) = (matrix.panel(panel), matrix.groups);
                        dot.sums::<VECTORS, 1>(first, groups, operand, rows, combine);
                    }
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx2Words(dot) => {
                        let (first, groups) = (matrix.panel(panel), matrix.groups);
                        dot.sums::<VECTORS, 1>(first, groups, operand, rows, combine);
                    }
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx512Bf16(dot) => {
                        let (first, groups) = (matrix.panel(panel), matrix.groups);
                        dot.sums::<VECTORS, 1>(first, groups, operand, rows, combine);
                    }
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Avx512Vnni(dot) => {
                        let (first, groups) = (matrix.panel(panel), matrix.groups);
                        dot.sums::<VECTORS, 1>(first, groups, operand, rows, combine);
                    }
                    #[cfg(target_arch = "x86_64")]
                    Instructions::Tiles(_) => unreachable!("not by panels"),
                    Instructions::Widened => {
                        simd.vectorize(WidenedSums::<_, VECTORS> {
                            matrix,
                            panel,
                            operand,
                            rows,
                            combine,
                        });
                    }
                }
            }
        }
    }
}

/// Goes on from what rows' sums start from to those with the sums over k, which are at `sums`,
/// `[row][vector][lane]`, an f32 or an i32 each. The contract of [`ReducedProduct::multiply`] holds.
struct Combine<'a, const VECTORS: usize> {
    product: &'a ReducedProduct<'a>,
    operand: &'a Operand,
    /// The index of the panel among the product's.
    index: usize,
    rows: Range<usize>,
    sums: *const u32,
}

impl<const VECTORS: usize> SimdOp for Combine<'_, VECTORS> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { product, operand, index, rows, mut sums } = self;
        let matrix = product.matrix;
        let panel = product.panels.start + index;
        let of_panel =
            |row: &Option<PanelRow>| row.as_ref().map_or(std::ptr::null(), |row| row.panel(panel));
        let (scales, column_sums) = (of_panel(&matrix.scales), of_panel(&matrix.column_sums));
        let offsets = matrix.offsets.as_ref().map(|row| row.panel(panel));
        // SAFETY: the contract of `Product::multiply`; `sums` has these rows, `scales`, `column_sums` and `offsets`
        // of bytes are rows of the panel.
        unsafe {
            let mut floats = [0.0; VECTORS_MAX * LANES_MAX];
            for row in rows {
                let of_row = product.rows.get_unchecked(row);
                let start = of_row.start.add(index * product.start_stride);
                let to = of_row.sums.add(index * product.sums_stride);
                for line in (0..VECTORS * S::LANES).step_by(LINE_LEN) {
                    prefetch(start.wrapping_add(product.start_stride + line));
                    prefetch(to.wrapping_add(product.sums_stride + line));
                }
                let (scale, zero_point, row_sum) = match matrix.reduced.format {
                    Format::Bf16 => (0.0, 0, 0),
                    Format::Int8 => (operand.scale(row), operand.zero_point(row), operand.sum(row)),
                };
                if matrix.reduced.format == Format::Int8 {
                    // All columns in one loop: one over a single vector would be unrolled and not become vector instructions.
                    let floats = &mut floats[..VECTORS * S::LANES];
                    // The sum of the numbers that bytes stand for fits 32 bits.
                    let sum = |at: usize| {
                        let of_zero = zero_point.wrapping_mul(*column_sums.add(at).cast::<i32>());
                        (*sums.add(at).cast::<i32>()).wrapping_sub(of_zero)
                    };
                    match offsets {
                        None => {
                            for (at, float) in floats.iter_mut().enumerate() {
                                *float = sum(at) as f32;
                            }
                        }
                        Some(offsets) => {
                            for (at, float) in floats.iter_mut().enumerate() {
                                let offset = *offsets.add(at).cast::<i32>();
                                *float = sum(at).wrapping_add(row_sum.wrapping_mul(offset)) as f32;
                            }
                        }
                    }
                }
                for vector in 0..VECTORS {
                    let at = vector * S::LANES;
                    let start = match product.last_start {
                        Some(last) if vector + 1 == VECTORS => simd.load(last.panel(panel)),
                        _ => simd.load(start.add(at)),
                    };
                    let sum = match matrix.reduced.format {
                        Format::Bf16 => simd.add(start, simd.load(sums.add(at).cast())),
                        Format::Int8 => {
                            let scale = simd.mul(simd.splat(scale), simd.load(scales.add(at)));
                            simd.mul_add(simd.load(floats.as_ptr().add(at)), scale, start)
                        }
                    };
                    simd.store(to.add(at), sum);
                }
                sums = sums.add(VECTORS * S::LANES);
            }
        }
    }
}
