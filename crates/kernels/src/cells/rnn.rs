//! The simple recurrent cell.
//!
//! ```text
//! h' = f(W x + R h + b)        f: tanh or relu
//! ```
//! (the ONNX RNN operator). A panel has four groups of units.

use std::fmt;
use std::ops::Range;

use super::activations::{tanh, value};
use super::finish::{Finish, Place, Units};
use super::pieces::{InputPart, ProjectRows, StepPiece, SumsBuffer, bias_sum};
use super::recurrence::{ProjectionRow, Recurrence, StepRow};
use crate::error::KernelError;
use crate::packing::checks::{check_len, check_panels, check_sizes};
use crate::packing::panel_matrix::{Columns, PanelRow};
use crate::packing::precision::Packing;
use crate::packing::target::Target;
use crate::products::tiling::Tilings;
use crate::products::weights::{Weights, for_each_piece};
use crate::simd::isa::Isa;
use crate::simd::operations::{Arithmetic, Simd, SimdOp};
use crate::simd::side_by_side::SideBySide;

/// Groups of units in a panel.
const GROUPS: usize = 4;

/// The activation of a simple recurrent cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RnnActivation {
    /// The hyperbolic tangent.
    Tanh,
    /// The positive part; of a NaN, a NaN.
    Relu,
}

/// The weights of a simple recurrent cell as the ONNX RNN operator has them, one direction.
#[derive(Debug, Clone, Copy)]
pub struct RnnParameters<'a> {
    /// Elements of a row of x; may be 0.
    pub input_size: usize,
    /// Elements of a row of h; at least 1.
    pub hidden_size: usize,
    /// Weights of x, `[hidden, input]`.
    pub w: &'a [f32],
    /// Weights of h, `[hidden, hidden]`.
    pub r: &'a [f32],
    /// Biases of x, then of h, `[2 * hidden]`; summed when packed. `None` is zero.
    pub b: Option<&'a [f32]>,
    /// f
    pub activation: RnnActivation,
}

/// A simple recurrent cell with its weights packed into panels of hidden units.
pub struct PackedRnn {
    target: Target,
    input_size: usize,
    hidden_size: usize,
    panels: usize,
    projected_len: usize,
    x: InputPart,
    h: Weights,
    activation: RnnActivation,
}

impl PackedRnn {
    /// Packs a copy of the weights for a target.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; an error that names the
    /// argument where sizes and lengths do not agree.
    pub fn new(
        packing: impl Into<Packing>,
        parameters: RnnParameters<'_>,
    ) -> Result<Self, KernelError> {
        Self::for_target(Target::new(packing.into())?, parameters)
    }

    pub(crate) fn for_target(
        target: Target,
        parameters: RnnParameters<'_>,
    ) -> Result<Self, KernelError> {
        let RnnParameters { input_size, hidden_size, w, r, b, activation } = parameters;
        check_sizes(target, 1, hidden_size, &[input_size, hidden_size])?;
        check_len("w", w, hidden_size * input_size)?;
        check_len("r", r, hidden_size * hidden_size)?;
        if let Some(b) = b {
            check_len("b", b, 2 * hidden_size)?;
        }
        let columns = Columns::new(target, hidden_size, 0..1, GROUPS);
        let bias = PanelRow::new(&columns, 0.0, bias_sum(b, hidden_size));
        Ok(Self {
            target,
            input_size,
            hidden_size,
            panels: columns.panels(),
            projected_len: columns.row_len(),
            x: InputPart { weights: Weights::new(target, &columns, w, input_size), bias },
            h: Weights::new(target, &columns, r, hidden_size),
            activation,
        })
    }
}

impl Recurrence for PackedRnn {
    fn isa(&self) -> Isa {
        self.target.isa
    }

    fn input_size(&self) -> usize {
        self.input_size
    }

    fn hidden_size(&self) -> usize {
        self.hidden_size
    }

