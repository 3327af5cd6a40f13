//! Values of requests, brought to the GPU: inputs from the host, and rows from the GPUs that hold them.

use std::ops::Range;

use batchmaker_graph::{RequestId, Rows, RunIndex, SinkTime, ValueIndex};

use super::listed::Listed;
use super::submitter::{Submitter, TaskError};
use crate::gpu::GpuError;
use crate::lock::lock;
use crate::memory::{Base, Holder, RequestMemory};

impl Submitter {
    /// A run of a request, whose values are on the GPU then.
    pub(super) fn list(&mut self, request: RequestId, run: RunIndex) -> Result<Listed, GpuError> {
        let memory = self.state.requests.get(request);
        let base = self.settle(&memory)?;
        Ok(Listed { memory, request, run, base })
    }

    /// Brings the values of a request to the GPU, if they are not there.
    pub(super) fn settle(&mut self, memory: &RequestMemory) -> Result<Base, GpuError> {
        if let Some(base) = memory.base(self.worker.number) {
            return Ok(base);
        }
        let allocation = self.allocate(memory.bytes())?;
        let (at, image) = (allocation.at(), memory.image());
        let zeros = memory.bytes() - image.len();
        self.arrive(at, image, zeros)?;
        Ok(memory.settle(self.worker.number, allocation))
    }

    /// Copies the rows that nodes of a run read from the GPUs that hold them.
    pub(super) fn bring_inputs(
        &mut self,
        listed: &Listed,
        nodes: Range<u32>,
    ) -> Result<(), TaskError> {
        if listed.memory.holders.is_none() {
            return Ok(());
        }
        let run = listed.of();
        for rows in &run.inputs {
            for node in nodes.clone().map(|node| node.min(run.length - 1)) {
                self.bring_rows(&listed.memory, listed.base, rows, node)?;
            }
        }
        Ok(())
    }

    fn bring_rows(
        &mut self,
        memory: &RequestMemory,
        base: Base,
        rows: &Rows,
        node: u32,
    ) -> Result<(), TaskError> {
        let first = rows.row(node);
        self.need_range(memory, base, rows.value, first..first + rows.span as usize)
    }

    /// Copies rows that a task needs, as [`Self::bring_range`] does.
    pub(super) fn need_range(
        &mut self,
        memory: &RequestMemory,
        base: Base,
        value: ValueIndex,
        rows: Range<usize>,
    ) -> Result<(), TaskError> {
        let are_there = self.bring_range(memory, base, value, rows)?;
        are_there.then_some(()).ok_or(TaskError::Lost)
    }

    /// Copies the last rows that a chain has written elsewhere, where it may end with its next node, which writes nothing.
    pub(super) fn bring_last_rows(&mut self, listed: &Listed) -> Result<(), TaskError> {
        let run = listed.of();
        if run.stop.is_some() {
            for sink in run.sinks.iter().filter(|sink| sink.time == SinkTime::Last) {
                self.bring_rows(&listed.memory, listed.base, &sink.rows, 0)?;
            }
        }
        Ok(())
    }

    /// Copies rows from the GPUs that wrote them, those that lie together in one copy. Returns whether all are there: some may be lost.
    pub(super) fn bring_range(
        &mut self,
        memory: &RequestMemory,
        base: Base,
        value: ValueIndex,
        rows: Range<usize>,
    ) -> Result<bool, GpuError> {
        let Some(holders) = &memory.holders else { return Ok(true) };
        let state = self.state.clone();
        let is_lost = |worker: usize| state.workers[worker].lost().is_some();
        let own = self.worker.number;
        let mut holders = lock(holders);
        let (mut row, mut are_there) = (rows.start, true);
        while row < rows.end {
            let holder = holders.holder((value, row), own, is_lost);
            let is_other = |&row: &usize| holders.holder((value, row), own, is_lost) != holder;
            let end = (row + 1..rows.end).find(is_other).unwrap_or(rows.end);
            are_there &= match holder {
                Holder::Own => true,
                Holder::Lost => false,
                Holder::Other(other) => {
                    let from = memory.base(other).map(|base| memory.row(base, value, row));
                    let to = memory.row(base, value, row);
                    let bytes = (end - row) * memory.row_bytes(value);
                    let is_copied = match from {
                        Some(from) => self.copy_from_worker(other, to, from, bytes)?,
                        None => false,
                    };
                    if is_copied {
                        (row..end).for_each(|row| holders.copied(value, row, own));
                    }
                    is_copied
                }
            };
            row = end;
        }
        Ok(are_there)
    }

    /// Copies from the GPU of another worker. False where that GPU is lost.
    pub(super) fn copy_from_worker(
        &mut self,
        other: usize,
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<bool, GpuError> {
        // The rows may be among values that were to come with the next upload.
        self.end_quantum()?;
        self.bring_arriving()?;
        let other = &self.state.workers[other];
        let Err(error) = self.worker.stream.copy_from(other.gpu(), to, from, bytes) else {
            return Ok(true);
        };
        // Either of the two may be what the driver complains of.
        if other.stream.check().is_ok() || self.worker.stream.check().is_err() {
            return Err(error);
        }
        other.lose(&error.to_string());
        Ok(false)
    }

    /// Notes that this GPU writes the rows of nodes of a run.
    pub(super) fn note_writes(&self, listed: &Listed, nodes: Range<u32>) {
        let Some(holders) = &listed.memory.holders else { return };
        let (run, mut holders) = (listed.of(), lock(holders));
        let nodes = nodes.start.min(run.length)..nodes.end.min(run.length);
        // All GPUs write to the same memory of the host.
        let on_gpus = run.sinks.iter().filter(|sink| !listed.memory.is_on_host(sink.rows.value));
        for sink in on_gpus {
            match sink.time {
                SinkTime::Every => {
                    let all = nodes.clone();
                    all.for_each(|node| holders.write(&sink.rows, node, self.worker.number));
                }
                SinkTime::Last if nodes.is_empty() => {}
                SinkTime::Last => {
                    if nodes.end == run.length || run.stop.is_some() {
                        holders.write(&sink.rows, 0, self.worker.number);
                    }
                }
            }
        }
    }
}
