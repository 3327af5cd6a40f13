//! One inference request, from body to reply.
//!
//! The handler holds the engine's `Pending`. When a client leaves, hyper drops the handler wherever it
//! is, and the `Pending` with it, which cancels the request.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use batchmaker_wire as wire;

use crate::http::error::HttpError;
use crate::http::state::HttpState;
use crate::http::{body, reply};
use crate::serving::app::{App, Target};
use crate::serving::attempt::Attempt;
use crate::serving::error::ServeError;
use crate::serving::exchange::{self, Arrived, Form, Submitted};
use crate::serving::outcome::Phases;
use crate::serving::parameters::{self, Scheduling};

const HEADER_LENGTH: HeaderName = HeaderName::from_static(wire::HEADER_LENGTH);

const SESSION: HeaderName = HeaderName::from_static(parameters::SESSION);

/// `POST /v2/models/M/infer`.
pub(crate) async fn infer(
    State(state): State<Arc<HttpState>>,
    target: Result<Target, HttpError>,
    request: Request,
) -> Response {
    let (attempt, arrived) = match arrive(&state, target, request).await {
        Ok(arrived) => arrived,
        Err(response) => return response,
    };
    let answer = answer(&state.app, arrived).await;
    conclude(attempt, answer)
}

/// A request whose last byte has come.
pub(crate) struct ArrivedRequest {
    pub(crate) model: String,
    pub(crate) headers: HeaderMap,
    pub(crate) at: Instant,
    pub(crate) arrived: Arrived,
}

/// Reads a request for a model; or returns the response that refuses it.
pub(crate) async fn arrive(
    state: &HttpState,
    target: Result<Target, HttpError>,
    request: Request,
) -> Result<(Attempt, ArrivedRequest), Response> {
    let (parts, body) = request.into_parts();
    let target = match target {
        Ok(target) => target,
        Err(error) => {
            body::discard(body, &state.limits).await;
            return Err(error.into_response());
        }
    };
    let mut attempt = Attempt::start(target.record().clone());
    let headers = parts.headers;
    let read = async {
        let mut memory = state.app.engine.memory().arrival();
        let (body, encoding) =
            body::read(&headers, body, &state.limits, &state.app, &mut memory).await?;
        let header_length = header_length(&headers)?;
        let session = session_header(&headers)?.map(str::to_owned);
        let body_bytes_max = state.limits.bytes_max;
        let (at, default_timeout) = (Instant::now(), state.app.default_timeout);
        Ok(Arrived {
            body,
            encoding,
            body_bytes_max,
            header_length,
            at,
            default_timeout,
            session,
            memory,
        })
    };
    match read.await {
        Ok(arrived) => {
            attempt.arrived();
            let (model, at) = (target.name().to_owned(), arrived.at);
            Ok((attempt, ArrivedRequest { model, headers, at, arrived }))
        }
        Err(error) => Err(conclude(attempt, Err(error))),
    }
}

/// Runs a request whose body is here.
async fn answer(app: &App, request: ArrivedRequest) -> Result<(Response, Phases), HttpError> {
    let ArrivedRequest { model, headers, at, arrived } = request;
    let Submitted { context, scheduling, deadline, pending } =
        exchange::submit(app, &model, arrived, Form::Infer).await?;
    let input_ns = at.elapsed().as_nanos() as u64;
    let work = context.work(pending.bytes());
    let encode = move |reply| exchange::encode(context, reply);
    let (mut response, phases) =
        reply::respond(app, pending, deadline, &headers, work, encode).await?;
    name_session(&mut response, &scheduling);
    Ok((response, Phases { input_ns, ..phases }))
}

/// Records how a request ended, and returns its response.
pub(crate) fn conclude(
    attempt: Attempt,
    answer: Result<(Response, Phases), HttpError>,
) -> Response {
    match answer {
        Ok((response, phases)) => {
            attempt.succeeded(phases);
            response
        }
        Err(error) => {
            attempt.failed(error.outcome());
            error.into_response()
        }
    }
}

/// Repeats the session's name in the header, for proxies.
pub(crate) fn name_session(response: &mut Response, scheduling: &Scheduling) {
    if let Some(chunk) = &scheduling.session
        && let Ok(key) = HeaderValue::from_str(&chunk.key.to_string())
    {
        response.headers_mut().insert(SESSION, key);
    }
}

fn session_header(headers: &HeaderMap) -> Result<Option<&str>, ServeError> {
    let invalid = || ServeError::Invalid(format!("header '{SESSION}': expected visible ASCII"));
    headers.get(SESSION).map(|value| value.to_str().map_err(|_| invalid())).transpose()
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, ServeError> {
    let Some(value) = headers.get(HEADER_LENGTH) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(value.as_bytes());
    text.trim().parse().map(Some).map_err(|_| {
        let name = wire::HEADER_LENGTH;
        ServeError::Invalid(format!("header '{name}': expected a number of bytes, got '{text}'"))
    })
}
