//! Times of recurrent cells on this project's device.

use std::sync::Arc;

use batchmaker_cuda::{CudaConfig, CudaDevice};
use batchmaker_device::{CellTimer, Device, Effort};
use batchmaker_graph::{Cell, CellRegistry, ModelId, ModelPriority, RecurrentCell, RecurrentKind};

/// The microseconds of a step of batches of these sizes, for each: `steps` steps given at once, the host's time included. The input is as wide as the hidden
/// state.
pub(super) fn step_us(
    config: &CudaConfig,
    (kind, hidden): (&RecurrentKind, usize),
    batches: &[usize],
    steps: u32,
) -> anyhow::Result<Vec<f64>> {
    let config = CudaConfig { fills_memory: false, bytes_max: None, ..config.clone() };
    let device = Arc::new(CudaDevice::new(config)?);
    let mut registry = CellRegistry::default();
    let rank = ModelPriority { model: ModelId(0), priority: 0 };
    let batch_max = batches.iter().max().map_or(1, |&batch| batch as u32);
    let id = registry.add("measured", cell(kind, hidden), batch_max, rank);
    device.materialize(id, registry.get(id))?;
    let mut timer = CellTimer::new(device)?;
    let effort = Effort { steps, ..Effort::default() };
    let mut times = Vec::new();
    for &batch in batches {
        times.push(timer.batch_s(id, registry.get(id), batch, effort)? * 1e6);
    }
    Ok(times)
}

fn cell(kind: &RecurrentKind, hidden: usize) -> Cell {
    let gates = kind.gates();
    let numbers = |count: usize| (0..count).map(|at| ((at * 7919) % 997) as f32 / 1e4).collect();
    Cell::recurrent(RecurrentCell {
        input_size: hidden,
        hidden_size: hidden,
        w: numbers(gates * hidden * hidden),
        r: numbers(gates * hidden * hidden),
        b: Some(numbers(2 * gates * hidden)),
        lookup: None,
        kind: kind.clone(),
    })
}
