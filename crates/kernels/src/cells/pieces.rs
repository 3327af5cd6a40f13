//! The pieces that a step is computed in: at most [`ROWS_MAX`] rows and as many panels as their product
//! takes at once, with the scratch buffers on the stack that their sums lie in.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::finish::{Place, load_sums};
use super::recurrence::{ProjectionRow, StepRow, XPart};
use crate::packing::panel_matrix::PanelRow;
use crate::products::panel_product::ProductRow;
use crate::products::reduced::operand::Operand;
use crate::products::tiling::ROWS_MAX;
use crate::products::weights::{Product, Weights, for_each_piece};
use crate::simd::operations::{Simd, SimdOp};

/// The weights of x of one set of gates, with the bias that their sums start from.
pub(crate) struct InputPart {
    pub(crate) weights: Weights,
    pub(crate) bias: PanelRow,
}

impl InputPart {
    pub(crate) fn bytes(&self) -> usize {
        self.weights.bytes() + self.bias.bytes()
    }
}

/// The projection of rows by one part of a cell; the contract of [`Recurrence::project`] holds.
pub(crate) struct ProjectRows<'a, const VECTORS: usize> {
    pub(crate) part: &'a InputPart,
    pub(crate) rows: &'a [ProjectionRow],
    pub(crate) panels: Range<usize>,
    /// The element of a projected row where panel 0 begins.
    pub(crate) skip: usize,
}

impl<const VECTORS: usize> SimdOp for ProjectRows<'_, VECTORS> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { part, rows, panels, skip } = self;
        for_each_piece(
            rows.len(),
            panels,
            &part.weights,
            #[inline(always)]
            |panels, of_piece, [operand, _]| {
                let rows = &rows[of_piece];
                // SAFETY: the contract of `project`, which the caller holds.
                unsafe { project_ahead::<S, VECTORS>(simd, part, panels, rows, skip, operand) }
            },
        );
    }
}

/// Projects a piece of rows to where their sums stay. Element `skip` of a projected row is the
/// first of panel 0.
///
/// # Safety
/// As for [`Product::multiply`] and [`Recurrence::project`].
#[inline(always)]
unsafe fn project_ahead<S: Simd, const VECTORS: usize>(
    simd: S,
    part: &InputPart,
    panels: Range<usize>,
    rows: &[ProjectionRow],
    skip: usize,
    operand: &mut Operand,
) {
    let row_len = VECTORS * S::LANES;
    let start = part.bias.panel(panels.start);
    let at = skip + panels.start * row_len;
    let mut room = ProductRows::new();
    let rows = room.fill(rows, |row| {
        let sums = row.projected.wrapping_add(at);
        Some(ProductRow { input: row.x, start, sums })
    });
    let (weights, start_stride, sums_stride) = (&part.weights, row_len, row_len);
    let product = Product { weights, panels, rows, start_stride, sums_stride, last_start: None };
    // SAFETY: the caller's promises.
    unsafe { product.multiply::<S, VECTORS>(simd, operand) }
}

/// Room on the stack for the rows of a piece's product.
pub(crate) struct ProductRows([MaybeUninit<ProductRow>; ROWS_MAX]);

impl ProductRows {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; ROWS_MAX])
    }

    /// The product rows of the piece's rows, of those that have one, in their order.
    #[inline(always)]
    pub(crate) fn fill<R>(
        &mut self,
        rows: &[R],
        mut product_row: impl FnMut(&R) -> Option<ProductRow>,
    ) -> &[ProductRow] {
        let room = &mut self.0[..rows.len()];
        let mut count = 0;
        for row in rows.iter().filter_map(&mut product_row) {
            room[count].write(row);
            count += 1;
        }
        // SAFETY: so many were written just now.
        unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), count) }
    }
}

/// Room on the stack for the sums of a piece: `[row][panel][vector][lane]`, of [`ROWS_MAX`] pairs of
/// a row and a panel.
pub(crate) struct Room<S: Simd, const VECTORS: usize>(
    [MaybeUninit<[S::Vector; VECTORS]>; ROWS_MAX],
);

impl<S: Simd, const VECTORS: usize> Room<S, VECTORS> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; ROWS_MAX])
    }

    #[inline(always)]
    pub(crate) fn sums(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}

/// A piece of a step: the sums of its rows, from the bias over x to those over h.
#[derive(Clone, Copy)]
pub(crate) struct StepPiece<'a> {
    pub(crate) rows: &'a [StepRow],
    pub(crate) first_panel: usize,
    /// How many panels.
    pub(crate) panels: usize,
    /// The element of a projected row where panel 0 begins.
    pub(crate) skip: usize,
    /// The sums over x that were not projected ahead, `[row][panel]`.
    pub(crate) x_sums: *mut f32,
    /// Elements of a row's sums of a panel.
    pub(crate) row_len: usize,
}

