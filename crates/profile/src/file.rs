//! Profiles as JSON.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use batchmaker_device::Device;
use batchmaker_graph::Precision;
use serde::{Deserialize, Serialize};

use crate::curve::Curve;
use crate::machine::Machine;
use crate::stages::ModelStages;

/// The format of the file. Files of other formats are not read.
const FORMAT: u32 = 3;

/// A file of profiles: those of models on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    format: u32,
    /// The machine that it was measured on.
    pub machine: Machine,
    /// The profiles by the models' names.
    pub models: BTreeMap<String, ModelProfile>,
}

/// The profile of a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelProfile {
    /// The threads of the worker that batches were run on.
    pub threads: usize,
    /// The profiles by the cells' names.
    pub cells: BTreeMap<String, CellProfile>,
    /// The stages that it is cut into; none of a model with recurrence, or whose stages were not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<ModelStages>,
}

/// The profile of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellProfile {
    /// The identity of its type in f32. A different cell with the same name has a different identity.
    pub identity: String,
    /// Whether requests go through it step by step: they spend their time in all such cells.
    pub is_stepped: bool,
    /// The precision to serve it in: the fastest that keeps to the error that was allowed.
    pub precision: String,
    /// The curves by the precisions' names.
    pub curves: BTreeMap<String, Curve>,
}

/// Why a file of profiles was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is not there, or may not be read or written.
    #[error("'{path}': {error}")]
    File {
        /// Which file.
        path: String,
        /// The system's error.
        error: io::Error,
    },
    /// It is no profile.
    #[error("'{path}' is no profile that this version wrote: {reason}")]
    Malformed {
        /// Which file.
        path: String,
        /// Why it is malformed.
        reason: String,
    },
    /// Something else is in its place.
    #[error("'{path}' is there and is no profile: it is left as it is")]
    Taken {
        /// Which file.
        path: String,
    },
}

impl Profile {
    /// A file without models.
    pub fn new(machine: Machine) -> Self {
        Self { format: FORMAT, machine, models: BTreeMap::new() }
    }

    /// Reads a file. Where it was made on a machine like that of `device`, all plans are the device's.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn read(path: &Path, device: &dyn Device) -> Result<Self, FileError> {
        let name = || path.display().to_string();
        let file = |error| FileError::File { path: name(), error };
        if !fs::metadata(path).map_err(file)?.is_file() {
            return Err(file(io::Error::other("it is not a file")));
        }
        let text = fs::read_to_string(path).map_err(file)?;
        let malformed = |reason| FileError::Malformed { path: name(), reason };
        // First: another format may have other fields.
        let Head { format } = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
        if format != FORMAT {
            return Err(malformed(format!(
                "it has format {format}, not {FORMAT}; `batchmaker profile` makes it anew"
            )));
        }
        let profile: Self = serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
        profile.check(device).map_err(malformed)?;
        Ok(profile)
    }

    /// Checks that numbers can have been measured, and that the device can read its plans.
    fn check(&self, device: &dyn Device) -> Result<(), String> {
        let device = (self.machine == Machine::of(device)).then_some(device);
        for (name, stages) in
            self.models.iter().filter_map(|(name, model)| Some((name, model.stages.as_ref()?)))
        {
            stages.check().map_err(|reason| format!("stages of '{name}': {reason}"))?;
        }
        let cells = self.models.values().flat_map(|model| &model.cells);
        for (name, cell) in cells {
            let precision = |text: &str| match text.parse::<Precision>() {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("cell '{name}': {error}")),
            };
            precision(&cell.precision)?;
            for (of, curve) in &cell.curves {
                precision(of)?;
                curve.check(device).map_err(|reason| format!("cell '{name}', {of}: {reason}"))?;
            }
        }
        Ok(())
    }

    /// Checks that [`Self::keep`] can write to `path`.
    ///
    /// # Errors
    /// See [`FileError`]: no profile is replaced but by another.
    pub fn check_place(path: &Path) -> Result<(), FileError> {
        let name = || path.display().to_string();
        let file = |error| FileError::File { path: name(), error };
        if let Ok(metadata) = fs::metadata(path) {
            let is_profile = || {
                let text = fs::read_to_string(path).ok()?;
                serde_json::from_str::<serde_json::Value>(&text).ok()?.get("models").map(|_| ())
            };
            if !metadata.is_file() || metadata.len() > 0 && is_profile().is_none() {
                return Err(FileError::Taken { path: name() });
            }
        }
        let beside = beside(path);
        File::create(&beside).and_then(|_| fs::remove_file(&beside)).map_err(file)
    }

    /// Writes what was found of a model on the machine of `device`, beside what the file says of other models.
    /// Those that several processes keep at once are all kept.
    ///
    /// # Errors
    /// See [`FileError`].
    pub fn keep(
        path: &Path,
        device: &dyn Device,
        model: &str,
        profile: ModelProfile,
    ) -> Result<(), FileError> {
        let machine = Machine::of(device);
        // Of the folder: the file is replaced. Where there are no locks, others may come between.
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let lock = File::open(folder.unwrap_or(Path::new(".")));
        let _ = lock.as_ref().map(File::lock);
        let known = match Self::read(path, device) {
            Ok(known) => Some(known).filter(|known| known.machine == machine),
            Err(error @ FileError::File { .. }) if path.exists() => return Err(error),
            // None yet, or of another format.
            Err(_) => None,
        };
        let mut all = known.unwrap_or_else(|| Self::new(machine));
        all.models.insert(model.to_owned(), profile);
        all.write(path)
    }

    /// Writes the file, under a temporary name first: nobody reads half of it.
    fn write(&self, path: &Path) -> Result<(), FileError> {
        let failed = |error| FileError::File { path: path.display().to_string(), error };
        let mut text = serde_json::to_string_pretty(self).map_err(|e| failed(e.into()))?;
        text.push('\n');
        // A link stays one.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let beside = beside(&real);
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &real));
        written.map_err(|error| {
            let _ = fs::remove_file(&beside);
            failed(error)
        })
    }
}

