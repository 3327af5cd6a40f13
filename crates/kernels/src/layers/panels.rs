//! Matrices in panels of a few vectors, for products that keep a tile of sums in registers.

use crate::packing::lines::Lines;

/// The most vectors of a panel: with 16 registers, as many as leave room for four pixels; with 32, for eight. Higher tiles read weights, which
/// come from a second-level cache, less often.
const VECTORS_MAX: usize = 3;

/// A matrix `[inputs, outputs]` whose columns are divided into panels of one to three vectors, about equal, so that few lanes
/// are idle.
pub(super) struct Panels {
    inputs: usize,
    outputs: usize,
    panels: Vec<Panel>,
    /// Of all panels, `[panel][input][vector][lane]`.
    weights: Lines,
    /// Likewise, `[panel][vector][lane]`.
    starts: Lines,
}

/// Some columns.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    /// The first of them.
    pub(super) first: usize,
    pub(super) vectors: usize,
    /// The position of its first weight among those of all panels.
    weights: usize,
    /// Elements of a row of it.
    width: usize,
}

impl Panels {
    /// A matrix of zeros for vectors of `lanes` elements, with the numbers that sums start from, `[outputs]`; `None` is zero.
    pub(super) fn new(lanes: usize, [inputs, outputs]: [usize; 2], starts: Option<&[f32]>) -> Self {
        let vectors = outputs.div_ceil(lanes);
        let count = vectors.div_ceil(VECTORS_MAX);
        let panel = |panel: usize| {
            let of = vectors * panel / count..vectors * (panel + 1) / count;
            let (first, width) = (of.start * lanes, of.len() * lanes);
            Panel { first, vectors: of.len(), weights: first * inputs, width }
        };
        let width = vectors * lanes;
        let mut packed = Lines::zeros(width);
        if let Some(starts) = starts {
            packed.as_mut_slice()[..outputs].copy_from_slice(starts);
        }
        let panels = (0..count).map(panel).collect();
        Self { inputs, outputs, panels, weights: Lines::zeros(width * inputs), starts: packed }
    }

    /// Sets all elements from the rows of the matrix, each with the columns one by one.
    pub(super) fn set<'a>(&mut self, rows: impl Iterator<Item = &'a [f32]>) {
        for (input, row) in rows.take(self.inputs).enumerate() {
            for panel in &self.panels {
                let columns = &row[panel.first..self.outputs.min(panel.first + panel.width)];
                let to = &mut self.weights.as_mut_slice()[panel.weights + input * panel.width..];
                to[..columns.len()].copy_from_slice(columns);
            }
        }
    }

    /// Sets a column from its elements.
    pub(super) fn set_column(&mut self, output: usize, column: &[f32]) {
        for panel in &self.panels {
            if (panel.first..panel.first + panel.width).contains(&output) {
                let to = &mut self.weights.as_mut_slice()[panel.weights + output - panel.first..];
                let elements = to.iter_mut().step_by(panel.width);
                elements.zip(column).for_each(|(to, element)| *to = *element);
            }
        }
    }

    pub(super) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    pub(super) fn bytes(&self) -> usize {
        self.weights.bytes() + self.starts.bytes()
    }

    pub(super) fn panels(&self) -> &[Panel] {
        &self.panels
    }

    /// The weights of a panel, `[input][vector][lane]`, and the numbers that its sums start from, `[vector][lane]`.
    #[inline(always)]
    pub(super) fn of(&self, panel: Panel) -> (&[f32], &[f32]) {
        let weights = &self.weights.as_slice()[panel.weights..][..self.inputs * panel.width];
        (weights, &self.starts.as_slice()[panel.first..][..panel.width])
    }
}
