//! The cost model of GRNN (section 7): it ranks mappings, in multiply-adds of one thread that runs alone.

use super::{Mapping, Problem};

/// The constants of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// Multiprocessors. From half of them on, and again from all on, loads of h take as long once more: two share a bus.
    pub multiprocessors: f64,
    /// Bytes that a multiprocessor loads from the L2 cache in the time of a multiply-add.
    pub l2_bytes: f64,
    /// Schedulers of a multiprocessor, which share its warps.
    pub schedulers: usize,
    /// The factor of the time of products where a scheduler has twice as many warps.
    pub warps_growth: f64,
    /// The factor of the time of products where a thread has twice as many gate rows.
    pub part_growth: f64,
    /// Warps of a scheduler times gate rows of a thread from which on products take time in proportion.
    pub full: f64,
    /// The factor of the time of products there, beside that of one warp and one gate row.
    pub full_factor: f64,
    /// Multiply-adds in the time of a shuffle.
    pub shuffle: f64,
    /// Lanes up to which a reduction takes one more shuffle.
    pub few_lanes: usize,
    /// The factor of the time of a shuffle for each sum more.
    pub sums_growth: f64,
    /// Sums, of all warps of a scheduler, from which on shuffles take time in proportion.
    pub full_sums: f64,
    /// The power of `sums_growth` by which they take longer there.
    pub full_sums_power: f64,
}

/// What a step costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Loads of h to shared memory (equation 10).
    pub loads: f64,
    /// Products of h (equations 11 and 12).
    pub products: f64,
    /// Sums over lanes (equations 13 and 14).
    pub reduction: f64,
}

impl Cost {
    /// The cost of a step (equation 15). The barrier costs all mappings the same.
    pub fn total(&self) -> f64 {
        self.loads + self.products + self.reduction
    }
}

impl CostModel {
    /// The constants of the paper's GPU, a Titan V: those with which the model gives the paper's Table 2.
    pub const TITAN_V: Self = Self {
        multiprocessors: 80.0,
        l2_bytes: 256.0,
        schedulers: 4,
        warps_growth: 1.6,
        part_growth: 1.33,
        full: 8.0,
        full_factor: 4.7,
        shuffle: 7.0,
        few_lanes: 16,
        sums_growth: 1.03,
        full_sums: 12.0,
        full_sums_power: 8.0,
    };

    /// What a step costs.
    pub fn cost(&self, of: Problem, mapping: Mapping) -> Cost {
        let Mapping { tile_height, lanes, .. } = mapping;
        let part = mapping.part(of.gates) as f64;
        let warps = mapping.threads().div_ceil(32 * self.schedulers) as f64;
        let height = tile_height as f64;
        // Equations 1 to 3 and 10.
        let active = mapping.tiles(of).into_iter().product::<usize>() as f64;
        let sharing = 1.0 + (active / (self.multiprocessors / 2.0)).floor();
        let loads = 4.0 * of.hidden as f64 * height * sharing / self.l2_bytes;
        // Equations 9, 11 and 12.
        let own = height * of.hidden as f64 / lanes as f64;
        let load = warps * part;
        let slower = match load <= self.full {
            true => self.warps_growth.powf(warps.log2()) * self.part_growth.powf(part.log2()),
            false => self.full_factor * load / self.full,
        };
        // Equations 8, 13 and 14.
        let shuffles = (lanes as f64).log2() + f64::from(u8::from(lanes <= self.few_lanes));
        let sums = load * height;
        let slower_sums = match sums < self.full_sums {
            true => self.sums_growth.powf(sums),
            false => self.sums_growth.powf(self.full_sums_power) * sums / self.full_sums,
        };
        Cost { loads, products: own * slower, reduction: self.shuffle * shuffles * slower_sums }
    }

    /// What loads of `bytes` of weights of a block from shared memory cost for each tile: a multiprocessor loads 128 bytes in a cycle, and a multiply-add
    /// that waits for another one takes four. GRNN has no such loads; no GPU has confirmed this estimate.
    pub fn loads_of_weights(&self, bytes: usize) -> f64 {
        bytes as f64 / 128.0 / 4.0
    }

    /// Mappings with their costs, the best first; equal ones in the order of their parameters.
    pub fn rank(&self, of: Problem, mappings: Vec<Mapping>) -> Vec<(Mapping, Cost)> {
        let mut ranked: Vec<_> =
            mappings.into_iter().map(|mapping| (mapping, self.cost(of, mapping))).collect();
        ranked.sort_by(|a, b| a.1.total().total_cmp(&b.1.total()).then(a.0.cmp(&b.0)));
        ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Limits;

    /// Hidden size 256, batch size 20, a tile of 32 units and 2 rows.
    const TABLE_2: Problem = Problem { hidden: 256, gates: 4, rows: 20 };

    fn of_table_2(groups: usize, lanes: usize) -> Mapping {
        Mapping { tile_width: 32, tile_height: 2, groups, lanes }
    }

    #[test]
    fn costs_are_those_of_the_papers_table_2() {
        let rows =
            [(128, 2, 449.4), (64, 4, 323.0), (32, 8, 252.4), (16, 16, 443.0), (8, 32, 561.3)];
        for (groups, lanes, expected) in rows {
            let total = CostModel::TITAN_V.cost(TABLE_2, of_table_2(groups, lanes)).total();
            assert!((total - expected).abs() < 0.05, "{groups} groups: {total}, not {expected}");
        }
        // Section 8.3 has the products of the first, and the reductions of the last two.
        let cost = |groups, lanes| CostModel::TITAN_V.cost(TABLE_2, of_table_2(groups, lanes));
        let parts = [cost(128, 2).products, cost(16, 16).reduction, cost(8, 32).reduction];
        assert_eq!(parts.map(f64::floor), [409.0, 118.0, 236.0]);
    }

    #[test]
    fn the_papers_best_mapping_comes_first() {
        let ranked = CostModel::TITAN_V.rank(TABLE_2, Mapping::all(TABLE_2, Limits::of(80)));
        assert!(ranked.is_sorted_by(|a, b| a.1.total() <= b.1.total()));
        let of_tile = ranked.iter().find(|(of, _)| (of.tile_width, of.tile_height) == (32, 2));
        assert_eq!(of_tile.unwrap().0, of_table_2(32, 8));
    }
}
