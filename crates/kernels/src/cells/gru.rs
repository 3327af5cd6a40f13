//! The GRU cell, in both forms of its reset gate.
//!
//! ```text
//! z = sigmoid(W_z x + R_z h + b_z)        r likewise        h' = n + z (h - n)
//!
//! Before the product:   n = tanh(W_h x + b_h + R_h (r h))
//! After the product:    n = tanh(W_h x + bw_h + r (R_h h + br_h))
//! ```
//! (the ONNX GRU operator with `linear_before_reset` 0 and 1, `h' = (1 - z) n + z h`; the second is
//! PyTorch's.) The two halves of the bias are added when packed, but for those of h after the
//! product, which stay apart.
//!
//! **After the product**, a panel has one group of units, the gates z, r, h side by side, and a
//! step one phase. **Before the product**, all of r h must be there before R_h is applied, so a
//! step has two phases: panels of two groups with the gates z and r, which leave z and r h in the
//! two halves of `c`; then panels of four groups of gate h.

use std::fmt;
use std::ops::Range;

use super::activations::{sigmoid, tanh, value};
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

/// Gates of a unit, in the order of the ONNX operator: z, r, h.
const GATES: usize = 3;

/// Vectors of a panel before the product: two groups of z and r, or four of h.
const VECTORS_BEFORE: usize = 4;
const GROUPS_ZR: usize = 2;
const GROUPS_H: usize = 4;

/// The place where the reset gate acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// On h, before its product with the weights of the candidate: `linear_before_reset` 0.
    BeforeProduct,
    /// On that product: `linear_before_reset` other than 0.
    AfterProduct,
}

/// The weights of a GRU cell as the ONNX GRU operator has them, one direction. The rows of `w`,
/// `r` and both halves of `b` are in gate order z, r, h.
#[derive(Debug, Clone, Copy)]
pub struct GruParameters<'a> {
    /// Elements of a row of x; may be 0.
    pub input_size: usize,
    /// Elements of a row of h; at least 1.
    pub hidden_size: usize,
    /// Weights of x, `[3 * hidden, input]`.
    pub w: &'a [f32],
    /// Weights of h, `[3 * hidden, hidden]`.
    pub r: &'a [f32],
    /// Biases of x, then of h, `[6 * hidden]`. `None` is zero.
    pub b: Option<&'a [f32]>,
    /// The place where the reset gate acts.
    pub reset: Reset,
}

/// A GRU cell with its weights packed into panels of hidden units.
pub struct PackedGru {
    target: Target,
    input_size: usize,
    hidden_size: usize,
    form: Form,
}

#[expect(clippy::large_enum_variant, reason = "one of them a cell")]
enum Form {
    After { panels: usize, len: usize, x: InputPart, h: Weights, h_bias: PanelRow },
    Before { zr: Part, h: Part },
}

/// A phase's gates.
struct Part {
    panels: usize,
    /// Elements of a row's sums of all panels.
    len: usize,
    x: InputPart,
    h: Weights,
}

impl PackedGru {
    /// Packs a copy of the weights for a target.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; an error that names the
    /// argument where sizes and lengths do not agree.
    pub fn new(
        packing: impl Into<Packing>,
        parameters: GruParameters<'_>,
    ) -> Result<Self, KernelError> {
        Self::for_target(Target::new(packing.into())?, parameters)
    }

