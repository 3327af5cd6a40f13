//! Memory that a persistent kernel works on while it is timed: rows without inputs and sinks, their states, weights of small numbers.

use std::sync::Arc;

use batchmaker_graph::SlotId;
use bytemuck::{Pod, cast_slice};

use crate::gpu::{Allocation, GpuError, Pinned, ResidentKernel};
use crate::kernels::batch::{Batch, NO_OUTPUT, Operand, Row};
use crate::kernels::persistent::{PersistentArguments, PersistentKernel, STUCK};
use crate::memory::Slots;
use crate::queue::TRIES_MAX;
use crate::worker::Worker;

/// The byte that all numbers consist of: an f32 of about 7.1e-4, and as much as a bfloat16.
const SMALL: u8 = 0x3a;

/// Sums of a unit for which there are biases, at most.
const SUMS_MAX: usize = 4;

/// Rows whose chains take steps, with all that a launch is given.
pub(super) struct Workload {
    worker: Arc<Worker>,
    kernel: PersistentKernel,
    /// The arguments but for the steps of a launch.
    arguments: PersistentArguments,
    /// The address of the words of [`PersistentArguments::arrived`] and, 4 bytes behind it, [`PersistentArguments::failed`].
    words: u64,
    _slots: Slots,
    _memory: Vec<Allocation>,
}

impl Workload {
    /// `rows` rows, for launches of at most `steps_max` steps.
    pub(super) fn new(
        worker: &Arc<Worker>,
        kernel: PersistentKernel,
        rows: usize,
        steps_max: u32,
    ) -> Result<Self, GpuError> {
        let mut memory = Memory { worker, held: Vec::new() };
        let hidden = kernel.hidden_size();
        let row_bytes = 4 * hidden;
        let states = if kernel.has_cell_state() { 2 } else { 1 };
        // Of half a slot: h, then the cell state.
        let half_bytes = states * row_bytes.next_multiple_of(16);
        let mut slots = Slots::new(half_bytes);
        let last = SlotId { index: rows as u32 - 1, generation: 0 };
        slots.reach(last, &worker.pool, &worker.stream)?;
        worker.stream.fill(slots.base(0), rows * 2 * half_bytes, SMALL)?;
        let row = |slot: u32| Row {
            stop: 0,
            request: [0; 2],
            run: 0,
            slot,
            first: 0,
            half: 0,
            length: u32::MAX,
            ports: 0,
            sinks: 0,
            stop_output: NO_OUTPUT,
        };
        let all: Vec<Row> = (0..rows as u32).map(row).collect();
        let words = memory.zeros(8)?;
        let c = slots.base((states - 1) * half_bytes / 2);
        let [of_first, of_second] = kernel.packed_gates();
        let mut projected =
            |gates: usize| memory.numbers(steps_max as usize * rows * hidden * gates);
        let [projected, projected_of_state] = [projected(of_first)?, projected(of_second)?];
        let arguments = PersistentArguments {
            batch: Batch {
                rows: memory.upload(&all)?,
                ports: 0,
                ended: slots.ended(),
                now: 0,
                count: rows as i32,
                time: 0,
            },
            h: Operand::state(slots.base(0), half_bytes),
            c: Operand::state(c, half_bytes),
            next_h: Operand::next_state(slots.base(0), half_bytes),
            next_c: Operand::next_state(c, half_bytes),
            projected,
            r: memory.numbers(hidden * hidden * of_first)?,
            r_of_state: memory.numbers(hidden * hidden * of_second)?,
            b: memory.numbers(hidden * SUMS_MAX)?,
            peepholes: 0,
            between: memory.numbers(kernel.between_bytes(rows) / 4)?,
            projected_of_state,
            arrived: words,
            failed: words + 4,
            arrived_before: 0,
            tries_max: TRIES_MAX,
            inputs: 0,
            steps: 0,
        };
        let memory = memory.held;
        let (worker, _slots, _memory) = (worker.clone(), slots, memory);
        Ok(Self { worker, kernel, arguments, words, _slots, _memory })
    }

    /// Has the GPU run `steps` steps of all rows, in one launch.
    pub(super) fn launch(&mut self, resident: &ResidentKernel, steps: u32) -> Result<(), GpuError> {
        let kernel = self.kernel;
        let grid = kernel.grid(self.arguments.batch.count as usize, resident.blocks());
        self.arguments.steps = steps as i32;
        self.worker.stream.launch_resident(resident, [grid, kernel.block()], &self.arguments)?;
        let [columns, rows, _] = grid;
        let arrivals = (columns * rows).wrapping_mul(kernel.barriers(steps));
        self.arguments.arrived_before = self.arguments.arrived_before.wrapping_add(arrivals);
        Ok(())
    }

    /// Whether blocks of a launch have waited for one another in vain.
    pub(super) fn is_stuck(&self) -> Result<bool, GpuError> {
        let word = Pinned::new(self.worker.gpu(), 4)?;
        self.worker.stream.download((&word, 0), self.words + 4, 4)?;
        self.worker.stream.synchronize()?;
        Ok(word.read(0, 4) == STUCK.to_ne_bytes())
    }
}

/// Takes memory of a GPU.
struct Memory<'a> {
    worker: &'a Worker,
    held: Vec<Allocation>,
}

impl Memory<'_> {
    /// The address of new memory; 0 of no bytes.
    fn take(&mut self, bytes: usize) -> Result<u64, GpuError> {
        if bytes == 0 {
            return Ok(0);
        }
        let new = self.worker.pool.allocate(bytes)?;
        let at = new.at();
        self.held.push(new);
        Ok(at)
    }

    /// The address of `count` small numbers of 4 bytes.
    fn numbers(&mut self, count: usize) -> Result<u64, GpuError> {
        let at = self.take(4 * count)?;
        self.worker.stream.fill(at, 4 * count, SMALL)?;
        Ok(at)
    }

    fn zeros(&mut self, bytes: usize) -> Result<u64, GpuError> {
        let at = self.take(bytes)?;
        self.worker.stream.clear(at, bytes)?;
        Ok(at)
    }

    /// The address of records, which are there when this returns.
    fn upload<T: Pod>(&mut self, records: &[T]) -> Result<u64, GpuError> {
        let bytes: &[u8] = cast_slice(records);
        let at = self.take(bytes.len())?;
        let from = Pinned::new(self.worker.gpu(), bytes.len())?;
        from.write(0, bytes);
        self.worker.stream.upload(at, (&from, 0), bytes.len())?;
        self.worker.stream.synchronize()?;
        Ok(at)
    }
}
