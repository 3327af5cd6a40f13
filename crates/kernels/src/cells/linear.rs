//! Rows times a matrix: the projection of states to outputs, with an arg-max that never writes the
//! outputs down, and the rows of an embedding.
//!
//! ```text
//! y = W x + b                  index = argmax over outputs of y
//! ```
//! (the ONNX operators Gemm with `transB`, and ArgMax over the last axis with
//! `select_last_index` 0). A panel has up to four groups of outputs, as few as its outputs need.

use std::fmt;
use std::ops::Range;

use super::finish::Units;
use super::pieces::{InputPart, SumsBuffer, sum_inputs};
use crate::error::KernelError;
use crate::packing::checks::{check_len, check_panels, check_sizes};
use crate::packing::panel_matrix::{Columns, PanelRow};
use crate::packing::precision::Packing;
use crate::packing::target::Target;
use crate::products::reduced::matrix::{GivenBytes, InputBytes};
use crate::products::register_tile::load_vectors;
use crate::products::weights::{Weights, for_each_piece};
use crate::simd::isa::Isa;
use crate::simd::operations::{Simd, SimdOp};

/// The most groups of outputs in a panel.
const GROUPS_MAX: usize = 4;

/// The weights of a linear layer.
#[derive(Debug, Clone, Copy)]
pub struct LinearParameters<'a> {
    /// Elements of a row of x; may be 0.
    pub input_size: usize,
    /// Elements of a row of y; at least 1.
    pub output_size: usize,
    /// `[output, input]`.
    pub w: &'a [f32],
    /// `[output]`; `None` is zero.
    pub b: Option<&'a [f32]>,
}

/// A row to multiply.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LinearRow {
    /// `[input]`.
    pub x: *const f32,
    /// `[output]`.
    pub y: *mut f32,
}

// SAFETY: a row is two addresses. Nothing can be done with them but in unsafe code, whose
// contract (`PackedLinear::multiply`) says what threads may do at once.
unsafe impl Send for LinearRow {}
// SAFETY: addresses can be read from several threads.
unsafe impl Sync for LinearRow {}

/// The greatest output so far, and the first index that has it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct ArgMax {
    /// The output; negative infinity where there was none, or only NaN.
    pub value: f32,
    /// Its index.
    pub index: u32,
}

impl ArgMax {
    /// The arg-max of no outputs.
    pub const NONE: Self = Self { value: f32::NEG_INFINITY, index: 0 };

    /// The arg-max of the outputs of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let is_other =
            other.value > self.value || (other.value == self.value && other.index < self.index);
        if is_other { other } else { self }
    }
}

/// A row whose greatest output is looked for.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ArgMaxRow {
    /// `[input]`.
    pub x: *const f32,
    /// The greatest output so far, which the call updates; [`ArgMax::NONE`] at first.
    pub best: *mut ArgMax,
}

// SAFETY: a row is two addresses, as for `LinearRow`.
unsafe impl Send for ArgMaxRow {}
// SAFETY: addresses can be read from several threads.
unsafe impl Sync for ArgMaxRow {}

/// A linear layer with its weights packed into panels of outputs.
///
/// An output is `b`, then `+ w[k] x[k]` for ascending k, one fused multiply-add each.
pub struct PackedLinear {
    target: Target,
    input_size: usize,
    output_size: usize,
    panels: usize,
    /// Groups of outputs in a panel.
    groups: usize,
    part: InputPart,
}

impl PackedLinear {
    /// Packs a copy of the weights for a target.
    ///
    /// # Errors
    /// [`KernelError::IsaUnavailable`] where this machine lacks the instructions; an error that names the
    /// argument where sizes and lengths do not agree.
    pub fn new(
        packing: impl Into<Packing>,
        parameters: LinearParameters<'_>,
    ) -> Result<Self, KernelError> {
        Self::for_target(Target::new(packing.into())?, parameters)
    }

    pub(crate) fn for_target(
        target: Target,
        parameters: LinearParameters<'_>,
    ) -> Result<Self, KernelError> {
        let LinearParameters { input_size, w, .. } = parameters;
        Self::with_weights(target, parameters, |columns| {
            Weights::new(target, columns, w, input_size)
        })
    }

    /// As [`Self::for_target`], where x and each row of `w` are whole numbers from -255 to 255 that are at most 255 apart. They are multiplied as bytes, whatever the precision of `target`; the sum of their products is exact.
    pub(crate) fn of_bytes(
        target: Target,
        parameters: LinearParameters<'_>,
    ) -> Result<Self, KernelError> {
        let LinearParameters { input_size, output_size, w, .. } = parameters;
        Self::with_weights(target.of_bytes(), parameters, |columns| {
            let scales = &vec![1.0; output_size];
            let given = GivenBytes { scales, inputs: InputBytes::Whole { is_scaled: false } };
            Weights::of_bytes(target, columns, w, input_size, given)
        })
    }

