//! Gives the device the cell types, and configures the manager for the device.

use std::collections::BTreeSet;

use batchmaker_device::{Capabilities, Device, DeviceError};
use batchmaker_graph::{CellBody, CellRegistry, CellType, CellTypeId};
use batchmaker_manager::{Config, Policy, Stages};

use crate::config::EngineConfig;

/// The most workers of an engine: each has a bit of a 64-bit word.
const MAX_WORKERS: u16 = 64;

/// Gives the device all cell types. Returns the manager's configuration for it, and the bytes of a slot of each cell type.
pub(crate) fn manager_config(
    registry: &CellRegistry,
    device: &dyn Device,
    capabilities: &Capabilities,
    config: &EngineConfig,
) -> Result<(Config, Vec<usize>), DeviceError> {
    let workers = config.workers;
    if !(1..=MAX_WORKERS).contains(&workers) {
        let text = format!("{workers} workers; there can be 1 to {MAX_WORKERS}");
        return Err(DeviceError::Resources(text));
    }
    if capabilities.slots_max == Some(0) {
        return Err(DeviceError::Resources("the device has no room for a state".to_owned()));
    }
    if capabilities.workers_max.is_some_and(|max| workers > max) {
        let text = format!("the device has fewer than {workers} units for workers");
        return Err(DeviceError::Resources(text));
    }
    if capabilities.slots_max.is_some() && config.policy != Policy::Cellular {
        let policy = config.policy;
        let text = format!("the policy '{policy}' takes a device without a bound on states");
        return Err(DeviceError::Resources(text));
    }
    let stages = match config.policy {
        Policy::Staged(_) => stages(registry, &config.stage_times)
            .map_err(|reason| DeviceError::Resources(format!("the policy 'staged' {reason}")))?,
        _ => Stages::default(),
    };
    let mut manager = Config {
        policy: config.policy,
        stages,
        fairness: config.fairness.clone(),
        max_tasks_to_submit: config.max_tasks_to_submit,
        submission_window_ns: config
            .submission_window
            .map(|submission_window| submission_window.as_nanos() as u64),
        lookahead: capabilities.lookahead,
        state_placement: capabilities.placement,
        ..Config::new(registry, workers)
    };
    let mut slot_bytes = Vec::new();
    for (id, cell) in (0..).zip(registry.cell_types()) {
        let materialized = device.materialize(CellTypeId(id), cell);
        let materialized = materialized.inspect_err(|_| release_cells(device, id as usize))?;
        let rows_max = materialized.rows_max;
        slot_bytes.push(materialized.slot_bytes);
        if rows_max == Some(0) {
            release_cells(device, id as usize + 1);
            let reason = "the device has no room for a row of it".to_owned();
            return Err(DeviceError::Cell { cell: cell.name.clone(), reason });
        }
        let of_manager = &mut manager.cell_types[id as usize];
        if let Some(max) = rows_max {
            of_manager.batch_sizes = of_manager.batch_sizes.with_max(max);
        }
        (of_manager.rows_max, of_manager.slots_max) = (rows_max, capabilities.slots_max);
    }
    Ok((manager, slot_bytes))
}

/// The stages of the one model of a registry, and what is known of their times.
fn stages(registry: &CellRegistry, times: &[Vec<(u32, u64)>]) -> Result<Stages, String> {
    let cells = registry.cell_types();
    let models = cells.iter().flat_map(|cell| &cell.priorities).map(|priority| priority.model);
    if models.collect::<BTreeSet<_>>().len() != 1 {
        return Err("takes one model".to_owned());
    }
    let is_recurrent = |cell: &&CellType| {
        !cell.cell.states.is_empty() || matches!(cell.cell.body, CellBody::Tree(_))
    };
    if let Some(cell) = cells.iter().find(is_recurrent) {
        return Err(format!("takes a model without recurrence: `{}` runs step by step", cell.name));
    }
    let of_cells: Vec<usize> = cells.iter().map(|cell| cell.stage).collect();
    let count = of_cells.iter().max().map_or(1, |last| last + 1);
    let of_stage = |stage: usize| times.get(stage).cloned().unwrap_or_default();
    Ok(Stages::new(of_cells, (0..count).map(of_stage).collect()))
}

/// Gives the device its first `count` cell types back.
pub(crate) fn release_cells(device: &dyn Device, count: usize) {
    (0..count as u32).for_each(|id| device.release(CellTypeId(id)));
}
