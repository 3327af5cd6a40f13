//! The choice of the executor of programs.

use std::fmt;

use crate::onnx_runtime::OnnxRuntime;

/// The executor of programs.
#[derive(Clone, Debug, Default)]
pub enum Executor {
    /// This crate: convolutions and what follows them in kernels of this project, all else in rten. A row or sequence has the same
    /// bits in any company.
    #[default]
    Own,
    /// ONNX Runtime, where it takes the program.
    OnnxRuntime(OnnxRuntime),
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::OnnxRuntime(runtime) => runtime.fmt(f),
        }
    }
}
