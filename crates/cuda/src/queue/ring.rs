//! The ring of tasks in memory of the host, from which a launch takes one after the other, and the launch that takes them.

use std::ops::Range;
use std::sync::{Arc, Weak};

use bytemuck::{Zeroable, bytes_of};

use super::completions::STATUSES;
use crate::cells::CudaCell;
use crate::gpu::{Allocation, Event, GpuError, Pinned};
use crate::kernels::quantum::{BROUGHT_BYTES, QuantumArguments, Task, WORDS};
use crate::kernels::rows::Copy;
use crate::worker::Worker;

/// Places of the ring, as many as there are of statuses: the host has taken the status of a task before another work has its number's place.
const TASKS: usize = STATUSES;

/// The offset of the tasks: the number of the first task that a launch has left lies before them.
const TASKS_AT: usize = 64;

/// The offset of the number of a task in it.
const NUMBER_AT: usize = std::mem::offset_of!(Task, number);

/// The most copies of a task that the courier brings to the GPU ahead of it.
pub(super) const BROUGHT_MAX: usize = 256;

/// The parts of the GPU's memory: their bytes.
const PARTS: [usize; 6] = [
    // The counts of a launch, and those of the next one.
    2 * 4 * WORDS,
    // Lookups that fail.
    8,
    // Tasks that are announced, and those that are brought.
    4 * size_of::<Task>(),
    2 * size_of::<Task>(),
    // What is brought with them.
    2 * BROUGHT_MAX * size_of::<Copy>(),
    2 * BROUGHT_MAX * BROUGHT_BYTES,
];

/// Bytes of the first three, which are zeros at first.
const CLEARED: usize = PARTS[0] + PARTS[1] + PARTS[2];

/// The ring, with the memory that launches share.
pub(super) struct Ring {
    memory: Arc<Pinned>,
    on_gpu: Allocation,
    /// The number of the last task.
    pub(super) last: u64,
    /// The launch that takes tasks, unless it is known to have ended.
    pub(super) running: Option<Running>,
    /// Whether the next launch has the second of the two places for counts: launches take turns.
    has_second_words: bool,
}

/// A launch that takes tasks of a roster.
pub(super) struct Launch {
    pub(super) cell: Weak<CudaCell>,
    pub(super) grid: [u32; 3],
    /// Without its counts, its first task, and the steps and looks of a quantum.
    pub(super) arguments: QuantumArguments,
}

/// A launch that was submitted.
pub(super) struct Running {
    pub(super) launch: Launch,
    /// The number of its first task.
    pub(super) first: u64,
    pub(super) end: Arc<Event>,
}

/// A launch that runs the tasks that another has left.
pub(super) struct Resumed {
    /// Their numbers.
    pub(super) tasks: Range<u64>,
    /// The end of the launch.
    pub(super) end: Arc<Event>,
}

impl Ring {
    /// A ring without tasks, of a worker whose stream is to clear its words.
    pub(super) fn new(worker: &Arc<Worker>) -> Result<Self, GpuError> {
        let memory = Arc::new(Pinned::new(worker.gpu(), TASKS_AT + TASKS * size_of::<Task>())?);
        let on_gpu = worker.pool.allocate(PARTS.iter().sum())?;
        worker.stream.clear(on_gpu.at(), CLEARED)?;
        Ok(Self { memory, on_gpu, last: 0, running: None, has_second_words: false })
    }

    /// The argument of launches with the addresses and sizes of the ring and its memory; all other fields are zeros.
    pub(super) fn arguments(&self) -> QuantumArguments {
        let [ring, next] = [TASKS_AT, 0].map(|offset| self.memory.device_address(offset));
        let mut at = self.on_gpu.at();
        let [_, failed, announced, brought, brought_copies, brought_bytes] = PARTS.map(|bytes| {
            let begin = at;
            at += bytes as u64;
            begin
        });
        QuantumArguments {
            ring,
            ring_tasks: TASKS as u32,
            next,
            failed,
            announced,
            brought,
            brought_copies,
            brought_bytes,
            brought_max: BROUGHT_MAX as u32,
            ..QuantumArguments::zeroed()
        }
    }

    /// The addresses of the counts of the next launch, and of those of the launch after that, which it clears.
    pub(super) fn words_of_launch(&self) -> [u64; 2] {
        let [first, second] = [0, 4 * WORDS as u64].map(|offset| self.on_gpu.at() + offset);
        if self.has_second_words { [second, first] } else { [first, second] }
    }

    /// A launch has been submitted.
    pub(super) fn note_launch(&mut self) {
        self.has_second_words = !self.has_second_words;
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
