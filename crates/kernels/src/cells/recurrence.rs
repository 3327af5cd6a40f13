//! The interface that LSTM, GRU and RNN have in common: a step over rows, and the projection of its inputs.
//!
//! A step's sums start from the bias, take in x, then h. The part up to x depends on nothing but
//! x, so it may be computed at another time, for many steps at once, and kept
//! ([`Recurrence::project`]); the step then starts from there ([`XPart::Projected`]), row by row
//! as it comes. Sums rest in memory as the f32 that they are, so projecting x before the step changes no bit.
//!
//! Work is divided by *panels*, pieces of the hidden units. Panels of one phase need nothing from
//! each other, so threads may take some each; before the next phase, or the next step, they synchronise.

use std::fmt::Debug;
use std::ops::Range;

use crate::products::tiling::Tilings;
use crate::simd::isa::Isa;

/// The addresses of one row of a batch. They are pointers, since rows lie in slots and request buffers, and since
/// threads write disjoint units of one row.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct StepRow {
    /// The input, `[input]`, or its projection, `[projected_len]`.
    pub x: *const f32,
    /// Whether `x` points to the input or to its projection.
    pub x_part: XPart,
    /// The hidden state before the step, `[hidden]`.
    pub h_in: *const f32,
    /// The hidden state after the step, `[hidden]`. May not overlap any row's `h_in`.
    pub h_out: *mut f32,
    /// The cell state of an LSTM, updated in place, or a scratch buffer of the step:
    /// [`c_len`](Recurrence::c_len) elements.
    pub c: *mut f32,
    /// Null, or where the hidden state after the step is written once more, `[hidden]`.
    pub y: *mut f32,
}

// SAFETY: a row is five addresses. Nothing can be done with them but in unsafe code, whose
// contract (`Recurrence::step`) says what threads may do at once.
unsafe impl Send for StepRow {}
// SAFETY: addresses can be read from several threads.
unsafe impl Sync for StepRow {}

/// A row to project.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ProjectionRow {
    /// The input, `[input]`.
    pub x: *const f32,
    /// Receives its projection, `[projected_len]`.
    pub projected: *mut f32,
}

// SAFETY: a row is two addresses, as for `StepRow`.
unsafe impl Send for ProjectionRow {}
// SAFETY: addresses can be read from several threads.
unsafe impl Sync for ProjectionRow {}

/// Whether a row's input is given as it is or projected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XPart {
    /// The input itself.
    Given,
    /// The projection that [`Recurrence::project`], or its like for other cells, made of the input.
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

    /// The fewest panels that a call should have, if there are that many: where weights are not f32, each
    /// call converts its rows' inputs.
    fn panels_a_call(&self) -> usize;

    /// Runs products by `tilings` from now on, where there is a choice: with weights of f32. Steps that run
    /// meanwhile take the old or the new ones.
    fn set_tilings(&self, tilings: &Tilings);

    /// Phases of a step, at least 1. All panels of a phase are done before the next begins.
    fn phases(&self) -> usize {
        1
    }

    /// Elements of a row's `c`. An LSTM's is a state of `hidden` elements; that of other cells, if
    /// any, is a scratch buffer that the phases of a step pass on to each other, without meaning between steps.
    fn c_len(&self) -> usize {
        0
    }

    /// The number of panels of a phase of a step.
    fn panels(&self, phase: usize) -> usize;

    /// The number of panels of a projection.
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
    /// nobody else. Nobody writes `x` until this returns, and no `projected` overlaps an `x` or the
    /// `projected` of another row.
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
