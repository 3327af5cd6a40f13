//! Cells as GPUs run them.
//!
//! | file | idea |
//! |---|---|
//! | `cuda_cell.rs` | a cell: operations over registers, or a program over whole sequences |
//! | `operation.rs` | an operation: kernels with their weights, or a program |
//! | `persistent.rs` | a kernel that is made for one recurrent cell |
//! | `mapped.rs` | such kernels in one mapping, and in others |
//! | `error.rs` | why a cell cannot run |
//! | `constants.rs` | the weights of a cell, and where they are on each GPU |

mod constants;
mod cuda_cell;
mod error;
mod mapped;
mod operation;
mod persistent;

pub(crate) use cuda_cell::{CudaCell, CudaCellBody, Stepwise};
pub(crate) use error::CellError;
pub(crate) use operation::{Operation, OperationBody, Program, Step, Table};
pub(crate) use persistent::{Compiler, OfQuantum, Persistent, load_persistent, model_of};
