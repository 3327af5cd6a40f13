//! BatchMaker as a library: serves recurrent neural networks by cellular batching, within a program.
//!
//! A request is unfolded into a graph of *cells*. Cells of one type are batched whatever request they come
//! from, and requests join and leave the running batch at every step. The program loads ONNX files or
//! model directories ([`Engine::builder`]), submits requests from any number of threads
//! ([`Engine::submit`]), and waits for replies or awaits them. Sequences may come in chunks
//! ([`Engine::session`]), replies step by step ([`Engine::stream`]), and a model may have an unfolding
//! function of the program's own ([`CustomModel`]).
//!
//! ```
//! use batchmaker::{Engine, Request, Tensor, TensorData};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let langid = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/langid");
//! let engine = Engine::builder().model(langid).build()?;
//! let text = Tensor::new(vec![1], TensorData::Bytes(vec![b"Alle Menschen sind frei".to_vec()]));
//! let reply = engine.run("langid", Request::new().input("text", text))?;
//! let language = reply.output("language").ok_or("no such output")?;
//! assert_eq!(*language.data(), TensorData::Bytes(vec![b"deu".to_vec()]));
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod available_memory;
mod builder;
mod cell_handle;
mod custom;
mod engine;
mod error;
mod fairness;
mod graph;
mod loading;
mod machine;
mod processors;
mod profiles;
mod session;
mod staging;
mod stream;
mod trial;
mod zeros;

pub use batchmaker_cpu::{
    CellExecutor, Executor, ExecutorError, Isa, OnnxRuntime, OnnxRuntimeError, Slices,
    ask_for_slices,
};
/// The contract of devices, for a device of one's own ([`Prepared::start_on`]).
pub use batchmaker_device as device;
pub use batchmaker_device::{Device, DeviceError};
pub use batchmaker_engine::{
    BatchLimits, CellStatistics, EngineError, HungWorker, MemoryBudget, NotUnfolded, Pending,
    Permit, Reply, Request, Reservation, SessionChunk, SessionKey, SessionStatistics, Statistics,
    UnfoldedRequest, WaitingRequest,
};
pub use batchmaker_graph::{
    Cell, CellBody, CellRegistry, CellType, CellTypeId, CompositeCell, ElementType, InvalidGraph,
    InvalidRequest, KeptSteps, LinearArgMax, Lookup, NamedTensor, Operation, OperationBody,
    Parameters, PortAxes, Precision, Program, RecurrentCell, RecurrentKind, RnnActivation, RowSpec,
    SequenceCell, Tensor, TensorData, TreeCell,
};
pub use batchmaker_manager::{
    Delay, Diversity, Failure, Merging, PadTo, Padding, Policy, Split, Staging, StagingOptions,
};
pub use batchmaker_model::{
    Amendments, Axis, CellInput, CellOutput, Content, Diagnostic, InputLayout, LoadError, Model,
    ModelCell, NamedCell, ReplyError, ReplyPlan, StageStarts, StepPlan, TensorInfo,
};
pub use batchmaker_profile::{FileError, Goal};
pub use builder::{EngineBuilder, Prepared};
pub use cell_handle::CellHandle;
pub use custom::{CustomModel, UnfoldRequest};
pub use engine::{Engine, WeakEngine};
pub use error::BuildError;
pub use fairness::Fairness;
pub use graph::{Graph, Node, Operand, Run, Value, ValueRows};
pub use loading::{EmbeddedModel, Loaded};
pub use machine::{Cores, Machine, WORKERS_MAX};
pub use processors::{GpuKernels, Gpus, Processors};
pub use profiles::{ProfileFile, Profiles, identity_in_f32, profile_beside};
pub use session::Session;
pub use staging::stages_pay;
pub use stream::Stream;
pub use zeros::{has_lengths, rows_of_request};
