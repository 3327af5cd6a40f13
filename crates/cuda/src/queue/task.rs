//! A task: its rows are listed and brought to the GPU, and its batches run.

use std::sync::{Arc, Mutex, MutexGuard};

use batchmaker_device::{Chain, Origin};
use batchmaker_graph::{
    BatchedTask, CellTypeId, Item, RequestId, Run, RunIndex, SinkTime, SlotId, Work, WorkerId,
};

use super::CudaQueue;
use super::steps::{Frame, Run as StepsRun};
use super::upload::Upload;
use crate::cells::{CudaCell, CudaCellBody, Stepwise};
use crate::gpu::GpuError;
use crate::kernels::batch::{Batch, NO_OUTPUT, Port, Row};
use crate::kernels::rows::{BLOCK, COPY_ROWS, CopyArguments};
use crate::memory::{RequestMemory, Slots};
use crate::worker::lock;

/// Why a task does not run.
#[derive(Debug)]
pub(super) enum TaskError {
    /// It has no room, and others go on.
    Memory,
    /// The GPU does nothing any more.
    Gpu(GpuError),
}

impl From<GpuError> for TaskError {
    fn from(error: GpuError) -> Self {
        if error.is_out_of_memory() { Self::Memory } else { Self::Gpu(error) }
    }
}

/// A run of a request, with what a batch needs of it.
#[derive(Clone)]
pub(super) struct Listed {
    pub(super) memory: Arc<RequestMemory>,
    pub(super) request: RequestId,
    pub(super) run: RunIndex,
    /// Where the values of its request begin.
    pub(super) base: u64,
}

impl Listed {
    pub(super) fn of(&self) -> &Run {
        &self.memory.graph.runs()[self.run.index()]
    }

    /// Its row at node `node` when the time is `time`, without its ports and its slot.
    pub(super) fn row(&self, node: u32, time: u32) -> Row {
        let run = self.of();
        Row {
            stop: run.stop.map_or(0, |stop| stop.value),
            request: [self.request.index, self.request.generation],
            run: self.run.0,
            slot: 0,
            first: time.wrapping_sub(node),
            half: 0,
            length: run.length,
            ports: 0,
            sinks: run.sinks.len() as u32,
            stop_output: run.stop.map_or(NO_OUTPUT, |stop| stop.port as u32),
        }
    }

    /// Its ports: inputs, then sinks.
    pub(super) fn ports(&self) -> Vec<Port> {
        let run = self.of();
        let inputs = run.inputs.iter().map(|rows| self.memory.port(self.base, rows));
        let sinks = run
            .sinks
            .iter()
            .map(|sink| self.memory.sink(self.base, &sink.rows, sink.port, sink.time));
        inputs.chain(sinks).collect()
    }

    /// Whether it writes rows after `node`, or may end with it.
    pub(super) fn finishes(&self, node: u32) -> bool {
        let run = self.of();
        let is_last = node + 1 == run.length;
        let writes = run.sinks.iter().any(|sink| sink.time == SinkTime::Every || is_last);
        node < run.length && (writes || run.stop.is_some())
    }
}

/// Rows of a batch on their way to the GPU.
#[derive(Default)]
struct RowList {
    rows: Vec<Row>,
    ports: Vec<Port>,
}

impl CudaQueue {
    /// Submits the work of a task.
    pub(super) fn run_task(&mut self, task: &BatchedTask) -> Result<(), TaskError> {
        let cell = self.state.cells.get(task.cell_type);
        match (&cell.body, &task.work) {
            (CudaCellBody::Sequences(program), Work::Rows(items)) => {
                self.run_sequences(program, items)
            }
            (CudaCellBody::Stepwise(stepwise), Work::Rows(items)) if stepwise.states.is_empty() => {
                self.run_rows(&cell, stepwise, items)
            }
            (CudaCellBody::Stepwise(stepwise), Work::Rows(items)) => {
                self.run_chains(task.cell_type, &cell, stepwise, items)
            }
            (CudaCellBody::Stepwise(stepwise), Work::Roster { leaves, joins, steps }) => {
                self.change_roster(task.cell_type, &cell, leaves);
                self.run_roster(task.cell_type, (&cell, stepwise), joins, *steps)
            }
            (CudaCellBody::Sequences(_), Work::Roster { .. }) => {
                unreachable!("a cell over whole sequences has no chains")
            }
        }
    }

