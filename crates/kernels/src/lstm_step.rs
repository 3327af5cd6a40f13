//! The fused LSTM step: gates, activations and state of a panel of hidden units, for any rows.
//!
//! ```text
//! i = sigmoid(W_i x + R_i h + b_i)        o, f likewise        g = tanh(W_c x + R_c h + b_c)
//! c' = f c + (i g)                        h' = o tanh(c')
//! ```
//! (the ONNX LSTM operator with its default activations; products in brackets are one fraction).
//!
//! **Weights.** A panel holds all that `LANES` hidden units need, the four gates side by side, so
//! that one pass over it ends with whole units:
//!
//! ```text
//!             |<- LANES ->|<- LANES ->|<- LANES ->|<- LANES ->|
//!   bias      | b_i ..... | b_o ..... | b_f ..... | b_c ..... |
//!   x, k = 0  | W_i[.][0] | W_o[.][0] | W_f[.][0] | W_c[.][0] |
//!   ...       |                                               |   input_size rows
//!   h, k = 0  | R_i[.][0] | R_o[.][0] | R_f[.][0] | R_c[.][0] |
//!   ...       |                                               |   hidden_size rows
//! ```
//! Units past `hidden_size` have zero weights, and their results are never stored.
//!
//! **Tile.** `rows x 4` vectors of pre-activations stay in registers (6 rows with 32 registers, 3
//! with 16) while k runs through the panel; beside them live one broadcast element a row and one
//! vector of weights. Rows are read where they lie.
//!
//! **Order.** Every pre-activation starts from its bias and takes one fused multiply-add for each
//! k of x, then for each k of h, in a chain of its own. Tiles only choose which chains run side by
//! side, so they change no bit.

use std::ops::Range;

use crate::activations::{product, sigmoid, tanh, value};
use crate::simd::{Simd, SimdOp};

/// Gates of a unit, in the order of the ONNX operator: i, o, f, c.
pub(crate) const GATES: usize = 4;

/// Where one row of a batch lies. Pointers, since rows lie in slots and request buffers, and since
/// threads write disjoint units of one row.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LstmRow {
    /// The input, `[input]`.
    pub x: *const f32,
    /// The hidden state before the step, `[hidden]`.
    pub h_in: *const f32,
    /// The hidden state after the step, `[hidden]`. May not overlap any row's `h_in`.
    pub h_out: *mut f32,
    /// The cell state, `[hidden]`, updated in place.
    pub c: *mut f32,
    /// Null, or where the hidden state after the step is written once more, `[hidden]`.
    pub y: *mut f32,
}

// SAFETY: a row is five addresses. Nothing can be done with them but in unsafe code, whose
// contract (`PackedLstm::step`) says what threads may do at once.
unsafe impl Send for LstmRow {}
// SAFETY: as for `Send`.
unsafe impl Sync for LstmRow {}

/// Elements of one panel: the bias row and one row of weights for each k.
pub(crate) fn panel_len(lanes: usize, input_size: usize, hidden_size: usize) -> usize {
    (1 + input_size + hidden_size) * GATES * lanes
}

/// One step for some rows and some panels, with valid pointers.
pub(crate) struct LstmStep<'a> {
    panels_data: &'a [f32],
    input_size: usize,
    hidden_size: usize,
    rows: &'a [LstmRow],
    panels: Range<usize>,
}

impl<'a> LstmStep<'a> {
    /// # Safety
    /// `panels_data` was packed for the vector unit that the step is run with, `panels` lie within
    /// it, and the contract of [`PackedLstm::step`](crate::PackedLstm::step) holds until the step
    /// has run.
    pub(crate) unsafe fn new(
        panels_data: &'a [f32],
        input_size: usize,
        hidden_size: usize,
        rows: &'a [LstmRow],
        panels: Range<usize>,
    ) -> Self {
        Self { panels_data, input_size, hidden_size, rows, panels }
    }
}

/// Rows of the tile: with four accumulators and one broadcast element a row, and one vector of
/// weights, 6 rows need 31 registers and 3 rows need 16.
const fn tile_rows_max<S: Simd>() -> usize {
    if S::REGISTERS >= 32 { 6 } else { 3 }
}

impl SimdOp for LstmStep<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let panel_len = panel_len(S::LANES, self.input_size, self.hidden_size);
        for panel in self.panels.clone() {
            let first_unit = panel * S::LANES;
            let tile = Tile {
                panel: self.panels_data[panel * panel_len..][..panel_len].as_ptr(),
                input_size: self.input_size,
                hidden_size: self.hidden_size,
                first_unit,
                units: S::LANES.min(self.hidden_size - first_unit),
            };
            let mut rest = self.rows;
            while !rest.is_empty() {
                // As few tiles as there can be, of nearly equal heights: a tile of one row costs
                // almost as much as a tile of two.
                let tiles = rest.len().div_ceil(tile_rows_max::<S>());
                let (rows, after) = rest.split_at(rest.len().div_ceil(tiles));
                // SAFETY: the contract of `new`, and the panel has `panel_len` elements.
                unsafe {
                    match rows.len() {
                        1 => tile.compute::<S, 1>(simd, rows),
                        2 => tile.compute::<S, 2>(simd, rows),
                        3 => tile.compute::<S, 3>(simd, rows),
                        4 if tile_rows_max::<S>() >= 4 => tile.compute::<S, 4>(simd, rows),
                        5 if tile_rows_max::<S>() >= 5 => tile.compute::<S, 5>(simd, rows),
                        6 if tile_rows_max::<S>() >= 6 => tile.compute::<S, 6>(simd, rows),
                        height => unreachable!("no tile of {height} rows"),
                    }
                }
                rest = after;
            }
        }
    }
}

