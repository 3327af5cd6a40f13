//! Weights in panels: the layout that every product of this crate runs through.
//!
//! ```text
//!   panel p, k = 0  | vector 0: LANES columns | vector 1 | .. | vector VECTORS - 1 |
//!            k = 1  | ...                                                          |
//!            ...                                                      `inputs` rows
//! ```
//! A vector belongs to one *gate* and one *group* of `LANES` units: `vector = group * gates + gate`.
//! A cell with many gates has one group a panel and all its gates side by side, so that one pass
//! over a panel ends with whole units; a cell with one gate fills the vectors with groups.
//!
//! Columns past the last unit have zero weights. Subnormal weights are packed as zero: products
//! with them would take a slow path on some processors and change no sum that matters.

use std::ops::Range;

use crate::KernelError;
use crate::packing::target::Target;

/// Which columns of the source matrix a panel's vectors hold.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    /// Elements of a vector.
    pub(crate) lanes: usize,
    /// Hidden units (or outputs).
    pub(crate) units: usize,
    /// For each gate of a panel, its place in the source: column `gate * units + unit`.
    pub(crate) gates: Range<usize>,
    /// Groups of `lanes` units in a panel.
    pub(crate) groups: usize,
}

impl Columns {
    pub(crate) fn vectors(&self) -> usize {
        self.gates.len() * self.groups
    }

    pub(crate) fn panels(&self) -> usize {
        self.units.div_ceil(self.lanes * self.groups)
    }

    /// Elements of one row of all panels: `[panel][vector][lane]`.
    pub(crate) fn row_len(&self) -> usize {
        self.panels() * self.vectors() * self.lanes
    }

    /// For each column in packed order, its column in the source; none past the last unit.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        (0..self.row_len()).map(|at| {
            let (vector, lane) = (at / self.lanes, at % self.lanes);
            let (group, gate) = (vector / self.gates.len(), vector % self.gates.len());
            let unit = group * self.lanes + lane;
            (unit < self.units).then(|| (self.gates.start + gate) * self.units + unit)
        })
    }
}

/// A matrix packed into panels.
pub(crate) struct PanelMatrix {
    inputs: usize,
    panel_len: usize,
    lines: Lines,
}

impl PanelMatrix {
    /// Packs `source`, `[columns, inputs]`, whose length the caller has checked.
    pub(crate) fn new(columns: &Columns, source: &[f32], inputs: usize) -> Self {
        let row_len = columns.vectors() * columns.lanes;
        let panel_len = inputs * row_len;
        let mut lines = Lines::zeros(columns.panels() * panel_len);
        let packed = lines.as_mut_slice();
        for (at, source_column) in columns.sources().enumerate() {
            let Some(column) = source_column else { continue };
            let to = at / row_len * panel_len + at % row_len;
            for (k, &weight) in source[column * inputs..][..inputs].iter().enumerate() {
                packed[to + k * row_len] = if weight.is_subnormal() { 0.0 } else { weight };
            }
        }
        Self { inputs, panel_len, lines }
    }

    /// Rows of a panel: elements of an input.
    #[inline(always)]
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// The first element of a panel.
    #[inline(always)]
    pub(crate) fn panel(&self, panel: usize) -> *const f32 {
        self.lines.as_slice()[panel * self.panel_len..][..self.panel_len].as_ptr()
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes()
    }
}

/// One row of panels: what sums start from, or a factor of each unit. `[panel][vector][lane]`
pub(crate) struct PanelRow {
    panel_len: usize,
    lines: Lines,
}

impl PanelRow {
    /// Packs `source(column)`, with `outside` past the last unit.
    pub(crate) fn new(columns: &Columns, outside: f32, source: impl Fn(usize) -> f32) -> Self {
        Self::packed(columns, columns.sources().map(|column| column.map_or(outside, &source)))
    }

    /// Of values in packed order, `[panel][vector][lane]`.
    pub(crate) fn packed(columns: &Columns, values: impl IntoIterator<Item = f32>) -> Self {
        let mut lines = Lines::zeros(columns.row_len());
        for (to, value) in lines.as_mut_slice().iter_mut().zip(values) {
            *to = value;
        }
        Self { panel_len: columns.vectors() * columns.lanes, lines }
    }

    /// The first element of a panel.
    #[inline(always)]
    pub(crate) fn panel(&self, panel: usize) -> *const f32 {
        self.lines.as_slice()[panel * self.panel_len..][..self.panel_len].as_ptr()
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes()
    }
}

/// Elements in whole cache lines, so that no vector that begins with one straddles two.
pub struct Lines(Box<[Line]>);

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE_LEN]);

/// Elements of a cache line.
pub(crate) const LINE_LEN: usize = 16;

impl Lines {
    /// At least `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self(vec![Line([0.0; LINE_LEN]); len.div_ceil(LINE_LEN)].into_boxed_slice())
    }

    /// Elements from one row to the next in which rows of `len` elements begin with a line.
    pub fn row_stride(len: usize) -> usize {
        len.next_multiple_of(LINE_LEN)
    }

    /// All of them.
    #[inline(always)]
    pub fn as_slice(&self) -> &[f32] {
        // SAFETY: a line is `LINE_LEN` floats and nothing else: its size, 64 bytes, is a multiple
        // of its alignment, so lines in a slice leave no gaps.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * LINE_LEN) }
    }

    /// All of them.
    pub fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_slice`.
        unsafe {
            std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * LINE_LEN)
        }
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Refuses sizes whose packed weights would not fit an address space: `columns` by
/// `inputs + 2` (the bias and room for rounding up), with units rounded up to whole panels.
pub(crate) fn check_sizes(
    target: Target,
    gates: usize,
    units: usize,
    inputs: &[usize],
) -> Result<(), KernelError> {
    if units == 0 {
        return Err(KernelError::NoHiddenUnits);
    }
    // A panel has at most 4 groups of 16 lanes.
    let bytes = units.checked_next_multiple_of(64).and_then(|units| {
        let rows = inputs.iter().try_fold(2_usize, |sum, &inputs| sum.checked_add(inputs))?;
        units.checked_mul(gates)?.checked_mul(rows)?.checked_mul(size_of::<f32>())
    });
    let longest = inputs.iter().copied().max().unwrap_or(0);
    if longest > target.inputs_max() {
        return Err(KernelError::Int8Inputs { inputs: longest, most: target.inputs_max() });
    }
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize / 2 => Ok(()),
        _ => Err(KernelError::TooLarge { input_size: longest, hidden_size: units, batch: 1 }),
    }
}

/// Refuses a slice of another length.
pub(crate) fn check_len(
    tensor: &'static str,
    slice: &[f32],
    expected: usize,
) -> Result<(), KernelError> {
    if slice.len() == expected {
        Ok(())
    } else {
        Err(KernelError::Length { tensor, expected, actual: slice.len() })
    }
}
