//! Paths and verbs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use batchmaker_engine::Engine;

use crate::attempt::ModelRecord;
use crate::body::{self, BodyLimits};
use crate::metrics::Metrics;
use crate::status::ApiError;
use crate::{describe, generate, infer, metrics};

/// What handlers share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) metrics: Metrics,
    /// By the name of the model; one for each.
    pub(crate) records: BTreeMap<String, Arc<ModelRecord>>,
    pub(crate) limits: BodyLimits,
    is_draining: AtomicBool,
}

impl App {
    pub(crate) fn new(engine: Arc<Engine>, limits: BodyLimits) -> Self {
        let metrics = Metrics::new();
        let record = |name: &str| {
            let record = ModelRecord::new(metrics.of_model(name));
            (name.to_owned(), Arc::new(record))
        };
        let records = engine.models().iter().map(|model| record(&model.name)).collect();
        Self { engine, metrics, records, limits, is_draining: AtomicBool::new(false) }
    }

    /// Whether requests are welcome: not once the server drains, or its device is lost.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_draining.load(Ordering::SeqCst) && !self.engine.is_lost()
    }

    /// From here on, `ready` says no.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }
}

/// What is served where requests are taken.
pub(crate) fn router(app: Arc<App>) -> Router {
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
        .route("/v2/repository/index", post(describe::repository_index))
        .route("/v2/repository/models/{model}/load", post(describe::no_loading))
        .route("/v2/repository/models/{model}/unload", post(describe::no_loading))
        .route("/metrics", get(metrics::scrape))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .layer(from_fn_with_state(app.clone(), take_body));
    // The body of an inference is the handler's own to read.
    let infer = of_model("/infer", post(infer::infer))
        .merge(of_model("/generate", post(generate::generate)))
        .merge(of_model("/generate_stream", post(generate::generate_stream)))
        .method_not_allowed_fallback(wrong_verb);
    finish(app, described.merge(infer))
}

/// What is served where metrics are: they and the server's health, which can be asked there while
/// the server drains.
pub(crate) fn metrics_router(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/metrics", get(metrics::scrape))
        .route("/v2/health/live", get(describe::live))
        .route("/v2/health/ready", get(describe::ready))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_verb)
        .layer(from_fn_with_state(app.clone(), take_body));
    router.with_state(app)
}

fn finish(app: Arc<App>, router: Router<Arc<App>>) -> Router {
    router.layer(from_fn_with_state(app.clone(), count_response)).with_state(app)
}

/// The same under a model's path and under that of its version.
fn of_model(end: &str, handlers: axum::routing::MethodRouter<Arc<App>>) -> Router<Arc<App>> {
    Router::new()
        .route(&format!("/v2/models/{{model}}{end}"), handlers.clone())
        .route(&format!("/v2/models/{{model}}/versions/{{version}}{end}"), handlers)
}

async fn unknown_path(request: Request) -> Response {
    ApiError::UnknownPath(request.uri().path().to_owned()).into_response()
}

async fn wrong_verb(request: Request) -> Response {
    let (verb, path) = (request.method().to_string(), request.uri().path().to_owned());
    ApiError::WrongVerb { verb, path }.into_response()
}

/// Reads the body before the handler is called, wanted or not: see [`body::discard`].
async fn take_body(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match body::read(&parts.headers, body, app.limits).await {
        Ok(bytes) => next.run(Request::from_parts(parts, bytes.into())).await,
        Err(error) => error.into_response(),
    }
}

async fn count_response(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    app.metrics.count_response(response.status());
    response
}
