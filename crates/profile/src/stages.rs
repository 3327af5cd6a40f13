//! The stages of a model and their times, as they are measured and kept (DVABatch, section 7.1).

use std::time::Duration;

use batchmaker_device::{BatchSize, Device};
use batchmaker_graph::CellType;
use serde::{Deserialize, Serialize};

use crate::curve::{Point, check_points};
use crate::measure::{GoOn, MeasureError};
use crate::slicing::{Piece, preferred_size, times_of};

/// The stages that a model without recurrence is cut into, and the time that each takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelStages {
    /// The nodes of its file that begin stages 1, 2, ….
    pub starts: Vec<String>,
    /// For each stage, sizes of batches, in requests, ascending, with the time that each takes.
    pub times: Vec<Vec<Point>>,
    /// The fast size of batches of sequences of a quarter of the length that the times are of, where lengths differ: short sequences need
    /// others the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_batch: Option<u32>,
}

impl ModelStages {
    /// Stages that were measured, in their order.
    pub fn of(stages: &[Piece]) -> Self {
        let point =
            |&(batch, ns): &(u32, u64)| Point::measured(batch as usize, ns as f64 / 1e3, None);
        Self {
            starts: stages.iter().skip(1).map(|stage| stage.start.clone()).collect(),
            times: stages.iter().map(|stage| stage.times.iter().map(point).collect()).collect(),
            short_batch: None,
        }
    }

    /// Checks that there is a stage for each node, and that times can have been measured.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.times.len() != self.starts.len() + 1 {
            let (starts, times) = (self.starts.len(), self.times.len());
            return Err(format!("{times} of them, and {starts} nodes that begin one"));
        }
        if self.times.iter().any(Vec::is_empty) {
            return Err("one without times".to_owned());
        }
        if self.short_batch == Some(0) {
            return Err("batches of none".to_owned());
        }
        self.times.iter().try_for_each(|points| check_points(points))
    }

    /// The same as pieces, of which the first has no name.
    pub fn pieces(&self) -> Vec<Piece> {
        let time = |point: &Point| (point.batch, (point.us * 1e3) as u64);
        let starts = [String::new()].into_iter().chain(self.starts.iter().cloned());
        let piece = |(start, points): (String, &Vec<Point>)| Piece {
            start,
            is_decided: false,
            times: points.iter().map(time).collect(),
        };
        starts.zip(&self.times).map(piece).collect()
    }

    /// A table of the stages: where each begins, and how long batches take there.
    pub fn table(&self) -> String {
        let pieces = self.pieces();
        let mut text = match pieces.len() {
            1 => "one stage: the model is not cut\n".to_owned(),
            count => format!("{count} stages\n"),
        };
        for (number, Piece { start, .. }) in pieces.iter().enumerate().skip(1) {
            text += &format!("  stage {number} begins with {start}\n");
        }
        text += &format!("  {:>8}", "requests");
        for number in 0..pieces.len() {
            text += &format!("  {:>12}", format!("stage {number} us"));
        }
        text += &format!("  {:>12} {:>12}\n", "all us", "requests/s");
        for (size, ns) in times_of(&pieces) {
            text += &format!("  {size:>8}");
            for piece in &pieces {
                let of_size = piece.times.iter().find(|time| time.0 == size);
                text +=
                    &format!("  {:>12.1}", of_size.map_or(f64::NAN, |time| time.1 as f64 / 1e3));
            }
            let us = ns as f64 / 1e3;
            text += &format!("  {us:>12.1} {:>12.1}\n", f64::from(size) / us * 1e6);
        }
        let preferred =
            |piece: &Piece| preferred_size(&piece.times).map_or("-".into(), |n| n.to_string());
        text += &format!("  {:>8}", "prefers");
        for piece in &pieces {
            text += &format!("  {:>12}", preferred(piece));
        }
        text.push('\n');
        if let Some(size) = self.short_batch {
            text += &format!(
                "  sequences of a quarter of the length: batches of {size} are about as fast as any\n"
            );
        }
        text
    }
}

/// A piece of a model to measure.
#[derive(Clone, Debug)]
pub struct PieceCells {
    /// The node that it begins with.
    pub start: String,
    /// Whether an early exit or a skip is decided between it and the piece before it.
    pub is_decided: bool,
    /// Its cells, and how many rows of each a request has.
    pub cells: Vec<(CellType, u32)>,
}

/// Measures the pieces of a model, in batches of `sizes` requests: as long as the whole takes no longer than `longest`, and
/// of the first size in any case.
/// Sequences have `steps` steps, or as many as a cell takes. All pieces have the same sizes.
///
/// # Errors
/// See [`MeasureError`].
pub fn measure_pieces(
    device: &dyn Device,
    pieces: &[PieceCells],
    sizes: &[u32],
    longest: Duration,
    steps: Option<usize>,
    go_on: &mut GoOn<'_>,
) -> Result<Vec<Piece>, MeasureError> {
    let mut sizes = sizes.to_vec();
    // Of the whole, for each size.
    let mut totals = vec![0.0; sizes.len()];
    let mut measured = Vec::new();
    for PieceCells { start, is_decided, cells } in pieces {
        let mut sums = vec![0.0; sizes.len()];
        for (cell, rows) in cells {
            for (at, &size) in sizes.iter().enumerate() {
                if !go_on() {
                    return Err(MeasureError::Stopped);
                }
                let batch = BatchSize { rows: (size * rows) as usize, steps };
                let ns = device.measure(cell, batch)?.ns;
                sums[at] += ns;
                totals[at] += ns;
                if totals[at] > longest.as_nanos() as f64 {
                    sizes.truncate(at.max(1));
                    break;
                }
            }
        }
        let times = sizes.iter().zip(sums).map(|(&size, ns)| (size, ns as u64)).collect();
        measured.push(Piece { start: start.clone(), is_decided: *is_decided, times });
    }
    measured.iter_mut().for_each(|piece: &mut Piece| piece.times.truncate(sizes.len()));
    Ok(measured)
}
