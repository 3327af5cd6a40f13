//! The inner node of a binary TreeLSTM, which reads the states of its two children (Tai, Socher and
//! Manning, 2015, the N-ary form with N = 2).
//!
//! ```text
//! i = sigmoid((b_i + L_i h_l) + R_i h_r)      o, f_l, f_r likewise
//! u = tanh((b_u + L_u h_l) + R_u h_r)
//! c = f_l c_l + (f_r c_r + (i u))
//! h = o tanh(c)
//! ```
//! (the product i u is one fraction). A panel has one group of units, all its gates side by side: i, o,
//! f_l, f_r, u.
//!
//! A child's part of its parent's sums depends on nothing but the child: the left one's sums
//! start from the bias, the right one's from 0, and the two are added at the end. So either may be
//! computed at another time and kept ([`PackedTreeInner::project`]), which changes no bit.

use std::fmt;
use std::ops::Range;

use super::activations::{product, sigmoid, tanh, value};
use super::finish::{Finish, Place, Units, load_sums};
use super::pieces::{InputPart, ProjectRows, Sums, SumsBuffer, sum_inputs};
use super::recurrence::{ProjectionRow, XPart};
use crate::error::KernelError;
use crate::packing::checks::{check_len, check_panels, check_sizes};
use crate::packing::lines::LINE_LEN;
use crate::packing::panel_matrix::{Columns, PanelRow};
use crate::packing::precision::Packing;
use crate::packing::target::Target;
use crate::products::weights::{Weights, for_each_piece};
use crate::simd::isa::Isa;
use crate::simd::operations::{Arithmetic, Simd, SimdOp, prefetch};
use crate::simd::side_by_side::SideBySide;

/// Gates: i, o, f_l, f_r, u.
const GATES: usize = 5;

/// The weights of an inner node, rows in gate order i, o, f_l, f_r, u.
#[derive(Debug, Clone, Copy)]
pub struct TreeInnerParameters<'a> {
    /// Elements of a row of h and c; at least 1.
    pub hidden_size: usize,
    /// Weights of the left child's h, `[5 * hidden, hidden]`.
    pub l: &'a [f32],
    /// Weights of the right child's h, `[5 * hidden, hidden]`.
    pub r: &'a [f32],
    /// `[5 * hidden]`; `None` is zero.
    pub b: Option<&'a [f32]>,
}

/// The side of a child of an inner node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first.
    Left,
    /// The second.
    Right,
}

/// A child of an inner node to compute.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct TreeChild {
    /// The child's h, `[hidden]`, or its projection for its side,
    /// `[projected_len]`.
    pub h: *const f32,
    /// Whether `h` points to the h or to its projection.
    pub h_part: XPart,
    /// `[hidden]`.
    pub c: *const f32,
}

/// An inner node to compute.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct TreeInnerRow {
    /// The left child.
    pub l: TreeChild,
    /// The right child.
    pub r: TreeChild,
    /// `[hidden]`.
    pub h: *mut f32,
    /// `[hidden]`.
    pub c: *mut f32,
}

// SAFETY: a child is addresses. Nothing can be done with them but in unsafe code, whose contract
// (`PackedTreeInner::step`) says what threads may do at once.
unsafe impl Send for TreeChild {}
// SAFETY: addresses can be read from several threads.
unsafe impl Sync for TreeChild {}

// SAFETY: a row is addresses, as for `TreeChild`.
unsafe impl Send for TreeInnerRow {}
// SAFETY: addresses can be read from several threads.
unsafe impl Sync for TreeInnerRow {}

/// An inner node with its weights packed into panels of hidden units.
pub struct PackedTreeInner {
    target: Target,
    hidden_size: usize,
    panels: usize,
    projected_len: usize,
    l: InputPart,
    /// Its bias is 0.
    r: InputPart,
}

impl PackedTreeInner {
    /// Packs a copy of the weights for a target.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; an error that names the
    /// argument where sizes and lengths do not agree.
    pub fn new(
        packing: impl Into<Packing>,
        parameters: TreeInnerParameters<'_>,
    ) -> Result<Self, KernelError> {
        Self::for_target(Target::new(packing.into())?, parameters)
    }

