//! The costs of the kernels of a kind of cell, measured on a cell of one panel or a few, whose weights stay
//! in a near cache (the micro-benchmarks of GRNN, section 7.1.3).

use std::time::{Duration, Instant};

use batchmaker_graph::{RecurrentCell, RecurrentKind};
use batchmaker_kernels::{
    KernelError, Lines, Packing, Precision, ProjectionRow, Recurrence, StepRow, Tiling, Tilings,
    XPart,
};

use crate::cells::packing::pack;
use crate::memory::raw_lines::RawLines;

/// The costs of a kind of cell, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// `(rows, ns)`: the cost of a product of a panel with `rows` rows for each k, rows ascending. With weights
    /// of f32 it is that of one register tile.
    pub products: Vec<(usize, f64)>,
    /// The same for products over two vectors at a time.
    pub by_two: Vec<(usize, f64)>,
    /// The cost for each k of a product of a panel with one row, which runs over two panels at once.
    pub one_row: f64,
    /// `(rows, ns)`: the cost of beginning and ending the sums of a panel's rows.
    pub ends: Vec<(usize, f64)>,
    /// `(rows, ns)`: the cost for each k of converting the inputs of `rows` rows, which a call does once; empty
    /// with weights of f32.
    pub converts: Vec<(usize, f64)>,
    /// `(rows, ns)`: the cost of a call with `rows` rows, whatever its panels and k.
    pub calls: Vec<(usize, f64)>,
    /// The cost of the activations of a panel's row.
    pub activate: f64,
}

/// The numbers of rows of the products to measure. With reduced weights they go up to where tiles take over
/// from vectors, and lie around whole tiles.
const F32_ROWS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const REDUCED_ROWS: [usize; 15] = [1, 2, 3, 4, 8, 12, 16, 17, 24, 32, 33, 48, 64, 96, 128];

/// Elements of the inputs. The difference of two products is the cost for each k, the rest does not depend on
/// k. With reduced weights the second is as long as the cell's, if that is longer.
const F32_INPUTS: [usize; 2] = [24, 72];
const REDUCED_INPUTS: [usize; 2] = [64, 192];

/// The most rows whose weights are read once: these probes do not depend on where weights lie.
const FEW_ROWS: usize = 3;

/// The panels of a call whose time beyond that of one panel is the cost of panels alone.
const PANELS: usize = 5;

/// The time for which a job is repeated in a trial, and the number of trials.
const TIME: Duration = Duration::from_micros(100);
const TRIALS: usize = 12;

/// The number of rows that activations are measured with.
const F32_STEP_ROWS: usize = 8;
const REDUCED_STEP_ROWS: usize = 32;

impl Probe {
    /// Measures cells of the kind of `cell`.
    ///
    /// # Errors
    /// [`KernelError`] where the machine lacks the instructions, or sizes and lengths do not agree.
    pub fn measure(packing: Packing, cell: &RecurrentCell) -> Result<Self, KernelError> {
        match packing.precision {
            Precision::F32 => Self::of_f32(packing, cell),
            Precision::Bf16 | Precision::Int8 => Self::of_reduced(packing, cell),
        }
    }

