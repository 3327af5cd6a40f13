//! Configurations that an engine refuses to start with; it leaves nothing behind then.

use std::sync::Arc;

use batchmaker_device::{
    BatchSize, Bell, Capabilities, Device, DeviceError, ExecutionPlan, Materialized, Measurement,
    TaskQueue,
};
use batchmaker_engine::{Engine, EngineConfig, Policy, Tensor};
use batchmaker_graph::{CellGraph, CellIdentity, CellType, CellTypeId, RequestId, WorkerId};
use batchmaker_simulated::{SimulatedConfig, SimulatedDevice};

use crate::models::{Kind, load_all};

/// A simulated device, all but the last of whose queues can be taken.
struct OneQueueTooFew(Arc<SimulatedDevice>);

impl Device for OneQueueTooFew {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn materialize(&self, id: CellTypeId, cell: &CellType) -> Result<Materialized, DeviceError> {
        self.0.materialize(id, cell)
    }

    fn release(&self, id: CellTypeId) {
        self.0.release(id);
    }

    fn queue(
        self: Arc<Self>,
        worker: WorkerId,
        bell: Arc<Bell>,
    ) -> Result<Box<dyn TaskQueue>, DeviceError> {
        if worker.0 + 1 == u32::from(self.capabilities().workers_max.expect("it has a bound")) {
            return Err(DeviceError::Resources("one queue too few".to_owned()));
        }
        self.0.clone().queue(worker, bell)
    }

    fn admit(
        &self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: Vec<Tensor>,
    ) -> Result<(), DeviceError> {
        self.0.admit(request, graph, inputs)
    }

    fn retire(&self, request: RequestId) {
        self.0.retire(request);
    }

    fn measure(&self, cell: &CellType, batch: BatchSize) -> Result<Measurement, DeviceError> {
        self.0.measure(cell, batch)
    }

    fn plan(
        &self,
        cell: CellIdentity,
        plans: &[(usize, ExecutionPlan)],
    ) -> Result<(), DeviceError> {
        self.0.plan(cell, plans)
    }
}

/// Why an engine does not start on a simulated device, which has no cell types afterwards.
fn refusal(
    simulated: SimulatedConfig,
    config: &EngineConfig,
    wrap: impl FnOnce(Arc<SimulatedDevice>) -> Arc<dyn Device>,
) -> String {
    let (models, registry) = load_all();
    let simulated = Arc::new(SimulatedDevice::new(simulated));
    let started = Engine::start(models, &registry, wrap(simulated.clone()), config);
    let error = started.expect_err("the engine starts").to_string();
    assert_eq!(simulated.cell_types(), 0, "after '{error}'");
    error
}

#[test]
fn more_workers_than_the_device_has_queues() {
    let config = EngineConfig { workers: 3, ..EngineConfig::default() };
    let error = refusal(SimulatedConfig::default(), &config, |device| device);
    assert_eq!(error, "the device has fewer than 3 units for workers");
}

#[test]
fn workers_beyond_what_the_scheduler_takes() {
    for workers in [0, 65] {
        let simulated = SimulatedConfig { workers: 100, ..SimulatedConfig::default() };
        let config = EngineConfig { workers, ..EngineConfig::default() };
        let error = refusal(simulated, &config, |device| device);
        assert_eq!(error, format!("{workers} workers; there can be 1 to 64"));
    }
}

#[test]
fn bounds_that_leave_no_room() {
    let no_slot = SimulatedConfig { slots_max: Some(0), ..SimulatedConfig::default() };
    let error = refusal(no_slot, &EngineConfig::default(), |device| device);
    assert_eq!(error, "the device has no room for a state");
    let no_row = SimulatedConfig { rows_max: Some(0), ..SimulatedConfig::default() };
    let error = refusal(no_row, &EngineConfig::default(), |device| device);
    assert!(error.ends_with(": the device has no room for a row of it"), "{error}");
}

#[test]
fn closed_batches_on_a_device_with_bounded_slots() {
    let bounded = SimulatedConfig { slots_max: Some(8), ..SimulatedConfig::default() };
    let policy: Policy = "padded:10".parse().expect("a policy");
    let config = EngineConfig { policy, ..EngineConfig::default() };
    let error = refusal(bounded, &config, |device| device);
    assert_eq!(error, "the policy 'padded:10' takes a device without a bound on states");
}

#[test]
fn a_queue_that_cannot_be_taken() {
    let config = EngineConfig { workers: 2, ..EngineConfig::default() };
    let wrap = |device| Arc::new(OneQueueTooFew(device)) as Arc<dyn Device>;
    let error = refusal(SimulatedConfig::default(), &config, wrap);
    assert_eq!(error, "one queue too few");
}

#[test]
fn a_device_that_takes_larger_batches_than_the_models_allow() {
    let large = SimulatedConfig { rows_max: Some(4096), ..SimulatedConfig::default() };
    let (models, registry) = load_all();
    let device = Arc::new(SimulatedDevice::new(large));
    let engine = Engine::start(models, &registry, device, &EngineConfig::default()).unwrap();
    let submit = |salt| engine.submit("trees", Kind::Tree.request(100, salt)).unwrap();
    let pending: Vec<_> = (0..20).map(submit).collect();
    pending.into_iter().for_each(|of| drop(of.wait().unwrap()));
    for (cell, of_type) in engine.statistics().cells.iter().zip(registry.cell_types()) {
        let largest = cell.batches_by_size.len().saturating_sub(1);
        let limit = of_type.max_batch_size as usize;
        assert!(largest <= limit, "a batch of {largest} rows of {}, not {limit}", cell.name);
    }
}
