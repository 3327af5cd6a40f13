//! The server's reports about itself and its models, as types of the protocol: metadata, configuration,
//! statistics, the index of the repository.

use std::collections::{BTreeMap, BTreeSet};

use batchmaker::{CellTypeId, InputLayout, Model, TensorInfo};
use batchmaker_wire as wire;

use crate::serving::app::App;
use crate::serving::tensors::datatype_of;

/// The extensions of the protocol that work. `model_repository` is not among them: it has an index,
/// but nothing is loaded or unloaded.
const EXTENSIONS: [&str; 5] =
    ["binary_tensor_data", "model_configuration", "schedule_policy", "sequence", "statistics"];

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

/// The configuration of a model. Shapes are whole, so the `max_batch_size` is 0: a client adds no axis.
/// It has nothing to do with how cells are batched.
pub(crate) fn config(model: &Model) -> wire::ModelConfig {
    let tensor = |tensor: &TensorInfo, optional| wire::ConfigTensor {
        name: tensor.name.clone(),
        data_type: datatype_of(tensor.element),
        dims: tensor.shape.clone(),
        optional,
    };
    let inputs = model.inputs.iter().zip(model.layouts());
    wire::ModelConfig {
        name: model.name.clone(),
        platform: PLATFORM.into(),
        backend: BACKEND.into(),
        version_policy: wire::VersionPolicy::default(),
        max_batch_size: 0,
        input: inputs.map(|(input, layout)| tensor(input, layout.optional)).collect(),
        output: model.outputs.iter().map(|output| tensor(output, false)).collect(),
        sequence_batching: None,
        model_transaction_policy: wire::TransactionPolicy::default(),
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

/// A launch of a cell that several models share counts for each of them.
fn statistics_of(app: &App, model: &Model) -> wire::ModelStatistics {
    let cells = app.engine.statistics().cells;
    let used: BTreeSet<CellTypeId> = model.cells.iter().map(|cell| cell.cell_type).collect();
    let execution_count = used.into_iter().map(|cell| cells[cell.index()].tasks).sum();
    wire::ModelStatistics {
        name: model.name.clone(),
        version: model.version.clone(),
        execution_count,
        ..app.records[&model.name].statistics()
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
