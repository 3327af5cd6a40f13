//! The queue of one worker: its tasks run on the thread that polls it, and on that thread's helpers. A task that takes more
//! memory than a batch may runs in parts, one for each poll.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use batchmaker_device::{Completion, Host, Read, StatePlace, TaskDone, TaskQueue};
use batchmaker_executor::{ExecutorHost, ExecutorThreads};
use batchmaker_graph::{BatchedTask, CellTypeId, EndOfSequence, TaskId, TensorData, Work};

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
    program_threads: ExecutorThreads,
    tree_buffers: TreeBuffers,
    /// The cells that this queue has run batches of, by cell type.
    cells: Vec<Option<QueuedCell>>,
    tasks: VecDeque<BatchedTask>,
    /// The parts of the task that runs which are left to run.
    parts: VecDeque<Work>,
    /// The task that runs, as long as parts of it are left.
    running: Option<(TaskId, CellTypeId)>,
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
        program_threads: ExecutorThreads,
        pin: Box<dyn FnOnce(usize) + Send>,
    ) -> Self {
        Self {
            state,
            group,
            program_threads,
            pin: Some(pin),
            tree_buffers: TreeBuffers::default(),
            cells: Vec::new(),
            tasks: VecDeque::new(),
            parts: VecDeque::new(),
            running: None,
            read: VecDeque::new(),
        }
    }

    /// The cell of a type, whose batches the queue keeps from now on.
    fn cell(&mut self, cell_type: CellTypeId) -> Arc<MaterializedCell> {
        let Self { state, cells, .. } = self;
        let index = cell_type.index();
        if cells.len() <= index {
            cells.resize_with(index + 1, || None);
        }
        let known = cells[index].as_ref().and_then(|queued| queued.cell.upgrade());
        known.unwrap_or_else(|| {
            let cell = state.cell(cell_type);
            let queued = QueuedCell { rosters: cell.rosters(), cell: Arc::downgrade(&cell) };
            cells[index] = Some(queued);
            cell
        })
    }

    /// Runs the next part of the task that runs, and returns its report.
    fn run_part(&mut self, (task, cell_type): (TaskId, CellTypeId)) -> Completion {
        let work = self.parts.pop_front().expect("a task that runs has a part left");
        let (result, ends) = self.run(cell_type, &work);
        if result.is_ok() && !self.parts.is_empty() {
            // Only tasks of chains, which are one part, report ends.
            debug_assert!(ends.is_empty());
            return Completion::Part { task };
        }
        self.parts.clear();
        self.running = None;
        Completion::Task(TaskDone { task, result, ends })
    }

    fn run(
        &mut self,
        cell_type: CellTypeId,
        work: &Work,
    ) -> (Result<(), Arc<str>>, Vec<EndOfSequence>) {
        let cell = self.cell(cell_type);
        let Self { state, group, program_threads, tree_buffers, cells, .. } = self;
        let queued = cells[cell_type.index()].as_mut();
        let rosters = queued.and_then(|queued| queued.rosters.as_mut());
        let mut ends = Vec::new();
        let memory_of = |request| state.memory(request);
        let token_ids = state.token_ids();
        let _in_use = program_threads.in_use();
        group.begin_task();
        let mut resources = WorkerResources {
            threads: program_threads,
            group,
            tree_buffers,
            token_ids,
            ends: &mut ends,
        };
        // SAFETY: the manager gives out a node once, after those that it depends on, so the rows that it reads
        // are written, and nobody else accesses those that it writes.
        let ran = unsafe { cell.run(work, rosters, memory_of, &mut resources) };
        let result = ran.map_err(|error: CellError| Arc::from(error.to_string()));
        (result, ends)
    }
}

/// The thread of a worker's programs.
struct ProgramHost(ExecutorHost);

impl Host for ProgramHost {
    fn run(&self, drive: Box<dyn FnOnce() + Send + '_>) {
        self.0.run(drive);
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

    fn host(&self) -> Option<Arc<dyn Host>> {
        // The worker's thread has a large stack, the threads of programs have not.
        let is_deep = self.state.has_deep_cells();
        (!is_deep).then(|| Arc::new(ProgramHost(self.program_threads.host())) as Arc<dyn Host>)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        if !self.read.is_empty() {
            return completions.extend(self.read.drain(..));
        }
        if self.running.is_none() {
            let Some(task) = self.tasks.pop_front() else { return };
            if let Some(pin) = self.pin.take() {
                pin(0);
            }
            let BatchedTask { id, cell_type, work, .. } = task;
            let cell = self.cell(cell_type);
            cell.divide(work, |request| self.state.memory(request), &mut self.parts);
            self.running = Some((id, cell_type));
        }
        if let Some(running) = self.running {
            completions.push(self.run_part(running));
        }
    }
}
