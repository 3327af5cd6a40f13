//! The queue of one worker: its tasks run on the thread that polls it, and on that thread's helpers.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use batchmaker_device::{Completion, Read, StatePlace, TaskDone, TaskQueue};
use batchmaker_executor::ExecutorThread;
use batchmaker_graph::{BatchedTask, TensorData};

use crate::cells::materialized::{CellError, Hands, MaterializedCell, Rosters};
use crate::cells::tree_nodes::TreeRoom;
use crate::device::CpuDevice;
use crate::threads::thread_group::ThreadGroup;

/// See the module's first line.
pub(crate) struct CpuQueue {
    device: Arc<CpuDevice>,
    group: ThreadGroup,
    /// Puts the polling thread on its core; called once, at the first task.
    pin: Option<Box<dyn FnOnce(usize) + Send>>,
    program_thread: ExecutorThread,
    tree_room: TreeRoom,
    /// By cell type: those that this queue has run batches of.
    cells: Vec<Option<QueuedCell>>,
    tasks: VecDeque<BatchedTask>,
    /// What was read and is not reported yet.
    read: VecDeque<Completion>,
}

/// A cell type, with what the queue keeps of it.
struct QueuedCell {
    /// The device's, until it is released for good.
    cell: Weak<MaterializedCell>,
    rosters: Option<Rosters>,
}

impl CpuQueue {
    /// An empty queue. `pin` puts the calling thread on the core of the group's member of that number.
    pub(crate) fn new(
        device: Arc<CpuDevice>,
        group: ThreadGroup,
        pin: Box<dyn FnOnce(usize) + Send>,
    ) -> Self {
        Self {
            device,
            group,
            pin: Some(pin),
            program_thread: ExecutorThread::new(),
            tree_room: TreeRoom::default(),
            cells: Vec::new(),
            tasks: VecDeque::new(),
            read: VecDeque::new(),
        }
    }

    fn run(&mut self, task: BatchedTask) -> TaskDone {
        let Self { device, group, program_thread, tree_room, cells, .. } = self;
        let index = task.cell_type.index();
        if cells.len() <= index {
            cells.resize_with(index + 1, || None);
        }
        let known = cells[index].as_ref().and_then(|queued| queued.cell.upgrade());
        let cell = known.unwrap_or_else(|| {
            let cell = device.cell(task.cell_type);
            let queued = QueuedCell { rosters: cell.rosters(), cell: Arc::downgrade(&cell) };
            cells[index] = Some(queued);
            cell
        });
        let rosters = cells[index].as_mut().and_then(|queued| queued.rosters.as_mut());
        let mut ends = Vec::new();
        let memory_of = |request| device.memory(request);
        let words = device.words();
        let mut hands = Hands { thread: program_thread, group, tree_room, words, ends: &mut ends };
        // SAFETY: the manager gives out a node after those that it depends on, once.
        let ran = unsafe { cell.run(&task.work, rosters, memory_of, &mut hands) };
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
                let memory = self.device.memory(*request);
                let rows = || rows.start as usize..rows.end as usize;
                // SAFETY: complete nodes have written these rows, and each row is written once.
                values.iter().map(|&value| unsafe { memory.copy(value, rows()) }).collect()
            }
            Read::Outputs { request } => {
                // SAFETY: all nodes of the request are complete, and nothing is read after this.
                unsafe { self.device.memory(*request).take_outputs() }
            }
            Read::State(place) => {
                // SAFETY: no task in flight uses the slot, by the contract of `read`.
                let states = unsafe { self.device.cell(place.cell_type).read_state(*place) };
                states.unwrap_or_else(|| panic!("{place:?}: the cell has no states"))
            }
        };
        self.read.push_back(Completion::Values { read, data: Ok(data) });
    }

    fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        // SAFETY: no task in flight uses the slot, by the contract of `write_state`.
        unsafe { self.device.cell(place.cell_type).write_state(place, states) };
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