    pub(crate) fn for_target(
        target: Target,
        parameters: GruParameters<'_>,
    ) -> Result<Self, KernelError> {
        let GruParameters { input_size, hidden_size, w, r, b, reset } = parameters;
        check_sizes(target, GATES, hidden_size, &[input_size, hidden_size])?;
        check_len("w", w, GATES * hidden_size * input_size)?;
        check_len("r", r, GATES * hidden_size * hidden_size)?;
        if let Some(b) = b {
            check_len("b", b, 2 * GATES * hidden_size)?;
        }
        let bias = bias_sum(b, GATES * hidden_size);
        let form = match reset {
            Reset::AfterProduct => {
                let gates = Columns::new(target, hidden_size, 0..GATES, 1);
                let candidate = Columns::new(target, hidden_size, GATES - 1..GATES, 1);
                let of_x = |column: usize| match column < (GATES - 1) * hidden_size {
                    true => bias(column),
                    false => b.map_or(0.0, |b| b[column]),
                };
                let of_h = |column: usize| b.map_or(0.0, |b| b[GATES * hidden_size + column]);
                Form::After {
                    panels: gates.panels(),
                    len: gates.row_len(),
                    x: InputPart {
                        weights: Weights::new(target, &gates, w, input_size),
                        bias: PanelRow::new(&gates, 0.0, of_x),
                    },
                    h: Weights::new(target, &gates, r, hidden_size),
                    h_bias: PanelRow::new(&candidate, 0.0, of_h),
                }
            }
            Reset::BeforeProduct => {
                let part = |gates: Range<usize>, groups| {
                    let columns = Columns::new(target, hidden_size, gates, groups);
                    Part {
                        panels: columns.panels(),
                        len: columns.row_len(),
                        x: InputPart {
                            weights: Weights::new(target, &columns, w, input_size),
                            bias: PanelRow::new(&columns, 0.0, &bias),
                        },
                        h: Weights::new(target, &columns, r, hidden_size),
                    }
                };
                Form::Before { zr: part(0..2, GROUPS_ZR), h: part(2..3, GROUPS_H) }
            }
        };
        Ok(Self { target, input_size, hidden_size, form })
    }
}

impl Recurrence for PackedGru {
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
        match &self.form {
            Form::After { x, h, h_bias, .. } => x.bytes() + h.bytes() + h_bias.bytes(),
            Form::Before { zr, h } => {
                [zr, h].iter().map(|part| part.x.bytes() + part.h.bytes()).sum()
            }
        }
    }

    fn step_macs(&self) -> usize {
        GATES * self.hidden_size * self.hidden_size
    }

    fn projection_macs(&self) -> usize {
        GATES * self.hidden_size * self.input_size
    }

    fn phases(&self) -> usize {
        match self.form {
            Form::After { .. } => 1,
            Form::Before { .. } => 2,
        }
    }

    fn set_tilings(&self, tilings: &Tilings) {
        let weights = match &self.form {
            Form::After { x, h, .. } => [Some(&x.weights), Some(h), None, None],
            Form::Before { zr, h } => {
                [Some(&zr.x.weights), Some(&zr.h), Some(&h.x.weights), Some(&h.h)]
            }
        };
        weights.into_iter().flatten().for_each(|weights| weights.set_tilings(tilings));
    }

    fn panels_a_call(&self) -> usize {
        self.target.panels_a_call()
    }

    fn c_len(&self) -> usize {
        match self.form {
            Form::After { .. } => 0,
            Form::Before { .. } => 2 * self.hidden_size,
        }
    }

    fn panels(&self, phase: usize) -> usize {
        match &self.form {
            Form::After { panels, .. } => *panels,
            Form::Before { zr, h } => [zr, h][phase].panels,
        }
    }

    fn projection_panels(&self) -> usize {
        match &self.form {
            Form::After { panels, .. } => *panels,
            Form::Before { zr, h } => zr.panels + h.panels,
        }
    }

    fn projected_len(&self) -> usize {
        match &self.form {
            Form::After { len, .. } => *len,
            Form::Before { zr, h } => zr.len + h.len,
        }
    }

    unsafe fn project(&self, rows: &[ProjectionRow], panels: Range<usize>) {
        check_panels(&panels, self.projection_panels());
        match &self.form {
            Form::After { x: part, .. } => {
                self.target.unit.vectorize(ProjectRows::<GATES> { part, rows, panels, skip: 0 });
            }
            Form::Before { zr, h } => {
                let of_zr = panels.start.min(zr.panels)..panels.end.min(zr.panels);
                let first_of_h = panels.start.max(zr.panels) - zr.panels;
                let of_h = first_of_h..panels.end.max(zr.panels) - zr.panels;
                for (part, panels, skip) in [(&zr.x, of_zr, 0), (&h.x, of_h, zr.len)] {
                    let project = ProjectRows::<VECTORS_BEFORE> { part, rows, panels, skip };
                    self.target.unit.vectorize(project);
                }
            }
        }
    }

    unsafe fn step(&self, phase: usize, rows: &[StepRow], panels: Range<usize>) {
        check_panels(&panels, self.panels(phase));
        self.target.unit.vectorize(Step { gru: self, phase, rows, panels });
    }
}