/// The field that files of all formats have.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// The path of a temporary file, which replaces `path` when it is complete.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

impl ModelProfile {
    /// The number of cells that requests go through step by step.
    pub fn stepped_cells(&self) -> usize {
        self.cells.values().filter(|cell| cell.is_stepped).count()
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

#[cfg(test)]
mod tests {
    use batchmaker_cpu::{CpuConfig, CpuDevice};
    use batchmaker_device::ExecutionPlan;

    use crate::curve::Point;
    use crate::error::Difference;

    use super::*;

    #[test]
    fn a_profile_reads_back() {
        let device = CpuDevice::new(CpuConfig::default()).unwrap();
        let plan = ExecutionPlan::new(r#"{"ahead":true,"split":"units"}"#);
        let points = vec![Point::measured(4, 12.5, Some(&plan)), Point::measured(8, 20.0, None)];
        let curve = Curve { steps: None, difference: Some(Difference::default()), points };
        let cell = CellProfile {
            identity: "0123".to_owned(),
            is_stepped: true,
            precision: "bf16".to_owned(),
            curves: [("bf16".to_owned(), curve)].into(),
        };
        let mut profile = Profile::new(Machine::of(&device));
        let cells = [("lstm".to_owned(), cell)].into();
        let times = [20.5, 30.25].map(|us| vec![Point::measured(1, us, None)]).to_vec();
        let stages = ModelStages { starts: vec!["conv".to_owned()], times, short_batch: Some(4) };
        let of_model = ModelProfile { threads: 2, cells, stages: Some(stages) };
        profile.models.insert("m".to_owned(), of_model.clone());
        let folder = std::env::temp_dir().join(format!("profile-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("profile.json");
        Profile::check_place(&path).unwrap();
        Profile::keep(&path, &device, "m", of_model.clone()).unwrap();
        assert_eq!(Profile::read(&path, &device).unwrap(), profile);
        Profile::keep(&path, &device, "n", of_model).unwrap();
        assert_eq!(Profile::read(&path, &device).unwrap().models.len(), 2, "others stay");
        Profile::check_place(&path).unwrap();
        let kept = fs::read_to_string(&path).unwrap();
        for (from, to) in [
            ("12.5", "-1.0"),
            ("12.5", "1e300"),
            ("\"batch\": 4", "\"batch\": 0"),
            ("\"batch\": 4", "\"batch\": 9"),
            ("units", "panels"),
            ("\"ahead\": true", "\"ahead\": true, \"blocks\": 3"),
            ("\"bf16\",", "\"f8\","),
            ("20.5", "-20.5"),
            ("\"conv\"", "\"conv\", \"third\""),
            ("\"format\": 3", "\"format\": 2"),
        ] {
            assert!(kept.contains(from), "{from}");
            fs::write(&path, kept.replace(from, to)).unwrap();
            let refused = Profile::read(&path, &device).unwrap_err().to_string();
            assert!(refused.contains("is no profile that this version wrote"), "{to}: {refused}");
        }
        let foreign = kept.replace("\"processor\": \"", "\"processor\": \"Another ");
        let foreign = foreign.replace("units", "panels");
        fs::write(&path, foreign).unwrap();
        assert!(Profile::read(&path, &device).is_ok(), "plans of another machine are no matter");
        fs::write(&path, "a model").unwrap();
        assert!(Profile::check_place(&path).is_err() && Profile::check_place(&folder).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(&folder).unwrap();
        let curve = profile.models["m"].cells["lstm"].curve(Precision::Bf16).unwrap();
        assert_eq!(curve.plans(), [(4, plan)], "what the device chose is no plan");
    }
}
