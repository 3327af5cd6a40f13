//! Values of requests, brought to the GPU: inputs from the host, and rows from the GPUs that hold them.

use std::ops::Range;

use batchmaker_graph::{RequestId, Rows, RunIndex, SinkTime, ValueIndex};

use super::listed::Listed;
use super::submitter::Submitter;
use crate::gpu::GpuError;
use crate::lock::lock;
use crate::memory::{Holder, RequestMemory};

impl Submitter {
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

    /// Copies the rows that nodes of a run read from the GPUs that hold them.
    pub(super) fn bring_inputs(
        &mut self,
        listed: &Listed,
        nodes: Range<u32>,
    ) -> Result<(), GpuError> {
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
        base: u64,
        rows: &Rows,
        node: u32,
    ) -> Result<(), GpuError> {
        let first = rows.row(node);
        for row in first..first + rows.span as usize {
            self.bring_row(memory, base, (rows.value, row))?;
        }
        Ok(())
    }

    /// Copies a row from the GPU that holds it. Returns whether it is there: it may be lost.
    pub(super) fn bring_row(
        &mut self,
        memory: &RequestMemory,
        base: u64,
        (value, row): (ValueIndex, usize),
    ) -> Result<bool, GpuError> {
        let Some(holders) = &memory.holders else { return Ok(true) };
        let workers = &self.state.workers;
        let is_lost = |worker: usize| workers[worker].lost().is_some();
        let mut holders = lock(holders);
        let own = self.worker.number;
        let other = match holders.holder((value, row), own, is_lost) {
            Holder::Own => return Ok(true),
            Holder::Lost => return Ok(false),
            Holder::Other(other) => other,
        };
        let Some(from) = memory.base(other) else { return Ok(false) };
        let (to, from) = (memory.row(base, value, row), memory.row(from, value, row));
        let bytes = memory.row_bytes(value);
        self.worker.stream.copy_from(workers[other].gpu(), to, from, bytes)?;
        holders.copied(value, row, own);
        Ok(true)
    }

    /// Notes that this GPU writes the rows of nodes of a run.
    pub(super) fn note_writes(&self, listed: &Listed, nodes: Range<u32>) {
        let Some(holders) = &listed.memory.holders else { return };
        let (run, mut holders) = (listed.of(), lock(holders));
        let nodes = nodes.start.min(run.length)..nodes.end.min(run.length);
        for sink in &run.sinks {
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
