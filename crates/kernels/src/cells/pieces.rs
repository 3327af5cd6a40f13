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

/// The projection of rows by one part of a cell. Whoever runs it holds the contract of
/// [`Recurrence::project`](super::recurrence::Recurrence::project) for `rows` and `panels`.
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
                // SAFETY: the contract of `project`; operands are those of the piece's rows.
                unsafe { project_piece::<S, VECTORS>(simd, part, panels, rows, skip, operand) }
            },
        );
    }
}

/// Projects a piece of rows to where their sums stay. Element `skip` of a projected row is the
/// first of panel 0.
///
/// # Safety
/// - The part was packed for `simd` with `VECTORS` vectors a panel, and rows and panels are a piece
///   ([`for_each_piece`]).
/// - For each row, as many elements of `x` are readable as the part has inputs. The elements of `panels` in
///   `projected` are writable; until this returns nobody else accesses them, and they overlap no `x`.
/// - `operand` is empty or was filled from the same rows for the same part.
#[inline(always)]
unsafe fn project_piece<S: Simd, const VECTORS: usize>(
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
    let mut buffer = ProductRows::new();
    let rows = buffer.fill(rows, |row| {
        let sums = row.projected.wrapping_add(at);
        Some(ProductRow { input: row.x, start, sums })
    });
    let (weights, start_stride, sums_stride) = (&part.weights, row_len, row_len);
    let product = Product { weights, panels, rows, start_stride, sums_stride, last_start: None };
    // SAFETY: inputs and sums are those that the caller vouches for; starts are the part's own bias.
    unsafe { product.multiply::<S, VECTORS>(simd, operand) }
}

/// A buffer on the stack for the rows of a piece's product.
pub(crate) struct ProductRows([MaybeUninit<ProductRow>; ROWS_MAX]);

impl ProductRows {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; ROWS_MAX])
    }

    /// The product rows that `product_row` makes of the piece's rows, in their order; none for some.
    #[inline(always)]
    pub(crate) fn fill<R>(
        &mut self,
        rows: &[R],
        mut product_row: impl FnMut(&R) -> Option<ProductRow>,
    ) -> &[ProductRow] {
        let buffer = &mut self.0[..rows.len()];
        let mut count = 0;
        for row in rows.iter().filter_map(&mut product_row) {
            buffer[count].write(row);
            count += 1;
        }
        // SAFETY: the first `count` elements were written just now.
        unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast(), count) }
    }
}

/// A buffer on the stack for the sums of a piece: `[row][panel][vector][lane]`, of [`ROWS_MAX`] pairs of
/// a row and a panel.
pub(crate) struct SumsBuffer<S: Simd, const VECTORS: usize>(
    [MaybeUninit<[S::Vector; VECTORS]>; ROWS_MAX],
);

impl<S: Simd, const VECTORS: usize> SumsBuffer<S, VECTORS> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; ROWS_MAX])
    }

    /// The first element.
    #[inline(always)]
    pub(crate) fn sums(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }

    /// The sums of a piece with these panels, which lie here as long as the buffer.
    #[inline(always)]
    pub(crate) fn of_piece(&mut self, panels: &Range<usize>) -> Sums {
        let (first, row_len) = (self.sums(), VECTORS * S::LANES);
        Sums { first, first_panel: panels.start, panels: panels.len(), row_len }
    }
}

/// The sums of a piece, `[row][panel][vector][lane]`, in a [`SumsBuffer`].
#[derive(Clone, Copy)]
pub(crate) struct Sums {
    first: *mut f32,
    first_panel: usize,
    panels: usize,
    /// Elements of a row's sums of a panel.
    pub(crate) row_len: usize,
}

impl Sums {
    /// Returns the address of the sums of a panel's row.
    ///
    /// # Safety
    /// Panel and row are the piece's, and the buffer that the sums lie in is alive.
    #[inline(always)]
    pub(crate) unsafe fn of(self, panel: usize, row: usize) -> *mut f32 {
        let at = row * self.panels + panel - self.first_panel;
        // SAFETY: the buffer has sums for each pair of the piece's rows and panels.
        unsafe { self.first.add(at * self.row_len) }
    }
}

