//! Profiles as JSON.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use batchmaker_cpu::{CellPlan, PlannedBatch, Split, Tiling, Way};
use batchmaker_graph::Precision;
use serde::{Deserialize, Serialize};

use crate::error::Difference;
use crate::machine::Machine;

/// Of the file; another is not read.
const FORMAT: u32 = 1;

/// A file of profiles: of models on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    format: u32,
    /// Where it was made.
    pub machine: Machine,
    /// By name of the model.
    pub models: BTreeMap<String, ModelProfile>,
}

/// The profile of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelProfile {
    /// The threads of the worker that batches were run on.
    pub threads: usize,
    /// By name of the cell.
    pub cells: BTreeMap<String, CellProfile>,
}

/// The profile of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellProfile {
    /// The identity of its type in f32: another cell of that name has another.
    pub identity: String,
    /// The precision to serve it in: the fastest that keeps to the error that was allowed.
    pub precision: String,
    /// By name of the precision.
    pub curves: BTreeMap<String, Curve>,
}

/// Time over size of batch, in one precision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// How far the model's replies are from those in f32 where this cell alone is in the precision;
    /// none where that was not measured.
    pub difference: Option<Difference>,
    /// Sizes ascending.
    pub points: Vec<Point>,
}

/// A size of batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Rows.
    pub batch: u32,
    /// Microseconds a batch takes: a step, of a chain.
    pub us: f64,
    /// How threads divide it: `none`, `units` or `rows`; absent where the device chooses as it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Whether inputs are projected ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<bool>,
    /// How products run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiling: Option<TilingRecord>,
}

/// See [`Tiling`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TilingRecord {
    rows: u8,
    by_two: bool,
    block_kib: u16,
}

/// Why a file of profiles was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not there, or may not be read or written.
    #[error("'{path}': {error}")]
    File {
        /// Which file.
        path: String,
        /// What the system says.
        error: io::Error,
    },
    /// It is no profile.
    #[error("'{path}' is no profile that this version wrote: {reason}")]
    Malformed {
        /// Which file.
        path: String,
        /// What is wrong.
        reason: String,
    },
}

impl Profile {
    /// Of no models.
    pub fn new(machine: Machine) -> Self {
        Self { format: FORMAT, machine, models: BTreeMap::new() }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| FileError::File { path: name(), error })?;
        let malformed = |reason| FileError::Malformed { path: name(), reason };
        let profile: Self =
            serde_json::from_str(&text).map_err(|error| malformed(error.to_string()))?;
        match profile.format {
            FORMAT => Ok(profile),
            other => Err(malformed(format!("format {other}, expected {FORMAT}"))),
        }
    }

    /// Writes a file, beside it first: nobody reads half of it.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let failed = |error| FileError::File { path: path.display().to_string(), error };
        let mut text = serde_json::to_string_pretty(self).map_err(|e| failed(e.into()))?;
        text.push('\n');
        let beside = path.with_extension("json.new");
        std::fs::write(&beside, text).map_err(failed)?;
        std::fs::rename(&beside, path).map_err(failed)
    }
}

impl CellProfile {
    /// The precision to serve it in.
    pub fn precision(&self) -> Precision {
        self.precision.parse().unwrap_or_default()
    }

    /// The curve in a precision.
    pub fn curve(&self, precision: Precision) -> Option<&Curve> {
        self.curves.get(&precision.to_string())
    }
}

impl Curve {
    /// What a device is told of it; none where it chose itself.
    pub fn plan(&self) -> Option<CellPlan> {
        let batches: Vec<PlannedBatch> = self.points.iter().filter_map(Point::planned).collect();
        (!batches.is_empty()).then_some(CellPlan { batches })
    }
}

impl Point {
    /// A size in a configuration.
    pub fn configured(batch: usize, us: f64, way: Way, tiling: Option<Tiling>) -> Self {
        let split = match way.split {
            Split::None => "none",
            Split::Units => "units",
            Split::Rows => "rows",
        };
        let record = |Tiling { rows, by_two, block_kib }| TilingRecord { rows, by_two, block_kib };
        Self {
            batch: batch as u32,
            us,
            split: Some(split.to_owned()),
            ahead: Some(way.ahead),
            tiling: tiling.map(record),
        }
    }

    /// A size that the device chose how to run.
    pub fn chosen(batch: usize, us: f64) -> Self {
        Self { batch: batch as u32, us, split: None, ahead: None, tiling: None }
    }

    /// Rows a second.
    pub fn rows_per_s(&self) -> f64 {
        f64::from(self.batch) / self.us * 1e6
    }

    fn planned(&self) -> Option<PlannedBatch> {
        let split = match self.split.as_deref()? {
            "units" => Split::Units,
            "rows" => Split::Rows,
            _ => Split::None,
        };
        let way = Way { split, ahead: self.ahead? };
        let tiling = |TilingRecord { rows, by_two, block_kib }| Tiling { rows, by_two, block_kib };
        Some(PlannedBatch { rows: self.batch as usize, way, tiling: self.tiling.map(tiling) })
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_cpu::Isa;

    use super::*;

    #[test]
    fn a_profile_reads_back() {
        let way = Way { split: Split::Units, ahead: true };
        let tiling = Tiling { rows: 6, by_two: false, block_kib: 16 };
        let points = vec![Point::configured(4, 12.5, way, Some(tiling)), Point::chosen(8, 20.0)];
        let curve = Curve { difference: Some(Difference::default()), points };
        let cell = CellProfile {
            identity: "0123".to_owned(),
            precision: "bf16".to_owned(),
            curves: [("bf16".to_owned(), curve)].into(),
        };
        let mut profile = Profile::new(Machine::here(Isa::Scalar));
        let cells = [("lstm".to_owned(), cell)].into();
        profile.models.insert("m".to_owned(), ModelProfile { threads: 2, cells });
        let folder = std::env::temp_dir().join(format!("profile-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("profile.json");
        profile.write(&path).unwrap();
        assert_eq!(Profile::read(&path).unwrap(), profile);
        std::fs::write(&path, "{}").unwrap();
        assert!(Profile::read(&path).unwrap_err().to_string().contains("is no profile"));
        std::fs::remove_dir_all(&folder).unwrap();
        let plan = profile.models["m"].cells["lstm"].curve(Precision::Bf16).unwrap().plan();
        let batches = plan.unwrap().batches;
        assert_eq!(batches.len(), 1, "what the device chose is no plan");
        assert_eq!((batches[0].rows, batches[0].way), (4, way));
    }
}
