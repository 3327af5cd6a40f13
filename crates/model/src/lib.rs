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

mod analysis;
mod data;
mod emit;
mod error;
mod file;
mod loading;
mod partition;
mod unfold;

pub use data::direction::Direction;
pub use data::layout::{Axis, Content, InputLayout};
pub use data::named_cell::{CellInput, CellOutput, NamedCell};
pub use emit::registration::{
    ByCell, CellUse, FUSED_BATCH_SIZE_MAX, LoadOptions, PROGRAM_BATCH_SIZE_MAX, ProfiledCell,
};
pub use error::{Diagnostic, LoadError};
pub use file::amend::Amendments;
pub use loading::directory::MAX_LENGTH;
pub use loading::load::{load, load_embedded};
pub use loading::model::{Model, ReplyError, ReplyPlan};
pub use unfold::templates::chain::Chain;
pub use unfold::templates::encoder_decoder::{DecoderRules, EncoderDecoder, StepBound};
pub use unfold::templates::row_tensor::RowTensor;
pub use unfold::templates::tree::Tree;
pub use unfold::templates::used_cell::{KindError, StepOutput, UsedCell};
pub use unfold::unfolding::{ReplyTensor, RequestTensor, TensorInfo, Unfolding};
