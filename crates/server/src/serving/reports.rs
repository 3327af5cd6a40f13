//! The server's reports about itself and its models, as types of the protocol: metadata, configuration,
//! statistics, the index of the repository.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker::{CellStatistics, CellTypeId, InputLayout, Model, TensorInfo};
use batchmaker_wire as wire;

use crate::serving::app::App;
use crate::serving::tensors::datatype_of;

/// The extensions of the protocol that work. `model_repository` is not among them: it has an index,
/// but nothing is loaded or unloaded.
const EXTENSIONS: [&str; 6] = [
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "schedule_policy",
    "sequence",
    "statistics",
];

const BACKEND: &str = "batchmaker";

/// Triton's names for the framework and the format of a model.
const PLATFORM: &str = "batchmaker_onnx";

/// The metadata of the server.
pub(crate) fn server() -> wire::ServerMetadata {
    wire::ServerMetadata {
        name: "batchmaker".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        extensions: EXTENSIONS.map(String::from).into(),
    }
}

/// The metadata of a model.
pub(crate) fn model(model: &Model) -> wire::ModelMetadata {
    let tensors = |tensors: &[TensorInfo]| {
        let tensor = |tensor: &TensorInfo| wire::TensorMetadata {
            name: tensor.name.clone(),
            datatype: datatype_of(tensor.element),
            shape: tensor.shape.clone(),
        };
        tensors.iter().map(tensor).collect()
    };
    wire::ModelMetadata {
        name: model.name.clone(),
        versions: vec![model.version.clone()],
        platform: PLATFORM.into(),
        inputs: tensors(&model.inputs),
        outputs: tensors(&model.outputs),
    }
}

/// The configuration of a model. Where the first axis of all tensors is that of the sequences, `max_batch_size` is the most of them, and the shapes
/// lack that axis; else it is 0, and shapes are whole. It has nothing to do with how cells are batched.
pub(crate) fn config(app: &App, model: &Model) -> wire::ModelConfig {
    let max_batch_size = model.sequences_max().map_or(0, |max| max.min(i32::MAX as usize));
    let dims = |tensor: &TensorInfo| tensor.shape[usize::from(max_batch_size > 0)..].to_vec();
    let input = |(tensor, layout): (&TensorInfo, InputLayout)| wire::ConfigInput {
        name: tensor.name.clone(),
        data_type: datatype_of(tensor.element),
        format: wire::TensorFormat::None,
        dims: dims(tensor),
        is_shape_tensor: false,
        allow_ragged_batch: false,
        optional: layout.optional,
    };
    let output = |tensor: &TensorInfo| wire::ConfigOutput {
        name: tensor.name.clone(),
        data_type: datatype_of(tensor.element),
        dims: dims(tensor),
        label_filename: String::new(),
        is_shape_tensor: false,
    };
    let statistics = app.engine.statistics();
    let kind = if statistics.devices.is_empty() { "KIND_CPU" } else { "KIND_GPU" };
    let instances = wire::InstanceGroup {
        name: model.name.clone(),
        kind: kind.into(),
        count: statistics.workers as u32,
        gpus: (0..statistics.devices.len() as u32).collect(),
    };
    let sequences = app.engine.session_idle(&model.name).map(|idle| wire::SequenceBatching {
        max_sequence_idle_microseconds: idle.as_micros() as u64,
    });
    wire::ModelConfig {
        name: model.name.clone(),
        platform: PLATFORM.into(),
        backend: BACKEND.into(),
        version_policy: wire::VersionPolicy::default(),
        max_batch_size: max_batch_size as u32,
        input: model.inputs.iter().zip(model.layouts()).map(input).collect(),
        output: model.outputs.iter().map(output).collect(),
        // Triton has one of them at most.
        dynamic_batching: sequences.is_none().then(wire::DynamicBatching::default),
        sequence_batching: sequences,
        instance_group: vec![instances],
        model_transaction_policy: wire::TransactionPolicy::default(),
        response_cache: wire::ResponseCache::default(),
        parameters: layouts(model),
    }
}

