//! Cells as GPUs run them.
//!
//! | file | idea |
//! |---|---|
//! | `cuda_cell.rs` | a cell: operations over registers, or a program over whole sequences |
//! | `operation.rs` | an operation: kernels with their weights, or a program |
//! | `constants.rs` | the weights of a cell, and where they are on each GPU |

mod constants;
mod cuda_cell;
mod operation;

pub(crate) use cuda_cell::{CellError, CudaCell, CudaCellBody, Stepwise};
pub(crate) use operation::{Operation, OperationBody, Program, Step, Table};
