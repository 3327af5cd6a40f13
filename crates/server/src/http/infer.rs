//! One inference request, from body to reply.
//!
//! The handler holds the engine's `Pending`. When a client leaves, hyper drops the handler wherever it
//! is, and the `Pending` with it, which cancels the request.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use batchmaker::Model;
use batchmaker_wire as wire;
use wire::ContentEncoding;

use crate::http::body;
use crate::http::error::HttpError;
use crate::http::state::HttpState;
use crate::serving::app::{App, Target};
use crate::serving::attempt::Attempt;
use crate::serving::deadline::Deadline;
use crate::serving::error::ServeError;
use crate::serving::exchange;
use crate::serving::outcome::Phases;
use crate::serving::parameters::{self, Scheduling};

const HEADER_LENGTH: HeaderName = HeaderName::from_static(wire::HEADER_LENGTH);

const SESSION: HeaderName = HeaderName::from_static(parameters::SESSION);

/// Shorter replies are not worth compressing.
const COMPRESSED_BYTES_MIN: usize = 1 << 10;

/// `POST /v2/models/M/infer`.
pub(crate) async fn infer(
    State(state): State<Arc<HttpState>>,
    target: Result<Target, HttpError>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let target = match target {
        Ok(target) => target,
        Err(error) => {
            body::discard(body, state.limits).await;
            return error.into_response();
        }
    };
    let mut attempt = Attempt::start(target.record().clone());
    let answer = async {
        let body = body::read(&parts.headers, body, state.limits).await?;
        attempt.arrived();
        answer(&state.app, target.model(), &parts, body).await
    };
    let answer = answer.await;
    conclude(attempt, answer)
}

/// Runs a request whose body is here.
async fn answer(
    app: &App,
    model: &Model,
    parts: &Parts,
    body: Vec<u8>,
) -> Result<(Response, Phases), HttpError> {
    let arrival = Instant::now();
    let request = wire::decode_request(&body, header_length(&parts.headers)?)?;
    drop(body);
    let scheduling = parameters::read(&request, session_header(&parts.headers)?)?;
    let (context, pending) = exchange::submit(&app.engine, model, request, &scheduling, false)?;
    let input = arrival.elapsed();
    let reply = Deadline::new(arrival, scheduling.timeout).reply(pending).await?;
    let (queue_ns, compute_ns) = (reply.queue_ns, reply.compute_ns);
    let start = Instant::now();
    let body = exchange::encode(context, reply)?;
    let mut response = response_of(body, accepted_encoding(&parts.headers));
    name_session(&mut response, &scheduling);
    let phases = Phases {
        input_ns: input.as_nanos() as u64,
        queue_ns,
        compute_ns,
        output_ns: start.elapsed().as_nanos() as u64,
    };
    Ok((response, phases))
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

pub(crate) fn session_header(headers: &HeaderMap) -> Result<Option<&str>, ServeError> {
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

fn response_of(body: wire::EncodedBody, encoding: ContentEncoding) -> Response {
    let wire::EncodedBody { bytes, header_length } = body;
    let is_encoded = encoding != ContentEncoding::Identity && bytes.len() >= COMPRESSED_BYTES_MIN;
    let bytes = match is_encoded {
        true => wire::compress(encoding, &bytes).into_owned(),
        false => bytes,
    };
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    let content_type = match header_length {
        None => "application/json",
        Some(length) => {
            headers.insert(HEADER_LENGTH, HeaderValue::from(length));
            "application/octet-stream"
        }
    };
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if is_encoded {
        let name = match encoding {
            ContentEncoding::Gzip => "gzip",
            _ => "deflate",
        };
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    response
}

/// The first encoding that the client names and that is spoken here.
fn accepted_encoding(headers: &HeaderMap) -> ContentEncoding {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = values.flat_map(|value| value.split(','));
    let accepted = codings.find_map(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        let quality = quality.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        match name.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" if quality != Ok(0.0) => Some(ContentEncoding::Gzip),
            "deflate" if quality != Ok(0.0) => Some(ContentEncoding::Deflate),
            _ => None,
        }
    });
    accepted.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_encoding_that_is_known_and_wanted_is_taken() {
        let table = [
            ("", ContentEncoding::Identity),
            ("identity", ContentEncoding::Identity),
            ("br", ContentEncoding::Identity),
            ("br, GZIP", ContentEncoding::Gzip),
            ("deflate;q=0.5, gzip", ContentEncoding::Deflate),
            ("gzip;q=0, deflate", ContentEncoding::Deflate),
            ("gzip; q=0.0", ContentEncoding::Identity),
        ];
        for (value, encoding) in table {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]);
            assert_eq!(accepted_encoding(&headers), encoding, "{value}");
        }
        assert_eq!(accepted_encoding(&HeaderMap::new()), ContentEncoding::Identity);
    }
}