    /// Runs nodes of row-wise runs.
    fn run_rows(
        &mut self,
        cell: &Arc<CudaCell>,
        stepwise: &Stepwise,
        items: &[Item],
    ) -> Result<(), TaskError> {
        let mut list = RowList::default();
        let mut finishes = false;
        for item in items {
            let listed = self.list(item.request, item.run)?;
            let nodes = item.first..item.first + item.count;
            self.bring_inputs(&listed, nodes.clone())?;
            let ports = list.ports.len() as u32;
            list.ports.extend(listed.ports());
            list.rows.extend(nodes.clone().map(|node| Row { ports, ..listed.row(node, 0) }));
            finishes |= nodes.clone().any(|node| listed.finishes(node));
            self.note_writes(&listed, nodes);
        }
        self.run_list(cell, stepwise, &list, Upload::default(), None, finishes)
    }

    /// Runs a step of each of some chains.
    fn run_chains(
        &mut self,
        cell_type: CellTypeId,
        cell: &Arc<CudaCell>,
        stepwise: &Stepwise,
        items: &[Item],
    ) -> Result<(), TaskError> {
        let slots = self.worker.slots(cell_type, stepwise.half_bytes);
        drop(self.reach(&slots, items.iter().filter_map(|item| item.slot))?);
        let (mut list, mut upload) = (RowList::default(), Upload::default());
        let mut finishes = false;
        for item in items {
            let listed = self.list(item.request, item.run)?;
            let chain = Chain::of_item(&listed.memory.graph, item, false);
            self.bring_inputs(&listed, item.first..item.first + 1)?;
            self.bring_state((cell_type, stepwise), &listed, &chain, &mut upload)?;
            let ports = list.ports.len() as u32;
            list.ports.extend(listed.ports());
            let half = lock(&slots).half(chain.slot);
            let row = listed.row(item.first, 0);
            list.rows.push(Row { ports, slot: chain.slot.index, half, ..row });
            finishes |= listed.finishes(item.first);
            self.note_writes(&listed, item.first..item.first + 1);
        }
        let mut slots = lock(&slots);
        self.run_list(cell, stepwise, &list, upload, Some(&slots), finishes)?;
        for slot in items.iter().filter_map(|item| item.slot) {
            let half = slots.half(slot) ^ 1;
            slots.set_half(slot, half);
        }
        Ok(())
    }

    /// Runs the rows of a list, at time 0.
    fn run_list(
        &mut self,
        cell: &Arc<CudaCell>,
        stepwise: &Stepwise,
        list: &RowList,
        mut upload: Upload,
        slots: Option<&Slots>,
        finishes: bool,
    ) -> Result<(), TaskError> {
        let frame = self.frame(stepwise, list.rows.len(), slots)?;
        let (rows, ports) = (upload.add(&list.rows), upload.add(&list.ports));
        let outputs = upload.add(&frame.outputs(stepwise));
        let at = self.bring(upload)?;
        let batch = Batch {
            rows: at + rows,
            ports: at + ports,
            ended: slots.map_or(0, Slots::ended),
            count: list.rows.len() as i32,
            time: 0,
        };
        self.expect_ends(list.rows.iter());
        let (frame, finishes) = (&frame, &[finishes][..]);
        self.run_steps(&StepsRun { cell, stepwise, frame, batch, outputs: at + outputs, finishes })
    }

    /// Places a cell's registers for a batch.
    pub(super) fn frame(
        &mut self,
        stepwise: &Stepwise,
        rows: usize,
        slots: Option<&Slots>,
    ) -> Result<Frame, GpuError> {
        let bytes = Frame::new(stepwise, rows, 0, slots).bytes;
        let scratch = self.scratch(bytes)?;
        Ok(Frame::new(stepwise, rows, scratch, slots))
    }

    /// A run of a request, whose values are on the GPU then.
    pub(super) fn list(&mut self, request: RequestId, run: RunIndex) -> Result<Listed, GpuError> {
        let memory = self.state.requests.get(request);
        let base = self.settle(&memory)?;
        Ok(Listed { memory, request, run, base })
    }

