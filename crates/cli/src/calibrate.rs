//! `serve --calibrate`: profiles of models that have none, made while nobody asks for anything, and
//! taken at once.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use batchmaker::{
    BatchLimits, CellRegistry, CellType, Loaded, Model, Precision, Prepared, ProfileFile, Profiles,
    WeakEngine,
};
use batchmaker_device::{Device, DeviceError};
use batchmaker_profile::{Goal, ModelProfile, Profile};
use batchmaker_server::log;

use crate::profile::Measured;

/// Nobody asks for anything if nothing came so often in a row, so far apart.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The cells to measure, and the reports to the server.
pub(crate) struct Calibration {
    subjects: Vec<Subject>,
    threads: usize,
    /// The device to measure on, which is dropped when calibration ends.
    device: Arc<dyn Device>,
    goal: Goal,
    registry: CellRegistry,
    /// Whether the batch limit of a cell type was given, by cell type.
    is_limit_given: Vec<bool>,
    profiles: Profiles,
}

/// Cells of a model to measure, and the file to keep their profile in, if there is a place.
struct Subject {
    model: String,
    file: Option<PathBuf>,
    cells: BTreeMap<String, CellType>,
    /// Of its other cells.
    known: ModelProfile,
}

impl Calibration {
    /// Of the cells that no profile knows.
    ///
    /// # Errors
    /// As for the device.
    pub(crate) fn new(prepared: &Prepared, goal: Goal) -> Result<Self, DeviceError> {
        let Prepared { loaded, machine, .. } = prepared;
        let Loaded { models, registry, profiles, profile_files, .. } = loaded;
        // The cells of stages are not those that the profile is of.
        let is_whole = |(model, _): &(&Model, _)| model.stage_starts.is_empty();
        let subject = |(model, file): (&Model, &Option<ProfileFile>)| {
            let mut subject = Subject {
                model: model.name.clone(),
                file: file.as_ref().map(|file| file.path.clone()),
                cells: BTreeMap::new(),
                known: ModelProfile {
                    threads: machine.threads_per_worker,
                    stages: profiles.stages_of(&model.name, file.as_ref()).cloned(),
                    ..Default::default()
                },
            };
            for used in &model.cells {
                let (name, cell) = (used.name.clone(), registry.get(used.cell_type));
                match profiles.cell_of(&model.name, file.as_ref(), cell) {
                    Some(known) => drop(subject.known.cells.insert(name, known)),
                    None => drop(subject.cells.insert(name, cell.clone())),
                }
            }
            (!subject.cells.is_empty()).then_some(subject)
        };
        let mut is_limit_given = vec![false; registry.cell_types().len()];
        for cell in models.iter().flat_map(|model| &model.cells) {
            is_limit_given[cell.cell_type.index()] |= cell.limit_given;
        }
        Ok(Self {
            subjects: models
                .iter()
                .zip(profile_files)
                .filter(is_whole)
                .filter_map(subject)
                .collect(),
            threads: machine.threads_per_worker,
            device: machine.device()?,
            goal,
            registry: registry.clone(),
            is_limit_given,
            profiles: profiles.clone(),
        })
    }

    /// Starts measuring, in a thread that ends with the engine.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(mut self, engine: WeakEngine) -> std::io::Result<()> {
        let calibrate = move || {
            for subject in std::mem::take(&mut self.subjects) {
                let model = subject.model.clone();
                match self.calibrate(&engine, subject) {
                    Ok(kept) => log(&format!("{model} was calibrated, and goes by it now{kept}")),
                    Err(error) => log(&format!("{model} was not calibrated: {error:#}")),
                }
            }
        };
        std::thread::Builder::new().name("calibrate".to_owned()).spawn(calibrate).map(drop)
    }

    /// Returns where what was found is kept.
    fn calibrate(&mut self, engine: &WeakEngine, subject: Subject) -> anyhow::Result<String> {
        let Subject { model, file, cells, mut known } = subject;
        let mut nodes = None;
        let mut go_on = || wait_until_idle(engine, &mut nodes);
        let asked = |cell: &CellType| {
            let mut precisions = vec![Precision::F32, cell.cell.precision];
            precisions.dedup();
            precisions
        };
        let measured = Measured { device: &*self.device, threads: self.threads };
        let found = measured.cells(&cells, None, asked, |_| {}, &mut go_on)?;
        known.cells.extend(found.cells);
        self.take(engine, &model, file.clone(), known.clone())?;
        let Some(file) = file else { return Ok(" until it stops: it has no place".to_owned()) };
        let kept = Profile::check_place(&file)
            .and_then(|()| Profile::keep(&file, &*self.device, &model, known));
        Ok(match kept {
            Ok(()) => format!("; kept in '{}'", file.display()),
            Err(error) => format!(" until it stops: it cannot be kept: {error}"),
        })
    }

    /// Lets the server go by what was found.
    fn take(
        &mut self,
        engine: &WeakEngine,
        model: &str,
        file: Option<PathBuf>,
        profile: ModelProfile,
    ) -> Result<(), DeviceError> {
        let Some(engine) = engine.upgrade() else { return Ok(()) };
        self.profiles.add_model(model, file, profile);
        self.profiles.plan(&self.registry, &**engine.device())?;
        let limit = |(cell, &is_given): (&CellType, &bool)| {
            let found = self.profiles.max_batch_size(cell, self.goal).filter(|_| !is_given);
            found.unwrap_or(cell.max_batch_size)
        };
        engine.set_limits(&BatchLimits {
            batch_max: self
                .registry
                .cell_types()
                .iter()
                .zip(&self.is_limit_given)
                .map(limit)
                .collect(),
            submission_window: self.profiles.submission_window(&self.registry, self.goal),
        });
        Ok(())
    }
}

/// If anything ran since the last look, when so many `nodes` had run, waits until nobody has asked for
/// anything for a while. Whether the engine is still there.
fn wait_until_idle(engine: &WeakEngine, nodes: &mut Option<u64>) -> bool {
    let mut looks = 0;
    loop {
        let Some(engine) = engine.upgrade() else { return false };
        let statistics = engine.statistics();
        drop(engine);
        let ran = Some(statistics.cells.iter().map(|cell| cell.nodes).sum());
        let is_idle = statistics.permits_in_use == 0 && ran == *nodes;
        if is_idle && (looks == 0 || looks >= LOOKS) {
            return true;
        }
        looks = if is_idle { looks + 1 } else { 1 };
        *nodes = ran;
        std::thread::sleep(BETWEEN_LOOKS);
    }
}