/// The contract of [`Recurrence::step`] holds for it.
struct Step<'a> {
    gru: &'a PackedGru,
    phase: usize,
    rows: &'a [StepRow],
    panels: Range<usize>,
}

impl SimdOp for Step<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { gru, phase, rows, panels } = self;
        let hidden_size = gru.hidden_size;
        let h_in = |row: &StepRow| row.h_in;
        let reset_h = |row: &StepRow| row.c.wrapping_add(hidden_size).cast_const();
        match &gru.form {
            Form::After { x: x_part, h, h_bias, .. } => for_each_piece(
                rows.len(),
                panels,
                &x_part.weights,
                #[inline(always)]
                |panels, part, [of_x, of_h]| {
                    let mut buffers = [SumsBuffer::<S, GATES>::new(), SumsBuffer::new()];
                    let [x_sums, sums] = buffers.each_mut().map(SumsBuffer::sums);
                    let (rows, row_len, first_panel) =
                        (&rows[part], GATES * S::LANES, panels.start);
                    let count = panels.len();
                    let piece =
                        StepPiece { rows, first_panel, panels: count, skip: 0, x_sums, row_len };
                    // SAFETY: the contract of `step`, which the caller holds.
                    unsafe {
                        let all = panels.clone();
                        piece.sum_x::<S, GATES>(simd, x_part, all.clone(), of_x);
                        piece.sum_h::<S, GATES>(simd, h, all, h_in, Some(h_bias), sums, of_h);
                        let finish = AfterProduct { hidden_size, piece, sums };
                        finish.finish_all(simd, panels, rows.len());
                    }
                },
            ),
            Form::Before { zr, h } => {
                let (weights, skip) = [(zr, 0), (h, zr.len)][phase];
                for_each_piece(
                    rows.len(),
                    panels,
                    &weights.x.weights,
                    #[inline(always)]
                    |panels, part, [of_x, of_h]| {
                        let mut buffer = SumsBuffer::<S, VECTORS_BEFORE>::new();
                        let sums = buffer.sums();
                        let (rows, row_len, first_panel) =
                            (&rows[part], VECTORS_BEFORE * S::LANES, panels.start);
                        let (x_sums, count) = (sums, panels.len());
                        let piece =
                            StepPiece { rows, first_panel, panels: count, skip, x_sums, row_len };
                        // SAFETY: the contract of `step`, which the caller holds.
                        unsafe {
                            let all = panels.clone();
                            piece.sum_x::<S, VECTORS_BEFORE>(simd, &weights.x, all.clone(), of_x);
                            let h = &weights.h;
                            if phase == 0 {
                                piece.sum_h::<S, VECTORS_BEFORE>(
                                    simd, h, all, h_in, None, sums, of_h,
                                );
                                let finish = GatesBeforeProduct { hidden_size, piece, sums };
                                finish.finish_all(simd, panels, rows.len());
                            } else {
                                piece.sum_h::<S, VECTORS_BEFORE>(
                                    simd, h, all, reset_h, None, sums, of_h,
                                );
                                let finish = StateBeforeProduct { hidden_size, piece, sums };
                                finish.finish_all(simd, panels, rows.len());
                            }
                        }
                    },
                );
            }
        }
    }
}

/// `n + z (h - n)`
#[inline(always)]
fn new_state<S: Arithmetic>(simd: S, z: S::Vector, n: S::Vector, h: S::Vector) -> S::Vector {
    simd.flush_subnormal(simd.mul_add(z, simd.sub(h, n), n))
}

/// Computes the new state from the sums of z, r and R_h h.
#[derive(Clone, Copy)]
struct AfterProduct<'a> {
    hidden_size: usize,
    piece: StepPiece<'a>,
    sums: *const f32,
}