    /// Brings the values of a request to the GPU, if they are not there.
    pub(super) fn settle(&mut self, memory: &RequestMemory) -> Result<u64, GpuError> {
        if let Some(base) = memory.base(self.worker.number) {
            return Ok(base);
        }
        let allocation = self.worker.pool.allocate(memory.bytes())?;
        let (base, image) = (allocation.at(), memory.image());
        if !image.is_empty() {
            let staged = self.stage(image.len())?;
            let (to, offset) = staged.range();
            to.write(offset, &image);
            self.worker.stream.upload(base, staged.range(), image.len())?;
        }
        self.worker.stream.clear(base + image.len() as u64, memory.bytes() - image.len())?;
        memory.settle(self.worker.number, allocation);
        Ok(base)
    }

    /// Brings the state of a chain that joins a batch to its slot, which was reached.
    pub(super) fn bring_state(
        &mut self,
        (cell_type, stepwise): (CellTypeId, &Stepwise),
        listed: &Listed,
        chain: &Chain,
        upload: &mut Upload,
    ) -> Result<(), TaskError> {
        let slot = chain.slot;
        let moved = match chain.origin() {
            Origin::Elsewhere(from) => Some(self.state_elsewhere(cell_type, stepwise, from, slot)),
            Origin::Initial | Origin::Slot => None,
        };
        let slots = self.worker.slots(cell_type, stepwise.half_bytes);
        let mut slots = lock(&slots);
        match (chain.origin(), moved.flatten()) {
            (Origin::Initial, _) => {
                let initial = &listed.of().initial;
                for ((rows, state), place) in
                    initial.iter().zip(&stepwise.states).zip(&stepwise.state_places)
                {
                    let bytes = state.bytes().unwrap_or(0);
                    let row = |rows: &batchmaker_graph::Rows| (rows.value, rows.row(0));
                    if let Some((value, row)) = rows.as_ref().map(row) {
                        self.bring_row(&listed.memory, listed.base, (value, row))?;
                    }
                    let from = rows.as_ref().map(|rows| {
                        let (value, row) = row(rows);
                        listed.memory.row(listed.base, value, row)
                    });
                    upload.copy(slots.address(slot, 0) + *place as u64, from, bytes);
                }
                slots.set_half(slot, 0);
            }
            (_, Some((worker, state, ended))) => {
                let other = self.state.workers[worker].gpu().clone();
                let to = slots.address(slot, 0);
                self.worker.stream.copy_from(&other, to, state, stepwise.half_bytes)?;
                self.worker.stream.copy_from(&other, slots.ended_of(slot), ended, 4)?;
                slots.set_half(slot, 0);
            }
            (_, None) => {}
        }
        if chain.step() == 0 {
            upload.copy(slots.ended_of(slot), None, 4);
        }
        Ok(())
    }

    /// The addresses of a slot's state and of its word in the memory of another worker; none where that is lost.
    fn state_elsewhere(
        &self,
        cell_type: CellTypeId,
        stepwise: &Stepwise,
        from: WorkerId,
        slot: SlotId,
    ) -> Option<(usize, u64, u64)> {
        let worker = &self.state.workers[from.index()];
        if worker.lost().is_some() {
            return None;
        }
        let slots = worker.slots(cell_type, stepwise.half_bytes);
        let slots = lock(&slots);
        let state = slots.address(slot, slots.half(slot));
        Some((worker.number, state, slots.ended_of(slot)))
    }

    /// Makes room for some slots of a cell type. All slots may move: their addresses are known once all that a task uses were reached.
    pub(super) fn reach<'a>(
        &self,
        all: &'a Mutex<Slots>,
        slots: impl IntoIterator<Item = SlotId>,
    ) -> Result<MutexGuard<'a, Slots>, GpuError> {
        let mut all = lock(all);
        for slot in slots {
            all.reach(slot, &self.worker.pool, &self.worker.stream)?;
        }
        Ok(all)
    }

    /// Brings records to the GPU and has it make their copies. Returns the address of the first record.
    pub(super) fn bring(&mut self, upload: Upload) -> Result<u64, GpuError> {
        let (bytes, copies, count) = upload.finish();
        if bytes.is_empty() {
            return Ok(0);
        }
        let at = self.buffer(bytes.len())?;
        let staged = self.stage(bytes.len())?;
        let (to, offset) = staged.range();
        to.write(offset, &bytes);
        self.worker.stream.upload(at, staged.range(), bytes.len())?;
        if count > 0 {
            let arguments = CopyArguments { copies: at + copies, uploaded: at };
            self.worker.stream.launch(COPY_ROWS, [count as u32, 1, 1], BLOCK, &arguments)?;
        }
        Ok(at)
    }
}
