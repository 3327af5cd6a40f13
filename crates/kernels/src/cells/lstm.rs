//! The LSTM cell.
//!
//! ```text
//! i = sigmoid(W_i x + R_i h + P_i c + b_i)      f likewise      g = tanh(W_c x + R_c h + b_c)
//! c' = f c + (i g)      o = sigmoid(W_o x + R_o h + P_o c' + b_o)      h' = o tanh(c')
//! ```
//! (the ONNX LSTM operator with its default activations; products in brackets are one fraction).
//! A panel has one group of units, the gates i, o, f, c side by side.

use std::fmt;
use std::ops::Range;

use super::activations::{product, sigmoid, tanh, value};
use super::finish::{Finish, Place, Units, load_sums};
use super::pieces::{InputPart, ProjectRows, StepPiece, SumsBuffer, bias_sum};
use super::recurrence::{ProjectionRow, Recurrence, StepRow};
use crate::error::KernelError;
use crate::packing::checks::{check_len, check_panels, check_sizes};
use crate::packing::panel_matrix::{Columns, PanelRow};
use crate::packing::precision::Packing;
use crate::packing::target::Target;
use crate::products::reduced::matrix::{GivenBytes, InputBytes};
use crate::products::tiling::Tilings;
use crate::products::weights::{Weights, for_each_piece};
use crate::simd::isa::Isa;
use crate::simd::operations::{Arithmetic, Simd, SimdOp};
use crate::simd::side_by_side::SideBySide;

/// Gates of a unit, in the order of the ONNX operator: i, o, f, c.
const GATES: usize = 4;

/// Gates that see the cell state through a peephole: i, o, f.
const PEEPHOLES: usize = 3;

/// The weights of an LSTM cell as the ONNX LSTM operator has them, one direction. The rows of
/// `w`, `r` and both halves of `b` are in gate order i, o, f, c.
#[derive(Debug, Clone, Copy)]
pub struct LstmParameters<'a> {
    /// Elements of a row of x; may be 0.
    pub input_size: usize,
    /// Elements of a row of h and c; at least 1.
    pub hidden_size: usize,
    /// Weights of x, `[4 * hidden, input]`.
    pub w: &'a [f32],
    /// Weights of h, `[4 * hidden, hidden]`.
    pub r: &'a [f32],
    /// Biases of x, then of h, `[8 * hidden]`; summed when packed. `None` is zero.
    pub b: Option<&'a [f32]>,
    /// Weights of the peepholes in gate order i, o, f, `[3 * hidden]`. `None` is zero.
    pub p: Option<&'a [f32]>,
    /// Given if the weights are bytes (`DynamicQuantizeLSTM` of ONNX Runtime).
    pub bytes: Option<LstmBytes<'a>>,
}

/// The scales of an LSTM whose weights are bytes: each row is whole numbers from -255 to 255, at most 255 apart, times the row's
/// scale. The sums of their products are exact.
#[derive(Debug, Clone, Copy)]
pub struct LstmBytes<'a> {
    /// Scales of `r`, `[4 * hidden]`. h is made whole numbers at each step too, as the ONNX operator `DynamicQuantizeLinear`
    /// makes them of one row.
    pub r_scale: &'a [f32],
    /// Scales of `w`, `[4 * hidden]`, if its elements are bytes as well, but for the last of each row, which counts as 0. Then x is
    /// whole numbers from -255 to 255, at most 255 apart, and last the value that 1 of them stands for.
    pub w_scale: Option<&'a [f32]>,
}

/// An LSTM cell with its weights packed into panels of hidden units.
pub struct PackedLstm {
    target: Target,
    input_size: usize,
    hidden_size: usize,
    panels: usize,
    projected_len: usize,
    x: InputPart,
    h: Weights,
    has_bytes: bool,
    peepholes: Option<PanelRow>,
}

impl PackedLstm {
    /// Packs a copy of the weights for a target.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; an error that names the
    /// argument where sizes and lengths do not agree.
    pub fn new(
        packing: impl Into<Packing>,
        parameters: LstmParameters<'_>,
    ) -> Result<Self, KernelError> {
        Self::for_target(Target::new(packing.into())?, parameters)
    }

    pub(crate) fn for_target(
        target: Target,
        parameters: LstmParameters<'_>,
    ) -> Result<Self, KernelError> {
        let LstmParameters { input_size, hidden_size, w, r, b, p, bytes } = parameters;
        check_sizes(target, GATES, hidden_size, &[input_size, hidden_size])?;
        check_len("w", w, GATES * hidden_size * input_size)?;
        check_len("r", r, GATES * hidden_size * hidden_size)?;
        if let Some(b) = b {
            check_len("b", b, 2 * GATES * hidden_size)?;
        }
        if let Some(p) = p {
            check_len("p", p, PEEPHOLES * hidden_size)?;
        }
        if let Some(LstmBytes { r_scale, w_scale }) = bytes {
            let inputs = w_scale.map_or(0, |_| input_size);
            check_sizes(target.of_bytes(), GATES, hidden_size, &[inputs, hidden_size])?;
            check_len("r_scale", r_scale, GATES * hidden_size)?;
            if let Some(w_scale) = w_scale {
                check_len("w_scale", w_scale, GATES * hidden_size)?;
                // The row's scale.
                check_len("w", w, GATES * hidden_size * input_size.max(1))?;
            }
        }
        let gates = Columns::new(target, hidden_size, 0..GATES, 1);
        let peepholes = Columns::new(target, hidden_size, 0..PEEPHOLES, 1);
        let bias = PanelRow::new(&gates, 0.0, bias_sum(b, GATES * hidden_size));
        let of_x = match bytes.and_then(|bytes| bytes.w_scale) {
            Some(scales) => {
                let whole = input_size - 1;
                let w: Vec<f32> =
                    w.chunks_exact(input_size).flat_map(|row| &row[..whole]).copied().collect();
                let given = GivenBytes { scales, inputs: InputBytes::Whole { is_scaled: true } };
                Weights::of_bytes(target, &gates, &w, whole, given)
            }
            None => Weights::new(target, &gates, w, input_size),
        };
        Ok(Self {
            target,
            input_size,
            hidden_size,
            panels: gates.panels(),
            projected_len: gates.row_len(),
            x: InputPart { weights: of_x, bias },
            h: match bytes {
                Some(LstmBytes { r_scale: scales, .. }) => {
                    let given = GivenBytes { scales, inputs: InputBytes::Unsigned };
                    Weights::of_bytes(target, &gates, r, hidden_size, given)
                }
                None => Weights::new(target, &gates, r, hidden_size),
            },
            has_bytes: bytes.is_some(),
            peepholes: p.map(|p| PanelRow::new(&peepholes, 0.0, |column| p[column])),
        })
    }
}

