//! ONNX files and model directories as cell types and an unfolder.
//!
//! [`load`] reads a file, finds its recurrent operators and which axes of its inputs are
//! batch and time, cuts the operators between them into segments, row-wise or over whole sequences, and
//! registers each part as a cell. The result is a [`Model`], which turns a request's tensors
//! into a cell graph and the graph's outputs into the reply's tensors. A file that
//! cannot be served is refused with every [`Diagnostic`] in it.
//!
//! The crate is a compiler, a folder for each of its phases. A folder uses those before it alone, and no file
//! uses another in a circle.
//!
//! | folder | holds |
//! |---|---|
//! | `data` | plain data: arrays, constants, symbolic dimensions, layouts, cells by the names of their ports |
//! | `file` | reads ONNX files, and amends them: inputs bound to constants, batches on other axes |
//! | `analysis` | finds what every value is; holds the rules of all operators and the table that registers them |
//! | `partition` | cuts an analysed file into segments, and orders them |
//! | `emit` | compiles segments, recurrent steps and bodies of loops to cells; recognises fused cells |
//! | `unfold` | plans how requests use the cells, and walks the plan; the unfold templates of `model.toml` |
//! | `loading` | files and directories, cells as files, `model.toml` with its tables of text; the [`Model`] |
//!
//! One arrow points back, through an interface: whether the body of a loop compiles to a cell decides how the
//! analysis treats the loop, so `emit` hands it a compiler of bodies.
//!
//! To add an ONNX operator, see `analysis/table.rs`. ONNX is known in this crate alone: it gives cells, and
//! programs that are opaque bytes.

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
    FUSED_BATCH_SIZE_MAX, LoadOptions, ModelCell, NewCell, PROGRAM_BATCH_SIZE_MAX, PerCell,
    ProfiledCell, StageStarts,
};
pub use error::{Diagnostic, LoadError};
pub use file::amend::Amendments;
pub use loading::directory::MAX_LENGTH;
pub use loading::load::{load, load_embedded, name_of};
pub use loading::model::Model;
pub use loading::reply_plan::{ReplyError, ReplyPlan, StepPlan};
pub use unfold::templates::chain::Chain;
pub use unfold::templates::encoder_decoder::{DecoderRules, EncoderDecoder, StepBound};
pub use unfold::templates::row_tensor::RowTensor;
pub use unfold::templates::template_cell::{StepOutput, TemplateCell, TemplateError};
pub use unfold::templates::tree::Tree;
pub use unfold::unfolding::{ReplyTensor, RequestTensor, Takes, TensorInfo, Unfolding};
