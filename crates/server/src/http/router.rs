//! Paths and verbs.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use batchmaker::MemoryBudget;

use crate::http::error::HttpError;
use crate::http::state::HttpState;
use crate::http::{body, describe, generate, infer, reply};

/// The routes of the port that takes requests.
pub(crate) fn router(state: Arc<HttpState>) -> Router {
    let memory = state.app.engine.memory().clone();
    // It reads its body itself.
    let index = Router::new()
        .route("/v2/repository/index", post(describe::repository_index))
        .method_not_allowed_fallback(wrong_verb);
    let described = Router::new()
        .route("/v2", get(describe::server))
        .route("/v2/", get(describe::server))
        .route("/v2/health/live", get(describe::live))
        .route("/v2/health/ready", get(describe::ready))
        .route("/v2/models/stats", get(describe::all_statistics))
        .merge(of_model("", get(describe::model)))
        .merge(of_model("/ready", get(describe::model_ready)))
        .merge(of_model("/config", get(describe::config)))
        .merge(of_model("/stats", get(describe::statistics)))
        .route("/v2/repository/models/{model}/load", post(describe::no_loading))
        .route("/v2/repository/models/{model}/unload", post(describe::no_loading))
        .route("/metrics", get(describe::metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .layer(from_fn_with_state(state.clone(), skip_body))
        .merge(index)
        .layer(from_fn_with_state(memory, count_reply));
    // The body and the reply of an inference are the handler's own to count.
    let infer = of_model("/infer", post(infer::infer))
        .merge(of_model("/generate", post(generate::generate)))
        .merge(of_model("/generate_stream", post(generate::generate_stream)))
        .method_not_allowed_fallback(wrong_verb);
    finish(state, described.merge(infer))
}

/// The routes of the metrics port: metrics, and the server's health, which can be asked there while the
/// server drains. Their replies count in `memory`.
pub(crate) fn metrics_router(state: Arc<HttpState>, memory: Arc<MemoryBudget>) -> Router {
    let router = Router::new()
        .route("/metrics", get(describe::metrics))
        .route("/v2/health/live", get(describe::live))
        .route("/v2/health/ready", get(describe::ready))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .layer(from_fn_with_state(state.clone(), skip_body))
        .layer(from_fn_with_state(memory, count_reply));
    router.with_state(state)
}

fn finish(state: Arc<HttpState>, router: Router<Arc<HttpState>>) -> Router {
    router.layer(from_fn_with_state(state.clone(), count_response)).with_state(state)
}

/// The same under a model's path and under that of its version.
fn of_model(
    end: &str,
    handlers: axum::routing::MethodRouter<Arc<HttpState>>,
) -> Router<Arc<HttpState>> {
    Router::new()
        .route(&format!("/v2/models/{{model}}{end}"), handlers.clone())
        .route(&format!("/v2/models/{{model}}/versions/{{version}}{end}"), handlers)
}

async fn unknown_path(request: Request) -> Response {
    HttpError::UnknownPath(request.uri().path().to_owned()).into_response()
}

async fn wrong_verb(request: Request) -> Response {
    let (verb, path) = (request.method().to_string(), request.uri().path().to_owned());
    HttpError::WrongVerb { verb, path }.into_response()
}

/// Reads the body before the handler is called: see [`body::discard`].
async fn skip_body(State(state): State<Arc<HttpState>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match body::skip(&parts.headers, body, &state.limits).await {
        Ok(()) => next.run(Request::from_parts(parts, Body::empty())).await,
        Err(error) => error.into_response(),
    }
}

/// Counts the reply in the budget.
async fn count_reply(
    State(memory): State<Arc<MemoryBudget>>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    reply::hold(response, &memory).await.unwrap_or_else(IntoResponse::into_response)
}

async fn count_response(
    State(state): State<Arc<HttpState>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    state.app.metrics.count_response(response.status().as_str());
    if matches!(response.status(), StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
    {
        let seconds = retry_after_s(state.app.engine.retry_after());
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// The whole seconds of a `Retry-After` for a queue that is likely to be answered in so much time.
fn retry_after_s(stay: Duration) -> u64 {
    const MAX_S: u64 = 60;
    (stay.as_millis() as u64).div_ceil(1000).clamp(1, MAX_S)
}
