//! The cost of a configuration, predicted: computation, the traffic of weights through the caches,
//! and barriers (after GRNN, section 7.1, where the levels are those of a GPU).
//!
//! ```text
//! step = sum over phases of  products + activations + barriers, and states passed on in them
//!      + pre-projection of x, and its transfer to the threads that read it
//! product = panels (max(compute, stream) + overlap min(compute, stream))
//!    compute = inputs (sum over tiles of a tile's cost by k) + ends, re-reading blocks that no
//!              first-level cache holds
//!    stream = bytes of a panel / bandwidth of the level that the thread's weights lie in
//! ```
//! The cost of a tile is measured ([`Probe`]), and so are bandwidths, transfers between threads, and
//! barriers ([`MachineModel`]). The shares in which these do not overlap are this file's constants. The model
//! ranks; that its times are about right as well is no aim.

use batchmaker_kernels::Precision;

use super::configurations::Shape;
use super::machine_model::MachineModel;
use super::probe::{Probe, interpolate};
use crate::cells::batch_job::{WORTH_THREADS, items};
use crate::strategies::execution_strategy::Split;
use crate::tuning::configurations::Configuration;
use crate::tuning::trial::Trial;

/// The part of the shorter of computing and streaming that comes on top where several tiles go over a
/// block and the next is fetched meanwhile.
const STREAM_BLOCKS: f64 = 0.45;
/// The same for blocks that are read again from the second level.
const READ_AGAIN: f64 = 0.45;
/// And the part of reading it that comes on top in any case.
const READ_AGAIN_FIXED: f64 = 0.1;
/// The part of beginning and ending a tile's sums that each block costs: sums that rest are near.
const BLOCK_ENDS: f64 = 0.5;
/// Bytes of a block, and of rows beside it, that a first-level cache holds.
const NEAR_BYTES: f64 = 36_000.0;
/// Nanoseconds to claim an item of a phase.
const CLAIM_NS: f64 = 35.0;

/// Bytes of what a step goes over beside its weights, as they displace these from a cache: rows lie
/// apart, and new ones come with every step.
const DISPLACED: f64 = 3.4;
/// The time of writing projections, in that of writing what another thread read in one sweep.
const PROJECTED: f64 = 1.7;
/// The part of reading projections that another thread wrote that is not hidden by computing.
const READ_PROJECTED: f64 = 0.5;
/// The time of passing states on, in that of writing and reading them in one sweep.
const STATES: f64 = 1.3;

/// Constants that depend on the units that compute.
struct Constants {
    /// The part of the shorter of computing and streaming that comes on top, where weights are read
    /// once: the machine fetches them early enough.
    stream_once: f64,
    /// The cost of a barrier of threads that do not arrive at once, in barriers of threads that do.
    barriers: f64,
    /// The cost of a fork of threads with work, in empty forks.
    forks: f64,
    /// The cost of the calls of a step that multiplies x as well, in calls of one that does not.
    two_products: f64,
}

const F32: Constants =
    Constants { stream_once: 0.35, barriers: 1.5, forks: 2.5, two_products: 1.0 };
/// Reduced weights in vectors.
const VECTORS: Constants =
    Constants { stream_once: 0.32, barriers: 1.0, forks: 2.9, two_products: 1.2 };
/// Tiles are set up for every product, and take a third of a microsecond to wake where nobody used
/// them for half of one.
const TILES: Constants =
    Constants { stream_once: 0.23, barriers: 1.7, forks: 3.3, two_products: 2.2 };

const ROWS_MAX: usize = batchmaker_kernels::ROWS_MAX;

/// The cost of a cell on this machine.
#[derive(Clone, Copy, Debug)]
pub struct PerformanceModel<'a> {
    /// The model of the machine.
    pub machine: &'a MachineModel,
    /// The costs of the kernels of the cell's kind.
    pub probe: &'a Probe,
    /// The shape of the cell.
    pub shape: &'a Shape,
}

