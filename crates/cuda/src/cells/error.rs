//! Why a cell cannot run.

use batchmaker_executor::ExecutorError;

use crate::gpu::GpuError;

/// Why a cell cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CellError {
    /// GPUs have no kernel for it.
    #[error("{0}")]
    NoKernel(String),
    /// Its plan is none of this device: the reason.
    #[error("{0}")]
    Plan(String),
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
