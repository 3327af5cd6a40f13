//! What LSTM, GRU and RNN have in common: a step over rows, and the projection of its inputs.
//!
//! A step's sums start from the bias, take in x, then h. The part up to x depends on nothing but
//! x, so it may be computed at another time, for many steps at once, and kept
//! ([`Recurrence::project`]); the step then starts from there ([`XPart::Projected`]), row by row
//! as it comes. Sums rest in memory as the f32 that they are, so projecting ahead changes no bit.
//!
//! Work is divided by *panels*, pieces of the hidden units. Panels of one phase need nothing from
//! each other, so threads may take some each; before the next phase, or the next step, they meet.

use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::cells::finish::{Place, load_sums};
use crate::packing::panel_matrix::{Columns, PanelRow};
use crate::packing::target::Target;
use crate::products::panel_product::{ProductRow, ROWS_MAX};
use crate::products::reduced::Operand;
use crate::products::tiling::Tilings;
use crate::products::weights::{Product, Weights, for_each_piece};
use crate::simd::{Simd, SimdOp};
use crate::{Isa, KernelError};

/// Where one row of a batch lies. Pointers, since rows lie in slots and request buffers, and since
/// threads write disjoint units of one row.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct StepRow {
    /// The input, `[input]`, or its projection, `[projected_len]`.
    pub x: *const f32,
    /// Which of them.
    pub x_part: XPart,
    /// The hidden state before the step, `[hidden]`.
    pub h_in: *const f32,
    /// The hidden state after the step, `[hidden]`. May not overlap any row's `h_in`.
    pub h_out: *mut f32,
    /// The cell state of an LSTM, updated in place, or room for a step's own use:
    /// [`c_len`](Recurrence::c_len) elements.
    pub c: *mut f32,
    /// Null, or where the hidden state after the step is written once more, `[hidden]`.
    pub y: *mut f32,
}

// SAFETY: a row is five addresses. Nothing can be done with them but in unsafe code, whose
// contract (`Recurrence::step`) says what threads may do at once.
unsafe impl Send for StepRow {}
// SAFETY: as for `Send`.
unsafe impl Sync for StepRow {}

/// A row to project.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ProjectionRow {
    /// The input, `[input]`.
    pub x: *const f32,
    /// Where its projection goes, `[projected_len]`.
    pub projected: *mut f32,
}

// SAFETY: a row is two addresses, as for `StepRow`.
unsafe impl Send for ProjectionRow {}
// SAFETY: as for `Send`.
unsafe impl Sync for ProjectionRow {}

/// What an input of a row points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XPart {
    /// The input itself.
    Given,
    /// What [`Recurrence::project`], or its like for other cells, made of it.
    Projected,
}

/// A packed recurrent cell.
///
/// The pre-activation of a unit is `b`, then `+ w[k] x[k]` for ascending k, then `+ r[k] h[k]` for
/// ascending k, one fused multiply-add each. States whose magnitude is subnormal are stored as 0.
pub trait Recurrence: Send + Sync + Debug {
    /// The instruction set that the weights were packed for.
    fn isa(&self) -> Isa;

    /// Elements of a row of x.
    fn input_size(&self) -> usize;

    /// Elements of a row of h.
    fn hidden_size(&self) -> usize;

    /// Bytes of packed weights.
    fn bytes(&self) -> usize;

    /// Multiply-adds of the recurrent part of a step, a row.
    fn step_macs(&self) -> usize;

    /// Multiply-adds of a row's projection.
    fn projection_macs(&self) -> usize;

    /// Panels that a call should have at least, if there are so many: where weights are not f32, each
    /// call converts its rows' inputs.
    fn panels_a_call(&self) -> usize;

    /// Runs products by these tilings from now on, where there is a choice: weights of f32. Steps that
    /// run meanwhile take either.
    fn set_tilings(&self, tilings: &Tilings);

    /// Phases of a step, at least 1. All panels of a phase are done before the next begins.
    fn phases(&self) -> usize {
        1
    }

    /// Elements of a row's `c`. An LSTM's is a state of `hidden` elements; that of other cells, if
    /// any, is room that the phases of a step pass on to each other, of no meaning between steps.
    fn c_len(&self) -> usize {
        0
    }

    /// How many panels a phase of a step has.
    fn panels(&self, phase: usize) -> usize;

