//! The errors of building and calling kernels. None occurs while a step runs: a step with valid arguments
//! cannot fail.

use std::fmt;

use crate::simd::isa::Isa;

/// Why a kernel could not be built or called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelError {
    /// This processor lacks the instruction set (or the build has no code for it).
    IsaUnavailable(Isa),

    /// Rows are too long for sums of products of bytes to fit 32 bits.
    Int8Inputs {
        /// Elements of a row.
        inputs: usize,
        /// The most elements that a row may have.
        most: usize,
    },

    /// A cell without hidden units has no state and no output.
    NoHiddenUnits,

    /// The sizes multiply to more than an address space holds.
    TooLarge {
        /// Length of a row of `x`.
        input_size: usize,
        /// Length of a row of `h` and `c`.
        hidden_size: usize,
        /// Number of rows; 1 where only weights are concerned.
        batch: usize,
    },

    /// An id that is not a row of the table.
    Id {
        /// The id given.
        id: i64,
        /// Rows of the table.
        rows: usize,
    },

    /// A slice does not have the length that the sizes give it.
    Length {
        /// The name of the argument.
        tensor: &'static str,
        /// Elements needed.
        expected: usize,
        /// Elements given.
        actual: usize,
    },
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IsaUnavailable(isa) => {
                write!(f, "instruction set {isa} is not available on this machine")
            }
            Self::Int8Inputs { inputs, most } => {
                write!(f, "rows of {inputs} elements are too long for int8, which takes {most}")
            }
            Self::NoHiddenUnits => {
                f.write_str("a cell without units: hidden_size (or output_size) must be at least 1")
            }
            Self::TooLarge { input_size, hidden_size, batch } => write!(
                f,
                "sizes too large: input_size {input_size}, hidden_size {hidden_size}, batch {batch}"
            ),
            Self::Id { id, rows } => write!(f, "id {id} is not one of the table's {rows} rows"),
            Self::Length { tensor, expected, actual } => {
                write!(f, "{tensor} has {actual} elements, expected {expected}")
            }
        }
    }
}

impl std::error::Error for KernelError {}
