//! The contract: [`Device`], and the [`TaskQueue`] of each of its workers.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellIdentity, CellType, CellTypeId, EndOfSequence, InvalidGraph,
    RequestId, SlotId, StatePlacement, TaskId, Tensor, TensorData, ValueIndex, WorkerId,
};

use crate::bell::Bell;
use crate::plan::{BatchSize, ExecutionPlan, Measurement, OperatorMeasurement, Roofs};
use crate::usage::Usage;

/// Why a device cannot do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The device cannot run this cell; the model must change.
    #[error("cell {cell}: {reason}")]
    Cell {
        /// The cell type's name.
        cell: String,
        /// The reason.
        reason: String,
    },
    /// The machine does not give what the device was configured to take.
    #[error("{0}")]
    Resources(String),
    /// The device has no room for `bytes` more bytes of values now; it may have later.
    #[error("the device has no room for {bytes} more bytes")]
    Full {
        /// The bytes that it was asked to hold.
        bytes: usize,
    },
    /// The request's graph does not fit its cells, or its inputs do not fit the graph.
    #[error(transparent)]
    Graph(#[from] InvalidGraph),
    /// The device is gone.
    #[error("the device is lost: {0}")]
    Lost(String),
}

/// The abilities of a device, and its requirements of the caller. Constant for the life of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// A description of the processor, as far as the times of batches depend on it: name,
    /// instruction set, caches. Times and plans hold for devices with the same description.
    pub processor: Arc<str>,
    /// Whether workers share one memory for states and values, or each has its own. With a memory for
    /// each worker, the device copies a state when a task names the worker that it moved from, where it
    /// is undefined afterwards, and copies values to where a task or a read needs them.
    pub placement: StatePlacement,
    /// The most queues that can be taken; none: as many as are asked for.
    pub workers_max: Option<u16>,
    /// The most slots of a cell type that may be in use at a time; none: no bound but memory.
    pub slots_max: Option<u32>,
    /// The most bytes that the values of all admitted requests may hold; none: no bound but memory.
    pub bytes_max: Option<usize>,
    /// The most bytes that a batch of several nodes takes on a worker while it runs, beside weights, values and states:
    /// inputs that are gathered, and intermediate values. A worker may take as many at any time. A batch of one node may
    /// take more: see [`Device::working_bytes`].
    pub working_bytes: u64,
    /// A worker is given its next round while at most this many of its tasks are unfinished. 0 for
    /// a device that computes within [`TaskQueue::poll`]; 1 or more keeps an asynchronous one busy.
    pub lookahead: u32,
    /// The rounds of a cell type of chains that a worker has before another one has its turn. 1, or more for a device that loses time when it changes from one
    /// cell type to another.
    pub rounds_of_a_turn: u32,
    /// The time that a worker polls for a completion before it blocks.
    pub poll_for: Duration,
}

impl Default for Capabilities {
    /// One memory, no bounds, work done within [`TaskQueue::poll`].
    fn default() -> Self {
        Self {
            processor: "unnamed".into(),
            placement: StatePlacement::Shared,
            workers_max: None,
            slots_max: None,
            bytes_max: None,
            working_bytes: 0,
            lookahead: 0,
            rounds_of_a_turn: 1,
            poll_for: Duration::ZERO,
        }
    }
}

/// The properties of a cell type that a device has materialised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Materialized {
    /// The code that runs its batches.
    pub runner: Runner,
    /// The most rows of a batch; none: any number. Batch limits never go above it.
    pub rows_max: Option<u32>,
    /// The bytes that the states of a chain take in their slot; 0 of cells without states.
    pub slot_bytes: usize,
    /// The number of workers whose cores a batch of a single row takes while all others are idle, its own included. Where it is more than
    /// 1, a request that is alone may run on one worker at a time.
    pub workers_of_a_row: u32,
}

