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

use super::lines::Lines;
use super::target::Target;

/// The columns of the source matrix that the vectors of panels hold.
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
    /// The columns of `groups` groups of units a panel, with the gates in `gates` side by side, of a cell
    /// with `units` units, for the vectors of `target`.
    pub(crate) fn new(target: Target, units: usize, gates: Range<usize>, groups: usize) -> Self {
        Self { lanes: target.lanes(), units, gates, groups }
    }

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

    /// Packs `values`, which are in packed order, `[panel][vector][lane]`.
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
