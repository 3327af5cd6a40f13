//! The curve of a cell: the time of a batch over its size, each size in the fastest configuration
//! that is found.

use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_cpu::{
    CpuConfig, CpuDevice, Isa, Limits, Packing, PerformanceModel, Probe, Trial, packing, search,
};
use batchmaker_device::{CellsAlone, Device, DeviceError, Effort};
use batchmaker_graph::{CellBody, CellType, CellTypeId, Precision, RecurrentCell};

use crate::file::{Curve, Point};

/// Sizes to measure.
const SIZES: [usize; 18] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// Batches that take longer are not measured at still larger sizes: nobody would wait for them.
const LONGEST: Duration = Duration::from_millis(300);

/// How long a cell that the device chooses itself for is measured at each size.
const EFFORT: Effort = Effort { time: Duration::from_millis(20), runs: 4, steps: 6 };

/// What a cell is measured on.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The instructions of kernels.
    pub isa: Isa,
    /// Threads of a worker.
    pub threads: usize,
    /// The machine's limits.
    pub limits: Limits,
}

/// Why a cell was not measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The kernels do not take it.
    #[error("{0}")]
    Kernel(String),
    /// No thread, or none on its own core.
    #[error("cannot start threads: {0}")]
    Threads(#[from] std::io::Error),
    /// The device does not take it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Whoever was asked whether to go on said no.
    #[error("it was stopped")]
    Stopped,
}

/// Asked before each size of batch whether to go on; may take its time.
pub type GoOn<'a> = dyn FnMut() -> bool + Send + 'a;

impl Hardware {
    /// Measures the limits of this machine.
    ///
    /// # Errors
    /// Where it lacks the instructions.
    pub fn measure(isa: Isa, threads: usize) -> Result<Self, MeasureError> {
        let limits = Limits::measure(isa, threads).map_err(kernel)?;
        Ok(Self { isa, threads, limits })
    }

    /// Rows a second that the arithmetic of all threads allows for a cell, and the microseconds that
    /// reading its weights once takes them; none for cells that no fused kernel runs.
    pub fn roofs(&self, cell: &CellType, precision: Precision) -> Option<(f64, f64)> {
        let CellBody::Recurrent(recurrent) = &cell.cell.body else { return None };
        let weights = recurrent.w.len() + recurrent.r.len();
        let flops = Limits::flops(self.packing(precision)).ok()?;
        let bytes = match precision {
            Precision::F32 => 4,
            Precision::Bf16 => 2,
            Precision::Int8 => 1,
        };
        let bytes_a_thread = (weights * bytes) as f64 / self.threads as f64;
        let rows_per_s = flops * self.threads as f64 / (2 * weights) as f64 * 1e9;
        let ns = bytes_a_thread / self.limits.bandwidth(bytes_a_thread, self.threads > 1);
        Some((rows_per_s, ns / 1e3))
    }

    fn packing(&self, precision: Precision) -> Packing {
        packing(self.isa, precision)
    }
}

fn kernel(error: impl std::fmt::Display) -> MeasureError {
    MeasureError::Kernel(error.to_string())
}

/// The precisions that a cell can be served in.
pub fn precisions_of(cell: &CellType) -> &'static [Precision] {
    if cell.cell.is_fused() { &Precision::ALL } else { &[Precision::F32] }
}

/// Whether requests go through a cell step by step: chains, and nodes of trees.
pub fn is_stepped(cell: &CellType) -> bool {
    !cell.cell.states.is_empty() || matches!(cell.cell.body, CellBody::Tree(_))
}

/// Measures a cell in a precision; none of a cell that takes whole sequences, whose batches are as
/// large as requests of one length make them.
///
/// # Errors
/// See [`MeasureError`].
pub fn cell_curve(
    hardware: &Hardware,
    cell: &CellType,
    precision: Precision,
    go_on: &mut GoOn<'_>,
) -> Result<Option<Curve>, MeasureError> {
    let points = match &cell.cell.body {
        CellBody::Recurrent(recurrent) => recurrent_points(hardware, recurrent, precision, go_on)?,
        CellBody::Whole(_) => return Ok(None),
        // A queue's first poll puts its thread on a core.
        _ => std::thread::scope(|scope| {
            let points = scope.spawn(|| device_points(hardware, cell, precision, go_on));
            points.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?,
    };
    Ok(Some(Curve { difference: None, points }))
}

/// Ranked by the performance model, the first few run.
fn recurrent_points(
    hardware: &Hardware,
    cell: &RecurrentCell,
    precision: Precision,
    go_on: &mut GoOn<'_>,
) -> Result<Vec<Point>, MeasureError> {
    let packing = hardware.packing(precision);
    let probe = Probe::measure(packing, cell).map_err(kernel)?;
    let mut trial = Trial::new(packing, cell).map_err(kernel)?;
    let shape = trial.shape();
    let model = PerformanceModel { limits: &hardware.limits, probe: &probe, shape: &shape };
    let mut points = Vec::new();
    for batch in SIZES {
        if !go_on() {
            return Err(MeasureError::Stopped);
        }
        let (found, ns) = search(&model, &mut trial, batch, hardware.threads)?;
        points.push(Point::configured(batch, ns / 1e3, found.way, found.tiling));
        if ns > LONGEST.as_nanos() as f64 {
            break;
        }
    }
    Ok(points)
}

/// On a device of its own, which tries out how to run it.
fn device_points(
    hardware: &Hardware,
    cell: &CellType,
    precision: Precision,
    go_on: &mut GoOn<'_>,
) -> Result<Vec<Point>, MeasureError> {
    let in_precision = (*cell.cell).clone().in_precision(precision);
    let cell_type = CellType {
        identity: in_precision.identity(),
        cell: Arc::new(in_precision),
        max_batch_size: SIZES[SIZES.len() - 1] as u32,
        ..cell.clone()
    };
    let device = CpuDevice::new(CpuConfig {
        threads_per_worker: hardware.threads,
        isa: hardware.isa,
        pin_threads: true,
        ..CpuConfig::default()
    })?;
    device.materialize(CellTypeId(0), &cell_type)?;
    let mut alone = CellsAlone::new(Arc::new(device))?;
    let mut points = Vec::new();
    for batch in SIZES {
        if !go_on() {
            return Err(MeasureError::Stopped);
        }
        let start = Instant::now();
        let seconds = alone.batch_s(CellTypeId(0), &cell_type, batch, EFFORT)?;
        points.push(Point::chosen(batch, seconds * 1e6));
        if start.elapsed() > 8 * LONGEST {
            break;
        }
    }
    Ok(points)
}
