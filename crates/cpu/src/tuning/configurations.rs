//! The configurations that a batch of a recurrent cell can be run in.

use std::collections::HashSet;

use batchmaker_kernels::{Packing, Precision, Recurrence, Tiling};

use crate::strategies::execution_strategy::{ExecutionStrategy, Split};

/// The configuration that a batch of a recurrent cell is run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// The execution strategy.
    pub strategy: ExecutionStrategy,
    /// The number of threads that divide it; 1 where they do not.
    pub threads: usize,
    /// The tiling of products; none with weights that are not f32, which have no choice.
    pub tiling: Option<Tiling>,
}

/// The properties of a cell that its cost depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Elements of x.
    pub input_size: usize,
    /// Elements of h.
    pub hidden_size: usize,
    /// Panels of each phase of a step.
    pub panels: Vec<usize>,
    /// Vectors of a panel.
    pub vectors: usize,
    /// Elements of a vector.
    pub lanes: usize,
    /// The packing of the weights.
    pub packing: Packing,
    /// The most rows of a register tile over all vectors of a panel, and over two of them.
    pub tile_rows: [usize; 2],
    /// The fewest panels of a call.
    pub panels_a_call: usize,
}

/// KiB of weights in a block; the last is a whole panel.
const BLOCKS_KIB: [u16; 5] = [8, 16, 32, 128, u16::MAX];

/// The most rows of a chunk.
const ROWS_MAX: usize = batchmaker_kernels::ROWS_MAX;

impl Shape {
    /// The shape of a packed cell.
    pub(crate) fn of(cell: &dyn Recurrence, packing: Packing) -> Self {
        let panels: Vec<usize> = (0..cell.phases()).map(|phase| cell.panels(phase)).collect();
        let isa = packing.isa;
        let lanes = isa.lanes();
        let vectors = cell.projected_len() / (lanes * panels.iter().sum::<usize>()).max(1);
        Self {
            input_size: cell.input_size(),
            hidden_size: cell.hidden_size(),
            panels,
            vectors,
            lanes,
            packing,
            tile_rows: [isa.tile_rows_max(vectors), isa.tile_rows_max(2)],
            panels_a_call: cell.panels_a_call(),
        }
    }

    /// Bytes of a panel with inputs of `inputs` elements.
    pub(super) fn panel_bytes(&self, inputs: usize) -> f64 {
        let bytes = match self.packing.precision {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
            Precision::Int8 => 1,
        };
        (inputs * self.vectors * self.lanes * bytes) as f64
    }

    /// The heights of the tiles that a product of `rows` rows runs in; none where it runs over two vectors at a
    /// time.
    pub(super) fn heights(&self, rows: usize, tiling: &Tiling) -> Option<Vec<usize>> {
        let [wide, narrow] = self.tile_rows;
        if tiling.by_two && rows > wide && rows <= narrow {
            return None;
        }
        let tiles = rows.div_ceil(wide.min(usize::from(tiling.rows).max(1)));
        let (low, high) = (rows / tiles, rows % tiles);
        Some((0..tiles).map(|tile| low + usize::from(tile < high)).collect())
    }

    /// The number of blocks of a product with inputs of `inputs` elements.
    pub(super) fn blocks(&self, inputs: usize, tiling: &Tiling) -> usize {
        let block = f64::from(tiling.block_kib) * 1024.0;
        (self.panel_bytes(inputs) / block).ceil().max(1.0) as usize
    }

    /// The number of rows of a batch that a thread computes.
    pub(super) fn rows_of(&self, batch: usize, configuration: &Configuration) -> usize {
        match configuration.strategy.split {
            Split::Rows => batch.div_ceil(configuration.threads),
            Split::None | Split::Units => batch,
        }
    }

    /// All configurations of a batch of `batch` rows on a worker of `threads` threads; one of those that run
    /// the same.
    pub fn configurations(&self, batch: usize, threads: usize) -> Vec<Configuration> {
        let strategies = ExecutionStrategy::ALL.into_iter().filter(|strategy| {
            let is_split_open = match strategy.split {
                Split::None => true,
                Split::Units => threads > 1,
                Split::Rows => threads > 1 && batch >= threads,
            };
            is_split_open && (!strategy.pre_projection || self.input_size > 0)
        });
        let (mut all, mut seen) = (Vec::new(), HashSet::new());
        for strategy in strategies {
            let threads = if strategy.split == Split::None { 1 } else { threads };
            for tiling in self.tilings() {
                let configuration = Configuration { strategy, threads, tiling };
                let runs = tiling.map(|tiling| {
                    let rows = self.rows_of(batch, &configuration).min(ROWS_MAX);
                    let heights = self.heights(rows, &tiling);
                    let is_blocked = heights.as_ref().is_some_and(|heights| heights.len() > 1);
                    let blocks = [self.input_size, self.hidden_size]
                        .map(|inputs| if is_blocked { self.blocks(inputs, &tiling) } else { 1 });
                    (heights, blocks)
                });
                if seen.insert((strategy, runs)) {
                    all.push(configuration);
                }
            }
        }
        all
    }

    /// All tilings; none where there is no choice.
    fn tilings(&self) -> Vec<Option<Tiling>> {
        if self.packing.precision != Precision::F32 {
            return vec![None];
        }
        let mut all = Vec::new();
        for rows in (1..=self.tile_rows[0]).rev() {
            for by_two in [false, true] {
                for block_kib in BLOCKS_KIB {
                    all.push(Some(Tiling { rows: rows as u8, by_two, block_kib }));
                }
            }
        }
        all
    }
}