    /// How many panels a projection has.
    fn projection_panels(&self) -> usize;

    /// Elements of a projected row.
    fn projected_len(&self) -> usize;

    /// Projects rows of x: the given panels of them.
    ///
    /// # Panics
    /// If `panels` is not within [`Self::projection_panels`].
    ///
    /// # Safety
    /// For each row `x` is readable and `projected` is writable and aligned as f32, with the
    /// lengths that [`ProjectionRow`] gives. The given panels of `projected` are accessed by
    /// nobody else.
    unsafe fn project(&self, rows: &[ProjectionRow], panels: Range<usize>);

    /// Runs the given panels of one phase of a step.
    ///
    /// # Panics
    /// If `panels` is not within [`Self::panels`] of the phase.
    ///
    /// # Safety
    /// For each row:
    /// - `x` and `h_in` are readable, `h_out`, `c` and `y` (unless null)
    ///   are writable, with the lengths that [`StepRow`] gives, aligned as f32; `c` is initialised
    ///   where it is a state, and `x` where it is projected, in all panels.
    /// - Nobody writes `x` or `h_in` meanwhile. The units of `panels` in the others are accessed
    ///   by nobody else: no other row of this step, no other thread, and no two of the row's own
    ///   pointers overlap there.
    /// - A phase other than the first comes after all panels of the one before, for the same row.
    ///
    /// Units of other panels are not touched in what is written, so threads may run other panels
    /// of the same rows at the same time. No `h_out` or `y` may overlap an `h_in` or `x`, in all
    /// their elements: each panel reads all of `h_in`.
    unsafe fn step(&self, phase: usize, rows: &[StepRow], panels: Range<usize>);
}

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

/// Asserts that `panels` lie within `count`.
pub(crate) fn check_panels(panels: &Range<usize>, count: usize) {
    assert!(panels.start <= panels.end && panels.end <= count, "panels {panels:?} of {count}");
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

/// One step over dense slices, in this thread: for tests and benchmarks.
///
/// `x` is `[batch, input]`; `h` before and `h_out` after the step are `[batch, hidden]`; `c`,
/// updated in place, is `[batch, c_len]`.
///
/// # Errors
/// [`KernelError::Length`] for a slice of another length.
pub fn step_dense(
    cell: &dyn Recurrence,
    batch: usize,
    x: &[f32],
    h: &[f32],
    h_out: &mut [f32],
    c: &mut [f32],
) -> Result<(), KernelError> {
    let (input_size, hidden_size) = (cell.input_size(), cell.hidden_size());
    let len = |size: usize| {
        size.checked_mul(batch).ok_or(KernelError::TooLarge { input_size, hidden_size, batch })
    };
    let (x_len, h_len, c_len) = (len(input_size)?, len(hidden_size)?, len(cell.c_len())?);
    crate::packing::panel_matrix::check_len("x", x, x_len)?;
    crate::packing::panel_matrix::check_len("h", h, h_len)?;
    crate::packing::panel_matrix::check_len("h_out", h_out, h_len)?;
    crate::packing::panel_matrix::check_len("c", c, c_len)?;
    let (x, h) = (x.as_ptr(), h.as_ptr());
    let (h_out, c) = (h_out.as_mut_ptr(), c.as_mut_ptr());
    let row = |row: usize| {
        let (at_x, at_h) = (row * input_size, row * hidden_size);
        // SAFETY: `row < batch`, and the slices have `batch` rows.
        unsafe {
            StepRow {
                x: x.add(at_x),
                x_part: XPart::Given,
                h_in: h.add(at_h),
                h_out: h_out.add(at_h),
                c: c.add(row * cell.c_len()),
                y: std::ptr::null_mut(),
            }
        }
    };
    let rows: Vec<StepRow> = (0..batch).map(row).collect();
    for phase in 0..cell.phases() {
        // SAFETY: the slices have `batch` rows of the sizes that a step reads and writes; the
        // borrows keep others away, and rows of one slice do not overlap.
        unsafe { cell.step(phase, &rows, 0..cell.panels(phase)) };
    }
    Ok(())
}

/// The columns of the panels of a cell's gates.
pub(crate) fn columns(target: Target, units: usize, gates: Range<usize>, groups: usize) -> Columns {
    Columns { lanes: target.lanes(), units, gates, groups }
}
