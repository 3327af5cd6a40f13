//! Finds models and loads them: ONNX files, model directories, folders of them, models compiled into a
//! program, and models with an unfolding function of the program's own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use batchmaker_engine::EngineConfig;
use batchmaker_graph::{Cell, CellRegistry, ModelId, Precision};
use batchmaker_manager::Policy;
use batchmaker_model::{LoadError, LoadOptions, Model, PerCell, ProfiledCell, StageStarts};
use batchmaker_profile::Goal;

use crate::custom::CustomModel;
use crate::error::BuildError;
use crate::machine::Cores;
use crate::profiles::{ProfileFile, Profiles, profile_beside};
use crate::staging::staging_options;

/// A model that is compiled into a program: its name, and its files with their contents.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedModel {
    /// The name that it is asked for by.
    pub name: &'static str,
    /// Names of files, as `model.toml` has them, and their contents.
    pub files: &'static [(&'static str, &'static [u8])],
}

/// The source of a model.
#[derive(Debug)]
pub(crate) enum Source {
    /// An ONNX file, a model directory, or a folder of these.
    Path(PathBuf),
    Embedded(EmbeddedModel),
    Custom(CustomModel),
}

/// The batch limits, precisions and stages that cells are loaded with.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellOptions {
    pub(crate) max_batch_size: PerCell<u32>,
    pub(crate) precision: PerCell<Precision>,
    /// None: one stage, or for the policy `staged` those of the profile; of a model without a profile, those that decisions begin.
    pub(crate) stages: Option<StageStarts>,
}

/// Models that are loaded, and their cell types.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The models.
    pub models: Vec<Model>,
    /// The cell types of all models.
    pub registry: CellRegistry,
    /// The profiles that were found of them.
    pub profiles: Profiles,
    /// The file that keeps each model's profile, if it has one.
    pub profile_files: Vec<Option<ProfileFile>>,
    /// The submission window that the profiles choose, if they do.
    pub submission_window: Option<Duration>,
}

impl Loaded {
    /// Notes for the owner of the models on how they were loaded, a sentence each.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        let of_models = self.models.iter().flat_map(|model| &model.notes);
        self.profiles.notes().iter().chain(of_models).map(String::as_str)
    }

    /// Tells the configuration what profiles say of the models that are served in stages: the times of these, and the options that were not
    /// given. Notes the options.
    pub(crate) fn configure_stages(&mut self, config: &mut EngineConfig) {
        for (model, file) in self.models.iter_mut().zip(&self.profile_files) {
            let Policy::Staged(given) = config.policy_of(&model.name) else { continue };
            let known = self.profiles.stages_of(&model.name, file.as_ref());
            let known = known.filter(|known| known.starts == model.stage_starts);
            let Some(known) = known else { continue };
            let policy = Policy::Staged(staging_options(given, known, model));
            let stages = match known.starts.len() {
                0 => "one stage".to_owned(),
                starts => format!("{} stages", starts + 1),
            };
            model.notes.push(format!("{} is served in {stages}, {policy}", model.name));
            let times = known.pieces().into_iter().map(|piece| piece.times).collect();
            config.policies.insert(model.name.clone(), policy);
            config.stage_times.insert(model.name.clone(), times);
        }
    }
}

impl Source {
    /// The file that keeps its profile, if there is one.
    fn profile_file(&self) -> Option<ProfileFile> {
        match self {
            Self::Path(path) => {
                Some(ProfileFile { path: profile_beside(path), is_shared: path.is_file() })
            }
            Self::Embedded(_) | Self::Custom(_) => None,
        }
    }

    /// The name of the model; none where it cannot be read, which loading it will tell.
    fn name(&self) -> String {
        match self {
            Self::Path(path) => batchmaker_model::name_of(path).unwrap_or_default(),
            Self::Embedded(embedded) => embedded.name.to_owned(),
            Self::Custom(custom) => custom.name().to_owned(),
        }
    }
}

/// The profiles that are taken into account.
pub(crate) enum ProfileChoice<'a> {
    /// None.
    Ignore,
    /// The file that was named, or those beside the models.
    Use { named: Option<&'a Path>, goal: Goal, cores: Cores },
}

