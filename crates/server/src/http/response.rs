//! Responses of JSON, and how one concludes an attempt.

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;

/// A response of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Response {
    let bytes = serde_json::to_vec(value).expect("what the server says of itself is JSON");
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