impl Recurrence for PackedLstm {
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
        let peepholes = self.peepholes.as_ref().map_or(0, PanelRow::bytes);
        self.x.bytes() + self.h.bytes() + peepholes
    }

    fn step_macs(&self) -> usize {
        GATES * self.hidden_size * self.hidden_size
    }

    fn projection_macs(&self) -> usize {
        GATES * self.hidden_size * self.input_size
    }

    fn set_tilings(&self, tilings: &Tilings) {
        self.x.weights.set_tilings(tilings);
        self.h.set_tilings(tilings);
    }

    fn panels_a_call(&self) -> usize {
        let of_x = self.target.panels_a_call();
        if self.has_bytes { of_x.max(self.target.of_bytes().panels_a_call()) } else { of_x }
    }

    fn c_len(&self) -> usize {
        self.hidden_size
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
        self.target.unit.vectorize(ProjectRows::<GATES> { part: &self.x, rows, panels, skip: 0 });
    }

    unsafe fn step(&self, _: usize, rows: &[StepRow], panels: Range<usize>) {
        check_panels(&panels, self.panels);
        self.target.unit.vectorize(Step { lstm: self, rows, panels });
    }
}

/// The contract of [`Recurrence::step`] holds for it.
struct Step<'a> {
    lstm: &'a PackedLstm,
    rows: &'a [StepRow],
    panels: Range<usize>,
}

impl SimdOp for Step<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { lstm, rows, panels } = self;
        for_each_piece(
            rows.len(),
            panels,
            &lstm.x.weights,
            #[inline(always)]
            |panels, part, [of_x, of_h]| {
                let mut buffer = SumsBuffer::<S, GATES>::new();
                let (rows, x_sums, row_len) = (&rows[part], buffer.sums(), GATES * S::LANES);
                let (first_panel, count) = (panels.start, panels.len());
                let piece =
                    StepPiece { rows, first_panel, panels: count, skip: 0, x_sums, row_len };
                // SAFETY: the contract of `step`, which the caller holds.
                unsafe {
                    piece.sum_x::<S, GATES>(simd, &lstm.x, panels.clone(), of_x);
                    let h = |row: &StepRow| row.h_in;
                    piece.sum_h::<S, GATES>(simd, &lstm.h, panels.clone(), h, None, x_sums, of_h);
                    let finish = Activations { lstm, piece, sums: x_sums };
                    finish.finish_all(simd, panels, rows.len());
                }
            },
        );
    }
}

/// Computes the new state from the sums.
#[derive(Clone, Copy)]
struct Activations<'a> {
    lstm: &'a PackedLstm,
    piece: StepPiece<'a>,
    sums: *const f32,
}

impl<S: Simd> Finish<S> for Activations<'_> {
    #[inline(always)]
    unsafe fn finish<const N: usize>(self, simd: S, places: [Place; N]) {
        let Self { lstm, piece, sums } = self;
        let each = SideBySide::<S, N>(simd);
        // SAFETY: the places are the piece's and their sums complete, so the rows and units are there to read
        // and to write; a panel of the peepholes has that many vectors.
        unsafe {
            let [mut i, mut o, mut f, g] = piece.load_sums(simd, sums, places);
            let units = places.map(|place| Units::of::<S>(lstm.hidden_size, place.panel, 1, 0));
            let rows = places.map(|place| piece.rows.get_unchecked(place.row));
            let mut c_in = each.splat(0.0);
            for at in 0..N {
                c_in[at] = units[at].load(simd, rows[at].c);
            }
            let mut peepholes = None;
            if let Some(p) = &lstm.peepholes {
                let [p_i, p_o, p_f] =
                    load_sums::<S, PEEPHOLES, N>(simd, places, |place| p.panel(place.panel));
                i = each.mul_add(p_i, c_in, i);
                f = each.mul_add(p_f, c_in, f);
                peepholes = Some(p_o);
            }
            let i_g = product(each, sigmoid(each, i), tanh(each, g));
            let f = value(each, sigmoid(each, f));
            let c = each.flush_subnormal(each.mul_add(f, c_in, i_g));
            if let Some(p_o) = peepholes {
                o = each.mul_add(p_o, c, o);
            }
            let h = product(each, sigmoid(each, o), tanh(each, c));
            let h = each.flush_subnormal(h);
            for at in 0..N {
                units[at].store(simd, rows[at].c, c[at]);
                units[at].store_h(simd, rows[at], h[at]);
            }
        }
    }
}

impl fmt::Debug for PackedLstm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedLstm")
            .field("isa", &self.isa())
            .field("input_size", &self.input_size)
            .field("hidden_size", &self.hidden_size)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
