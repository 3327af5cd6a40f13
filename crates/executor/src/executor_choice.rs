//! The choice of the executor of programs, and of how the own one keeps weights.

use std::fmt;

use batchmaker_graph::Precision;
use batchmaker_kernels as kernels;
use batchmaker_kernels::{Isa, Packing};

use crate::onnx_runtime::OnnxRuntime;

/// The executor of programs.
#[derive(Clone, Debug, Default)]
pub enum Executor {
    /// This crate: convolutions, products and what follows them in kernels of this project, all else in rten. A row or sequence has the same
    /// bits in any company.
    #[default]
    Own,
    /// ONNX Runtime, where it takes the program.
    OnnxRuntime(OnnxRuntime),
}

/// The executor of a program, and the form of its weights.
#[derive(Clone, Debug)]
pub struct ProgramOptions {
    /// The executor. ONNX Runtime takes no program whose weights are to be kept in another precision than f32.
    pub executor: Executor,
    /// The instruction set of products and convolutions, and the precision of constant matrices that are multiplied with. Convolutions, and all that
    /// rten runs, stay in f32.
    pub packing: Packing,
}

impl Default for ProgramOptions {
    /// The own executor, weights of f32.
    fn default() -> Self {
        Self { executor: Executor::Own, packing: Isa::best().into() }
    }
}

impl ProgramOptions {
    /// The own executor, weights of `precision`.
    pub fn in_precision(precision: Precision) -> Self {
        Self { packing: packing(Isa::best(), precision), ..Self::default() }
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::OnnxRuntime(runtime) => runtime.fmt(f),
        }
    }
}

/// The packing of weights that a cell keeps in `precision`, for the kernels of `isa`.
pub fn packing(isa: Isa, precision: Precision) -> Packing {
    let precision = match precision {
        Precision::F32 => kernels::Precision::F32,
        Precision::Bf16 => kernels::Precision::Bf16,
        Precision::Int8 => kernels::Precision::Int8,
    };
    Packing { isa, precision }
}
