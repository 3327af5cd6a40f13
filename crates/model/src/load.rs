//! Loading: from a path or embedded bytes to a [`Model`] whose cells are registered.

use std::collections::BTreeMap;
use std::path::Path;

use batchmaker_graph::{CellRegistry, ModelId};

use crate::analysis::analyse;
use crate::directory;
use crate::files::Files;
use crate::model::{Model, Tables};
use crate::onnx_file::OnnxFile;
use crate::plan::{check_outputs, plan};
use crate::segment::cut;
use crate::{Blocker, LoadError};

/// The most chains in one batch of a recurrent cell, unless a limit is given. Beyond it
/// throughput hardly rises and every step takes longer.
pub const LSTM_BATCH_SIZE_MAX: u32 = 64;

/// The most rows in one batch of a row-wise program, unless a limit is given. Rows of one
/// sequence share a batch, so it is higher than a recurrent cell's.
pub const PROGRAM_BATCH_SIZE_MAX: u32 = 256;

/// The most rows (steps of all sequences) that a request may carry, unless the model says.
pub const MAX_LENGTH: usize = 65536;

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The model's id in the registry.
    pub model: ModelId,
    /// Batch limits.
    pub max_batch_size: BatchLimits,
}

/// The most rows in one batch, by cell.
#[derive(Clone, Debug, Default)]
pub struct BatchLimits {
    /// For every cell; none: [`LSTM_BATCH_SIZE_MAX`] and [`PROGRAM_BATCH_SIZE_MAX`].
    pub all: Option<u32>,
    /// By a cell's name, before `all`.
    pub cells: BTreeMap<String, u32>,
}

impl BatchLimits {
    /// The limit of cell `name`.
    pub(crate) fn of(&self, name: &str, recurrent: bool) -> u32 {
        let default = if recurrent { LSTM_BATCH_SIZE_MAX } else { PROGRAM_BATCH_SIZE_MAX };
        self.cells.get(name).copied().or(self.all).unwrap_or(default).max(1)
    }
}

/// Loads an ONNX file, or a directory with a `model.toml`.
///
/// # Errors
/// See [`LoadError`]. The registry is changed only where loading succeeds.
pub fn load(
    path: &Path,
    options: &LoadOptions,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    let missing = |reason: String| LoadError::File { file: path.display().to_string(), reason };
    let text = |part: Option<&std::ffi::OsStr>| {
        let text = part.and_then(|part| part.to_str()).map(str::to_owned);
        text.ok_or_else(|| missing("its name is not UTF-8".to_owned()))
    };
    let metadata = std::fs::metadata(path).map_err(|error| missing(error.to_string()))?;
    if metadata.is_dir() {
        let real = path.canonicalize().map_err(|error| missing(error.to_string()))?;
        let name = text(real.file_name())?;
        return load_directory(&Files::Folder(path.to_owned()), name, options, registry);
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let files = Files::Folder(folder.to_owned());
    let (name, file) = (text(path.file_stem())?, text(path.file_name())?);
    let tables = Tables { name, version: "1".to_owned(), ..Tables::default() };
    load_graph(&files, &file, tables, MAX_LENGTH, options, registry)
}

/// Loads a model directory that is compiled into the program: names and bytes of its
/// files. `name` is that of the model, unless its `model.toml` has one.
///
/// # Errors
/// See [`LoadError`].
pub fn load_embedded(
    name: &str,
    files: &[(&str, &[u8])],
    options: &LoadOptions,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    load_directory(&Files::Embedded(files), name.to_owned(), options, registry)
}

fn load_directory(
    files: &Files<'_>,
    name: String,
    options: &LoadOptions,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    let directory = directory::read(files, name)?;
    let (graph, max_length) = (directory.graph, directory.max_length);
    load_graph(files, &graph, directory.tables, max_length, options, registry)
}

fn load_graph(
    files: &Files<'_>,
    graph: &str,
    tables: Tables,
    max_length: usize,
    options: &LoadOptions,
    registry: &mut CellRegistry,
) -> Result<Model, LoadError> {
    let file = OnnxFile::read(files, graph)?;
    let mut analysis = analyse(&file);
    for (node, reason) in check_outputs(&analysis) {
        analysis.blockers.push(Blocker { operator: "output".to_owned(), node, reason });
    }
    if !analysis.blockers.is_empty() {
        let mut blockers: Vec<Blocker> = Vec::new();
        for blocker in analysis.blockers {
            if !blockers.contains(&blocker) {
                blockers.push(blocker);
            }
        }
        return Err(LoadError::Refused { file: file.name, blockers });
    }
    let cut = cut(&mut analysis);
    // Registered in a copy first: the tables may still refuse the model.
    let mut registered = registry.clone();
    let planned = plan(&analysis, &cut, options, max_length, &mut registered);
    let model = Model::new(planned, tables, files)?;
    *registry = registered;
    Ok(model)
}
