//! Profiles of the models that are loaded: batch limits, precisions and plans that were measured on this
//! machine.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use batchmaker_device::{Device, DeviceError};
use batchmaker_graph::{CellRegistry, CellType, Precision};
use batchmaker_manager::StagingOptions;
use batchmaker_model::{Model, ProfiledCell};
use batchmaker_profile::{
    CellProfile, Choice, Curve, FileError, Goal, Machine, ModelProfile, ModelStages, Profile,
};

use crate::staging::staging_options;

/// The name of a profile beside a model.
const FILE: &str = "profile.json";

/// The file that keeps the profile of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFile {
    /// Its path.
    pub path: PathBuf,
    /// Whether other models in its folder keep their profiles there too.
    pub is_shared: bool,
}

/// Profiles that were made on this machine.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    /// The profiles of each file by model: of the file that was named (no path), which is for all models, or
    /// of the files beside models.
    files: HashMap<Option<PathBuf>, BTreeMap<String, ModelProfile>>,
    is_named: bool,
    /// Measurements by the identity of a cell in f32: the best way to run a cell is the same in all models.
    cells: HashMap<String, Known>,
    /// Notes for the owner of the models on the profiles, a sentence each.
    notes: Vec<String>,
}

/// The profile of a cell.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    profile: CellProfile,
    /// The threads of the worker that it was measured on.
    threads: usize,
    /// The number of cells of its model that share a request's time.
    stepped_cells: usize,
}

/// The file that keeps the profile of a model at `path`; `profile.json` here, if the path is neither a file nor a
/// folder.
pub fn profile_beside(path: &Path) -> PathBuf {
    match (path.is_dir(), path.is_file()) {
        (true, _) => path.join(FILE),
        (_, true) => path.with_file_name(FILE),
        _ => PathBuf::from(FILE),
    }
}