/// The states that a chunk of a session left in slots. When it is dropped, the device may free their memory.
pub struct KeptStates(#[expect(dead_code, reason = "it is dropped")] Box<dyn Send + Sync>);

impl KeptStates {
    /// States whose memory is free when `slots` is dropped.
    pub fn new(slots: impl Send + Sync + 'static) -> Self {
        Self(Box::new(slots))
    }
}

impl fmt::Debug for KeptStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptStates").finish_non_exhaustive()
    }
}

/// The code that runs the batches of a cell type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// Kernels of the device.
    Device,
    /// The general executor, on the host.
    Executor,
    /// Both: some parts of a composite cell are kernels, others programs.
    Both,
}

/// Computes cells, for one worker or several, each of which drives one [`TaskQueue`].
///
/// A request is in flight from [`admit`](Device::admit) to [`retire`](Device::retire). Rows to run,
/// and chains that join a roster, are of requests in flight. A chain may stay on a roster after its
/// request is retired, until a later task says that it leaves; no step runs meanwhile, but its slot's
/// index may already be another chain's. A task with steps may leave a roster empty.
///
/// The manager decides the order in which rows are written and read: a task reads rows of tasks that
/// were submitted earlier to the same queue, or that are complete. A chunk of a session's chain is
/// never padded: no step goes past its last node.
///
/// A device may be lost as a whole or a worker's part of it. The worker learns this from
/// [`Completion::Lost`].
pub trait Device: Send + Sync {
    /// See [`Capabilities`].
    fn capabilities(&self) -> Capabilities;

    /// Takes a cell type under an id: packs its weights, compiles its programs. A device counts how
    /// often it was given the type; only the first time costs anything.
    ///
    /// May be called while tasks of other types run.
    ///
    /// # Errors
    /// [`DeviceError::Cell`] where the device cannot run it, [`DeviceError::Resources`] where it has
    /// no room for its weights.
    ///
    /// # Panics
    /// If the id stands for a cell of another identity.
    fn materialize(&self, id: CellTypeId, cell: &CellType) -> Result<Materialized, DeviceError>;

    /// Takes back one [`materialize`](Device::materialize) of a cell type. When the last one is taken
    /// back, the device frees the weights and slots, and the id may stand for another type. The caller
    /// ensures that no request in flight and no session uses the type then.
    fn release(&self, id: CellTypeId);

    /// Returns the queue of `worker`; called once for each worker. A queue that completes work outside
    /// [`TaskQueue::poll`] rings `bell` whenever `poll` has something new to report.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where there are no threads or units for it.
    fn queue(
        self: Arc<Self>,
        worker: WorkerId,
        bell: Arc<Bell>,
    ) -> Result<Box<dyn TaskQueue>, DeviceError>;

    /// Takes a request. `inputs` are the elements of the graph's input values, in their order,
    /// `[rows, ...row]`; rows of zeros follow where one brings fewer than its value has. Its other
    /// values are allocated here, zeroed.
    ///
    /// # Errors
    /// [`DeviceError::Graph`] where [`check_request`](batchmaker_graph::check_request) refuses the request:
    /// a device trusts nothing that it does not check. [`DeviceError::Full`] where there is no room now,
    /// [`DeviceError::Lost`] where nothing would run it any more. The request is not in flight then.
    fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError>;

    /// Returns an upper bound of the bytes that nodes of a request take at a time on `workers` workers, beyond the
    /// [`Capabilities::working_bytes`] of each: a worker runs one batch at a time, and a batch with a node that takes
    /// more has no other. Nodes that do not depend on each other may run on all workers at once.
    ///
    /// Is called before a request is admitted, with a graph that may not fit its cells: what does not fit counts as 0.
    /// The time that it takes grows with the number of runs at most.
    fn working_bytes(&self, _graph: &CellGraph, _workers: usize) -> u64 {
        0
    }

