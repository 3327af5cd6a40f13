//! The weights of a product, in any precision, and the product with them.

use std::ops::Range;

use super::panel_product::{PanelProduct, ProductRow};
use super::reduced::matrix::{GivenBytes, ReducedMatrix};
use super::reduced::operand::Operand;
use super::reduced::product::ReducedProduct;
use super::tiling::{LiveTilings, ROWS_MAX, Tilings};
use crate::packing::panel_matrix::{Columns, PanelMatrix, PanelRow};
use crate::packing::target::Target;
use crate::simd::operations::Simd;

/// A matrix packed into panels for a target.
pub(crate) enum Weights {
    F32(PanelMatrix, LiveTilings),
    Reduced(ReducedMatrix),
}

impl Weights {
    /// Packs `source`, `[columns, inputs]`, whose length the caller has checked.
    pub(crate) fn new(target: Target, columns: &Columns, source: &[f32], inputs: usize) -> Self {
        match target.reduced {
            None => {
                let matrix = PanelMatrix::new(columns, source, inputs);
                Self::F32(matrix, LiveTilings::default())
            }
            Some(reduced) => Self::Reduced(ReducedMatrix::new(reduced, columns, source, inputs)),
        }
    }

    /// Packs `source`, `[columns, inputs]`, of elements that are bytes.
    pub(crate) fn of_bytes(
        target: Target,
        columns: &Columns,
        source: &[f32],
        inputs: usize,
        given: GivenBytes<'_>,
    ) -> Self {
        let reduced = target.of_bytes().reduced.expect("a target of bytes");
        Self::Reduced(ReducedMatrix::of_bytes(reduced, columns, source, inputs, Some(given)))
    }

    /// Runs products by `tilings` from now on, where there is a choice.
    pub(crate) fn set_tilings(&self, tilings: &Tilings) {
        if let Self::F32(_, live) = self {
            live.set(tilings);
        }
    }

    /// The most panels that a product of `rows` rows has. With weights of f32 one, or with one row two,
    /// which fill the registers. With others as many as the scratch buffer has pairs of a row and a panel
    /// for: units that multiply should not rest for long between two panels, as the tiles of AMX then take
    /// time to wake.
    #[inline(always)]
    pub(crate) fn panels_at_once(&self, rows: usize) -> usize {
        match self {
            Self::F32(..) if rows == 1 => 2,
            Self::F32(..) => 1,
            Self::Reduced(_) => (ROWS_MAX / rows).max(1),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::F32(matrix, _) => matrix.bytes(),
            Self::Reduced(matrix) => matrix.bytes(),
        }
    }
}

/// Divides `rows` rows and `panels` into pieces of at most [`ROWS_MAX`] rows and as many panels as
/// `weights` take at once, and calls `f` with the panels and the rows of each. `f` also receives the operands
/// of up to two products with these rows, which stay from panel to panel.
#[inline(always)]
pub(crate) fn for_each_piece(
    rows: usize,
    panels: Range<usize>,
    weights: &Weights,
    mut f: impl FnMut(Range<usize>, Range<usize>, &mut [Operand; 2]),
) {
    let mut operands = [Operand::new(), Operand::new()];
    let mut row = 0;
    while row < rows {
        // The rows stay in the second-level cache while all panels go over them.
        let end = (row + ROWS_MAX).min(rows);
        let at_once = weights.panels_at_once(end - row);
        let mut panel = panels.start;
        while panel < panels.end {
            let next = (panel + at_once).min(panels.end);
            f(panel..next, row..end, &mut operands);
            panel = next;
        }
        operands.iter_mut().for_each(Operand::clear);
        row = end;
    }
}

/// A product of some rows with as many panels as there may be at once (see
/// [`for_each_piece`]). Its sums go on from a start of each row.
pub(crate) struct Product<'a> {
    pub(crate) weights: &'a Weights,
    pub(crate) panels: Range<usize>,
    pub(crate) rows: &'a [ProductRow],
    /// Elements from a row's start in one panel to that in the next.
    pub(crate) start_stride: usize,
    /// Elements from a row's sums in one panel to those in the next.
    pub(crate) sums_stride: usize,
    /// The row of panels that the last vector of all rows' sums starts from, if not from their own start.
    pub(crate) last_start: Option<&'a PanelRow>,
}

impl Product<'_> {
    /// Computes the product. `operand` holds what was made of the rows' inputs for other panels, or is
    /// empty and filled here.
    ///
    /// # Safety
    /// - The weights were packed for `simd` with `VECTORS` vectors a panel, and have `panels`, at most
    ///   [`Weights::panels_at_once`] of them.
    /// - For each row, as many elements of `input` are readable as the weights have inputs, and one more where that is the row's
    ///   scale. For panel `i` of
    ///   `panels`, `VECTORS * LANES` elements are readable at `start + i * start_stride` and writable at
    ///   `sums + i * sums_stride`.
    /// - Until this returns nobody else accesses the sums, nobody writes inputs or starts, and no sums
    ///   overlap an input, other sums, or a start other than their own.
    /// - `operand` is empty or was filled from the same rows' inputs for the same weights.
    #[inline(always)]
    pub(crate) unsafe fn multiply<S: Simd, const VECTORS: usize>(
        self,
        simd: S,
        operand: &mut Operand,
    ) {
        match self.weights {
            // By way of `vectorize`, so that there is one copy of the tiles for each vector type
            // and number of vectors, not one for each cell.
            Weights::F32(matrix, tilings) => simd.vectorize(PanelProduct::<VECTORS> {
                tiling: tilings.of(self.rows.len(), matrix.bytes()),
                matrix,
                panels: self.panels,
                rows: self.rows,
                start_stride: self.start_stride,
                sums_stride: self.sums_stride,
                last_start: self.last_start,
            }),
            Weights::Reduced(matrix) => {
                let product = ReducedProduct {
                    matrix,
                    panels: self.panels,
                    rows: self.rows,
                    start_stride: self.start_stride,
                    sums_stride: self.sums_stride,
                    last_start: self.last_start,
                };
                // SAFETY: what the caller of this function promises of the weights, rows and operand.
                unsafe { product.multiply::<S, VECTORS>(simd, operand) }
            }
        }
    }
}