/// Which axes of the inputs are batch and time: `layout:x` is `[time, batch, 256] numbers`.
fn layouts(model: &Model) -> BTreeMap<String, wire::ConfigParameter> {
    let layouts = model.inputs.iter().zip(model.layouts());
    let parameter = |(input, layout): (&TensorInfo, InputLayout)| {
        let string_value = layout.to_string();
        (format!("layout:{}", input.name), wire::ConfigParameter { string_value })
    };
    layouts.map(parameter).collect()
}

/// The statistics of all models.
pub(crate) fn all_statistics(app: &App) -> wire::Statistics {
    let models = app.engine.models();
    let model_stats = models.into_iter().map(|model| statistics_of(app, model)).collect();
    wire::Statistics { model_stats }
}

/// The statistics of one model.
pub(crate) fn statistics(app: &App, model: &Model) -> wire::Statistics {
    wire::Statistics { model_stats: vec![statistics_of(app, model)] }
}

/// A batch of a cell that several models share counts for each of them. No batch is one of a model: a request takes part in many. `execution_count` is
/// what makes requests over executions the mean number of rows of a batch, which is what clients compute.
fn statistics_of(app: &App, model: &Model) -> wire::ModelStatistics {
    let cells = app.engine.statistics().cells;
    let used: BTreeSet<CellTypeId> = model.cells.iter().map(|cell| cell.cell_type).collect();
    let by_size = batches_by_size(used.iter().map(|cell| &cells[cell.index()]));
    let statistics = app.records[&model.name].statistics();
    wire::ModelStatistics {
        name: model.name.clone(),
        version: model.version.clone(),
        execution_count: executions(statistics.inference_count, &by_size),
        batch_stats: by_size.iter().map(batch_statistics).collect(),
        ..statistics
    }
}

/// The number of batches of each size but 0.
fn batches_by_size<'a>(cells: impl Iterator<Item = &'a CellStatistics>) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for (size, &count) in cells.flat_map(|cell| (0..).zip(&cell.batches_by_size)) {
        if size > 0 && count > 0 {
            *counts.entry(size).or_default() += count;
        }
    }
    counts
}

/// Requests over the mean number of rows of a batch, rounded up.
fn executions(requests: u64, by_size: &BTreeMap<u64, u64>) -> u64 {
    let batches: u64 = by_size.values().sum();
    let rows: u64 = by_size.iter().map(|(size, count)| size * count).sum();
    let executions = u128::from(requests) * u128::from(batches);
    executions.div_ceil(u128::from(rows.max(1))) as u64
}

/// Batches of one size. How long they took is not known.
fn batch_statistics((&batch_size, &count): (&u64, &u64)) -> wire::BatchStatistics {
    let counted = wire::DurationStatistics { count, ns: 0 };
    wire::BatchStatistics {
        batch_size,
        compute_input: counted,
        compute_infer: counted,
        compute_output: counted,
    }
}

/// The index of the repository: all models, or those alone that are ready.
pub(crate) fn repository_index(app: &App, only_ready: bool) -> Vec<wire::RepositoryIndexEntry> {
    let (state, reason) = match app.check_ready() {
        Ok(()) => (wire::ModelState::Ready, String::new()),
        Err(_) if only_ready => return Vec::new(),
        Err(error) => (wire::ModelState::Unavailable, error.to_string()),
    };
    let entry = |model: &Model| wire::RepositoryIndexEntry {
        name: model.name.clone(),
        version: model.version.clone(),
        state,
        reason: reason.clone(),
    };
    app.engine.models().into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(batches_by_size: &[u64]) -> CellStatistics {
        let batches_by_size = batches_by_size.to_vec();
        CellStatistics { batches_by_size, ..CellStatistics::default() }
    }

    #[test]
    fn requests_over_executions_are_the_mean_rows_of_a_batch() {
        let cells = [cell(&[7, 1, 0, 0, 2]), cell(&[0, 0, 0, 0, 1, 0])];
        let by_size = batches_by_size(cells.iter());
        assert_eq!(by_size, BTreeMap::from([(1, 1), (4, 3)]));
        // 13 rows in 4 batches.
        assert_eq!(
            [0, 3, 6, 7, 13].map(|requests| executions(requests, &by_size)),
            [0, 1, 2, 3, 4]
        );
        assert_eq!(executions(7, &BTreeMap::new()), 0);
        let four = batch_statistics((&4, &3));
        assert_eq!((four.batch_size, four.compute_infer.count), (4, 3));
    }
}