    pub(crate) fn for_target(
        target: Target,
        parameters: TreeInnerParameters<'_>,
    ) -> Result<Self, KernelError> {
        let TreeInnerParameters { hidden_size, l, r, b } = parameters;
        check_sizes(target, GATES, hidden_size, &[hidden_size, hidden_size])?;
        check_len("l", l, GATES * hidden_size * hidden_size)?;
        check_len("r", r, GATES * hidden_size * hidden_size)?;
        if let Some(b) = b {
            check_len("b", b, GATES * hidden_size)?;
        }
        let gates = Columns::new(target, hidden_size, 0..GATES, 1);
        let bias = PanelRow::new(&gates, 0.0, |column| b.map_or(0.0, |b| b[column]));
        let l = InputPart { weights: Weights::new(target, &gates, l, hidden_size), bias };
        let no_bias = PanelRow::new(&gates, 0.0, |_| 0.0);
        let r = InputPart { weights: Weights::new(target, &gates, r, hidden_size), bias: no_bias };
        let (panels, projected_len) = (gates.panels(), gates.row_len());
        Ok(Self { target, hidden_size, panels, projected_len, l, r })
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
        self.l.bytes() + self.r.bytes()
    }

    /// Elements of a projected h.
    pub fn projected_len(&self) -> usize {
        self.projected_len
    }

    /// Projects rows of h of children of one side: the given panels of them.
    ///
    /// # Panics
    /// If `panels` is not within [`Self::panels`].
    ///
    /// # Safety
    /// For each row `x`, which is an h, is readable, `[hidden]`, and `projected` is writable,
    /// `[projected_len]`, aligned as f32. The given panels of `projected` are accessed by nobody
    /// else. Nobody writes `x` until this returns, and no `projected` overlaps an `x` or the `projected`
    /// of another row.
    pub unsafe fn project(&self, side: Side, rows: &[ProjectionRow], panels: Range<usize>) {
        check_panels(&panels, self.panels);
        let part = match side {
            Side::Left => &self.l,
            Side::Right => &self.r,
        };
        self.target.unit.vectorize(ProjectRows::<GATES> { part, rows, panels, skip: 0 });
    }

    /// Computes the given panels of inner nodes.
    ///
    /// # Panics
    /// If `panels` is not within [`Self::panels`].
    ///
    /// # Safety
    /// For each row what [`TreeChild`] points to is readable, with the lengths given there, and
    /// where it is a projection, the given panels of it are initialised. The node's `h` and `c` are
    /// writable, `[hidden]` each, aligned as f32. The units of `panels` in them are accessed by
    /// nobody else, and they overlap no child's. What is read is initialised, and nobody writes it until
    /// this returns.
    pub unsafe fn step(&self, rows: &[TreeInnerRow], panels: Range<usize>) {
        check_panels(&panels, self.panels);
        self.target.unit.vectorize(Step { inner: self, rows, panels });
    }
}

/// The contract of [`PackedTreeInner::step`] holds for it.
struct Step<'a> {
    inner: &'a PackedTreeInner,
    rows: &'a [TreeInnerRow],
    panels: Range<usize>,
}

impl SimdOp for Step<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Self { inner, rows, panels } = self;
        for_each_piece(
            rows.len(),
            panels,
            &inner.l.weights,
            #[inline(always)]
            |panels, part, [of_l, of_r]| {
                let mut buffers = [SumsBuffer::<S, GATES>::new(), SumsBuffer::new()];
                let rows = &rows[part];
                let count = rows.len();
                let sums = buffers.each_mut().map(|buffer| buffer.of_piece(&panels));
                let [l, r] = sums;
                // SAFETY: the contract of `step`, which the caller holds.
                unsafe {
                    let all = || panels.clone();
                    sum_inputs::<S, GATES, _>(
                        simd,
                        &inner.l,
                        all(),
                        rows,
                        |row| row.l.given(),
                        l,
                        of_l,
                    );
                    sum_inputs::<S, GATES, _>(
                        simd,
                        &inner.r,
                        all(),
                        rows,
                        |row| row.r.given(),
                        r,
                        of_r,
                    );
                    let finish = Activations { hidden_size: inner.hidden_size, rows, sums };
                    finish.finish_all(simd, panels, count);
                }
            },
        );
    }
}

