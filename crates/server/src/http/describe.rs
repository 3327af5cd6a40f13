//! Requests without tensors: health, metadata, configuration, statistics, metrics, the index of the
//! repository; and what is not built, whose answer says so.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http::body;
use crate::http::error::HttpError;
use crate::http::response::json;
use crate::http::state::HttpState;
use crate::serving::app::Target;
use crate::serving::error::ServeError;
use crate::serving::reports;

type Answer = Result<Response, HttpError>;

/// `GET /v2`.
pub(crate) async fn server() -> Response {
    json(&reports::server())
}

/// `GET /v2/health/live`.
pub(crate) async fn live(State(state): State<Arc<HttpState>>) -> Answer {
    state.app.check_live()?;
    Ok(json(&json!({"live": true})))
}

/// `GET /v2/health/ready`.
pub(crate) async fn ready(State(state): State<Arc<HttpState>>) -> Answer {
    state.app.check_ready()?;
    Ok(json(&json!({"ready": true})))
}

/// `GET /v2/models/M/ready`.
pub(crate) async fn model_ready(State(state): State<Arc<HttpState>>, target: Target) -> Answer {
    state.app.check_ready()?;
    Ok(json(&json!({"name": target.model().name, "ready": true})))
}

/// `GET /v2/models/M`.
pub(crate) async fn model(target: Target) -> Response {
    json(&reports::model(target.model()))
}

/// `GET /v2/models/M/config`.
pub(crate) async fn config(State(state): State<Arc<HttpState>>, target: Target) -> Response {
    json(&reports::config(&state.app, target.model()))
}

/// `GET /v2/models/M/stats`.
pub(crate) async fn statistics(State(state): State<Arc<HttpState>>, target: Target) -> Response {
    json(&reports::statistics(&state.app, target.model()))
}

/// `GET /v2/models/stats`.
pub(crate) async fn all_statistics(State(state): State<Arc<HttpState>>) -> Response {
    json(&reports::all_statistics(&state.app))
}

/// `GET /metrics`.
pub(crate) async fn metrics(State(state): State<Arc<HttpState>>) -> Response {
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let engine = &state.app.engine;
    let text = state.app.metrics.render(&engine.statistics(), &engine.models());
    ([(CONTENT_TYPE, content_type)], text).into_response()
}

/// `POST /v2/repository/index`. The body is empty or `{"ready": bool}`: whether to list the models that
/// are ready alone.
pub(crate) async fn repository_index(
    State(state): State<Arc<HttpState>>,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    // Inferences are more urgent: it leaves their part to small ones, though it is small itself.
    let (limits, mut memory) = (state.limits.of_small(), state.app.engine.memory().standing());
    let (mut body, _) = body::read(&parts.headers, body, &limits, &state.app, &mut memory).await?;
    let only_ready = match &**body.join() {
        [] => false,
        body => read_only_ready(body)?,
    };
    Ok(json(&reports::repository_index(&state.app, only_ready)))
}

fn read_only_ready(body: &[u8]) -> Result<bool, ServeError> {
    let expected = || ServeError::Invalid("the body: expected {} or {\"ready\": true}".into());
    let members: serde_json::Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| expected())?;
    if let Some(name) = members.keys().find(|name| *name != "ready") {
        return Err(ServeError::Invalid(format!("'{name}' is not supported by this server")));
    }
    members.get("ready").map_or(Ok(false), |ready| ready.as_bool().ok_or_else(expected))
}

/// `POST /v2/repository/models/M/load` and `…/unload`.
pub(crate) async fn no_loading() -> HttpError {
    ServeError::Unsupported("loading and unloading models while it runs").into()
}