impl<S: Simd> Finish<S> for AfterProduct<'_> {
    #[inline(always)]
    unsafe fn finish<const N: usize>(self, simd: S, places: [Place; N]) {
        let Self { hidden_size, piece, sums } = self;
        let each = SideBySide::<S, N>(simd);
        // SAFETY: the places are the piece's and their sums complete, so the rows and units are there to read
        // and to write.
        unsafe {
            let [z, r, of_h] = piece.load_sums(simd, sums, places);
            let units = places.map(|place| Units::of::<S>(hidden_size, place.panel, 1, 0));
            let rows = places.map(|place| piece.rows.get_unchecked(place.row));
            let (mut of_x, mut h) = (each.splat(0.0), each.splat(0.0));
            for at in 0..N {
                let Place { panel, row } = places[at];
                of_x[at] = simd.load(piece.x_sums_of(panel, row).add((GATES - 1) * S::LANES));
                h[at] = units[at].load(simd, rows[at].h_in);
            }
            let r = value(each, sigmoid(each, r));
            let n = value(each, tanh(each, each.mul_add(r, of_h, of_x)));
            let z = value(each, sigmoid(each, z));
            let h = new_state(each, z, n, h);
            for at in 0..N {
                units[at].store_h(simd, rows[at], h[at]);
            }
        }
    }
}

/// Computes z and r h, in the two halves of `c`, from the sums of z and r.
#[derive(Clone, Copy)]
struct GatesBeforeProduct<'a> {
    hidden_size: usize,
    piece: StepPiece<'a>,
    sums: *const f32,
}

impl<S: Simd> Finish<S> for GatesBeforeProduct<'_> {
    #[inline(always)]
    unsafe fn finish<const N: usize>(self, simd: S, places: [Place; N]) {
        let Self { hidden_size, piece, sums } = self;
        let each = SideBySide::<S, N>(simd);
        // SAFETY: the places are the piece's and their sums complete, so the rows and units are there to read
        // and to write.
        unsafe {
            let sums: [_; VECTORS_BEFORE] = piece.load_sums(simd, sums, places);
            for group in 0..GROUPS_ZR {
                let z = value(each, sigmoid(each, sums[2 * group]));
                let r = value(each, sigmoid(each, sums[2 * group + 1]));
                for at in 0..N {
                    let Place { panel, row } = places[at];
                    let row = piece.rows.get_unchecked(row);
                    let units = Units::of::<S>(hidden_size, panel, GROUPS_ZR, group);
                    let r_h = simd.mul(r[at], units.load(simd, row.h_in));
                    units.store(simd, row.c, z[at]);
                    units.store(simd, row.c.add(hidden_size), simd.flush_subnormal(r_h));
                }
            }
        }
    }
}

/// Computes the new state from the sums of the candidate, and z in `c`.
#[derive(Clone, Copy)]
struct StateBeforeProduct<'a> {
    hidden_size: usize,
    piece: StepPiece<'a>,
    sums: *const f32,
}

impl<S: Simd> Finish<S> for StateBeforeProduct<'_> {
    #[inline(always)]
    unsafe fn finish<const N: usize>(self, simd: S, places: [Place; N]) {
        let Self { hidden_size, piece, sums } = self;
        let each = SideBySide::<S, N>(simd);
        // SAFETY: the places are the piece's and their sums complete, so the rows and units are there to read
        // and to write.
        unsafe {
            let sums: [_; VECTORS_BEFORE] = piece.load_sums(simd, sums, places);
            for (group, sum) in sums.into_iter().enumerate() {
                let n = value(each, tanh(each, sum));
                for at in 0..N {
                    let Place { panel, row } = places[at];
                    let row = piece.rows.get_unchecked(row);
                    let units = Units::of::<S>(hidden_size, panel, GROUPS_H, group);
                    let (z, h) = (units.load(simd, row.c), units.load(simd, row.h_in));
                    units.store_h(simd, row, new_state(simd, z, n[at], h));
                }
            }
        }
    }
}

impl fmt::Debug for PackedGru {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedGru")
            .field("isa", &self.isa())
            .field("input_size", &self.input_size)
            .field("hidden_size", &self.hidden_size)
            .field("phases", &self.phases())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
