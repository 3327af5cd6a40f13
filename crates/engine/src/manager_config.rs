//! Gives the device the cell types, and configures the manager for the device.

use batchmaker_device::{Capabilities, Device, DeviceError};
use batchmaker_graph::{CellRegistry, CellType, CellTypeId, ModelId};
use batchmaker_manager::{Config, Policy, StagedModel, Stages};

use crate::config::EngineConfig;

/// The most workers of an engine: each has a bit of a 64-bit word.
const MAX_WORKERS: u16 = 64;

/// Gives the device all cell types. Returns the manager's configuration for it, and the bytes of a slot of each cell type.
pub(crate) fn manager_config(
    registry: &CellRegistry,
    models: &[&str],
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
    let (policy, stages, staged_models) =
        policies(registry, models, config).map_err(DeviceError::Resources)?;
    if capabilities.slots_max.is_some() && matches!(policy, Policy::Padded(_) | Policy::Merged(_)) {
        let text = format!("the policy '{policy}' takes a device without a bound on states");
        return Err(DeviceError::Resources(text));
    }
    let mut manager = Config {
        policy,
        stages,
        staged_models,
        fairness: config.fairness.clone(),
        max_tasks_to_submit: config.max_tasks_to_submit,
        submission_window_ns: config
            .submission_window
            .map(|submission_window| submission_window.as_nanos() as u64),
        lookahead: capabilities.lookahead,
        rounds_of_a_turn: capabilities.rounds_of_a_turn,
        state_placement: capabilities.placement,
        ..Config::new(registry, workers)
    };
    // The cellular policy does not see whether workers are idle that run models in stages too.
    let has_cores_to_lend = manager.staged_models.is_empty();
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
            let sizes = of_manager.batch_sizes;
            of_manager.batch_sizes = sizes.with_max(sizes.max.min(max));
        }
        (of_manager.rows_max, of_manager.slots_max) = (rows_max, capabilities.slots_max);
        if has_cores_to_lend {
            of_manager.workers_of_a_row = materialized.workers_of_a_row;
        }
    }
    Ok((manager, slot_bytes))
}

/// The policy of the models, which are in the order of their ids, with the stages of the cell types if there is one model, and the models
/// that run in stages beside others.
fn policies(
    registry: &CellRegistry,
    models: &[&str],
    config: &EngineConfig,
) -> Result<(Policy, Stages, Vec<StagedModel>), String> {
    let mut common: Option<(Policy, &str)> = None;
    let mut staged_models = Vec::new();
    for (model, &name) in (0..).map(ModelId).zip(models) {
        let policy = config.policy_of(name);
        if policy.is_of_rows() {
            check_rows(registry, model).map_err(|reason| {
                format!("the policy '{policy}' does not take {name}: {reason}")
            })?;
        }
        match (policy, common) {
            (Policy::Staged(options), _) => {
                let times = config.stage_times.get(name).map_or(&[][..], Vec::as_slice);
                let stages = stages(registry, model, times);
                staged_models.push(StagedModel { model, staging: options.staging(), stages });
            }
            (Policy::Delayed(delay), _) => {
                let stages = Stages::whole(registry.cell_types().len());
                staged_models.push(StagedModel { model, staging: delay.staging(), stages });
            }
            (policy, Some((of_others, other))) if policy != of_others => {
                return Err(format!(
                    "{name} has the policy '{policy}' and {other} '{of_others}': models that are not served in stages have one in common"
                ));
            }
            (policy, _) => common = Some((policy, name)),
        }
    }
    Ok(match (common, <[StagedModel; 1]>::try_from(staged_models)) {
        (None, Ok([StagedModel { staging, stages, .. }])) => {
            (Policy::Staged(staging.into()), stages, Vec::new())
        }
        (common, several) => {
            let policy = common.map_or(Policy::Cellular, |(policy, _)| policy);
            let several = several.map_or_else(|several| several, Vec::from);
            (policy, Stages::default(), several)
        }
    })
}

/// The stages of a model, and what is known of their times.
fn stages(registry: &CellRegistry, model: ModelId, times: &[Vec<(u32, u64)>]) -> Stages {
    let stage = |cell: &CellType| if is_of(cell, model) { cell.stage } else { 0 };
    let of_cells: Vec<usize> = registry.cell_types().iter().map(stage).collect();
    let count = of_cells.iter().max().map_or(1, |last| last + 1);
    let of_stage = |stage: usize| times.get(stage).cloned().unwrap_or_default();
    Stages::new(of_cells, (0..count).map(of_stage).collect())
}

/// Checks that all cells of a model are row-wise.
fn check_rows(registry: &CellRegistry, model: ModelId) -> Result<(), String> {
    let mut cells = registry.cell_types().iter();
    match cells.find(|cell| is_of(cell, model) && cell.is_stepped()) {
        Some(cell) => Err(format!("it has recurrence, `{}` runs step by step", cell.name)),
        None => Ok(()),
    }
}

fn is_of(cell: &CellType, model: ModelId) -> bool {
    cell.priorities.iter().any(|priority| priority.model == model)
}

/// Gives the device its first `count` cell types back.
pub(crate) fn release_cells(device: &dyn Device, count: usize) {
    (0..count as u32).for_each(|id| device.release(CellTypeId(id)));
}