impl Profiles {
    /// Reads the profile that was named, or those beside models. Those that were not made on the machine
    /// of `device` are noted and ignored.
    ///
    /// # Errors
    /// The named profile cannot be read. One beside a model that cannot be read is noted and passed over.
    pub fn read<'a>(
        named: Option<&Path>,
        beside: impl Iterator<Item = &'a Path>,
        device: &dyn Device,
    ) -> Result<Self, FileError> {
        let mut profiles = Self { is_named: named.is_some(), ..Self::default() };
        if let Some(path) = named {
            profiles.add(path, None, Profile::read(path, device)?, device);
            return Ok(profiles);
        }
        for path in beside.filter(|path| path.exists()) {
            if profiles.files.contains_key(&Some(path.to_owned())) {
                continue;
            }
            match Profile::read(path, device) {
                Ok(profile) => profiles.add(path, Some(path.to_owned()), profile, device),
                Err(error) => profiles.notes.push(format!("{error}; going on without")),
            }
        }
        Ok(profiles)
    }

    fn add(&mut self, path: &Path, key: Option<PathBuf>, profile: Profile, device: &dyn Device) {
        let here = Machine::of(device);
        self.files.insert(key.clone(), BTreeMap::new());
        if profile.machine != here {
            self.notes.push(format!(
                "the profile '{}' was made on another machine ({}; this is {here}): it is ignored",
                path.display(),
                profile.machine,
            ));
            return;
        }
        for (model, of_model) in profile.models {
            self.add_model(&model, key.clone(), of_model);
        }
    }

    /// Adds what was found of a model on this machine, and is kept in a file.
    pub fn add_model(&mut self, model: &str, file: Option<PathBuf>, profile: ModelProfile) {
        let stepped_cells = profile.stepped_cells();
        for (name, cell) in &profile.cells {
            let (name, profile, threads) = (name.clone(), cell.clone(), profile.threads);
            let known = Known { name, profile, threads, stepped_cells };
            self.cells.insert(cell.identity.clone(), known);
        }
        self.files.entry(file).or_default().insert(model.to_owned(), profile);
    }

    /// The profiles of the cells of the model of that name, whose profile would be kept in `file`. A file
    /// that does not have the name may know the model by another; but in one that is shared with other
    /// models, precisions are theirs.
    pub fn of_model(
        &self,
        name: &str,
        file: Option<&ProfileFile>,
        goal: Goal,
    ) -> HashMap<String, ProfiledCell> {
        let Some(models) = self.models_of(file) else { return HashMap::new() };
        let (models, is_own): (Vec<&ModelProfile>, bool) = match models.get(name) {
            Some(model) => (vec![model], true),
            None => {
                let is_own = file.is_some_and(|file| !file.is_shared);
                (models.values().collect(), self.is_named || is_own)
            }
        };
        let cells = models.into_iter().flat_map(|model| {
            let stepped = model.stepped_cells();
            model.cells.values().map(move |cell| (cell, stepped))
        });
        let of_cell = |(cell, stepped): (&CellProfile, usize)| {
            let max_batch_size = Precision::ALL.into_iter().filter_map(|precision| {
                let choice = goal.choose(cell.curve(precision)?, stepped)?;
                Some((precision, choice.max_batch_size))
            });
            let max_batch_size = max_batch_size.collect();
            let precision = is_own.then(|| cell.precision());
            (cell.identity.clone(), ProfiledCell { max_batch_size, precision })
        };
        cells.map(of_cell).collect()
    }

    /// The stages of the model of that name, whose profile would be kept in `file`. A file that no other model shares, and that knows one model,
    /// may know it by another name.
    pub fn stages_of(&self, model: &str, file: Option<&ProfileFile>) -> Option<&ModelStages> {
        let models = self.models_of(file)?;
        let is_own = file.is_some_and(|file| !file.is_shared) && !self.is_named;
        let only = || models.values().next().filter(|_| models.len() == 1 && is_own);
        models.get(model).or_else(only)?.stages.as_ref()
    }

    /// The options of the policy `staged` for a model whose profile would be kept in `file`: those that are `given`, and others as its profile
    /// suggests. None if the profile has no stages of it.
    pub fn staging_options(
        &self,
        given: StagingOptions,
        model: &Model,
        file: Option<&ProfileFile>,
    ) -> Option<StagingOptions> {
        let stages = self.stages_of(&model.name, file)?;
        Some(staging_options(given, stages, model))
    }

    /// The profiles that count for a model whose profile would be kept in `file`.
    fn models_of(&self, file: Option<&ProfileFile>) -> Option<&BTreeMap<String, ModelProfile>> {
        self.files.get(&if self.is_named { None } else { file.map(|file| file.path.clone()) })
    }

    /// Notes in which stages those of the models are, each with the file of its profile, that no profile cuts.
    pub(crate) fn note_stages<'a>(
        &mut self,
        models: impl Iterator<Item = (&'a Model, &'a Option<ProfileFile>)>,
    ) {
        let is_known = |model: &Model, file: &Option<ProfileFile>| {
            self.stages_of(&model.name, file.as_ref()).is_some()
        };
        let all = models.filter(|(model, file)| !is_known(model, file));
        let note = |(Model { name, stage_starts, decided_starts, .. }, _): (&Model, _)| {
            if stage_starts.is_empty() {
                return format!(
                    "{name} is one stage: if it has no recurrence, `batchmaker profile` finds stages for it"
                );
            }
            let why =
                if decided_starts.is_empty() { "" } else { ", as its exits and skips divide it" };
            format!(
                "{name} is served in {} stages{why}: `batchmaker profile` measures their times",
                stage_starts.len() + 1
            )
        };
        let notes: Vec<String> = all.map(note).collect();
        self.notes.extend(notes);
    }

    /// The profile of a loaded cell.
    fn known(&self, cell: &CellType) -> Option<&Known> {
        self.cells.get(&identity_in_f32(cell))
    }

    /// A loaded cell's profile, in the precision that was chosen for it in this model: what was chosen
    /// in another is no matter.
    pub fn cell_of(
        &self,
        model: &str,
        file: Option<&ProfileFile>,
        cell: &CellType,
    ) -> Option<CellProfile> {
        let mut profile = self.known(cell)?.profile.clone();
        let models = self.files.get(&file.map(|file| file.path.clone()));
        let cells = models.and_then(|models| models.get(model)).into_iter();
        let mut own = cells.flat_map(|model| model.cells.values());
        let own = own.find(|own| own.identity == profile.identity).map(CellProfile::precision);
        profile.precision = own.unwrap_or_default().to_string();
        Some(profile)
    }

    /// A loaded cell's curve, in its precision.
    fn curve(&self, cell: &CellType) -> Option<&Curve> {
        self.known(cell)?.profile.curve(cell.cell.precision)
    }

    fn choice(&self, cell: &CellType, goal: Goal) -> Option<Choice> {
        goal.choose(self.curve(cell)?, self.known(cell)?.stepped_cells)
    }

    /// Notes for the owner of the models on the profiles, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Notes that the profile of a model's cell was made with other weights, if so.
    pub(crate) fn note_others(&mut self, model: &str, name: &str, cell: &CellType) {
        let known = self.files.values().filter_map(|models| models.get(model)?.cells.get(name));
        let mut known = known.map(|known| known.identity == identity_in_f32(cell)).peekable();
        if known.peek().is_some() && !known.any(|is_this| is_this) {
            self.notes.push(format!(
                "the profile of cell '{name}' of {model} was made with other weights: it is ignored; run \
                 `batchmaker profile` again"
            ));
        }
    }

    /// Notes that a profile's times are those of workers with another number of threads, if so.
    pub(crate) fn note_threads(&mut self, registry: &CellRegistry, threads: usize) {
        let known = registry.cell_types().iter().filter_map(|cell| self.known(cell));
        if let Some(other) = known.map(|known| known.threads).find(|&known| known != threads) {
            self.notes.push(format!(
                "a profile was made on {other} threads, and workers have {threads} here: batch limits may \
                 be off; `batchmaker profile --threads-per-worker {threads}` measures anew"
            ));
        }
    }

    /// Notes that no profile knows the cells, or that a goal is out of reach, if so.
    pub(crate) fn note_goal(&mut self, registry: &CellRegistry, goal: Goal) {
        let mut notes = Vec::new();
        let cells = || registry.cell_types().iter().filter_map(|cell| self.known(cell));
        if cells().next().is_none() {
            if self.is_named && self.files.values().any(|models| !models.is_empty()) {
                notes.push("the profile that was named knows none of these cells".to_owned());
            }
            if goal != Goal::default() {
                notes.push(format!(
                    "no profile knows these cells: until one does, there is nothing that '{goal}' could \
                     go by; run `batchmaker profile`"
                ));
            }
        }
        for cell in registry.cell_types() {
            if let (Some(known), Some(Choice { is_met: false, .. })) =
                (self.known(cell), self.choice(cell, goal))
            {
                notes.push(format!(
                    "no batch of cell '{}' is fast enough for '{goal}': its limits are those for latency",
                    known.name
                ));
            }
        }
        self.notes.append(&mut notes);
    }

    /// Gives a device the plans of loaded cells.
    ///
    /// # Errors
    /// A plan is not one of the device.
    pub fn plan(&self, registry: &CellRegistry, device: &dyn Device) -> Result<(), DeviceError> {
        for cell in registry.cell_types() {
            let plans = self.curve(cell).map_or_else(Vec::new, Curve::plans);
            if !plans.is_empty() {
                device.plan(cell.identity, &plans)?;
            }
        }
        Ok(())
    }

    /// The most rows of a batch of a loaded cell.
    pub fn max_batch_size(&self, cell: &CellType, goal: Goal) -> Option<u32> {
        self.choice(cell, goal).map(|choice| choice.max_batch_size)
    }

    /// The submission window: the shortest that any loaded cell asks for.
    pub fn submission_window(&self, registry: &CellRegistry, goal: Goal) -> Option<Duration> {
        let cells = registry.cell_types().iter();
        cells.filter_map(|cell| self.choice(cell, goal)?.submission_window).min()
    }
}

/// The identity of a cell's type in f32, as profiles have it.
pub fn identity_in_f32(cell: &CellType) -> String {
    match cell.cell.precision {
        Precision::F32 => cell.identity.to_string(),
        _ => (*cell.cell).clone().in_precision(Precision::F32).identity().to_string(),
    }
}
