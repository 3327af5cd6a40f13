//! Mappings of kernels whose weights are bfloat16 in fragments of products that a warp computes together (`kernels/fragments.cuh`).
//!
//! A [`Mapping`] of such a kernel has a warp in each work group: its lanes are 32, and its groups divide the elements of h.

use super::{CostModel, Limits, Mapping, Problem, WARP, widths};

/// Gate rows, and elements of h, of a product of a warp.
const SIDE: usize = 16;

/// Rows of a batch of a product of a warp.
const ROWS: usize = 8;

/// The most rows of a tile.
const ROWS_MAX: usize = 64;

/// Multiply-adds of a thread in the time in which a scheduler of a multiprocessor computes a product: 8 cycles of an A100, by NVIDIA's white paper, beside 4
/// of a multiply-add.
const PRODUCT: f64 = 2.0;

/// Multiply-adds of a thread in the latency of a product.
const LATENCY: f64 = 8.0;

/// Multiply-adds of a thread in the time of a load from shared memory.
const LOAD: f64 = 7.0;

impl Mapping {
    /// Whether work groups are warps, and a tile has as many rows as some products of a warp.
    pub fn is_of_fragments(&self) -> bool {
        self.lanes == WARP && self.tile_height > 0 && self.tile_height.is_multiple_of(ROWS)
    }

    /// Fragments that a warp has: along gate rows, and along elements of h.
    pub fn fragments(&self, of: Problem) -> [usize; 2] {
        let Self { tile_width, groups, .. } = *self;
        [(of.gates * tile_width).div_ceil(SIDE), of.hidden.div_ceil(SIDE).div_ceil(groups)]
    }

    /// Registers of a thread for its weights: each fragment takes four.
    pub fn fragment_weights(&self, of: Problem) -> usize {
        4 * self.fragments(of).iter().product::<usize>()
    }

    /// Sums of a thread.
    pub fn fragment_sums(&self, of: Problem) -> usize {
        4 * self.fragments(of)[0] * self.tile_height.div_ceil(ROWS)
    }

    /// Bytes of shared memory of a block: h of its rows, the sums of all warps, and those of all together.
    pub fn fragment_shared_bytes(&self, of: Problem) -> usize {
        let gate_rows = of.gates * self.tile_width;
        // Rows have some words more, so that they lie in different banks.
        let h = ROWS * of.hidden.div_ceil(SIDE) + 4;
        let of_warps = self.groups * (gate_rows.next_multiple_of(SIDE) + 4);
        4 * self.tile_height * (h + of_warps + gate_rows)
    }

    /// Mappings whose blocks all run at a time with a tile each, and have as many threads as a block may have.
    pub fn all_of_fragments(of: Problem, limits: Limits) -> Vec<Self> {
        let heights = (ROWS..=of.rows.next_multiple_of(ROWS).min(ROWS_MAX)).step_by(ROWS);
        let warps =
            (0..).map(|power| 1 << power).take_while(|warps| warps * WARP <= limits.threads);
        let mut all = Vec::new();
        for groups in warps {
            for tile_width in widths(of, limits) {
                let with = heights.clone().map(|tile_height| Self {
                    tile_width,
                    tile_height,
                    groups,
                    lanes: WARP,
                });
                all.extend(with.filter(|mapping| {
                    mapping.tiles(of).iter().product::<usize>() <= limits.multiprocessors
                }));
            }
        }
        all
    }
}

impl CostModel {
    /// What a step costs, about, with fragments: the model of section 7 for the loads, and for the rest an estimate that no GPU has confirmed.
    pub fn cost_of_fragments(&self, of: Problem, mapping: Mapping) -> f64 {
        let Mapping { tile_height, groups, .. } = mapping;
        let [along_gate_rows, along_elements] = mapping.fragments(of);
        let along_rows = tile_height.div_ceil(ROWS);
        let products = (along_gate_rows * along_elements * along_rows) as f64;
        let warps = groups.div_ceil(self.schedulers) as f64;
        let of_products = (PRODUCT * warps * products).max(LATENCY * along_elements as f64);
        let sums = (of.gates * mapping.tile_width * tile_height).div_ceil(mapping.threads());
        self.cost(of, mapping).loads + of_products + LOAD * (groups * sums) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_cover_gate_rows_and_elements() {
        let of = Problem { hidden: 1024, gates: 4, rows: 16 };
        let mapping = Mapping { tile_width: 8, tile_height: 16, groups: 8, lanes: 32 };
        assert_eq!(mapping.fragments(of), [2, 8]);
        // 32 gate rows of 1,024 elements, two in a register, of 256 threads.
        assert_eq!(mapping.fragment_weights(of), 32 * 1024 / 2 / 256);
        assert_eq!(mapping.fragment_sums(of), 16);
        assert_eq!(mapping.fragment_shared_bytes(of), 4 * 16 * (516 + 8 * 36 + 32));
        let ragged = Problem { hidden: 50, gates: 3, rows: 3 };
        let mapping = Mapping { tile_width: 5, tile_height: 8, groups: 4, lanes: 32 };
        assert_eq!((mapping.fragments(ragged), mapping.fragment_sums(ragged)), ([1, 1], 4));
    }

    #[test]
    fn warps_divide_long_sums() {
        let of = Problem { hidden: 1024, gates: 4, rows: 8 };
        let model = CostModel { multiprocessors: 132.0, ..CostModel::TITAN_V };
        let all = Mapping::all_of_fragments(of, Limits::of(132));
        assert!(all.iter().all(|of| of.tile_width >= 8 && of.lanes == 32 && of.tile_height == 8));
        let cost = |groups| {
            let mapping = Mapping { tile_width: 8, tile_height: 8, groups, lanes: 32 };
            assert!(all.contains(&mapping));
            model.cost_of_fragments(of, mapping)
        };
        assert!(cost(8) < cost(1) && cost(8) < cost(32));
    }
}