    fn with_weights(
        target: Target,
        parameters: LinearParameters<'_>,
        weights: impl FnOnce(&Columns) -> Weights,
    ) -> Result<Self, KernelError> {
        let LinearParameters { input_size, output_size, w, b } = parameters;
        check_sizes(target, 1, output_size, &[input_size])?;
        check_len("w", w, output_size * input_size)?;
        if let Some(b) = b {
            check_len("b", b, output_size)?;
        }
        // Groups shared out evenly leave fewer columns without an output.
        let of_vectors = output_size.div_ceil(target.lanes());
        let groups = of_vectors.div_ceil(of_vectors.div_ceil(GROUPS_MAX));
        let columns = Columns::new(target, output_size, 0..1, groups);
        // Outputs past the last one must not be the greatest.
        let bias =
            PanelRow::new(&columns, f32::NEG_INFINITY, |column| b.map_or(0.0, |b| b[column]));
        let weights = weights(&columns);
        let panels = columns.panels();
        let part = InputPart { weights, bias };
        Ok(Self { target, input_size, output_size, panels, groups, part })
    }

    /// The instruction set that the weights were packed for.
    pub fn isa(&self) -> Isa {
        self.target.isa
    }

    /// Elements of a row of x.
    pub fn input_size(&self) -> usize {
        self.input_size
    }

    /// Elements of a row of y.
    pub fn output_size(&self) -> usize {
        self.output_size
    }

    /// The number of panels that the outputs are divided into; threads may take some each.
    pub fn panels(&self) -> usize {
        self.panels
    }

    /// See [`Recurrence::panels_a_call`](crate::Recurrence::panels_a_call).
    pub fn panels_a_call(&self) -> usize {
        self.target.panels_a_call()
    }

    /// Bytes of packed weights.
    pub fn bytes(&self) -> usize {
        self.part.bytes()
    }

    /// Computes the given panels' outputs of rows.
    ///
    /// # Panics
    /// If `panels` is not within [`Self::panels`].
    ///
    /// # Safety
    /// For each row `x` is readable and `y` is writable, with the lengths that [`LinearRow`]
    /// gives, aligned as f32. The outputs of `panels` in `y` are accessed by nobody else, and no
    /// `y` overlaps an `x`. Nobody writes `x` until this returns.
    pub unsafe fn multiply(&self, rows: &[LinearRow], panels: Range<usize>) {
        check_panels(&panels, self.panels);
        self.target.unit.vectorize(Multiply { linear: self, rows, panels });
    }

    /// Looks for the greatest among the given panels' outputs of rows. A NaN is never the
    /// greatest. Threads that take other panels have places of their own for it, joined by
    /// [`ArgMax::or`].
    ///
    /// # Panics
    /// If `panels` is not within [`Self::panels`].
    ///
    /// # Safety
    /// For each row `x` is readable with the length that [`ArgMaxRow`] gives, aligned as f32;
    /// `best` is initialised, aligned as an [`ArgMax`], accessed by nobody else, and overlaps no `x`.
    /// Nobody writes `x` until this returns.
    pub unsafe fn argmax(&self, rows: &[ArgMaxRow], panels: Range<usize>) {
        check_panels(&panels, self.panels);
        self.target.unit.vectorize(FindMax { linear: self, rows, panels });
    }
}

/// The contract of [`PackedLinear::multiply`] holds for it.
struct Multiply<'a> {
    linear: &'a PackedLinear,
    rows: &'a [LinearRow],
    panels: Range<usize>,
}

impl SimdOp for Multiply<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.linear.groups {
            1 => self.by_groups::<S, 1>(simd),
            2 => self.by_groups::<S, 2>(simd),
            3 => self.by_groups::<S, 3>(simd),
            _ => self.by_groups::<S, GROUPS_MAX>(simd),
        }
    }
}

impl Multiply<'_> {
    #[inline(always)]
    fn by_groups<S: Simd, const GROUPS: usize>(self, simd: S) {
        let Self { linear, rows, panels } = self;
        for_each_piece(
            rows.len(),
            panels,
            &linear.part.weights,
            #[inline(always)]
            |panels, part, [operand, _]| {
                let mut buffer = SumsBuffer::<S, GROUPS>::new();
                let (rows, sums) = (&rows[part], buffer.of_piece(&panels));
                // SAFETY: the contract of `multiply`, which the caller holds; the sums of the
                // piece are complete before they are copied.
                unsafe {
                    let x = |row: &LinearRow| Some(row.x);
                    sum_inputs::<S, GROUPS, _>(
                        simd,
                        &linear.part,
                        panels.clone(),
                        rows,
                        x,
                        sums,
                        operand,
                    );
                    for panel in panels {
                        for (at, row) in rows.iter().enumerate() {
                            let sums = sums.of(panel, at);
                            for group in 0..GROUPS {
                                let sum = simd.load(sums.add(group * S::LANES));
                                let units =
                                    Units::of::<S>(linear.output_size, panel, GROUPS, group);
                                units.store(simd, row.y, sum);
                            }
                        }
                    }
                }
            },
        );
    }
}

