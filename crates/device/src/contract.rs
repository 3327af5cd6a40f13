//! See [`Device`].

use std::ops::Range;
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellType, RequestId, Stopped, TaskId, Tensor, TensorData, ValueIndex,
    WorkerId,
};

/// Why a device cannot do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A cell that this device cannot run; the model's to mend.
    #[error("cell {cell}: {reason}")]
    Cell {
        /// The cell type's name.
        cell: String,
        /// Why.
        reason: String,
    },
    /// The machine does not give what the device was configured to take.
    #[error("{0}")]
    Resources(String),
}

/// Computes cells. Shared by the workers that own its queues.
///
/// The requests that it is told of are in flight from [`admit`](Device::admit) to
/// [`retire`](Device::retire); tasks name only those. All runs of a request may use any value of it;
/// the order in which rows are written and read is the manager's care.
pub trait Device: Send + Sync {
    /// Prepares the cell types, whose ids are their positions: packs weights, compiles
    /// programs. Called once, before any request.
    fn materialize(&mut self, cell_types: &[CellType]) -> Result<(), DeviceError>;

    /// The queue of `worker`; taken once for each worker.
    fn queue(self: Arc<Self>, worker: WorkerId) -> Result<Box<dyn TaskQueue>, DeviceError>;

    /// Takes a request: `inputs` are the elements of the graph's input values, in their
    /// order, `[rows, ...row]`; rows of zeros follow where one brings fewer than its value has. All
    /// its other values are allocated here, zeroed.
    fn admit(&self, request: RequestId, graph: Arc<CellGraph>, inputs: Vec<Tensor>);

    /// The elements of some rows of a value of a request in flight, flat: rows that nodes which are
    /// complete have written.
    fn peek(&self, request: RequestId, value: ValueIndex, rows: Range<usize>) -> TensorData;

    /// Forgets a request of which no task is in flight, and gives the elements of the graph's
    /// output values, in their order, each flat.
    fn retire(&self, request: RequestId) -> Vec<Tensor>;
}

/// How far a queue has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing more has completed since the last call.
    None,
    /// The oldest unfinished task is complete.
    Complete(TaskId),
    /// The oldest unfinished task failed, and is over.
    Failed(TaskId),
}

/// The tasks of one worker.
pub trait TaskQueue: Send {
    /// Takes a task without waiting for it.
    fn submit(&mut self, task: BatchedTask);

    /// Tells of the oldest task not told of yet, if it is over. A device that computes on
    /// its worker's own thread runs that task within this call.
    fn poll(&mut self) -> Progress;

    /// Tells which chains said stop in the task last told of as complete, each once. Nodes of such a
    /// chain that come after are not computed, and write nothing. None do where no chain has a stop.
    fn take_stops(&mut self, into: &mut Vec<Stopped>) {
        let _ = into;
    }
}
