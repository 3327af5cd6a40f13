//! How the threads of a persistent kernel are mapped to a recurrent cell, and what a mapping costs (GRNN, sections 5 to 7).
//!
//! | file | idea |
//! |---|---|
//! | `mod.rs` | a mapping, and those that a GPU can run |
//! | `text.rs` | a mapping as text |
//! | `cost.rs` | the cost model, which ranks them |
//! | `fragments.rs` | those of weights in bfloat16, which warps multiply together |

use std::collections::BTreeSet;

mod cost;
mod fragments;
mod text;

pub use cost::{Cost, CostModel};
pub use text::NoMapping;

/// What a mapping is of: a recurrent cell and a number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Elements of h.
    pub hidden: usize,
    /// Matrices of h that are multiplied together: 4 of an LSTM.
    pub gates: usize,
    /// Rows of a batch.
    pub rows: usize,
}

/// A mapping of threads: the tunable parameters of GRNN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mapping {
    /// Units of h that a block computes.
    pub tile_width: usize,
    /// Rows that a block computes at a time.
    pub tile_height: usize,
    /// Work groups of a block: each has an equal part of the gate rows of the block's units.
    pub groups: usize,
    /// Threads of a work group, which divide the elements of h among them.
    pub lanes: usize,
}

/// What of a GPU bounds a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks that run at a time, one a multiprocessor.
    pub multiprocessors: usize,
    /// Threads of a block.
    pub threads: usize,
    /// Registers of a multiprocessor.
    pub registers: usize,
    /// Bytes of shared memory of a block, without what is for weights.
    pub shared: usize,
    /// Bytes of shared memory of a block for weights that do not fit its registers, beside `shared`. 0: all weights are in registers, as in GRNN.
    pub shared_for_weights: usize,
    /// Registers of a thread.
    pub thread_registers: usize,
}

impl Limits {
    /// Registers of a thread beside its weights and sums, at least: addresses, factors and counters.
    pub const OTHER_REGISTERS: usize = 30;

    /// Registers that a compiler takes beyond these where there are some.
    pub const MORE_REGISTERS: usize = 50;

    /// Bytes of shared memory of a block that are not for weights.
    pub const SHARED: usize = 48 << 10;

    /// Those of NVIDIA's GPUs from Volta on, with this number of `multiprocessors`, where all weights are in registers.
    pub fn of(multiprocessors: usize) -> Self {
        Self {
            multiprocessors,
            threads: 1024,
            registers: 65_536,
            shared: Self::SHARED,
            shared_for_weights: 0,
            thread_registers: 255,
        }
    }

    /// The same GPUs where all weights are in registers.
    pub fn in_registers(self) -> Self {
        Self { shared_for_weights: 0, ..self }
    }

    /// Registers of each thread of a block that has this number of `threads`.
    pub fn registers_of_thread(&self, threads: usize) -> usize {
        self.thread_registers.min(self.registers / threads.max(1))
    }

    /// Words of shared memory for the weights of each thread of a block that has this number of `threads`.
    pub fn shared_of_thread(&self, threads: usize) -> usize {
        self.shared_for_weights / 4 / threads.max(1)
    }
}

/// Threads of a warp.
const WARP: usize = 32;

impl Mapping {
    /// Threads of a block.
    pub fn threads(&self) -> usize {
        self.groups * self.lanes
    }

    /// Gate rows of a work group, a gate of a unit each.
    pub fn part(&self, gates: usize) -> usize {
        gates * self.tile_width / self.groups
    }

    /// Weights of a thread.
    pub fn weights(&self, of: Problem) -> usize {
        self.part(of.gates) * of.hidden.div_ceil(self.lanes)
    }

    /// Sums of a thread, of all its gate rows and rows: a power of two, for the reduction halves them.
    pub fn sums(&self, gates: usize) -> usize {
        (self.part(gates) * self.tile_height).next_power_of_two()
    }

    /// Registers that a thread takes at least, about, if it has all its weights in them.
    pub fn registers(&self, of: Problem) -> usize {
        self.weights(of) + self.sums(of.gates) + Limits::OTHER_REGISTERS
    }

    /// Whether the registers of a thread and its shared memory for weights have room for what it takes.
    fn has_room(&self, of: Problem, limits: Limits) -> bool {
        let threads = self.threads();
        let [registers, room] = [self.registers(of), limits.registers_of_thread(threads)];
        registers.saturating_sub(room) <= limits.shared_of_thread(threads)
    }

    /// Blocks along the units of h, and along rows so that each block has one tile.
    pub fn tiles(&self, of: Problem) -> [usize; 2] {
        [of.hidden.div_ceil(self.tile_width), of.rows.div_ceil(self.tile_height)]
    }