/// What the tiles of one panel have in common.
#[derive(Clone, Copy)]
struct Tile {
    panel: *const f32,
    input_size: usize,
    hidden_size: usize,
    first_unit: usize,
    /// `LANES`, or fewer in the last panel.
    units: usize,
}

impl Tile {
    /// The step of the panel's units for `ROWS` rows.
    ///
    /// # Safety
    /// `panel` points to the panel's elements; the contract of [`LstmStep::new`] holds for `rows`.
    #[inline(always)]
    unsafe fn compute<S: Simd, const ROWS: usize>(self, simd: S, rows: &[LstmRow]) {
        let rows: &[LstmRow; ROWS] = rows.try_into().expect("the tile's height");
        let row_len = GATES * S::LANES;
        // SAFETY: the panel has 1 + input_size + hidden_size rows of `row_len` elements.
        let (x_weights, h_weights) = unsafe {
            let x_weights = self.panel.add(row_len);
            (x_weights, x_weights.add(self.input_size * row_len))
        };

        let mut sums = [[simd.splat(0.0); GATES]; ROWS];
        for gate in 0..GATES {
            // SAFETY: the panel's first row has `GATES` vectors.
            let bias = unsafe { simd.load(self.panel.add(gate * S::LANES)) };
            for row_sums in &mut sums {
                row_sums[gate] = bias;
            }
        }
        let x = rows.map(|row| row.x);
        let h = rows.map(|row| row.h_in);
        // SAFETY: the weights of x have `input_size` rows and those of h `hidden_size`, as many as
        // each row of x and h has elements.
        unsafe {
            sums = accumulate(simd, sums, x_weights, x, self.input_size);
            sums = accumulate(simd, sums, h_weights, h, self.hidden_size);
        }
        for (row, sums) in rows.iter().zip(sums) {
            // SAFETY: the caller's promise for `rows`; `units` of them lie at `first_unit`.
            unsafe { self.finish(simd, row, sums) }
        }
    }

    /// From pre-activations to the new state of one row.
    ///
    /// # Safety
    /// As for [`Self::compute`].
    #[inline(always)]
    unsafe fn finish<S: Simd>(self, simd: S, row: &LstmRow, sums: [S::Vector; GATES]) {
        let [i, o, f, g] = sums;
        let i_g = product(simd, sigmoid(simd, i), tanh(simd, g));
        let f = value(simd, sigmoid(simd, f));
        // SAFETY: `units` elements at `first_unit` lie within `hidden_size`, the length of each.
        unsafe {
            let c_at = row.c.add(self.first_unit);
            let c = simd.mul_add(f, self.load(simd, c_at), i_g);
            let h = product(simd, sigmoid(simd, o), tanh(simd, c));
            self.store(simd, c_at, c);
            self.store(simd, row.h_out.add(self.first_unit), h);
            if !row.y.is_null() {
                self.store(simd, row.y.add(self.first_unit), h);
            }
        }
    }

    /// # Safety
    /// `units` elements at `from` are readable.
    #[inline(always)]
    unsafe fn load<S: Simd>(self, simd: S, from: *const f32) -> S::Vector {
        // SAFETY: the caller's promise; `units` is at most `LANES`.
        unsafe {
            if self.units == S::LANES {
                simd.load(from)
            } else {
                simd.load_partial(from, self.units)
            }
        }
    }

    /// # Safety
    /// `units` elements at `to` are writable.
    #[inline(always)]
    unsafe fn store<S: Simd>(self, simd: S, to: *mut f32, vector: S::Vector) {
        // SAFETY: the caller's promise; `units` is at most `LANES`.
        unsafe {
            if self.units == S::LANES {
                simd.store(to, vector);
            } else {
                simd.store_partial(to, vector, self.units);
            }
        }
    }
}

/// `sums[row][gate] += weights[k][gate] * inputs[row][k]` for k = 0, 1, .. in this order, one fused
/// multiply-add each.
///
/// # Safety
/// `weights` points to `count` rows of `GATES * LANES` elements, each input to `count` elements.
#[inline(always)]
unsafe fn accumulate<S: Simd, const ROWS: usize>(
    simd: S,
    mut sums: [[S::Vector; GATES]; ROWS],
    mut weights: *const f32,
    inputs: [*const f32; ROWS],
    count: usize,
) -> [[S::Vector; GATES]; ROWS] {
    for k in 0..count {
        let mut elements = [simd.splat(0.0); ROWS];
        for (element, input) in elements.iter_mut().zip(inputs) {
            // SAFETY: `k < count`, the elements of each input.
            *element = unsafe { simd.splat(*input.add(k)) };
        }
        // One vector of weights at a time: with 16 registers there is room for one.
        for gate in 0..GATES {
            // SAFETY: `k < count`, the rows of weights, of `GATES` vectors each.
            let weight = unsafe { simd.load(weights.add(gate * S::LANES)) };
            for (sums, &element) in sums.iter_mut().zip(&elements) {
                sums[gate] = simd.mul_add(weight, element, sums[gate]);
            }
        }
        // SAFETY: at most one past the end of the rows of weights.
        weights = unsafe { weights.add(GATES * S::LANES) };
    }
    sums
}