    /// Takes over the states that a chunk of a session leaves in its slots, when the chunk is over and before it is
    /// retired: the caller keeps them until the session has ended. None where the chunk leaves none that chunks
    /// before it did not leave, or where the device has nothing to free: one whose slots have their memory from the
    /// start, for example.
    fn keep_states(&self, _request: RequestId) -> Option<KeptStates> {
        None
    }

    /// Frees the values of a request of which no task and no read is in flight and, if it is no chunk of a session,
    /// the slots of its chains. Its id may be used again from then on.
    fn retire(&self, request: RequestId);

    /// Returns the use of each worker's processor and memory; nothing where workers compute on the host's cores.
    fn usage(&self) -> Vec<Usage> {
        Vec::new()
    }

    /// Measures a batch of a cell: one step, of a chain. The device finds
    /// the fastest way that it has of running it. The cell need not be materialised. Times are those
    /// of a device that runs nothing else meanwhile.
    ///
    /// A device may keep the data that it needs to measure a cell until another cell is measured:
    /// sizes of one cell are best measured in turn.
    ///
    /// # Errors
    /// [`DeviceError::Cell`] if the device cannot run the cell, or the cell does not take so many steps;
    /// [`DeviceError::Resources`] if there are no threads or units to measure with.
    fn measure(&self, cell: &CellType, batch: BatchSize) -> Result<Measurement, DeviceError>;

    /// Measures a batch of a cell that is a program operator by operator, in the order in which they run. Of any other cell, and
    /// on a device that does not tell operators apart, there are none.
    ///
    /// # Errors
    /// As for [`measure`](Device::measure).
    fn measure_operators(
        &self,
        _cell: &CellType,
        _batch: BatchSize,
    ) -> Result<Vec<OperatorMeasurement>, DeviceError> {
        Ok(Vec::new())
    }

    /// Returns upper bounds of the speed of any batch of a cell, or `None` where the device knows none.
    /// Measures them if need be, as [`measure`](Device::measure) does.
    fn roofs(&self, _cell: &CellType) -> Option<Roofs> {
        None
    }

    /// Sets the plans of a cell, each for a number of rows. A batch runs by the plan for the largest
    /// number of rows that is not above its own, or, if there is none, by the plan for the smallest.
    /// Plans change no bit of the results.
    ///
    /// The cell may be materialised before or later, and tasks of it may run meanwhile. These plans
    /// take the place of those that it had: of a cell that is there, at once, or when it is
    /// materialised anew.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where a plan is not one of this device. None of them is used then.
    fn plan(&self, cell: CellIdentity, plans: &[(usize, ExecutionPlan)])
    -> Result<(), DeviceError>;

    /// Describes how a batch runs by a plan, in a few words for people.
    ///
    /// # Errors
    /// [`DeviceError::Resources`] where the plan is not one of this device.
    fn describe(&self, _plan: &ExecutionPlan) -> Result<String, DeviceError> {
        Err(DeviceError::Resources("a plan for a device that has none".to_owned()))
    }
}

/// The tasks of one worker, which run one after the other in the order in which they were submitted.
/// Used by one thread at a time. Dropping it abandons its tasks and reads; none runs afterwards.
pub trait TaskQueue: Send {
    /// Takes the tasks of a round without waiting for them, and leaves the list empty. They run after
    /// those that were submitted before. A device may fuse them, or launch them as one.
    fn submit(&mut self, round: &mut Vec<BatchedTask>);

    /// Asks for values or states. They arrive as [`Completion::Values`], not necessarily after the
    /// tasks that were submitted before.
    fn read(&mut self, read: Read);

    /// Sets the state in a slot of this worker's memory, which no task in flight uses: `states` has
    /// one row for each state of the cell, as [`Read::State`] gives them. Tasks that are submitted
    /// later, and reads that are asked for later, find it.
    fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>);

    /// The thread that the queue is best driven on, since what it runs runs there: driving it elsewhere costs a hop from thread to
    /// thread for each task. None: any thread will do. Asked once, when all cells are there.
    fn host(&self) -> Option<Arc<dyn Host>> {
        None
    }

    /// Appends what has completed and was not reported yet, in the order in which it did; nothing if
    /// nothing has. A device that computes on its worker's thread reports what there is, or else
    /// runs its oldest task, or the next part of it, within this call and reports that.
    fn poll(&mut self, completions: &mut Vec<Completion>);
}

