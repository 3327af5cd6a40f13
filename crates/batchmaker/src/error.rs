//! Why an engine cannot be built.

use std::path::PathBuf;

use batchmaker_device::DeviceError;
use batchmaker_engine::EngineError;
use batchmaker_model::LoadError;
use batchmaker_profile::FileError;

/// Why an engine cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A model cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device cannot run a cell, or the machine does not give what the device was configured to take.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The profile that was named cannot be read.
    #[error(transparent)]
    Profile(#[from] FileError),
    /// There is nothing at a path.
    #[error("there is no file or folder '{}'", .0.display())]
    NoModel(PathBuf),
    /// A folder holds no model.
    #[error(
        "'{}' holds no model: neither a model.toml, nor .onnx files, nor folders with one",
        .0.display()
    )]
    EmptyFolder(PathBuf),
    /// A folder cannot be read.
    #[error("cannot read the folder '{}': {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Two models have one name.
    #[error("two models are called '{0}': rename a file or set `name`")]
    SameName(String),
    /// A limit or precision was set for a cell that no model has, or that does not take it.
    #[error("{reason} (there are: {})", cells.join(", "))]
    Cell {
        /// The mistake.
        reason: String,
        /// The option: `max_batch_size` or `precision`.
        option: &'static str,
        /// The cells that take it.
        cells: Vec<String>,
    },
    /// A share in the workers' time is 0, or of no model.
    #[error("{reason} (there are: {})", models.join(", "))]
    Share {
        /// The mistake.
        reason: String,
        /// The models.
        models: Vec<String>,
    },
    /// A policy was set for a model that is not there.
    #[error("{reason} (there are: {})", models.join(", "))]
    Policy {
        /// The mistake.
        reason: String,
        /// The models.
        models: Vec<String>,
    },
    /// More workers, or threads of workers, than cores.
    #[error("{workers} workers of {threads} threads on {cores} cores")]
    Cores {
        /// The workers that were asked for.
        workers: usize,
        /// The threads of each.
        threads: usize,
        /// The cores of this machine.
        cores: usize,
    },
    /// Workers were asked for, of which each GPU has one.
    #[error("a GPU has one worker: the number of workers cannot be set for GPUs")]
    WorkersOfGpus,
    /// The system does not say how many cores it has.
    #[error("cannot count the cores: {0}")]
    NoCores(std::io::Error),
    /// A model fails on a request of zeros.
    #[error("model {model} cannot be served: {source} (of zeros)")]
    Trial {
        /// The model.
        model: String,
        /// Why the request failed.
        source: EngineError,
    },
}
