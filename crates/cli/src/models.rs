//! Finding models: ONNX files, model directories, folders of them, and what ships inside.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use batchmaker_graph::{CellRegistry, ModelId};
use batchmaker_model::{BatchLimits, LoadOptions, Model};

use crate::args::BatchLimit;

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
pub(crate) struct Loaded {
    pub(crate) models: Vec<Model>,
    pub(crate) registry: CellRegistry,
}

/// Where one model is.
enum Place {
    Path(PathBuf),
    Embedded(&'static EmbeddedModel),
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

/// Loads all models that `paths` name; those that come with the project if there are none.
pub(crate) fn load(paths: &[PathBuf], limits: &[BatchLimit]) -> anyhow::Result<Loaded> {
    let mut places = Vec::new();
    for path in paths {
        places.extend(find(path)?);
    }
    if paths.is_empty() {
        places.extend(EMBEDDED.iter().map(Place::Embedded));
    }
    let mut loaded = Loaded { models: Vec::new(), registry: CellRegistry::default() };
    let limits = batch_limits(limits);
    for (place, id) in places.iter().zip(0..) {
        let options = LoadOptions { model: ModelId(id), max_batch_size: limits.clone() };
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
    check_cells(&loaded, &limits)?;
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

fn batch_limits(limits: &[BatchLimit]) -> BatchLimits {
    let mut known = BatchLimits::default();
    for BatchLimit { cell, limit } in limits {
        match cell {
            None => known.all = Some(*limit),
            Some(cell) => {
                known.cells.insert(cell.clone(), *limit);
            }
        }
    }
    known
}

/// A limit for a cell that no model has is a mistake.
fn check_cells(loaded: &Loaded, limits: &BatchLimits) -> anyhow::Result<()> {
    let names = || loaded.models.iter().flat_map(|model| &model.cells).map(|cell| &*cell.name);
    for cell in limits.cells.keys() {
        if !names().any(|name| name == cell) {
            let names: Vec<&str> = names().collect();
            bail!("--max-batch-size: there is no cell '{cell}' (there are: {})", names.join(", "));
        }
    }
    Ok(())
}
