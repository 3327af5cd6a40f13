//! Finding models: ONNX files, model directories, folders of them, and what ships inside.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use batchmaker_graph::{Cell, CellRegistry, ModelId};
use batchmaker_model::{ByCell, LoadOptions, Model, ProfiledCell};

use crate::args::{CellArgs, MachineArgs, OfCell};
use crate::profiled::{self, Profiles};
use crate::start::Cores;

/// A model that comes with the project, compiled into the binary.
struct EmbeddedModel {
    name: &'static str,
    files: &'static [(&'static str, &'static [u8])],
}

macro_rules! embedded {
    ($name:literal: $($file:literal),*) => {
        EmbeddedModel {
            name: $name,
            files: &[$((
                $file,
                include_bytes!(concat!("../../../models/", $name, "/", $file)),
            )),*],
        }
    };
}

const EMBEDDED: &[EmbeddedModel] = &[
    embedded!("langid": "model.toml", "model.onnx", "vocab.txt", "labels.txt"),
    embedded!(
        "g2p": "model.toml", "encoder.onnx", "decoder.onnx", "letters.txt", "phonemes.txt"
    ),
];

/// Loaded models and their cell types.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) models: Vec<Model>,
    pub(crate) registry: CellRegistry,
    /// How much work may be submitted ahead, where profiles say so.
    pub(crate) submission_window: Option<Duration>,
    /// Of each model, where its profile is kept, if it has a place.
    pub(crate) profile_files: Vec<Option<PathBuf>>,
    /// What profiles that were made here say.
    pub(crate) profiles: Profiles,
}

/// Where one model is.
enum Place {
    Path(PathBuf),
    Embedded(&'static EmbeddedModel),
}

impl Place {
    /// Where its profile is kept, if it has a place.
    fn profile_file(&self) -> Option<PathBuf> {
        match self {
            Self::Path(path) => Some(profiled::beside(path)),
            Self::Embedded(_) => None,
        }
    }

    /// Whether other models in its folder keep theirs there, too.
    fn shares_profile_file(&self) -> bool {
        matches!(self, Self::Path(path) if path.is_file())
    }

    /// What a profile is likely to call it: a directory, which has a profile of its own, may have
    /// another name.
    fn name(&self) -> String {
        match self {
            Self::Path(path) => {
                path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into())
            }
            Self::Embedded(embedded) => embedded.name.to_owned(),
        }
    }
}

impl Loaded {
    /// Tells on standard error what owners of the models may want to know.
    pub(crate) fn tell_notes(&self) {
        self.models
            .iter()
            .flat_map(|model| &model.notes)
            .for_each(|note| eprintln!("note: {note}"));
    }
}

/// Loads all models that `paths` name, those that come with the project if there are none, by what
/// profiles say of them that were made on `cores`.
pub(crate) fn load(paths: &[PathBuf], args: &MachineArgs, cores: Cores) -> anyhow::Result<Loaded> {
    let places = places(paths)?;
    let files: Vec<Option<PathBuf>> = places.iter().map(Place::profile_file).collect();
    let beside = files.iter().flatten().map(PathBuf::as_path);
    let profiles = Profiles::read(args.profile.as_deref(), beside, &cores.device()?)?;
    let mut loaded = load_with(&places, &args.cells, |place| {
        let (file, is_shared) = (place.profile_file(), place.shares_profile_file());
        profiles.of_model(&place.name(), file.as_deref(), is_shared, args.goal)
    })?;
    loaded.profile_files = files;
    profiles.tell_of_goal(&loaded.registry, args.goal);
    for model in &loaded.models {
        for cell in &model.cells {
            profiles.tell_of_others(&model.name, &cell.name, loaded.registry.get(cell.cell_type));
        }
    }
    loaded.submission_window = profiles.submission_window(&loaded.registry, args.goal);
    loaded.profiles = profiles;
    Ok(loaded)
}

/// Loads models without a look at profiles.
pub(crate) fn load_plainly(paths: &[PathBuf], cells: &CellArgs) -> anyhow::Result<Loaded> {
    load_with(&places(paths)?, cells, |_| HashMap::new())
}

