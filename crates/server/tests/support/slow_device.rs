//! The CPU device, slowed down, so that requests stay in flight for as long as a test needs.

use std::sync::Arc;
use std::time::Duration;

use batchmaker_cpu::CpuDevice;
use batchmaker_device::{
    BatchSize, Bell, Capabilities, Completion, Device, DeviceError, ExecutionPlan, Materialized,
    Measurement, Read, StatePlace, TaskQueue,
};
use batchmaker_graph::{
    BatchedTask, CellGraph, CellIdentity, CellType, CellTypeId, RequestId, Tensor, TensorData,
    WorkerId,
};

/// A device whose tasks take `pause` longer.
pub struct SlowDevice {
    inner: Arc<CpuDevice>,
    pause: Duration,
}

impl SlowDevice {
    pub fn new(inner: CpuDevice, pause: Duration) -> Self {
        Self { inner: Arc::new(inner), pause }
    }
}

impl Device for SlowDevice {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn materialize(&self, id: CellTypeId, cell: &CellType) -> Result<Materialized, DeviceError> {
        self.inner.materialize(id, cell)
    }

    fn release(&self, id: CellTypeId) {
        self.inner.release(id);
    }

    fn queue(
        self: Arc<Self>,
        worker: WorkerId,
        bell: Arc<Bell>,
    ) -> Result<Box<dyn TaskQueue>, DeviceError> {
        let inner = self.inner.clone().queue(worker, bell)?;
        Ok(Box::new(SlowQueue { inner, pause: self.pause }))
    }

    fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError> {
        self.inner.admit(request, graph, inputs)
    }

    fn retire(&self, request: RequestId) {
        self.inner.retire(request);
    }

    fn measure(&self, cell: &CellType, batch: BatchSize) -> Result<Measurement, DeviceError> {
        self.inner.measure(cell, batch)
    }

    fn plan(
        &self,
        cell: CellIdentity,
        plans: &[(usize, ExecutionPlan)],
    ) -> Result<(), DeviceError> {
        self.inner.plan(cell, plans)
    }
}

struct SlowQueue {
    inner: Box<dyn TaskQueue>,
    pause: Duration,
}

impl TaskQueue for SlowQueue {
    fn submit(&mut self, round: &mut Vec<BatchedTask>) {
        self.inner.submit(round);
    }

    fn read(&mut self, read: Read) {
        self.inner.read(read);
    }

    fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        self.inner.write_state(place, states);
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.inner.poll(completions);
        let is_task = |completion: &Completion| matches!(completion, Completion::Task(_));
        if !self.pause.is_zero() && completions[before..].iter().any(is_task) {
            std::thread::sleep(self.pause);
        }
    }
}
