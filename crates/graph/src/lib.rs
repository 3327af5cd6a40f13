//! The data that every other crate speaks of: ids, tensors, cells and their
//! identity, cell graphs in compact form, batched tasks, and the [`Unfold`] trait.
//!
//! Nothing here computes, schedules, reads a file or keeps time. A request is
//! unfolded ([`Unfold`]) into a [`CellGraph`]: [`Run`]s of cells of one type over
//! rows of [`Value`](ValueSpec)s. The manager turns the runs of many requests
//! into [`BatchedTask`]s; a device carries these out.

#![forbid(unsafe_code)]

mod builder;
mod cell;
mod cell_graph;
mod check;
mod dag;
mod decision;
mod ids;
mod precision;
mod readiness;
mod record_bytes;
mod registry;
mod rows;
mod task;
mod tensor;
mod unfold;
mod writers;

pub use builder::CellGraphBuilder;
pub use cell::{
    BYTE_PRODUCTS, Cell, CellBody, CellIdentity, CompositeCell, LinearArgMax, Lookup, LstmBytes,
    Operation, OperationBody, PortAxes, Program, RecurrentCell, RecurrentKind, RnnActivation,
    RowSpec, SequenceCell, TreeCell, UnknownId,
};
pub use cell_graph::{CellGraph, Chunk, Edge, Need, Run, RunKind, Sink, SinkTime, Stop, ValueSpec};
pub use check::{CellPorts, check_request};
pub use dag::{DagBuilder, NodeId, Operand, PlacedNodes};
pub use decision::{Choice, Decision, Guard};
pub use ids::{
    CellTypeId, DecisionIndex, ModelId, RequestId, RunIndex, SessionId, SlotId, TaskId, ValueIndex,
    WorkerId,
};
pub use precision::{Precision, UnknownPrecision};
pub use registry::{CellRegistry, CellType, ModelPriority};
pub use rows::{RowOrder, Rows};
pub use task::{BatchedTask, EndOfSequence, Item, Join, StatePlacement, Work};
pub use tensor::{ElementType, Tensor, TensorData, byte_string_bytes};
pub use unfold::{
    InvalidGraph, InvalidRequest, KeptSteps, NamedTensor, OutputTensor, Parameters, Unfold,
    UnfoldError, Unfolded, ValueCheck,
};
