//! The leaf of a binary TreeLSTM, which reads a token's input (Tai, Socher and Manning, 2015, the N-ary
//! form with N = 2).
//!
//! ```text
//! i = sigmoid(W_i x + b_i)    o likewise    u = tanh(W_u x + b_u)    c = i u    h = o tanh(c)
//! ```
//! (the product i u is one fraction). A panel has one group of units, all its gates side by side: i, o, u.

use std::fmt;
use std::ops::Range;

use super::activations::{product, sigmoid, tanh};
use super::finish::{Finish, Place, Units, load_sums};
use super::pieces::{InputPart, Sums, SumsBuffer, sum_inputs};
use crate::error::KernelError;
use crate::packing::checks::{check_len, check_panels, check_sizes};
use crate::packing::panel_matrix::{Columns, PanelRow};
use crate::packing::precision::Packing;
use crate::packing::target::Target;
use crate::products::weights::{Weights, for_each_piece};
use crate::simd::isa::Isa;
use crate::simd::operations::{Arithmetic, Simd, SimdOp};
use crate::simd::side_by_side::SideBySide;

/// Gates: i, o, u.
const GATES: usize = 3;

/// The weights of a leaf, rows in gate order i, o, u.
#[derive(Debug, Clone, Copy)]
pub struct TreeLeafParameters<'a> {
    /// Elements of a row of x; may be 0.
    pub input_size: usize,
    /// Elements of a row of h and c; at least 1.
    pub hidden_size: usize,
    /// `[3 * hidden, input]`.
    pub w: &'a [f32],
    /// `[3 * hidden]`; `None` is zero.
    pub b: Option<&'a [f32]>,
}

/// A leaf to compute.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct TreeLeafRow {
    /// `[input]`.
    pub x: *const f32,
    /// `[hidden]`.
    pub h: *mut f32,
    /// `[hidden]`.
    pub c: *mut f32,
}

// SAFETY: a row is addresses. Nothing can be done with them but in unsafe code, whose contract
// (`PackedTreeLeaf::step`) says what threads may do at once.
unsafe impl Send for TreeLeafRow {}
// SAFETY: addresses can be read from several threads.
unsafe impl Sync for TreeLeafRow {}

/// A leaf with its weights packed into panels of hidden units.
pub struct PackedTreeLeaf {
    target: Target,
    input_size: usize,
    hidden_size: usize,
    panels: usize,
    x: InputPart,
}

impl PackedTreeLeaf {
    /// Packs a copy of the weights for a target.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; an error that names the
    /// argument where sizes and lengths do not agree.
    pub fn new(
        packing: impl Into<Packing>,
        parameters: TreeLeafParameters<'_>,
    ) -> Result<Self, KernelError> {
        Self::for_target(Target::new(packing.into())?, parameters)
    }

    pub(crate) fn for_target(
        target: Target,
        parameters: TreeLeafParameters<'_>,
    ) -> Result<Self, KernelError> {
        let TreeLeafParameters { input_size, hidden_size, w, b } = parameters;
        check_sizes(target, GATES, hidden_size, &[input_size])?;
        check_len("w", w, GATES * hidden_size * input_size)?;
        if let Some(b) = b {
            check_len("b", b, GATES * hidden_size)?;
        }
        let gates = Columns::new(target, hidden_size, 0..GATES, 1);
        let bias = PanelRow::new(&gates, 0.0, |column| b.map_or(0.0, |b| b[column]));
        let x = InputPart { weights: Weights::new(target, &gates, w, input_size), bias };
        Ok(Self { target, input_size, hidden_size, panels: gates.panels(), x })
    }

    /// The instruction set that the weights were packed for.
    pub fn isa(&self) -> Isa {
        self.target.isa
    }

    /// The number of panels that the units are divided into; threads may take some each.
    pub fn panels(&self) -> usize {
        self.panels
    }

    /// See [`Recurrence::panels_a_call`](crate::Recurrence::panels_a_call).
    pub fn panels_a_call(&self) -> usize {
        self.target.panels_a_call()
    }

    /// Bytes of packed weights.
    pub fn bytes(&self) -> usize {
        self.x.bytes()
    }

    /// Computes the given panels of leaves.
    ///
    /// # Panics
    /// If `panels` is not within [`Self::panels`].
    ///
    /// # Safety
    /// For each row `x` is readable, `h` and `c` are writable, with the lengths that
    /// [`TreeLeafRow`] gives, aligned as f32. The units of `panels` in `h` and `c` are accessed by
    /// nobody else, and no `h` or `c` overlaps an `x`. `x` is initialised, and nobody writes it until
    /// this returns.
    pub unsafe fn step(&self, rows: &[TreeLeafRow], panels: Range<usize>) {
        check_panels(&panels, self.panels);
        self.target.unit.vectorize(Step { leaf: self, rows, panels });
    }
}

/// The contract of [`PackedTreeLeaf::step`] holds for it.
struct Step<'a> {
    leaf: &'a PackedTreeLeaf,
    rows: &'a [TreeLeafRow],
    panels: Range<usize>,
}

impl SimdOp for Step<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { leaf, rows, panels } = self;
        for_each_piece(
            rows.len(),
            panels,
            &leaf.x.weights,
            #[inline(always)]
            |panels, part, [operand, _]| {
                let mut buffer = SumsBuffer::<S, GATES>::new();
                let rows = &rows[part];
                let (sums, count) = (buffer.of_piece(&panels), rows.len());
                // SAFETY: the contract of `step`, which the caller holds.
                unsafe {
                    let all = panels.clone();
                    sum_inputs::<S, GATES, _>(
                        simd,
                        &leaf.x,
                        all,
                        rows,
                        |row| Some(row.x),
                        sums,
                        operand,
                    );
                    let finish = Activations { hidden_size: leaf.hidden_size, rows, sums };
                    finish.finish_all(simd, panels, count);
                }
            },
        );
    }
}

#[derive(Clone, Copy)]
struct Activations<'a> {
    hidden_size: usize,
    rows: &'a [TreeLeafRow],
    sums: Sums,
}

impl<S: Simd> Finish<S> for Activations<'_> {
    #[inline(always)]
    unsafe fn finish<const N: usize>(self, simd: S, places: [Place; N]) {
        let Self { hidden_size, rows, sums } = self;
        let each = SideBySide::<S, N>(simd);
        // SAFETY: the places are the piece's and their sums complete, so the rows and units are there to read
        // and to write.
        unsafe {
            let [i, o, u] = load_sums(simd, places, |place| sums.of(place.panel, place.row));
            let c = each.flush_subnormal(product(each, sigmoid(each, i), tanh(each, u)));
            let h = product(each, sigmoid(each, o), tanh(each, c));
            let h = each.flush_subnormal(h);
            for at in 0..N {
                let units = Units::of::<S>(hidden_size, places[at].panel, 1, 0);
                let row = rows.get_unchecked(places[at].row);
                units.store(simd, row.c, c[at]);
                units.store(simd, row.h, h[at]);
            }
        }
    }
}

impl fmt::Debug for PackedTreeLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedTreeLeaf")
            .field("isa", &self.isa())
            .field("input_size", &self.input_size)
            .field("hidden_size", &self.hidden_size)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
