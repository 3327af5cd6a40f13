//! The cost of a configuration, predicted: computation, the traffic of weights through the caches,
//! and meetings (after GRNN, section 7.1, where the levels are those of a GPU).
//!
//! ```text
//! step = sum over phases of  products + activations + meetings      + projection of x, where ahead
//! product = panels (max(compute, stream) + overlap min(compute, stream))
//!    compute = inputs (sum over tiles of a tile's cost by k) + ends, re-reading blocks that no
//!              first-level cache holds
//!    stream = bytes of a panel / bandwidth of the level that the thread's weights lie in
//! ```
//! What a tile costs is measured ([`Probe`]), and so are bandwidths and meetings ([`Limits`]). The
//! shares in which computing and streaming do not overlap are this file's constants. The model
//! ranks; that its times are about right as well is no aim.

use batchmaker_kernels::Precision;

use super::configurations::Shape;
use super::limits::Limits;
use super::probe::{Probe, interpolate};
use crate::batch_job::{WORTH_THREADS, items};
use crate::trial::{Configuration, Trial};
use crate::tuner::Split;

/// The same where several tiles go over a block and the next is fetched meanwhile.
const STREAM_BLOCKS: f64 = 0.45;
/// The same for blocks that are read again from the second level.
const READ_AGAIN: f64 = 0.45;
/// And the part of reading it that comes on top in any case.
const READ_AGAIN_FIXED: f64 = 0.1;
/// The part of beginning and ending a tile's sums that each block costs: sums that rest are near.
const BLOCK_ENDS: f64 = 0.5;
/// Bytes of a block, and of rows beside it, that a first-level cache holds.
const NEAR_BYTES: f64 = 36_000.0;
/// Nanoseconds to claim an item of a stage.
const CLAIM_NS: f64 = 35.0;

/// What differs with the units that compute.
struct Constants {
    /// The part of the shorter of computing and streaming that comes on top, where weights are read
    /// once: the machine looks far enough ahead.
    stream_once: f64,
    /// What a meeting costs among threads that do not come at once, in meetings of those that do.
    meetings: f64,
    /// What starting all threads costs that have something to do, in starts of those that have not.
    starts: f64,
    /// Bytes a nanosecond of states and projections that another core wrote.
    foreign_bytes_ns: f64,
}

const F32: Constants =
    Constants { stream_once: 0.35, meetings: 1.8, starts: 2.5, foreign_bytes_ns: 6.0 };
/// Threads that wait for each other pay for more than the wait: tiles that nobody used for half a
/// microsecond take a third of one to wake.
const REDUCED: Constants =
    Constants { stream_once: 0.6, meetings: 5.0, starts: 8.0, foreign_bytes_ns: 4.0 };

const ROWS_MAX: usize = batchmaker_kernels::ROWS_MAX;

/// What a cell costs on this machine.
#[derive(Clone, Copy, Debug)]
pub struct PerformanceModel<'a> {
    /// The machine.
    pub limits: &'a Limits,
    /// The kernels of the cell's kind.
    pub probe: &'a Probe,
    /// The cell.
    pub shape: &'a Shape,
}

/// Who reads weights, and how many of them.
#[derive(Clone, Copy)]
struct Reader {
    /// Bytes of weights that the thread reads in a step.
    bytes: f64,
    /// Whether other threads read theirs meanwhile.
    together: bool,
}

