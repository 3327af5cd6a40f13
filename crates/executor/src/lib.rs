//! The general executor: runs whatever part of a model has no fused kernel. Every device falls back to it.
//!
//! A device gathers the rows of a batch from its own memory, hands them over as plain tensors
//! ([`batchmaker_graph::TensorData`]), and scatters the tensors that come back. This crate knows nothing
//! of requests, slots or queues. It runs two kinds of programs, both ONNX files that the model crate writes:
//!
//! | type | a batch is |
//! |---|---|
//! | [`RowProgram`] | `[rows, ...row]`: rows of any requests, each computed by itself |
//! | [`SequenceProgram`] | `[sequences, steps, ...row]`: whole sequences, those of equal lengths together |
//!
//! Programs run on an [`ExecutorThreads`], of which a device has one for each worker.
//!
//! A single row or sequence gives the same bits as in any batch, unless ONNX Runtime runs it ([`Executor::OnnxRuntime`]).
//!
//! | file | idea |
//! |---|---|
//! | `row_program.rs` | programs over rows |
//! | `sequence_program.rs` | programs over whole sequences, and which of them run together |
//! | `loaded/` | a program in one of the executors, which runs both kinds; `choosing.rs` says in which |
//! | `program_file.rs` | reads the file of a program |
//! | `made_up.rs` | inputs that hold any numbers |
//! | `executor_choice.rs`, `onnx_runtime.rs` | the executors, and the precision of weights; ONNX Runtime as one executor, if asked for |
//! | `executor_of_cell.rs` | which executor runs a cell |
//! | `sections/` | programs that are cut into sections: native ones, in our kernels, and fallbacks, in rten |
//! | `single_row.rs` | plans how a single row runs, so that it gives the bits that it has in a batch |
//! | `single_row_branch.rs` | adds a branch for a single row to a program |
//! | `shape_check.rs` | checks of operands' shapes during a run |
//! | `row_count.rs` | operators that depend on the number of rows |
//! | `operator_times.rs` | the times of a program's operators |
//! | `operator.rs` | the operators of a program's file |
//! | `probe.rs` | the shapes inside a program, found by running it a few times |
//! | `inner_shapes.rs` | brings the shapes inside loops and branches out of them |
//! | `lengths.rs` | the lengths that shapes depend on |
//! | `growth.rs` | how a size grows with lengths |
//! | `working_bytes.rs` | bounds the bytes of a run, and the size of a batch by them |
//! | `memory_plan.rs` | the operators of a run, with what they allocate |
//! | `memory_run.rs` | the bytes of a run, operator by operator |
//! | `run_order.rs` | the order in which operators run |
//! | `buffer_pool.rs` | simulates the buffers of a run |
//! | `port.rs` | the shapes of inputs and outputs |
//! | `tensors.rs` | converts tensors of a batch to rten's and back |
//! | `threads/` | the threads that programs run on, and the cores that workers lend each other |
//! | `error.rs` | errors of loading and running programs |
#![forbid(unsafe_code)]

mod buffer_pool;
mod error;
mod executor_choice;
mod executor_of_cell;
mod faster;
mod growth;
mod inner_shapes;
mod lengths;
mod loaded;
mod made_up;
mod memory_plan;
mod memory_run;
mod onnx_runtime;
mod operator;
mod operator_times;
mod port;
mod probe;
mod program_file;
mod row_count;
mod row_program;
mod run_order;
mod sections;
mod sequence_program;
mod shape_check;
mod single_row;
mod single_row_branch;
mod tensors;
mod threads;
mod working_bytes;

pub use error::ExecutorError;
pub use executor_choice::{Executor, ProgramOptions, packing};
pub use executor_of_cell::CellExecutor;
pub use onnx_runtime::{OnnxRuntime, OnnxRuntimeError};
pub use operator_times::{OperatorTime, OperatorTimer};
pub use row_program::RowProgram;
pub use sequence_program::{SequenceBatch, SequenceProgram};
pub use threads::{ExecutorHost, ExecutorThreads, InUse, KERNEL_STACK_BYTES, Lent, SharedCores};
pub use working_bytes::BATCH_BYTES_MAX;