    /// One panel, whose weights stay in the first-level cache: where memory costs nothing.
    fn of_f32(packing: Packing, cell: &RecurrentCell) -> Result<Self, KernelError> {
        let [short, long] = F32_INPUTS;
        // One panel of short inputs and of long ones, then two.
        let cells = |by_two| -> Result<[Box<dyn Recurrence>; 4], KernelError> {
            let tiling = Tiling { rows: Tiling::ROWS_MAX, by_two, block_kib: u16::MAX };
            let pack = |input, count| -> Result<_, KernelError> {
                let cell = pack(packing, &panels(cell, input, count))?;
                cell.set_tilings(&Tilings::all(tiling));
                Ok(cell)
            };
            Ok([pack(short, 1)?, pack(long, 1)?, pack(short, 2)?, pack(long, 2)?])
        };
        let (plain, by_two) = (cells(false)?, cells(true)?);
        let mut jobs = Vec::new();
        for rows in F32_ROWS {
            jobs.extend([&plain, &by_two].map(|of| project(&*of[0], rows, 1)));
            jobs.extend([&plain, &by_two].map(|of| project(&*of[1], rows, 1)));
            jobs.push(project(&*plain[2], rows, 2));
        }
        let (cell, rows) = (&*plain[0], F32_STEP_ROWS);
        jobs.extend([project(&*plain[2], 1, 2), project(&*plain[3], 1, 2)]);
        jobs.push(step(cell, rows, usize::MAX));

        let times = least_ns(jobs);
        let by_k =
            |of_short: f64, of_long: f64| ((of_long - of_short) / (long - short) as f64).max(1e-4);
        let mut probe = Self::default();
        let (of_rows, rest) = times.as_chunks::<5>();
        for (rows, &[of_short, of_short_by_two, of_long, of_long_by_two, two]) in
            F32_ROWS.into_iter().zip(of_rows)
        {
            let (product, panel) = (by_k(of_short, of_long), two - of_short);
            probe.products.push((rows, product));
            probe.by_two.push((rows, by_k(of_short_by_two, of_long_by_two)));
            probe.ends.push((rows, (panel - product * short as f64).max(0.0)));
            probe.calls.push((rows, (of_short - panel).max(0.0)));
        }
        let &[of_short, of_long, step] = rest else { unreachable!("as many times as jobs") };
        probe.one_row = by_k(of_short, of_long) / 2.0;
        let panels = cell.projection_panels();
        let products = panels as f64 * probe.panel_ns(rows, cell.hidden_size());
        let calls = cell.phases() as f64 * interpolate(&probe.calls, rows);
        probe.activate = ((step - calls - products) / (rows * panels) as f64).max(0.0);
        Ok(probe)
    }

    /// A few panels over as long an input as the cell's: rows' operands, and weights that several
    /// tiles of them go over, are larger than the first-level cache.
    fn of_reduced(packing: Packing, cell: &RecurrentCell) -> Result<Self, KernelError> {
        let pack = |input| pack(packing, &panels(cell, input, PANELS));
        let [short, near] = REDUCED_INPUTS;
        let long = near.max(cell.hidden_size);
        let cells = [pack(short)?, pack(near)?, pack(long)?];
        // For a number of rows, the cells that are compared, the elements of the longer input, and the most
        // panels.
        let compared = |rows| match rows {
            ..=FEW_ROWS => ([&*cells[0], &*cells[1]], near, 2),
            _ => ([&*cells[0], &*cells[2]], long, PANELS),
        };
        let count = |cell: &dyn Recurrence, panels| cell.projection_panels().min(panels);
        let mut jobs = Vec::new();
        for rows in REDUCED_ROWS {
            let (cells, _, panels) = compared(rows);
            for cell in cells {
                jobs.extend([1, count(cell, panels)].map(|panels| project(cell, rows, panels)));
            }
        }
        let (cell, rows) = (&*cells[0], REDUCED_STEP_ROWS);
        jobs.extend([1, usize::MAX].map(|panels| step(cell, rows, panels)));

        let times = least_ns(jobs);
        let mut probe = Self::default();
        let (of_rows, rest) = times.as_chunks::<4>();
        for (rows, times) in REDUCED_ROWS.into_iter().zip(of_rows) {
            let (cells, long, panels) = compared(rows);
            // The times of a panel and of the rest of the call.
            let [of_short, of_long] = [0, 1].map(|at| {
                let [one, all] = [times[2 * at], times[2 * at + 1]];
                let panel = (all - one) / (count(cells[at], panels) - 1) as f64;
                (panel, (one - panel).max(0.0))
            });
            let product = ((of_long.0 - of_short.0) / (long - short) as f64).max(1e-4);
            probe.products.push((rows, product));
            probe.ends.push((rows, (of_short.0 - product * short as f64).max(0.0)));
            let convert = ((of_long.1 - of_short.1) / (long - short) as f64).max(0.0);
            probe.converts.push((rows, convert));
            probe.calls.push((rows, (of_short.1 - convert * short as f64).max(0.0)));
        }
        let &[one, all] = rest else { unreachable!("as many times as jobs") };
        probe.one_row = probe.products[0].1;
        let panels = cell.projection_panels() - cell.phases();
        let panel = (all - one) / panels as f64 - probe.panel_ns(rows, cell.hidden_size());
        probe.activate = (panel / rows as f64).max(0.0);
        Ok(probe)
    }

    /// The cost of a product of a panel with `rows` rows of `k` elements, in one tile.
    fn panel_ns(&self, rows: usize, k: usize) -> f64 {
        interpolate(&self.products, rows) * k as f64 + interpolate(&self.ends, rows)
    }
}