/// Sums a piece's rows over their inputs, from the bias of `part` on, to `sums`. Rows of which `input`
/// returns none are left out.
///
/// # Safety
/// - `part` was packed for `simd` with `VECTORS` vectors a panel; rows and `panels` are a piece
///   ([`for_each_piece`]), and `sums` those of the piece in a buffer that is alive.
/// - As many elements are readable at each input as the part has inputs, and nobody writes them until this
///   returns. Nobody else accesses the sums, and they overlap no input.
/// - `operand` is empty or was filled from the same inputs for the same part.
#[inline(always)]
pub(crate) unsafe fn sum_inputs<S: Simd, const VECTORS: usize, R>(
    simd: S,
    part: &InputPart,
    panels: Range<usize>,
    rows: &[R],
    input: impl Fn(&R) -> Option<*const f32>,
    sums: Sums,
    operand: &mut Operand,
) {
    let start = part.bias.panel(panels.start);
    let mut place = 0;
    let mut buffer = ProductRows::new();
    let rows = buffer.fill(rows, |row| {
        let sums = sums.first.wrapping_add(place * sums.row_len);
        place += panels.len();
        input(row).map(|input| ProductRow { input, start, sums })
    });
    if rows.is_empty() {
        return;
    }
    let (weights, stride) = (&part.weights, sums.row_len);
    let (start_stride, sums_stride) = (stride, stride);
    let product = Product { weights, panels, rows, start_stride, sums_stride, last_start: None };
    // SAFETY: inputs and sums are those that the caller vouches for; starts are the part's own bias.
    unsafe { product.multiply::<S, VECTORS>(simd, operand) }
}

/// A piece of a step: the sums of its rows, from the bias over x to those over h.
#[derive(Clone, Copy)]
pub(crate) struct StepPiece<'a> {
    pub(crate) rows: &'a [StepRow],
    pub(crate) first_panel: usize,
    /// The number of panels.
    pub(crate) panels: usize,
    /// The element of a projected row where panel 0 begins.
    pub(crate) skip: usize,
    /// The sums over x of rows whose x was not projected before, `[row][panel]`.
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
    /// Panel and row are the piece's. A projected `x` has the elements that
    /// [`StepRow`] gives, and there are sums for the whole piece at `x_sums`.
    #[inline(always)]
    pub(crate) unsafe fn x_sums_of(self, panel: usize, row: usize) -> *mut f32 {
        // SAFETY: the row is the piece's; the panel's sums are within the projected row, or within `x_sums`.
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
    /// The places are the piece's, `row_len` is `VECTORS * LANES`, and `sums` are initialised sums of the
    /// whole piece, `[row][panel][vector][lane]`, which nobody writes meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn load_sums<S: Simd, const VECTORS: usize, const N: usize>(
        self,
        simd: S,
        sums: *const f32,
        places: [Place; N],
    ) -> [[S::Vector; N]; VECTORS] {
        let address =
            |Place { panel, row }| sums.wrapping_add(self.place(panel, row) * self.row_len);
        // SAFETY: the addresses are those of the places' sums, `VECTORS` vectors each.
        unsafe { load_sums(simd, places, address) }
    }

    /// Sums over x, to `x_sums`, the rows whose x was not projected before.
    ///
    /// # Safety
    /// - `part` was packed for `simd` with `VECTORS` vectors a panel; `panels` are the piece's, and `row_len`
    ///   is `VECTORS * LANES`.
    /// - As many elements of each given `x` are readable as the part has inputs. Sums of the whole piece are
    ///   writable at `x_sums`; until this returns nobody else accesses them, and they overlap no `x`.
    /// - `operand` is empty or was filled from the same rows' x for the same part.
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
        let mut buffer = ProductRows::new();
        let rows = buffer.fill(self.rows, |row| {
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
        // SAFETY: inputs and sums are those that the caller vouches for; starts are the part's own bias.
        unsafe { product.multiply::<S, VECTORS>(simd, operand) }
    }

    /// Goes on from the sums over x to those over `input`, which go to `sums`, `[row][panel]`;
    /// those of the last vector from `last_start`, if that is given.
    ///
    /// # Safety
    /// - `weights` were packed for `simd` with `VECTORS` vectors a panel; `panels` are the piece's, and
    ///   `row_len` is `VECTORS * LANES`.
    /// - The sums over x of each row are complete, at `x_sums` or where x was projected to, and as many
    ///   elements are readable at `input` as the weights have inputs. Nobody writes either until this
    ///   returns.
    /// - Sums of the whole piece are writable at `sums`, which may be `x_sums`; nobody else accesses them, and
    ///   they overlap no input.
    /// - `operand` is empty or was filled from the same inputs for the same weights.
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
        let mut buffer = ProductRows::new();
        let rows = buffer.fill(self.rows, |row| {
            // SAFETY: the first panel and the row are the piece's, whose sums over x are complete.
            let start = unsafe { self.x_sums_of(self.first_panel, row_index) };
            let sums = sums.wrapping_add(row_index * self.panels * self.row_len);
            row_index += 1;
            Some(ProductRow { input: input(row), start, sums })
        });
        let (start_stride, sums_stride) = (self.row_len, self.row_len);
        let product = Product { weights, panels, rows, start_stride, sums_stride, last_start };
        // SAFETY: starts, inputs and sums are those that the caller vouches for.
        unsafe { product.multiply::<S, VECTORS>(simd, operand) }
    }
}

/// The sum of two optional biases of a column, each `[columns]`, the second behind the first.
pub(crate) fn bias_sum(b: Option<&[f32]>, columns: usize) -> impl Fn(usize) -> f32 + '_ {
    move |column| b.map_or(0.0, |b| b[column] + b[columns + column])
}