    fn bytes(&self) -> usize {
        self.x.bytes() + self.h.bytes()
    }

    fn step_macs(&self) -> usize {
        self.hidden_size * self.hidden_size
    }

    fn projection_macs(&self) -> usize {
        self.hidden_size * self.input_size
    }

    fn set_tilings(&self, tilings: &Tilings) {
        self.x.weights.set_tilings(tilings);
        self.h.set_tilings(tilings);
    }

    fn panels_a_call(&self) -> usize {
        self.target.panels_a_call()
    }

    fn panels(&self, _: usize) -> usize {
        self.panels
    }

    fn projection_panels(&self) -> usize {
        self.panels
    }

    fn projected_len(&self) -> usize {
        self.projected_len
    }

    unsafe fn project(&self, rows: &[ProjectionRow], panels: Range<usize>) {
        check_panels(&panels, self.panels);
        self.target.unit.vectorize(ProjectRows::<GROUPS> { part: &self.x, rows, panels, skip: 0 });
    }

    unsafe fn step(&self, _: usize, rows: &[StepRow], panels: Range<usize>) {
        check_panels(&panels, self.panels);
        self.target.unit.vectorize(Step { rnn: self, rows, panels });
    }
}

/// The contract of [`Recurrence::step`] holds for it.
struct Step<'a> {
    rnn: &'a PackedRnn,
    rows: &'a [StepRow],
    panels: Range<usize>,
}

impl SimdOp for Step<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { rnn, rows, panels } = self;
        for_each_piece(
            rows.len(),
            panels,
            &rnn.x.weights,
            #[inline(always)]
            |panels, part, [of_x, of_h]| {
                let mut buffer = SumsBuffer::<S, GROUPS>::new();
                let (rows, sums, row_len) = (&rows[part], buffer.sums(), GROUPS * S::LANES);
                let (first_panel, count) = (panels.start, panels.len());
                let piece =
                    StepPiece { rows, first_panel, panels: count, skip: 0, x_sums: sums, row_len };
                let h = |row: &StepRow| row.h_in;
                // SAFETY: the contract of `step`, which the caller holds.
                unsafe {
                    piece.sum_x::<S, GROUPS>(simd, &rnn.x, panels.clone(), of_x);
                    piece.sum_h::<S, GROUPS>(simd, &rnn.h, panels.clone(), h, None, sums, of_h);
                    let finish = Activations { rnn, piece, sums };
                    finish.finish_all(simd, panels, rows.len());
                }
            },
        );
    }
}

/// Computes the new state from the sums.
#[derive(Clone, Copy)]
struct Activations<'a> {
    rnn: &'a PackedRnn,
    piece: StepPiece<'a>,
    sums: *const f32,
}

impl<S: Simd> Finish<S> for Activations<'_> {
    #[inline(always)]
    unsafe fn finish<const N: usize>(self, simd: S, places: [Place; N]) {
        let Self { rnn, piece, sums } = self;
        let each = SideBySide::<S, N>(simd);
        // SAFETY: the places are the piece's and their sums complete, so the rows and units are there to read
        // and to write.
        unsafe {
            let sums: [_; GROUPS] = piece.load_sums(simd, sums, places);
            for (group, sum) in sums.into_iter().enumerate() {
                let h = match rnn.activation {
                    RnnActivation::Tanh => value(each, tanh(each, sum)),
                    RnnActivation::Relu => each.max(each.splat(0.0), sum),
                };
                let h = each.flush_subnormal(h);
                for at in 0..N {
                    let Place { panel, row } = places[at];
                    let units = Units::of::<S>(rnn.hidden_size, panel, GROUPS, group);
                    units.store_h(simd, piece.rows.get_unchecked(row), h[at]);
                }
            }
        }
    }
}

impl fmt::Debug for PackedRnn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedRnn")
            .field("isa", &self.isa())
            .field("input_size", &self.input_size)
            .field("hidden_size", &self.hidden_size)
            .field("activation", &self.activation)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
