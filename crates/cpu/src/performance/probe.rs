//! What the kernels of a kind of cell cost where memory costs nothing: measured on a cell of one
//! panel, whose weights stay in the first-level cache (the micro-benchmarks of GRNN, section 7.1.3).

use std::time::{Duration, Instant};

use batchmaker_graph::{RecurrentCell, RecurrentKind};
use batchmaker_kernels::{
    KernelError, Lines, Packing, ProjectionRow, Recurrence, StepRow, Tiling, Tilings, XPart,
};

use crate::chains::pack;

/// The costs of a kind of cell, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probe {
    /// Of a product of a panel with so many rows, by each k; `(rows, ns)`, rows ascending. With
    /// weights of f32: of one register tile.
    pub products: Vec<(usize, f64)>,
    /// The same, over two vectors at a time.
    pub by_two: Vec<(usize, f64)>,
    /// The same with one row, which runs over two panels at once: of each.
    pub one_row: f64,
    /// Of beginning and ending the sums of a panel's rows; `(rows, ns)`.
    pub ends: Vec<(usize, f64)>,
    /// Of making the operand of a row, by each k; 0 with weights of f32.
    pub convert: f64,
    /// Of the activations of a panel's row.
    pub activate: f64,
}

/// Rows of products to measure.
const F32_ROWS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const REDUCED_ROWS: [usize; 9] = [1, 2, 4, 8, 16, 24, 32, 64, 128];

/// Elements of the inputs: the difference of two products is by k, what is left is not.
const INPUTS: [usize; 2] = [64, 192];
const F32_INPUTS: [usize; 2] = [24, 72];

const TIME: Duration = Duration::from_micros(150);
const TRIALS: usize = 5;

/// Rows that activations are measured with.
const ROWS: usize = 8;

impl Probe {
    /// Measures cells of the kind of `cell`.
    ///
    /// # Errors
    /// As for the kernels.
    pub fn measure(packing: Packing, cell: &RecurrentCell) -> Result<Self, KernelError> {
        let is_f32 = packing.precision == batchmaker_kernels::Precision::F32;
        let inputs = if is_f32 { F32_INPUTS } else { INPUTS };
        let rows = if is_f32 { &F32_ROWS[..] } else { &REDUCED_ROWS[..] };
        let mut cells = Vec::new();
        for input in inputs {
            cells.push(pack(packing, &one_panel(cell, input))?);
        }
        let mut probe = Self::default();
        let by_k = |short: f64, long: f64| (long - short) / (inputs[1] - inputs[0]) as f64;
        for by_two in [false, true] {
            if by_two && !is_f32 {
                break;
            }
            let tiling = Tiling { rows: Tiling::ROWS_MAX, by_two, block_kib: u16::MAX };
            for cell in &mut cells {
                cell.set_tilings(&Tilings::all(tiling));
            }
            for &rows in rows {
                let [short, long] = [0, 1].map(|at| project_ns(&*cells[at], rows, 1));
                let product = by_k(short, long).max(1e-4);
                match by_two {
                    false => {
                        probe.products.push((rows, product));
                        let end = (short - product * inputs[0] as f64).max(0.0);
                        probe.ends.push((rows, end));
                    }
                    true => probe.by_two.push((rows, product)),
                }
            }
        }
        if !is_f32 {
            // A second panel takes no conversion.
            let two = pack(packing, &panels(cell, inputs[1], 2))?;
            let rows = 16;
            let [one, both] = [1, 2].map(|panels| project_ns(&*two, rows, panels));
            let once = (2.0 * one - both).max(0.0);
            probe.convert = once / (rows * inputs[1]) as f64;
            let converted = |rows: usize| probe.convert * rows as f64;
            for (rows, product) in &mut probe.products {
                *product = (*product - converted(*rows)).max(1e-4);
            }
        }
        let mut two = Vec::new();
        for input in inputs {
            two.push(pack(packing, &panels(cell, input, 2))?);
        }
        let [short, long] = [0, 1].map(|at| project_ns(&*two[at], 1, 2));
        probe.one_row = (by_k(short, long) / 2.0).max(1e-4);
        let short = &*cells[0];
        let step = step_ns(short);
        let k = short.hidden_size();
        let (phases, panels) = (short.phases(), short.projection_panels());
        let convert = phases as f64 * probe.convert * (ROWS * k) as f64;
        let products = panels as f64 * probe.panel_ns(ROWS, k);
        probe.activate = ((step - products - convert) / (ROWS * panels) as f64).max(0.0);
        Ok(probe)
    }

    /// A product of a panel with rows of so many elements, in one tile.
    fn panel_ns(&self, rows: usize, k: usize) -> f64 {
        interpolate(&self.products, rows) * k as f64 + interpolate(&self.ends, rows)
    }
}

/// Between what is known of fewer and of more rows; beyond, in proportion.
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

/// A cell of the kind with one panel.
fn one_panel(cell: &RecurrentCell, input_size: usize) -> RecurrentCell {
    panels(cell, input_size, 1)
}

/// A cell of the kind with so many panels at least, of each phase.
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
        RecurrentKind::Lstm { .. } => RecurrentKind::Lstm { p: None },
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

/// The least time of several that `run` takes.
fn least_ns(mut run: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..TRIALS {
        let (start, mut times) = (Instant::now(), 0);
        while start.elapsed() < TIME {
            run();
            times += 1;
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(times));
    }
    least
}

fn project_ns(cell: &dyn Recurrence, rows: usize, panels: usize) -> f64 {
    let stride = Lines::row_stride(cell.projected_len());
    let x = Lines::zeros(rows * cell.input_size());
    let mut projected = Lines::zeros(rows * stride);
    let to = projected.as_mut_slice().as_mut_ptr();
    let row = |row: usize| ProjectionRow {
        x: x.as_slice()[row * cell.input_size()..].as_ptr(),
        projected: to.wrapping_add(row * stride),
    };
    let rows: Vec<ProjectionRow> = (0..rows).map(row).collect();
    let panels = panels.min(cell.projection_panels());
    // SAFETY: rows of the cell's lengths, of this function's own.
    least_ns(|| unsafe { cell.project(&rows, 0..panels) })
}

/// A step whose x is projected.
fn step_ns(cell: &dyn Recurrence) -> f64 {
    let stride = Lines::row_stride(cell.projected_len().max(2 * cell.hidden_size()));
    let mut memory = [(); 4].map(|()| Lines::zeros(ROWS * stride));
    let [x, h_in, h_out, c] = memory.each_mut().map(|part| part.as_mut_slice().as_mut_ptr());
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
    let rows: Vec<StepRow> = (0..ROWS).map(row).collect();
    least_ns(|| {
        for phase in 0..cell.phases() {
            // SAFETY: rows of the cell's lengths, of this function's own.
            unsafe { cell.step(phase, &rows, 0..cell.panels(phase)) };
        }
    })
}
