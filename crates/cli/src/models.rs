//! The models that the arguments name, and those that come with the project.

use std::path::{Path, PathBuf};

use anyhow::bail;
use batchmaker::{BuildError, EmbeddedModel, EngineBuilder};

use crate::args::CellArgs;
use crate::scoped::OfCell;

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

/// The models that come with the project, compiled into the binary.
const EMBEDDED: &[EmbeddedModel] = &[
    embedded!("langid": "model.toml", "model.onnx", "vocab.txt", "labels.txt"),
    embedded!(
        "g2p": "model.toml", "encoder.onnx", "decoder.onnx", "letters.txt", "phonemes.txt"
    ),
];

/// Adds the models that `paths` name, or those that come with the project if there are none, and the
/// options of their cells.
pub(crate) fn add(
    mut builder: EngineBuilder,
    paths: &[PathBuf],
    cells: &CellArgs,
) -> EngineBuilder {
    for path in paths {
        let embedded = EMBEDDED.iter().find(|embedded| Path::new(embedded.name) == path);
        builder = match embedded.filter(|_| !path.exists()) {
            Some(embedded) => builder.embedded_model(*embedded),
            None => builder.model(path),
        };
    }
    if paths.is_empty() {
        builder = EMBEDDED.iter().fold(builder, |builder, model| builder.embedded_model(*model));
    }
    for OfCell { cell, value } in &cells.max_batch_size {
        builder = builder.max_batch_size(cell.as_deref(), value.0);
    }
    for OfCell { cell, value } in &cells.precision {
        builder = builder.precision(cell.as_deref(), *value);
    }
    builder
}

/// Puts the error of a builder in terms of the command line.
pub(crate) fn explain(error: BuildError) -> anyhow::Error {
    match error {
        BuildError::NoModel(path) => {
            let names: Vec<&str> = EMBEDDED.iter().map(|embedded| embedded.name).collect();
            anyhow::anyhow!(
                "there is no file or folder '{}', and no model of that name comes with the project \
                 (there are: {})",
                path.display(),
                names.join(", ")
            )
        }
        BuildError::Cell { option, .. } => {
            anyhow::anyhow!("--{}: {error}", option.replace('_', "-"))
        }
        BuildError::Cores { workers, cores, .. } if workers > cores => {
            anyhow::anyhow!("{workers} workers on {cores} cores: use --workers {cores} or fewer")
        }
        BuildError::Cores { workers, cores, .. } => {
            anyhow::anyhow!("{error}: use --threads-per-worker {} or fewer", cores / workers)
        }
        error => error.into(),
    }
}

/// The name of the only model.
pub(crate) fn only_model<'a>(
    models: &'a [batchmaker::Model],
    path: &Path,
) -> anyhow::Result<&'a batchmaker::Model> {
    match models {
        [model] => Ok(model),
        models => bail!("'{}' holds {} models: name one", path.display(), models.len()),
    }
}