/// The cost for `rows` rows, interpolated between those of fewer and of more rows; beyond, in proportion.
pub(super) fn interpolate(known: &[(usize, f64)], rows: usize) -> f64 {
    let after = known.partition_point(|&(known, _)| known < rows);
    match (after.checked_sub(1).map(|before| known[before]), known.get(after)) {
        (_, Some(&(exact, ns))) if exact == rows => ns,
        (Some((a, of_a)), Some(&(b, of_b))) => {
            of_a + (of_b - of_a) * (rows - a) as f64 / (b - a) as f64
        }
        (Some((a, ns)), None) => ns * rows as f64 / a as f64,
        (None, Some(&(_, ns))) => ns,
        (None, None) => 0.0,
    }
}

/// A cell of the kind of `cell` with `panels` panels at least in each phase.
fn panels(cell: &RecurrentCell, input_size: usize, panels: usize) -> RecurrentCell {
    // A panel has all gates of a vector of units, or up to four vectors of units.
    let vectors = match cell.kind {
        RecurrentKind::Lstm { .. } | RecurrentKind::Gru { linear_before_reset: true } => 1,
        RecurrentKind::Gru { .. } | RecurrentKind::Rnn { .. } => 4,
    };
    let hidden_size = 16 * vectors * panels;
    let gates = cell.kind.gates();
    let numbers = |len: usize| (0..len).map(|at| (at * 7919 % 97) as f32 / 960.0).collect();
    let kind = match &cell.kind {
        RecurrentKind::Lstm { .. } => RecurrentKind::Lstm { p: None, bytes: None },
        kind => kind.clone(),
    };
    RecurrentCell {
        kind,
        input_size,
        hidden_size,
        w: numbers(gates * hidden_size * input_size),
        r: numbers(gates * hidden_size * hidden_size),
        b: None,
        lookup: None,
    }
}

/// A computation that is run to be timed.
type Job<'a> = Box<dyn FnMut() + 'a>;

/// The least time of each job in several trials, in turns: a processor is not as fast at one moment as at the
/// next.
fn least_ns(mut jobs: Vec<Job<'_>>) -> Vec<f64> {
    let mut least = vec![f64::INFINITY; jobs.len()];
    for _ in 0..TRIALS {
        for (job, least) in jobs.iter_mut().zip(&mut least) {
            let (start, mut times) = (Instant::now(), 0);
            while start.elapsed() < TIME {
                job();
                times += 1;
            }
            *least = least.min(start.elapsed().as_nanos() as f64 / f64::from(times));
        }
    }
    least
}

/// The projection of `rows` rows over `panels` panels.
fn project(cell: &dyn Recurrence, rows: usize, panels: usize) -> Job<'_> {
    let stride = Lines::row_stride(cell.projected_len());
    let x = RawLines::zeros(rows * cell.input_size());
    let projected = RawLines::zeros(rows * stride);
    let row = |row: usize| ProjectionRow {
        x: x.first().wrapping_add(row * cell.input_size()),
        projected: projected.first().wrapping_add(row * stride),
    };
    let rows: Vec<ProjectionRow> = (0..rows).map(row).collect();
    let panels = panels.min(cell.projection_panels());
    Box::new(move || {
        let _ = (&x, &projected); // The memory that `rows` point into, kept as long as the job.
        // SAFETY: rows have the cell's lengths, in memory of this job alone.
        unsafe { cell.project(&rows, 0..panels) }
    })
}

/// A step of `rows` rows whose x is projected, over `panels` panels of each phase.
fn step(cell: &dyn Recurrence, rows: usize, panels: usize) -> Job<'_> {
    let stride = Lines::row_stride(cell.projected_len().max(2 * cell.hidden_size()));
    let memory = [(); 4].map(|()| RawLines::zeros(rows * stride));
    let [x, h_in, h_out, c] = memory.each_ref().map(RawLines::first);
    let row = |row: usize| {
        let at = |from: *mut f32| from.wrapping_add(row * stride);
        StepRow {
            x: at(x),
            x_part: XPart::Projected,
            h_in: at(h_in),
            h_out: at(h_out),
            c: at(c),
            y: std::ptr::null_mut(),
        }
    };
    let rows: Vec<StepRow> = (0..rows).map(row).collect();
    Box::new(move || {
        let _ = &memory; // The memory that `rows` point into, kept as long as the job.
        for phase in 0..cell.phases() {
            // SAFETY: rows have the cell's lengths, in memory of this job alone.
            unsafe { cell.step(phase, &rows, 0..cell.panels(phase).min(panels)) };
        }
    })
}
