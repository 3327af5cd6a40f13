//! Why a cell cannot run.

use batchmaker_executor::ExecutorError;

use crate::gpu::GpuError;

/// Why a cell cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CellError {
    /// GPUs have no kernel for it.
    #[error("{0}")]
    NoKernel(String),
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    #[error(transparent)]
    Gpu(#[from] GpuError),
}
