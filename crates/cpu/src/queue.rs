//! The queue of one worker: its tasks run on the thread that polls it, and on that thread's helpers.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use batchmaker_device::{Completion, Read, StatePlace, TaskDone, TaskQueue};
use batchmaker_executor::ExecutorThread;
use batchmaker_graph::{BatchedTask, TensorData};

use crate::cells::materialized::{CellError, MaterializedCell, Rosters, WorkerResources};
use crate::cells::tree_buffers::TreeBuffers;
use crate::device_state::DeviceState;
use crate::threads::thread_group::ThreadGroup;

/// The queue of one worker.
pub(crate) struct CpuQueue {
    state: Arc<DeviceState>,
    group: ThreadGroup,
    /// Puts the polling thread on its core; called once, at the first task.
    pin: Option<Box<dyn FnOnce(usize) + Send>>,
    program_thread: ExecutorThread,
    tree_buffers: TreeBuffers,
    /// The cells that this queue has run batches of, by cell type.
    cells: Vec<Option<QueuedCell>>,
    tasks: VecDeque<BatchedTask>,
    /// The values that were read and are not reported yet.
    read: VecDeque<Completion>,
}

/// A cell type, with the batches that the queue keeps of it.
struct QueuedCell {
    /// The device's, until it is released for good.
    cell: Weak<MaterializedCell>,
    rosters: Option<Rosters>,
}

impl CpuQueue {
    /// An empty queue. `pin` puts the calling thread on the core of the group's member of that number.
    pub(crate) fn new(
        state: Arc<DeviceState>,
        group: ThreadGroup,
        pin: Box<dyn FnOnce(usize) + Send>,
    ) -> Self {
        Self {
            state,
            group,
            pin: Some(pin),
            program_thread: ExecutorThread::new(),
            tree_buffers: TreeBuffers::default(),
            cells: Vec::new(),
            tasks: VecDeque::new(),
            read: VecDeque::new(),
        }
    }

    fn run(&mut self, task: BatchedTask) -> TaskDone {
        let Self { state, group, program_thread, tree_buffers, cells, .. } = self;
        let index = task.cell_type.index();
        if cells.len() <= index {
            cells.resize_with(index + 1, || None);
        }
        let known = cells[index].as_ref().and_then(|queued| queued.cell.upgrade());
        let cell = known.unwrap_or_else(|| {
            let cell = state.cell(task.cell_type);
            let queued = QueuedCell { rosters: cell.rosters(), cell: Arc::downgrade(&cell) };
            cells[index] = Some(queued);
            cell
        });
        let rosters = cells[index].as_mut().and_then(|queued| queued.rosters.as_mut());
        let mut ends = Vec::new();
        let memory_of = |request| state.memory(request);
        let token_ids = state.token_ids();
        let mut resources = WorkerResources {
            thread: program_thread,
            group,
            tree_buffers,
            token_ids,
            ends: &mut ends,
        };
        // SAFETY: the manager gives out a node once, after those that it depends on, so the rows that it reads
        // are written, and nobody else accesses those that it writes.
        let ran = unsafe { cell.run(&task.work, rosters, memory_of, &mut resources) };
        let result = ran.map_err(|error: CellError| Arc::from(error.to_string()));
        TaskDone { task: task.id, result, ends }
    }
}

impl TaskQueue for CpuQueue {
    fn submit(&mut self, round: &mut Vec<BatchedTask>) {
        self.tasks.extend(round.drain(..));
    }

    fn read(&mut self, read: Read) {
        let data = match &read {
            Read::Rows { request, values, rows } => {
                let memory = self.state.memory(*request);
                let rows = || rows.start as usize..rows.end as usize;
                // SAFETY: complete nodes have written these rows, and each row is written once.
                values.iter().map(|&value| unsafe { memory.copy(value, rows()) }).collect()
            }
            Read::Outputs { request } => {
                // SAFETY: all nodes of the request are complete, and nothing is read after this.
                unsafe { self.state.memory(*request).take_outputs() }
            }
            Read::State(place) => {
                // SAFETY: no task in flight uses the slot, by the contract of `read`.
                let states = unsafe { self.state.cell(place.cell_type).read_state(*place) };
                states.unwrap_or_else(|| panic!("{place:?}: the cell has no states"))
            }
        };
        self.read.push_back(Completion::Values { read, data: Ok(data) });
    }

    fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        // SAFETY: no task in flight uses the slot, by the contract of `write_state`.
        unsafe { self.state.cell(place.cell_type).write_state(place, states) };
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if !self.read.is_empty() {
            return completions.extend(self.read.drain(..));
        }
        let Some(task) = self.tasks.pop_front() else { return };
        if let Some(pin) = self.pin.take() {
            pin(0);
        }
        let done = self.run(task);
        completions.push(Completion::Task(done));
    }
}
