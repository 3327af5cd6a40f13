//! One worker of a device, driven by hand: for measurements and tests, where there is no manager.

use std::collections::VecDeque;
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellType, CellTypeId, RequestId, TaskId, TensorData, Work, WorkerId,
};

use crate::bell::Bell;
use crate::contract::{Completion, Device, DeviceError, Read, StatePlace, TaskDone, TaskQueue};

/// A worker that waits for each of its tasks and reads.
pub struct LoneWorker {
    device: Arc<dyn Device>,
    worker: WorkerId,
    queue: Box<dyn TaskQueue>,
    bell: Arc<Bell>,
    last_task: u64,
    /// The reports of the queue that were not taken yet.
    reported: VecDeque<Completion>,
}

impl LoneWorker {
    /// Takes the queue of `worker`.
    ///
    /// # Errors
    /// As for [`Device::queue`].
    pub fn new(device: Arc<dyn Device>, worker: WorkerId) -> Result<Self, DeviceError> {
        let bell = Arc::new(Bell::default());
        let queue = device.clone().queue(worker, bell.clone())?;
        Ok(Self { device, worker, queue, bell, last_task: 0, reported: VecDeque::new() })
    }

    /// The first worker of a device that is given these cell types, whose ids are their positions.
    ///
    /// # Errors
    /// As for [`Device::materialize`] and [`Device::queue`].
    pub fn with_cells(
        device: impl Device + 'static,
        cell_types: &[CellType],
    ) -> Result<Self, DeviceError> {
        for (id, cell) in (0..).zip(cell_types) {
            device.materialize(CellTypeId(id), cell)?;
        }
        Self::new(Arc::new(device), WorkerId(0))
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Submits tasks as one round, and returns the id of the last.
    pub fn submit(&mut self, works: impl IntoIterator<Item = (CellTypeId, Work)>) -> TaskId {
        let mut task = |(cell_type, work)| {
            self.last_task += 1;
            let id = TaskId(self.last_task);
            BatchedTask { id, worker: self.worker, cell_type, work }
        };
        let mut round: Vec<BatchedTask> = works.into_iter().map(&mut task).collect();
        self.queue.submit(&mut round);
        TaskId(self.last_task)
    }

    /// Runs one task to its end.
    pub fn run(&mut self, cell_type: CellTypeId, work: Work) -> TaskDone {
        let task = self.submit([(cell_type, work)]);
        self.end_of(task)
    }

    /// Waits until a task is over; forgets those before it.
    ///
    /// # Panics
    /// If the queue is lost.
    pub fn end_of(&mut self, task: TaskId) -> TaskDone {
        self.wait_for(|completion| match completion {
            Completion::Task(done) if done.task == task => Some(done),
            Completion::Lost { reason } => panic!("{reason}"),
            _ => None,
        })
    }

    /// Reads values or states.
    ///
    /// # Errors
    /// The device's reason why there are none.
    pub fn read(&mut self, read: Read) -> Result<Vec<TensorData>, Arc<str>> {
        self.queue.read(read.clone());
        self.wait_for(|completion| match completion {
            Completion::Values { read: done, data } if done == read => Some(data),
            Completion::Lost { reason } => Some(Err(reason)),
            _ => None,
        })
    }

    /// See [`TaskQueue::write_state`].
    pub fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        self.queue.write_state(place, states);
    }

    /// Reads a request's output values, each flat, and retires it.
    ///
    /// # Panics
    /// If the device has no values.
    pub fn finish(&mut self, request: RequestId) -> Vec<TensorData> {
        let outputs = self.read(Read::Outputs { request });
        self.device.retire(request);
        outputs.unwrap_or_else(|reason| panic!("no outputs of {request:?}: {reason}"))
    }

    /// The next report of the queue, of any kind.
    pub fn next_report(&mut self) -> Completion {
        self.wait_for(Some)
    }

    /// Takes reports until `wanted` accepts one.
    fn wait_for<T>(&mut self, mut wanted: impl FnMut(Completion) -> Option<T>) -> T {
        let mut completions = Vec::new();
        loop {
            while let Some(completion) = self.reported.pop_front() {
                if let Some(found) = wanted(completion) {
                    return found;
                }
            }
            let seen = self.bell.rung();
            self.queue.poll(&mut completions);
            if completions.is_empty() {
                self.bell.wait(seen, self.device.capabilities().poll_for, None);
            }
            self.reported.extend(completions.drain(..));
        }
    }
}