/// Loads models.
pub(crate) fn load(
    sources: Vec<Source>,
    cells: &CellOptions,
    config: &EngineConfig,
    choice: &ProfileChoice<'_>,
) -> Result<Loaded, BuildError> {
    let is_staged = |name: &str| matches!(config.policy_of(name), Policy::Staged(_));
    let mut found = Vec::new();
    for source in sources {
        match source {
            Source::Path(path) => found.extend(find(&path)?.into_iter().map(Source::Path)),
            other => found.push(other),
        }
    }
    let files: Vec<Option<ProfileFile>> = found.iter().map(Source::profile_file).collect();
    let beside = files.iter().flatten().map(|file| file.path.as_path());
    let mut profiles = match choice {
        ProfileChoice::Ignore => Profiles::default(),
        ProfileChoice::Use { named, cores, .. } => {
            Profiles::read(*named, beside, &*cores.device()?)?
        }
    };
    let goal = match choice {
        ProfileChoice::Ignore => Goal::default(),
        ProfileChoice::Use { goal, .. } => *goal,
    };
    let of_cells =
        |source: &Source| profiles.of_model(&source.name(), source.profile_file().as_ref(), goal);
    let stages = |source: &Source| {
        let file = source.profile_file();
        let known = || profiles.stages_of(&source.name(), file.as_ref());
        let of_profile = || known().map(|stages| StageStarts::Named(stages.starts.clone()));
        // Profiles of cells are of those of the whole model.
        let is_known = || !of_cells(source).is_empty();
        let of_policy = || match of_profile() {
            None if !is_known() => StageStarts::Decided,
            stages => stages.unwrap_or_default(),
        };
        let chosen = cells.stages.clone();
        chosen.or_else(|| is_staged(&source.name()).then(of_policy)).unwrap_or_default()
    };
    let mut loaded = load_all(found, cells, of_cells, stages)?;
    check_policies(&loaded.models, config)?;
    let staged = loaded.models.iter().zip(&files).filter(|(model, _)| is_staged(&model.name));
    profiles.note_stages(staged);
    loaded.profile_files = files;
    if !matches!(choice, ProfileChoice::Ignore) {
        if loaded.models.iter().any(|model| model.stage_starts.is_empty()) {
            profiles.note_goal(&loaded.registry, goal);
        }
        // The cells of stages are others than those that were measured.
        for model in loaded.models.iter().filter(|model| model.stage_starts.is_empty()) {
            for cell in &model.cells {
                let cell_type = loaded.registry.get(cell.cell_type);
                profiles.note_others(&model.name, &cell.name, cell_type);
            }
        }
        loaded.submission_window = profiles.submission_window(&loaded.registry, goal);
    }
    loaded.profiles = profiles;
    Ok(loaded)
}

fn load_all(
    sources: Vec<Source>,
    cells: &CellOptions,
    profile: impl Fn(&Source) -> HashMap<String, ProfiledCell>,
    stages: impl Fn(&Source) -> StageStarts,
) -> Result<Loaded, BuildError> {
    let mut loaded = Loaded::default();
    for (source, id) in sources.into_iter().zip(0..) {
        let mut options = LoadOptions {
            max_batch_size: cells.max_batch_size.clone(),
            precision: cells.precision.clone(),
            profile: profile(&source),
            stages: stages(&source),
            ..LoadOptions::new(ModelId(id))
        };
        let registry = &mut loaded.registry;
        let model = match source {
            Source::Path(path) => match batchmaker_model::load(&path, &options, registry) {
                // The file has changed since it was cut.
                Err(error @ LoadError::Stages { .. }) if cells.stages.is_none() => {
                    options.stages = StageStarts::default();
                    let mut whole = batchmaker_model::load(&path, &options, registry)?;
                    whole.notes.push(format!(
                        "it is one stage, as the stages of its profile do not fit it ({error}): run `batchmaker profile` again"
                    ));
                    whole
                }
                loaded => loaded?,
            },
            Source::Embedded(EmbeddedModel { name, files }) => {
                batchmaker_model::load_embedded(name, files, &options, registry)?
            }
            Source::Custom(custom) => custom.register(&options, registry)?,
        };
        if loaded.models.iter().any(|known| known.name == model.name) {
            return Err(BuildError::SameName(model.name));
        }
        loaded.models.push(model);
    }
    let CellOptions { max_batch_size, precision, .. } = cells;
    check_cells(&loaded, "max_batch_size", max_batch_size.cells.keys(), |_| true)?;
    check_cells(&loaded, "precision", precision.cells.keys(), Cell::has_precisions)?;
    Ok(loaded)
}

/// Refuses the policy of a model that is not there.
fn check_policies(models: &[Model], config: &EngineConfig) -> Result<(), BuildError> {
    let names: Vec<String> = models.iter().map(|model| model.name.clone()).collect();
    match config.policies.keys().find(|name| !names.contains(name)) {
        None => Ok(()),
        Some(name) => {
            let reason = format!("a policy is set for '{name}', which is no model");
            Err(BuildError::Policy { reason, models: names })
        }
    }
}

/// The models at `path`.
fn find(path: &Path) -> Result<Vec<PathBuf>, BuildError> {
    if !path.exists() {
        return Err(BuildError::NoModel(path.to_owned()));
    }
    if path.is_file() || is_model(path) {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries.map_err(|source| BuildError::Folder { path: path.to_owned(), source })?;
    let mut found: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    found.retain(|path| is_model(path));
    found.sort();
    if found.is_empty() {
        return Err(BuildError::EmptyFolder(path.to_owned()));
    }
    Ok(found)
}

fn is_model(path: &Path) -> bool {
    path.join("model.toml").is_file()
        || path.is_file() && path.extension().is_some_and(|extension| extension == "onnx")
}

/// Refuses an option for a cell that no model has, or that does not take it.
fn check_cells<'a>(
    loaded: &Loaded,
    option: &'static str,
    mut given: impl Iterator<Item = &'a String>,
    takes: impl Fn(&Cell) -> bool,
) -> Result<(), BuildError> {
    let cells = || loaded.models.iter().flat_map(|model| &model.cells);
    let taking = cells().filter(|cell| takes(&loaded.registry.get(cell.cell_type).cell));
    let names: Vec<String> = taking.map(|cell| cell.name.clone()).collect();
    let Some(cell) = given.find(|&cell| !names.contains(cell)) else { return Ok(()) };
    let reason = match cells().any(|known| known.name == *cell) {
        true => format!("cell '{cell}' is run by the general executor, in f32"),
        false => format!("there is no cell '{cell}'"),
    };
    Err(BuildError::Cell { reason, option, cells: names })
}
