//! The ring of tasks in memory of the host, from which a launch takes one after the other, and the launch that takes them.

use std::sync::Arc;

use bytemuck::bytes_of;

use super::completions::STATUSES;
use crate::cells::CudaCell;
use crate::gpu::{Allocation, Event, GpuError, Pinned};
use crate::kernels::quantum::{QuantumArguments, Task};
use crate::worker::Worker;

/// Places of the ring. A task has a status in the place of the same number: it is taken before the next task comes there.
pub(super) const TASKS: usize = STATUSES;

/// The offset of the tasks: the number of the first task that a launch has left lies before them.
const TASKS_AT: usize = 64;

/// The offset of the number of a task in it.
const NUMBER_AT: usize = std::mem::offset_of!(Task, number);

/// Tasks of the two parities, each at the barrier of a step and at one more.
const ANNOUNCED_BYTES: usize = 4 * size_of::<Task>();

/// The ring, with the words that launches share.
pub(super) struct Ring {
    memory: Arc<Pinned>,
    /// Announced tasks, the word that counts blocks at barriers, and those of lookups that fail.
    words: Allocation,
    /// The number of the last task.
    pub(super) last: u64,
    /// The launch that takes tasks, unless it is known to have ended.
    pub(super) running: Option<Running>,
}

/// A launch that takes tasks of a roster.
pub(super) struct Launch {
    pub(super) cell: Arc<CudaCell>,
    pub(super) grid: [u32; 3],
    /// Without the number of its first task, and without the steps of a quantum.
    pub(super) arguments: QuantumArguments,
}

/// A launch that was submitted.
pub(super) struct Running {
    pub(super) launch: Launch,
    /// The number of its first task.
    pub(super) first: u64,
    /// Behind it.
    pub(super) ended: Arc<Event>,
}

impl Ring {
    /// A ring without tasks, of a worker whose stream is to clear its words.
    pub(super) fn new(worker: &Arc<Worker>) -> Result<Self, GpuError> {
        let memory = Arc::new(Pinned::new(worker.gpu(), TASKS_AT + TASKS * size_of::<Task>())?);
        let bytes = ANNOUNCED_BYTES + 12;
        let words = worker.pool.allocate(bytes)?;
        worker.stream.clear(words.at(), bytes)?;
        Ok(Self { memory, words, last: 0, running: None })
    }

    /// The addresses of the tasks, of the number of the first one that a launch has left, of announced tasks, of the word that counts blocks at
    /// barriers, and of those of lookups that fail.
    pub(super) fn addresses(&self) -> [u64; 5] {
        let [tasks, next] = [TASKS_AT, 0].map(|offset| self.memory.device_address(offset));
        let words = self.words.at();
        let arrived = words + ANNOUNCED_BYTES as u64;
        [tasks, next, words, arrived, arrived + 4]
    }

    /// The number of the first task that the last launch that ended has left.
    pub(super) fn next(&self) -> u64 {
        self.memory.load()
    }

    /// Writes a task to its place, its number last: a launch may be looking there.
    pub(super) fn push(&mut self, task: &Task) {
        let offset = TASKS_AT + task.number as usize % TASKS * size_of::<Task>();
        self.memory.write(offset, &bytes_of(task)[..NUMBER_AT]);
        self.memory.store(offset + NUMBER_AT, task.number);
        self.last = task.number;
    }
}