impl PerformanceModel<'_> {
    fn constants(&self) -> &'static Constants {
        match self.shape.precision {
            Precision::F32 => &F32,
            Precision::Bf16 | Precision::Int8 => &REDUCED,
        }
    }

    /// Nanoseconds a step of `batch` rows.
    pub fn step_ns(&self, configuration: &Configuration, batch: usize) -> f64 {
        let Configuration { way, threads, .. } = *configuration;
        let Self { limits, probe, shape } = *self;
        let (x, h, constants) = (shape.input_size, shape.hidden_size, self.constants());
        let panels_all: usize = shape.panels.iter().sum();
        let split_units = if way.split == Split::Units { threads } else { 1 };
        let inputs = if way.ahead { h } else { x + h };
        let reader = Reader {
            bytes: panels_all as f64 * shape.panel_bytes(inputs) / split_units as f64,
            together: threads > 1,
        };
        let rows = shape.rows_of(batch, configuration);
        let mut ns = 0.0;
        for &panels in &shape.panels {
            let own = panels.div_ceil(split_units);
            ns += self.product_ns(rows, own, h, configuration, reader);
            if !way.ahead {
                ns += self.product_ns(rows, own, x, configuration, reader);
            }
            ns += (rows * own) as f64 * probe.activate;
            let mut calls = 1;
            if way.split == Split::Units {
                let columns = panels * shape.vectors * shape.lanes;
                let items = items(batch * columns * h, panels, shape.panels_a_call, threads);
                calls = items.div_ceil(threads);
                let foreign = (batch * h * 4) as f64 * (threads - 1) as f64 / threads as f64;
                ns += constants.meetings * limits.meet_ns
                    + CLAIM_NS * calls as f64
                    + foreign / constants.foreign_bytes_ns;
            }
            let convert = inputs as f64 * interpolate(&probe.converts, rows);
            ns += calls as f64 * (convert + interpolate(&probe.calls, rows));
        }
        let steps = Trial::steps(batch);
        if threads > 1 {
            ns += constants.starts * limits.fork_ns / steps as f64;
        }
        if way.ahead {
            ns += self.projection_ns(configuration, batch, steps) / steps as f64;
        }
        ns
    }

    /// The projection of so many steps' rows, by all threads if it is worth that.
    fn projection_ns(&self, configuration: &Configuration, batch: usize, steps: usize) -> f64 {
        let shape = self.shape;
        let (rows, panels) = (batch * steps, shape.panels.iter().sum::<usize>());
        let columns = panels * shape.vectors * shape.lanes;
        let is_shared = rows * columns * shape.input_size >= WORTH_THREADS;
        let threads = if is_shared { configuration.threads } else { 1 };
        let together = threads > 1;
        let bytes = panels as f64 * shape.panel_bytes(shape.input_size);
        let reader = Reader { bytes, together };
        // Of nearly equal numbers of rows.
        let pieces = rows.div_ceil(ROWS_MAX);
        let of_piece = rows.div_ceil(pieces);
        let product = self.product_ns(of_piece, panels, shape.input_size, configuration, reader);
        let convert = shape.input_size as f64 * interpolate(&self.probe.converts, of_piece)
            + interpolate(&self.probe.calls, of_piece);
        let written = (rows * columns * 4) as f64;
        let bandwidth = self.limits.bandwidth(written, together);
        // Rows are projected by whoever comes to them, and read by whoever steps them.
        let foreign = written * (threads - 1) as f64 / threads as f64;
        let constants = self.constants();
        let moved = 2.0 * written / bandwidth + foreign / constants.foreign_bytes_ns;
        let meeting = if together { constants.meetings * self.limits.meet_ns } else { 0.0 };
        (pieces as f64 * (product + convert) + moved) / threads as f64 + meeting
    }

    /// Panels of a product of so many rows in one thread.
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
            let piece = left.min(ROWS_MAX);
            left -= piece;
            ns += panels as f64 * self.panel_ns(piece, inputs, configuration, reader);
        }
        ns
    }

    /// One panel of a product of a piece.
    fn panel_ns(
        &self,
        rows: usize,
        inputs: usize,
        configuration: &Configuration,
        reader: Reader,
    ) -> f64 {
        let Self { limits, probe, shape } = *self;
        let constants = self.constants();
        let k = inputs as f64;
        let bytes = shape.panel_bytes(inputs);
        let bandwidth = limits.bandwidth(reader.bytes, reader.together);
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
                    let again = bytes / limits.bandwidth(block, reader.together);
                    let on_top = |&rows: &usize| {
                        overlapped(of_tile(rows), again, READ_AGAIN) - of_tile(rows)
                            + READ_AGAIN_FIXED * again
                    };
                    compute += heights[1..].iter().map(on_top).sum::<f64>();
                }
                let nearest = bytes / limits.bandwidth(0.0, reader.together);
                let stream = if reader.bytes > NEAR_BYTES { stream - nearest } else { 0.0 };
                overlapped(compute, stream.max(0.0), STREAM_BLOCKS)
            }
        }
    }
}

/// Of two that go on at once, the longer, and a share of the shorter.
fn overlapped(a: f64, b: f64, share: f64) -> f64 {
    a.max(b) + share * a.min(b)
}