impl StepPiece<'_> {
    /// The place of a panel's row among the sums of the piece.
    #[inline(always)]
    pub(crate) fn place(self, panel: usize, row: usize) -> usize {
        row * self.panels + panel - self.first_panel
    }

    /// The sums over x of a panel's row.
    ///
    /// # Safety
    /// Panel and row are the piece's.
    #[inline(always)]
    pub(crate) unsafe fn x_sums_of(self, panel: usize, row: usize) -> *mut f32 {
        // SAFETY: the caller's promise, and those of `Recurrence::step`.
        unsafe {
            let StepRow { x, x_part, .. } = *self.rows.get_unchecked(row);
            match x_part {
                XPart::Given => self.x_sums.add(self.place(panel, row) * self.row_len),
                XPart::Projected => x.cast_mut().add(self.skip + panel * self.row_len),
            }
        }
    }

    /// The sums at some places of those at `sums`, `[vector][place]`.
    ///
    /// # Safety
    /// The places are the piece's.
    #[inline(always)]
    pub(crate) unsafe fn load_sums<S: Simd, const VECTORS: usize, const N: usize>(
        self,
        simd: S,
        sums: *const f32,
        places: [Place; N],
    ) -> [[S::Vector; N]; VECTORS] {
        let address =
            |Place { panel, row }| sums.wrapping_add(self.place(panel, row) * self.row_len);
        // SAFETY: the caller's promise.
        unsafe { load_sums(simd, places, address) }
    }

    /// Sums over x, for rows where that was not done ahead.
    ///
    /// # Safety
    /// As for [`Product::multiply`] and [`Recurrence::step`]; there is room at `x_sums`.
    #[inline(always)]
    pub(crate) unsafe fn sum_x<S: Simd, const VECTORS: usize>(
        self,
        simd: S,
        part: &InputPart,
        panels: Range<usize>,
        operand: &mut Operand,
    ) {
        let start = part.bias.panel(panels.start);
        let mut place = 0;
        let mut room = ProductRows::new();
        let rows = room.fill(self.rows, |row| {
            let sums = self.x_sums.wrapping_add(place * self.row_len);
            place += self.panels;
            (row.x_part == XPart::Given).then_some(ProductRow { input: row.x, start, sums })
        });
        if rows.is_empty() {
            return;
        }
        let product = Product {
            weights: &part.weights,
            panels,
            rows,
            start_stride: self.row_len,
            sums_stride: self.row_len,
            last_start: None,
        };
        // SAFETY: the caller's promises.
        unsafe { product.multiply::<S, VECTORS>(simd, operand) }
    }

    /// Goes on from the sums over x to those over `input`, which go to `sums`, `[row][panel]`;
    /// those of the last vector from `last_start`, if that is given.
    ///
    /// # Safety
    /// As for [`Product::multiply`] and [`Recurrence::step`]; there is room at `sums`, which may be
    /// `x_sums`.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "each is one thing of a product")]
    pub(crate) unsafe fn sum_h<S: Simd, const VECTORS: usize>(
        self,
        simd: S,
        weights: &Weights,
        panels: Range<usize>,
        input: impl Fn(&StepRow) -> *const f32,
        last_start: Option<&PanelRow>,
        sums: *mut f32,
        operand: &mut Operand,
    ) {
        let mut row_index = 0;
        let mut room = ProductRows::new();
        let rows = room.fill(self.rows, |row| {
            // SAFETY: the first panel and the row are the piece's.
            let start = unsafe { self.x_sums_of(self.first_panel, row_index) };
            let sums = sums.wrapping_add(row_index * self.panels * self.row_len);
            row_index += 1;
            Some(ProductRow { input: input(row), start, sums })
        });
        let (start_stride, sums_stride) = (self.row_len, self.row_len);
        let product = Product { weights, panels, rows, start_stride, sums_stride, last_start };
        // SAFETY: the caller's promises.
        unsafe { product.multiply::<S, VECTORS>(simd, operand) }
    }
}

/// The sum of two optional biases of a column, each `[columns]`, the second behind the first.
pub(crate) fn bias_sum(b: Option<&[f32]>, columns: usize) -> impl Fn(usize) -> f32 + '_ {
    move |column| b.map_or(0.0, |b| b[column] + b[columns + column])
}
