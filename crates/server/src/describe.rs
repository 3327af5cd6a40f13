//! What is asked without tensors: health, metadata, configuration, statistics, the index of the
//! repository; and what is not built, which says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use batchmaker_graph::CellTypeId;
use batchmaker_model::{Model, TensorInfo};
use batchmaker_wire as wire;
use serde_json::{Value, json};

use crate::convert::datatype_of;
use crate::router::App;
use crate::status::{ApiError, json};
use crate::target::Target;

/// The extensions of the protocol that work. Not `model_repository`: there is its index, but
/// nothing is loaded or unloaded.
const EXTENSIONS: [&str; 5] =
    ["binary_tensor_data", "model_configuration", "schedule_policy", "sequence", "statistics"];

const BACKEND: &str = "batchmaker";

/// What Triton calls the framework and the format of a model.
const PLATFORM: &str = "batchmaker_onnx";

type Reply = Result<Response, ApiError>;

pub(crate) async fn server() -> Response {
    json(&wire::ServerMetadata {
        name: "batchmaker".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        extensions: EXTENSIONS.map(String::from).into(),
    })
}

pub(crate) async fn live() -> Response {
    json(&json!({"live": true}))
}

pub(crate) async fn ready(State(app): State<Arc<App>>) -> Reply {
    if app.is_ready() { Ok(json(&json!({"ready": true}))) } else { Err(ApiError::NotReady) }
}

pub(crate) async fn model_ready(State(app): State<Arc<App>>, target: Target) -> Reply {
    match app.is_ready() {
        true => Ok(json(&json!({"name": target.model().name, "ready": true}))),
        false => Err(ApiError::NotReady),
    }
}

pub(crate) async fn model(target: Target) -> Response {
    let model = target.model();
    let tensors = |tensors: &[TensorInfo]| {
        let tensor = |tensor: &TensorInfo| wire::TensorMetadata {
            name: tensor.name.clone(),
            datatype: datatype_of(tensor.element),
            shape: tensor.shape.clone(),
        };
        tensors.iter().map(tensor).collect()
    };
    json(&wire::ModelMetadata {
        name: model.name.clone(),
        versions: vec![model.version.clone()],
        platform: PLATFORM.into(),
        inputs: tensors(&model.inputs),
        outputs: tensors(&model.outputs),
    })
}

/// Shapes are whole, so the `max_batch_size` is 0: a client adds no axis. It says nothing of how
/// cells are batched.
pub(crate) async fn config(target: Target) -> Response {
    let model = target.model();
    let tensor = |tensor: &TensorInfo, optional| wire::ConfigTensor {
        name: tensor.name.clone(),
        data_type: datatype_of(tensor.element),
        dims: tensor.shape.clone(),
        optional,
    };
    let inputs = model.inputs.iter().zip(model.layouts());
    json(&wire::ModelConfig {
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
    })
}

/// Which axes of the inputs are batch and time: `layout:x` is `[time, batch, 256] numbers`.
fn layouts(model: &Model) -> BTreeMap<String, wire::ConfigParameter> {
    let layouts = model.inputs.iter().zip(model.layouts());
    let parameter = |(input, layout): (&TensorInfo, batchmaker_model::InputLayout)| {
        let string_value = layout.to_string();
        (format!("layout:{}", input.name), wire::ConfigParameter { string_value })
    };
    layouts.map(parameter).collect()
}

pub(crate) async fn statistics(State(app): State<Arc<App>>, target: Target) -> Response {
    json(&wire::Statistics { model_stats: vec![statistics_of(&app, target.model())] })
}

pub(crate) async fn all_statistics(State(app): State<Arc<App>>) -> Response {
    let models = app.engine.models();
    let model_stats = models.into_iter().map(|model| statistics_of(&app, model)).collect();
    json(&wire::Statistics { model_stats })
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

/// The body is empty or `{"ready": bool}`: whether to list the models that are ready alone.
pub(crate) async fn repository_index(State(app): State<Arc<App>>, body: Bytes) -> Reply {
    let only_ready = match &*body {
        [] => false,
        body => read_only_ready(body)?,
    };
    let (state, reason) = match app.is_ready() {
        true => (wire::ModelState::Ready, ""),
        false => (wire::ModelState::Unavailable, "the server is shutting down"),
    };
    let entry = |model: &Model| wire::RepositoryIndexEntry {
        name: model.name.clone(),
        version: model.version.clone(),
        state,
        reason: reason.into(),
    };
    let entries: Vec<_> = match only_ready && !app.is_ready() {
        true => Vec::new(),
        false => app.engine.models().into_iter().map(entry).collect(),
    };
    Ok(json(&entries))
}

fn read_only_ready(body: &[u8]) -> Result<bool, ApiError> {
    let expected = || ApiError::Invalid("the body: expected {} or {\"ready\": true}".into());
    let members: serde_json::Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| expected())?;
    if let Some(name) = members.keys().find(|name| *name != "ready") {
        return Err(ApiError::Invalid(format!("'{name}' is not supported by this server")));
    }
    members.get("ready").map_or(Ok(false), |ready| ready.as_bool().ok_or_else(expected))
}

pub(crate) async fn no_loading() -> ApiError {
    ApiError::Unsupported("loading and unloading models while it runs")
}
