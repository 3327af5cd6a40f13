//! The CPU device, slowed down, so that requests stay in flight for as long as a test needs.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use batchmaker_cpu::CpuDevice;
use batchmaker_device::{Device, DeviceError, Progress, TaskQueue};
use batchmaker_graph::{
    BatchedTask, CellGraph, CellType, RequestId, Tensor, TensorData, ValueIndex, WorkerId,
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
    fn materialize(&mut self, cell_types: &[CellType]) -> Result<(), DeviceError> {
        Arc::get_mut(&mut self.inner).expect("nobody else has it yet").materialize(cell_types)
    }

    fn queue(self: Arc<Self>, worker: WorkerId) -> Result<Box<dyn TaskQueue>, DeviceError> {
        let inner = self.inner.clone().queue(worker)?;
        Ok(Box::new(SlowQueue { inner, pause: self.pause }))
    }

    fn admit(&self, request: RequestId, graph: Arc<CellGraph>, inputs: Vec<Tensor>) {
        self.inner.admit(request, graph, inputs);
    }

    fn peek(&self, request: RequestId, value: ValueIndex, rows: Range<usize>) -> TensorData {
        self.inner.peek(request, value, rows)
    }

    fn retire(&self, request: RequestId) -> Vec<Tensor> {
        self.inner.retire(request)
    }
}

struct SlowQueue {
    inner: Box<dyn TaskQueue>,
    pause: Duration,
}

impl TaskQueue for SlowQueue {
    fn submit(&mut self, task: BatchedTask) {
        self.inner.submit(task);
    }

    fn poll(&mut self) -> Progress {
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
        self.inner.poll()
    }
}