/// The contract of [`PackedLinear::argmax`] holds for it.
struct FindMax<'a> {
    linear: &'a PackedLinear,
    rows: &'a [ArgMaxRow],
    panels: Range<usize>,
}

impl SimdOp for FindMax<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match self.linear.groups {
            1 => self.by_groups::<S, 1>(simd),
            2 => self.by_groups::<S, 2>(simd),
            3 => self.by_groups::<S, 3>(simd),
            _ => self.by_groups::<S, GROUPS_MAX>(simd),
        }
    }
}

impl FindMax<'_> {
    #[inline(always)]
    fn by_groups<S: Simd, const GROUPS: usize>(self, simd: S) {
        let Self { linear, rows, panels } = self;
        for_each_piece(
            rows.len(),
            panels,
            &linear.part.weights,
            #[inline(always)]
            |panels, part, [operand, _]| {
                let mut buffer = SumsBuffer::<S, GROUPS>::new();
                let (rows, sums) = (&rows[part], buffer.of_piece(&panels));
                // SAFETY: the contract of `argmax`, which the caller holds; the sums of the piece
                // are complete before they are compared.
                unsafe {
                    let x = |row: &ArgMaxRow| Some(row.x);
                    sum_inputs::<S, GROUPS, _>(
                        simd,
                        &linear.part,
                        panels.clone(),
                        rows,
                        x,
                        sums,
                        operand,
                    );
                    for panel in panels {
                        for (at, row) in rows.iter().enumerate() {
                            let sums: [S::Vector; GROUPS] = load_vectors(simd, sums.of(panel, at));
                            let best = &mut *row.best;
                            *best = best.or(greatest(simd, sums, panel));
                        }
                    }
                }
            },
        );
    }
}

/// The greatest of a panel's outputs.
#[inline(always)]
fn greatest<S: Simd, const GROUPS: usize>(
    simd: S,
    sums: [S::Vector; GROUPS],
    panel: usize,
) -> ArgMax {
    let mut value = simd.splat(f32::NEG_INFINITY);
    let mut group = simd.splat(0.0);
    for (at, sum) in sums.into_iter().enumerate() {
        group = simd.select_greater(sum, value, simd.splat(at as f32), group);
        value = simd.select_greater(sum, value, sum, value);
    }
    let (mut values, mut groups) = ([0.0_f32; 16], [0.0_f32; 16]);
    // SAFETY: a vector has at most 16 lanes.
    unsafe {
        simd.store(values.as_mut_ptr(), value);
        simd.store(groups.as_mut_ptr(), group);
    }
    let mut best = ArgMax::NONE;
    for lane in 0..S::LANES {
        let output = (panel * GROUPS + groups[lane] as usize) * S::LANES + lane;
        // A lane of negative infinity, or of NaN, has no index to offer.
        if values[lane] > f32::NEG_INFINITY {
            best = best.or(ArgMax { value: values[lane], index: output as u32 });
        }
    }
    best
}

impl fmt::Debug for PackedLinear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedLinear")
            .field("isa", &self.isa())
            .field("input_size", &self.input_size)
            .field("output_size", &self.output_size)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Copies the rows `ids` of `table`, `[rows, width]`, to `out`, `[ids, width]` (the ONNX operator
/// Gather on axis 0). A consumer that takes its rows by pointer needs no copy.
///
/// # Errors
/// [`KernelError::Length`] where `out` or `table` has another length, [`KernelError::Id`] for an
/// id that is not a row; nothing is written then.
pub fn copy_embeddings(
    table: &[f32],
    width: usize,
    ids: &[i64],
    out: &mut [f32],
) -> Result<(), KernelError> {
    let out_len = ids.len().checked_mul(width).ok_or(KernelError::TooLarge {
        input_size: width,
        hidden_size: 1,
        batch: ids.len(),
    })?;
    check_len("out", out, out_len)?;
    let rows = table.len().checked_div(width).unwrap_or(0);
    check_len("table", table, rows * width)?;
    let row_of = |&id: &i64| usize::try_from(id).ok().filter(|&id| id < rows);
    if let Some(&id) = ids.iter().find(|id| row_of(id).is_none()) {
        return Err(KernelError::Id { id, rows });
    }
    for (id, out) in ids.iter().filter_map(row_of).zip(out.chunks_exact_mut(width.max(1))) {
        out.copy_from_slice(&table[id * width..][..width]);
    }
    Ok(())
}
