//! Measures the curve of a cell: the time of a batch over its size, each size with the fastest plan that the device
//! finds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_device::{BatchSize, Device, DeviceError, Measurement};
use batchmaker_graph::{CellBody, CellType, Precision};

use crate::curve::{Curve, Point};

/// Sizes to measure.
const SIZES: [usize; 18] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512];

/// Batches that take longer are not measured at still larger sizes: nobody would wait for them.
const LONGEST: Duration = Duration::from_millis(300);

/// Why a cell was not measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The device cannot.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The caller's `go_on` returned false.
    #[error("it was stopped")]
    Stopped,
}

/// Called before each size of batch: measuring stops when it returns false. It may block.
pub type GoOn<'a> = dyn FnMut() -> bool + Send + 'a;

/// The precisions that a cell can be served in.
pub fn precisions_of(cell: &CellType) -> &'static [Precision] {
    if cell.cell.has_precisions() { &Precision::ALL } else { &[Precision::F32] }
}

/// A cell in another precision, where it has one to choose.
pub fn in_precision(cell: &CellType, precision: Precision) -> CellType {
    let in_precision = (*cell.cell).clone().in_precision(precision);
    CellType { identity: in_precision.identity(), cell: Arc::new(in_precision), ..cell.clone() }
}

/// Whether a cell takes whole sequences.
pub fn takes_sequences(cell: &CellType) -> bool {
    matches!(cell.cell.body, CellBody::Sequence(_))
}

/// Measures a cell in a precision. Sequences have `steps` steps, or as many as the device knows the cell to take.
///
/// # Errors
/// See [`MeasureError`].
pub fn cell_curve(
    device: &dyn Device,
    cell: &CellType,
    precision: Precision,
    steps: Option<usize>,
    go_on: &mut GoOn<'_>,
) -> Result<Curve, MeasureError> {
    let mut had_steps = None;
    let cell = in_precision(cell, precision);
    let mut points = Vec::new();
    for rows in SIZES {
        if !go_on() {
            return Err(MeasureError::Stopped);
        }
        let start = Instant::now();
        let Measurement { ns, plan, steps } = device.measure(&cell, BatchSize { rows, steps })?;
        had_steps = steps;
        let is_long = match &plan {
            Some(_) => ns > LONGEST.as_nanos() as f64,
            // How long it takes to find a plan says nothing; without one, batches alone take time.
            None => start.elapsed() > 8 * LONGEST,
        };
        points.push(Point::measured(rows, ns / 1e3, plan.as_ref()));
        if is_long {
            break;
        }
    }
    Ok(Curve { steps: had_steps, difference: None, points })
}