/// A thread that reads weights.
#[derive(Clone, Copy)]
struct Reader {
    /// Bytes of weights that the thread reads in a step, and what else they share caches with.
    bytes: f64,
    /// Whether other threads read theirs meanwhile.
    together: bool,
}

impl PerformanceModel<'_> {
    /// The constants of products of `rows` rows.
    fn constants(&self, rows: usize) -> &'static Constants {
        let packing = self.shape.packing;
        match packing.precision {
            Precision::F32 => &F32,
            Precision::Bf16 | Precision::Int8 if packing.is_tiled(rows) => &TILES,
            Precision::Bf16 | Precision::Int8 => &VECTORS,
        }
    }

    /// Nanoseconds a step of `batch` rows.
    pub fn step_ns(&self, configuration: &Configuration, batch: usize) -> f64 {
        let Configuration { strategy, threads, .. } = *configuration;
        let Self { machine, probe, shape } = *self;
        let (x, h) = (shape.input_size, shape.hidden_size);
        let panels_all: usize = shape.panels.iter().sum();
        let split_units = if strategy.split == Split::Units { threads } else { 1 };
        let inputs = if strategy.pre_projection { h } else { x + h };
        let rows = shape.rows_of(batch, configuration);
        let constants = self.constants(rows);
        let columns_all = panels_all * shape.vectors * shape.lanes;
        let beside = 3 * h + if strategy.pre_projection { columns_all / split_units } else { x };
        let weights = panels_all as f64 * shape.panel_bytes(inputs) / split_units as f64;
        let bytes = weights + DISPLACED * (rows * beside * size_of::<f32>()) as f64;
        let reader = Reader { bytes, together: threads > 1 };
        let mut ns = 0.0;
        for &panels in &shape.panels {
            let own = panels.div_ceil(split_units);
            ns += self.product_ns(rows, own, h, configuration, reader);
            if !strategy.pre_projection {
                ns += self.product_ns(rows, own, x, configuration, reader);
            }
            ns += (rows * own) as f64 * probe.activate;
            let mut calls = 1;
            if strategy.split == Split::Units {
                let columns = panels * shape.vectors * shape.lanes;
                let items = items(batch * columns * h, panels, shape.panels_a_call, threads);
                calls = items.div_ceil(threads);
                let states = (batch * h * size_of::<f32>()) as f64;
                let read = machine.read_foreign_ns(states) * others_share(threads);
                let passed_on = machine.write_ns(states / threads as f64) + read;
                ns += constants.barriers * machine.barrier_ns
                    + CLAIM_NS * calls as f64
                    + STATES * passed_on;
            }
            let convert = inputs as f64 * interpolate(&probe.converts, rows);
            let products = if strategy.pre_projection { 1.0 } else { constants.two_products };
            ns += calls as f64 * (convert + products * interpolate(&probe.calls, rows));
        }
        let steps = Trial::steps(batch);
        if threads > 1 {
            ns += constants.forks * machine.fork_ns / steps as f64;
        }
        if strategy.pre_projection {
            let (projection, written) = self.projection_ns(configuration, batch, steps);
            let read = machine.read_foreign_ns(written) * others_share(threads);
            ns += (projection + READ_PROJECTED * read / threads as f64) / steps as f64;
        }
        ns
    }

    /// The nanoseconds of the pre-projection of the rows of `steps` steps, by all threads if there is enough to
    /// do, and the bytes that it writes.
    fn projection_ns(
        &self,
        configuration: &Configuration,
        batch: usize,
        steps: usize,
    ) -> (f64, f64) {
        let Self { machine, probe, shape } = *self;
        let (rows, panels) = (batch * steps, shape.panels.iter().sum::<usize>());
        let (x, columns) = (shape.input_size, panels * shape.vectors * shape.lanes);
        let is_shared = rows * columns * x >= WORTH_THREADS;
        let threads = if is_shared { configuration.threads } else { 1 };
        let together = threads > 1;
        // Chunks have nearly equal numbers of rows.
        let chunks = rows.div_ceil(ROWS_MAX);
        let of_chunk = rows.div_ceil(chunks);
        let weights = panels as f64 * shape.panel_bytes(x);
        let beside = (of_chunk * (columns + x) * size_of::<f32>()) as f64;
        let reader = Reader { bytes: weights + DISPLACED * beside, together };
        let product = self.product_ns(of_chunk, panels, x, configuration, reader);
        let convert =
            x as f64 * interpolate(&probe.converts, of_chunk) + interpolate(&probe.calls, of_chunk);
        let written = (rows * columns * size_of::<f32>()) as f64;
        let computed = chunks as f64 * (product + convert) / threads as f64;
        let moved = match together {
            true => {
                let barrier = self.constants(of_chunk).barriers * machine.barrier_ns;
                PROJECTED * machine.write_ns(written / threads as f64) + barrier
            }
            false => 2.0 * written / machine.bandwidth(written + weights, false),
        };
        (computed + moved, written)
    }

    /// The nanoseconds of `panels` panels of a product of `rows` rows in one thread.
    fn product_ns(
        &self,
        rows: usize,
        panels: usize,
        inputs: usize,
        configuration: &Configuration,
        reader: Reader,
    ) -> f64 {
        let mut ns = 0.0;
        let mut left = rows;
        while left > 0 {
            let chunk = left.min(ROWS_MAX);
            left -= chunk;
            ns += panels as f64 * self.panel_ns(chunk, inputs, configuration, reader);
        }
        ns
    }

    /// The nanoseconds of one panel of a product of a chunk of `rows` rows.
    fn panel_ns(
        &self,
        rows: usize,
        inputs: usize,
        configuration: &Configuration,
        reader: Reader,
    ) -> f64 {
        let Self { machine, probe, shape } = *self;
        let constants = self.constants(rows);
        let k = inputs as f64;
        let bytes = shape.panel_bytes(inputs);
        let bandwidth = machine.bandwidth(reader.bytes, reader.together);
        let stream = bytes / bandwidth;
        let end = |rows: usize| interpolate(&probe.ends, rows);
        let Some(tiling) = configuration.tiling else {
            let compute = k * interpolate(&probe.products, rows);
            return overlapped(compute, stream, constants.stream_once) + end(rows);
        };
        if rows == 1 {
            return overlapped(k * probe.one_row, stream, constants.stream_once) + end(1);
        }
        let of_tile = |rows: usize| k * interpolate(&probe.products, rows);
        match shape.heights(rows, &tiling).as_deref() {
            None => {
                let compute = k * interpolate(&probe.by_two, rows);
                overlapped(compute, stream, constants.stream_once) + end(rows) / 2.0
            }
            Some(&[only]) => overlapped(of_tile(only), stream, constants.stream_once) + end(only),
            Some(heights) => {
                let blocks = shape.blocks(inputs, &tiling);
                let block = bytes / blocks as f64;
                let ends = BLOCK_ENDS * blocks as f64;
                let mut compute: f64 =
                    heights.iter().map(|&rows| of_tile(rows) + ends * end(rows)).sum();
                if block > NEAR_BYTES {
                    let again = bytes / machine.bandwidth(block, reader.together);
                    let on_top = |&rows: &usize| {
                        overlapped(of_tile(rows), again, READ_AGAIN) - of_tile(rows)
                            + READ_AGAIN_FIXED * again
                    };
                    compute += heights[1..].iter().map(on_top).sum::<f64>();
                }
                let nearest = bytes / machine.bandwidth(0.0, reader.together);
                let stream = if reader.bytes > NEAR_BYTES { stream - nearest } else { 0.0 };
                overlapped(compute, stream.max(0.0), STREAM_BLOCKS)
            }
        }
    }
}

/// The part of what all threads wrote that a thread reads from others.
fn others_share(threads: usize) -> f64 {
    (threads - 1) as f64 / threads as f64
}

/// The time of two activities that go on at once: the longer, and a share of the shorter.
fn overlapped(a: f64, b: f64, share: f64) -> f64 {
    a.max(b) + share * a.min(b)
}
