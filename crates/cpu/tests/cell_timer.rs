//! Cells alone on a device: batches of one size after another.

use std::sync::Arc;
use std::time::Duration;

use batchmaker_cpu::{CpuConfig, CpuDevice};
use batchmaker_device::{CellTimer, Device, Effort};
use batchmaker_graph::{
    Cell, CellRegistry, CellTypeId, ModelId, ModelPriority, RecurrentCell, RecurrentKind,
    RnnActivation,
};

#[test]
fn chains_of_one_size_leave_before_those_of_the_next_join() {
    let cell = Cell::recurrent(RecurrentCell {
        kind: RecurrentKind::Rnn { activation: RnnActivation::Tanh },
        input_size: 3,
        hidden_size: 5,
        w: [0.1; 15].into(),
        r: [0.1; 25].into(),
        b: None,
        lookup: None,
    });
    let mut registry = CellRegistry::default();
    registry.add("rnn", cell, 8, ModelPriority { model: ModelId(0), priority: 0 });
    let [cell] = registry.cell_types() else { unreachable!("one was added") };
    let device = CpuDevice::new(CpuConfig::default()).unwrap();
    device.materialize(CellTypeId(0), cell).unwrap();
    let mut timer = CellTimer::new(Arc::new(device)).unwrap();
    let effort = Effort { time: Duration::ZERO, runs: 2, steps: 3 };
    for size in [1, 4, 2, 8] {
        assert!(timer.batch_s(CellTypeId(0), cell, size, effort).unwrap() > 0.0);
    }
}