    /// Bytes of shared memory of a block: h of its rows, and a sum for each gate row and row.
    pub fn shared_bytes(&self, of: Problem) -> usize {
        4 * self.tile_height * (of.hidden + of.gates * self.tile_width)
    }

    /// Whether blocks have a tile, and threads that are whole warps, for a cell of any size.
    pub fn fills_warps(&self, limits: Limits) -> bool {
        let Self { tile_width, tile_height, groups, lanes } = *self;
        let threads = groups.saturating_mul(lanes);
        tile_width.min(tile_height).min(groups) > 0
            && lanes.is_power_of_two()
            && lanes <= WARP
            && threads.is_multiple_of(WARP)
            && threads <= limits.threads
    }

    /// Whether a GPU can run it with a tile a block (section 7.2): work groups have equal parts and fill warps, a lane has one of its group's sums at most,
    /// the weights fit the registers, or these and the shared memory for weights, and a tile the other shared memory, and all blocks run at a time.
    pub fn fits(&self, of: Problem, limits: Limits) -> bool {
        if !self.fills_warps(limits) {
            return false;
        }
        let Self { tile_width, tile_height, groups, lanes } = *self;
        let [columns, rows] = self.tiles(of);
        (of.gates * tile_width).is_multiple_of(groups)
            && self.part(of.gates) * tile_height <= lanes
            && self.has_room(of, limits)
            && self.shared_bytes(of) <= limits.shared
            && columns * rows <= limits.multiprocessors
    }

    /// All mappings that fit, but for those whose tiles are wider than as many blocks need.
    pub fn all(of: Problem, limits: Limits) -> Vec<Self> {
        let Problem { gates, rows, .. } = of;
        let widths = widths(of, limits);
        let mut all = Vec::new();
        for lanes in (0..=WARP.ilog2()).map(|power| 1 << power) {
            for &tile_width in &widths {
                let gate_rows = gates * tile_width;
                for groups in (1..=gate_rows.min(limits.threads / lanes)).rev() {
                    let mapping = Self { tile_width, tile_height: 1, groups, lanes };
                    // With fewer groups a thread has more, and a block no more room.
                    let room = limits.thread_registers + limits.shared_of_thread(groups * lanes);
                    if mapping.registers(of) > room || mapping.part(gates) > lanes {
                        break;
                    }
                    let heights = 1..=rows.min(lanes / mapping.part(gates).max(1));
                    let with = heights.map(|tile_height| Self { tile_height, ..mapping });
                    all.extend(with.filter(|mapping| mapping.fits(of, limits)));
                }
            }
        }
        all
    }
}

/// The widths of tiles that need so few blocks that all run at a time. Widths that few numbers divide have wider ones beside them.
fn widths(of: Problem, limits: Limits) -> BTreeSet<usize> {
    let columns = 1..=of.hidden.min(limits.multiprocessors);
    let widths = columns.map(|columns| of.hidden.div_ceil(columns));
    widths.flat_map(|width| [1, 4, 8].map(|of| width.next_multiple_of(of))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_that_do_not_fit_are_left_out() {
        let of = Problem { hidden: 256, gates: 4, rows: 20 };
        let limits = Limits::of(80);
        let best = Mapping { tile_width: 32, tile_height: 2, groups: 32, lanes: 8 };
        assert_eq!((best.threads(), best.part(4), best.weights(of)), (256, 4, 128));
        assert_eq!(best.tiles(of), [8, 10]);
        let fits = |mapping: Mapping| mapping.fits(of, limits);
        assert!(fits(best));
        let wrong = [
            // Groups with unequal parts, a lane with two sums, half a warp, too many blocks, too many threads, too many registers.
            Mapping { groups: 48, ..best },
            Mapping { groups: 16, ..best },
            Mapping { tile_width: 4, groups: 2, tile_height: 1, ..best },
            Mapping { tile_height: 1, ..best },
            Mapping { tile_width: 64, groups: 256, ..best },
            Mapping { tile_width: 256, tile_height: 1, groups: 128, lanes: 8 },
        ];
        assert_eq!(wrong.map(fits), [false; 6]);
        assert_eq!((best.sums(4), best.registers(of)), (8, 166));
        assert!(!best.fits(of, Limits { thread_registers: 165, ..limits }));
        assert!(!best.fits(of, Limits { shared: 3071, ..limits }));
        assert_eq!(best.shared_bytes(of), 3072);
        let all = Mapping::all(of, limits);
        assert!(all.contains(&best) && all.iter().all(|&mapping| fits(mapping)));
    }
}