/// Where the models are that `paths` name.
fn places(paths: &[PathBuf]) -> anyhow::Result<Vec<Place>> {
    if paths.is_empty() {
        return Ok(EMBEDDED.iter().map(Place::Embedded).collect());
    }
    let mut places = Vec::new();
    for path in paths {
        places.extend(find(path)?);
    }
    Ok(places)
}

fn load_with(
    places: &[Place],
    cells: &CellArgs,
    profile: impl Fn(&Place) -> HashMap<String, ProfiledCell>,
) -> anyhow::Result<Loaded> {
    let mut loaded = Loaded::default();
    let max_batch_size = by_cell(&cells.max_batch_size, |limit| limit.0);
    let precision = by_cell(&cells.precision, |&precision| precision);
    for (place, id) in places.iter().zip(0..) {
        let options = LoadOptions {
            max_batch_size: max_batch_size.clone(),
            precision: precision.clone(),
            profile: profile(place),
            ..LoadOptions::new(ModelId(id))
        };
        let registry = &mut loaded.registry;
        let model = match place {
            Place::Path(path) => batchmaker_model::load(path, &options, registry)?,
            Place::Embedded(embedded) => {
                batchmaker_model::load_embedded(embedded.name, embedded.files, &options, registry)?
            }
        };
        if loaded.models.iter().any(|known| known.name == model.name) {
            bail!("two models are called '{}': rename a file or set `name`", model.name);
        }
        loaded.models.push(model);
    }
    check_cells(&loaded, "--max-batch-size", max_batch_size.cells.keys(), |_| true)?;
    check_cells(&loaded, "--precision", precision.cells.keys(), Cell::is_fused)?;
    Ok(loaded)
}

/// The models at `path`.
fn find(path: &Path) -> anyhow::Result<Vec<Place>> {
    if !path.exists() {
        let embedded = EMBEDDED.iter().find(|embedded| Path::new(embedded.name) == path);
        if let Some(embedded) = embedded {
            return Ok(vec![Place::Embedded(embedded)]);
        }
        let names: Vec<&str> = EMBEDDED.iter().map(|embedded| embedded.name).collect();
        bail!(
            "there is no file or folder '{}', and no model of that name comes with the project \
             (there are: {})",
            path.display(),
            names.join(", ")
        );
    }
    if path.is_file() || is_model(path) {
        return Ok(vec![Place::Path(path.to_owned())]);
    }
    let entries = std::fs::read_dir(path)
        .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
        .with_context(|| format!("cannot read the folder '{}'", path.display()))?;
    let mut found: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    found.retain(|path| is_model(path));
    found.sort();
    if found.is_empty() {
        bail!(
            "'{}' holds no model: neither a model.toml, nor .onnx files, nor folders with one",
            path.display()
        );
    }
    Ok(found.into_iter().map(Place::Path).collect())
}

fn is_model(path: &Path) -> bool {
    path.join("model.toml").is_file()
        || path.is_file() && path.extension().is_some_and(|extension| extension == "onnx")
}

fn by_cell<T, V: Copy>(given: &[OfCell<T>], value: impl Fn(&T) -> V) -> ByCell<V> {
    let mut known = ByCell::default();
    for of_cell in given {
        let value = value(&of_cell.value);
        match &of_cell.cell {
            None => known.all = Some(value),
            Some(cell) => {
                known.cells.insert(cell.clone(), value);
            }
        }
    }
    known
}

/// An option for a cell that no model has, or that does not take it, is a mistake.
fn check_cells<'a>(
    loaded: &Loaded,
    option: &str,
    mut given: impl Iterator<Item = &'a String>,
    takes: impl Fn(&Cell) -> bool,
) -> anyhow::Result<()> {
    let cells = || loaded.models.iter().flat_map(|model| &model.cells);
    let taking = cells().filter(|cell| takes(&loaded.registry.get(cell.cell_type).cell));
    let names: Vec<&str> = taking.map(|cell| &*cell.name).collect();
    if let Some(cell) = given.find(|&cell| !names.contains(&cell.as_str())) {
        let what = match cells().any(|known| known.name == *cell) {
            true => format!("cell '{cell}' is run by the general executor, in f32"),
            false => format!("there is no cell '{cell}'"),
        };
        bail!("{option}: {what} (there are: {})", names.join(", "));
    }
    Ok(())
}