/// Runs the loop that drives a queue on a thread of the device.
pub trait Host: Send + Sync {
    /// Runs `drive` on that thread, and returns once it has ended.
    fn run(&self, drive: Box<dyn FnOnce() + Send + '_>);
}

/// The place of a state: the slot that holds the state of a chain before its step `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatePlace {
    /// The chain's cell type.
    pub cell_type: CellTypeId,
    /// Its slot.
    pub slot: SlotId,
    /// The step that it runs next: 0 for what a session's chunk leaves to the next.
    pub step: u32,
}

/// A read that a worker asks its queue for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Rows of values of a request in flight that complete nodes have written: `rows` of each of
    /// `values`. Gives the elements of each, flat.
    Rows {
        /// The request whose values are read.
        request: RequestId,
        /// The values.
        values: Arc<[ValueIndex]>,
        /// The rows of each value.
        rows: Range<u32>,
    },
    /// All output values of a request in flight whose nodes are all complete, or left out by its decisions: rows of those that were left out
    /// are undefined, and reading them is no error. Gives the elements of
    /// each, flat, in the order of the graph's outputs. The last read of the request: afterwards the
    /// device may have nothing left of its values.
    Outputs {
        /// The request.
        request: RequestId,
    },
    /// The state in a slot of this worker's memory that no task in flight uses. Gives a row for each
    /// state of the cell.
    State(StatePlace),
}

impl Read {
    /// The request whose values are read; none of a state.
    pub fn request(&self) -> Option<RequestId> {
        match *self {
            Self::Rows { request, .. } | Self::Outputs { request } => Some(request),
            Self::State(_) => None,
        }
    }
}

/// Something that a queue reports.
#[derive(Clone, Debug, PartialEq)]
pub enum Completion {
    /// The first `steps` steps of the oldest unfinished task, a roster's, are complete: what they
    /// wrote may be read. `steps` rises from report to report and stays below the task's own number.
    /// Only some devices report steps.
    Steps {
        /// The task.
        task: TaskId,
        /// The number of its steps that are complete.
        steps: u32,
        /// The chains that reached their end of sequence in them and were not reported before.
        ends: Vec<EndOfSequence>,
    },
    /// A part of the oldest unfinished task is done, and others follow: only a sign that the device is at work. A device
    /// that computes within [`TaskQueue::poll`] runs the next part when it is polled again.
    Part {
        /// The task.
        task: TaskId,
    },
    /// The oldest unfinished task is over.
    Task(TaskDone),
    /// The result of a [`TaskQueue::read`], or the reason why there is none.
    Values {
        /// The read that was asked for.
        read: Read,
        /// A tensor's elements for each value or state; a reason only where they were lost with a
        /// worker's memory, or where the device has no memory left to bring them together.
        data: Result<Vec<TensorData>, Arc<str>>,
    },
    /// This worker's part of the device is gone, with all tasks and reads in flight there and, where
    /// workers do not share memory, all that was in its memory. The last report of a queue. A task of
    /// another worker that takes over a state from there fails, or the state is undefined.
    Lost {
        /// The reason.
        reason: Arc<str>,
    },
}

/// A task that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskDone {
    /// The task.
    pub task: TaskId,
    /// The reason, if the task failed. Its changes to rosters hold all the same, and its chains go on
    /// behind it. The rows and states that it was to write are undefined, except those of steps that
    /// were reported before and those that chains in `ends` wrote before their end.
    pub result: Result<(), Arc<str>>,
    /// The chains that reached their end of sequence in it and were not reported with its steps.
    /// Later nodes of such a chain are not computed, and write nothing.
    pub ends: Vec<EndOfSequence>,
}