impl TreeChild {
    /// h itself, if that is what there is.
    #[inline(always)]
    fn given(&self) -> Option<*const f32> {
        (self.h_part == XPart::Given).then_some(self.h)
    }

    /// The child's part of the sums of the place: in its projection, or in `sums`, where the parts of the piece's
    /// other children were just computed.
    ///
    /// # Safety
    /// The place is the piece's. A projected h has the elements that [`TreeChild`] gives; `sums` are those of
    /// the piece, in a buffer that is alive.
    #[inline(always)]
    unsafe fn sums(&self, place: Place, sums: Sums) -> *const f32 {
        match self.h_part {
            // SAFETY: the place is the piece's.
            XPart::Given => unsafe { sums.of(place.panel, place.row) },
            XPart::Projected => self.h.wrapping_add(place.panel * sums.row_len),
        }
    }

    /// Fetches the projection's next panel: rows lie far apart, so the machine does not foresee it.
    #[inline(always)]
    fn fetch_next_panel(&self, place: Place, row_len: usize) {
        if self.h_part == XPart::Projected {
            let next = self.h.wrapping_add((place.panel + 1) * row_len);
            for line in (0..row_len).step_by(LINE_LEN) {
                prefetch(next.wrapping_add(line));
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Activations<'a> {
    hidden_size: usize,
    rows: &'a [TreeInnerRow],
    /// The sums of left and of right children that were not projected before.
    sums: [Sums; 2],
}

impl<S: Simd> Finish<S> for Activations<'_> {
    #[inline(always)]
    unsafe fn finish<const N: usize>(self, simd: S, places: [Place; N]) {
        let Self { hidden_size, rows, sums: [l, r] } = self;
        let each = SideBySide::<S, N>(simd);
        // SAFETY: the places are the piece's and their sums complete, so the rows and units are there to read
        // and to write.
        unsafe {
            let of_row = |place: Place| rows.get_unchecked(place.row);
            let of_l: [_; GATES] = load_sums(simd, places, |place| of_row(place).l.sums(place, l));
            let of_r: [_; GATES] = load_sums(simd, places, |place| of_row(place).r.sums(place, r));
            if S::IS_TUNED {
                for place in places {
                    of_row(place).l.fetch_next_panel(place, l.row_len);
                    of_row(place).r.fetch_next_panel(place, r.row_len);
                }
            }
            let mut sums = of_l;
            for gate in 0..GATES {
                sums[gate] = each.add(of_l[gate], of_r[gate]);
            }
            let [i, o, f_l, f_r, u] = sums;
            let units = places.map(|place| Units::of::<S>(hidden_size, place.panel, 1, 0));
            let rows = places.map(of_row);
            let (mut c_l, mut c_r) = (each.splat(0.0), each.splat(0.0));
            for at in 0..N {
                c_l[at] = units[at].load(simd, rows[at].l.c);
                c_r[at] = units[at].load(simd, rows[at].r.c);
            }
            let i_u = product(each, sigmoid(each, i), tanh(each, u));
            let f_l = value(each, sigmoid(each, f_l));
            let f_r = value(each, sigmoid(each, f_r));
            let c = each.mul_add(f_l, c_l, each.mul_add(f_r, c_r, i_u));
            let c = each.flush_subnormal(c);
            let h = product(each, sigmoid(each, o), tanh(each, c));
            let h = each.flush_subnormal(h);
            for at in 0..N {
                units[at].store(simd, rows[at].c, c[at]);
                units[at].store(simd, rows[at].h, h[at]);
            }
        }
    }
}

impl fmt::Debug for PackedTreeInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedTreeInner")
            .field("isa", &self.isa())
            .field("hidden_size", &self.hidden_size)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
