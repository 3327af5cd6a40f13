//! ONNX files and model directories as cell types and an unfolder.
//!
//! [`load`] reads a file, finds its recurrent operators and which axes of its inputs are
//! batch and time, cuts what stands between into programs, row-wise or over whole sequences, and
//! registers all of it as cells. What comes out is a [`Model`], which turns a request's tensors
//! into a cell graph and the graph's outputs into the reply's tensors. A file that
//! cannot be served is refused with every [`Diagnostic`] in it.
//!
//! The way of a file: `onnx_file` → `analysis` (with `operators`, `recurrent`,
//! `step_rule` and `loops`) →
//! `segment` (with `stack`) → `plan` (with `program`, `whole_program`, `loop_program`) → `unfolder`. A
//! `directory` adds names, limits and `text` tables, or names files that are one cell each
//! (`cell_file`, with `recognise` for those that a fused kernel computes) and how `kinds` unfold
//! them. ONNX is known here alone: what leaves is cells, and programs that are opaque bytes.

#![forbid(unsafe_code)]

mod amend;
mod analysis;
mod arg_max;
mod array;
mod cell_file;
mod chain_cell;
mod directory;
mod error;
mod files;
mod kinds;
mod layout;
mod literal;
mod load;
mod loop_program;
mod loops;
mod model;
mod onnx_file;
mod operators;
mod plan;
mod program;
mod recognise;
mod recurrence;
mod recurrent;
mod reply_plan;
mod segment;
mod stack;
mod step_rule;
mod symbolic;
mod text;
mod unfolder;
mod whole_program;
mod wire_check;

pub use amend::Amendments;
pub use cell_file::{CellInput, CellOutput, NamedCell};
pub use error::{Diagnostic, LoadError};
pub use kinds::{
    Chain, DecoderRules, Direction, EncoderDecoder, KindError, RowTensor, StepBound, StepOutput,
    Tree, UsedCell,
};
pub use layout::{Axis, Content, InputLayout};
pub use load::{
    ByCell, FUSED_BATCH_SIZE_MAX, LoadOptions, MAX_LENGTH, PROGRAM_BATCH_SIZE_MAX, ProfiledCell,
    load, load_embedded,
};
pub use model::{CellUse, Model, ReplyTensor, RequestTensor, TensorInfo, Unfolding};
pub use reply_plan::{ReplyError, ReplyPlan, StepPlan};
