//! Errors, and the table of their statuses.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use batchmaker_engine::EngineError;
use batchmaker_wire::{ErrorBody, WireError};

/// When to try again, in seconds, where the server has no room now.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// Why a request is answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{0}")]
    Invalid(String),
    #[error("there is no version '{asked}' of model '{model}' here, only '{served}'")]
    UnknownVersion { model: String, asked: String, served: String },
    #[error("there is nothing at {0}")]
    UnknownPath(String),
    #[error("{path} does not take {verb}")]
    WrongVerb { verb: String, path: String },
    #[error("the body broke off: {0}")]
    BrokenBody(String),
    #[error("the body paused for more than {0} s")]
    SlowBody(u64),
    #[error("there was no reply within the request's timeout of {timeout_us} µs")]
    TimedOut { timeout_us: u64 },
    #[error("{0} is not supported by this server")]
    Unsupported(&'static str),
    #[error("the server is shutting down")]
    NotReady,
    #[error("the server failed: {0}")]
    Internal(String),
}

impl ApiError {
    /// The table.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Engine(error) => match error {
                EngineError::Invalid(_) | EngineError::SessionLost => StatusCode::BAD_REQUEST,
                EngineError::UnknownModel(_) => StatusCode::NOT_FOUND,
                EngineError::Overloaded { .. }
                | EngineError::MemoryInUse { .. }
                | EngineError::TooManySessions { .. }
                | EngineError::DeviceLost(_)
                | EngineError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
                EngineError::Cancelled => client_closed_request(),
                EngineError::Failed(_) | EngineError::Reply(_) => StatusCode::INTERNAL_SERVER_ERROR,
            },
            Self::Wire(error) => match error {
                WireError::Invalid(_) => StatusCode::BAD_REQUEST,
                WireError::UnsupportedEncoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
                WireError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            },
            Self::Invalid(_) | Self::BrokenBody(_) => StatusCode::BAD_REQUEST,
            // As Triton does.
            Self::NotReady => StatusCode::BAD_REQUEST,
            Self::UnknownVersion { .. } | Self::UnknownPath(_) => StatusCode::NOT_FOUND,
            Self::WrongVerb { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::SlowBody(_) => StatusCode::REQUEST_TIMEOUT,
            Self::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
            Self::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// 499, which nginx made usual for a request whose client gave it up.
fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).expect("499 is within the range of statuses")
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = json(&ErrorBody { error: self.to_string() });
        *response.status_mut() = status;
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_AFTER_S);
        }
        response
    }
}

/// A reply of JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> Response {
    let bytes = serde_json::to_vec(value).expect("what the server says of itself is JSON");
    let mut response = Response::new(Body::from(bytes));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use batchmaker_manager::Failure;
    use batchmaker_model::ReplyError;

    const FAILED: &str = "the request failed: a batch that held a part of it could not be run: why";

    fn engine(error: EngineError) -> ApiError {
        ApiError::Engine(error)
    }

    #[test]
    fn statuses_are_those_of_the_protocol() {
        let unknown_version =
            ApiError::UnknownVersion { model: "m".into(), asked: "9".into(), served: "1".into() };
        let wrong_verb = ApiError::WrongVerb { verb: "PUT".into(), path: "/v2".into() };
        let table = [
            (400, ApiError::Invalid("x".into()), "x"),
            (400, ApiError::Wire(WireError::Invalid("y".into())), "y"),
            (400, ApiError::BrokenBody("end".into()), "the body broke off: end"),
            (400, ApiError::NotReady, "the server is shutting down"),
            (404, engine(EngineError::UnknownModel("m".into())), "there is no model 'm' here"),
            (404, unknown_version, "there is no version '9' of model 'm' here, only '1'"),
            (404, ApiError::UnknownPath("/x".into()), "there is nothing at /x"),
            (405, wrong_verb, "/v2 does not take PUT"),
            (408, ApiError::SlowBody(30), "the body paused for more than 30 s"),
            (
                413,
                ApiError::Wire(WireError::TooLarge { limit_bytes: 5 }),
                "the body has more than the 5 bytes that are allowed",
            ),
            (
                415,
                ApiError::Wire(WireError::UnsupportedEncoding("br".into())),
                "content encoding 'br' is not supported, expected identity, gzip or deflate",
            ),
            (499, engine(EngineError::Cancelled), "the request was cancelled"),
            (500, ApiError::Internal("z".into()), "the server failed: z"),
            (500, engine(EngineError::Failed(Failure::Task("why".into()))), FAILED),
            (500, engine(EngineError::Reply(ReplyError("r".into()))), "r"),
            (501, ApiError::Unsupported("z"), "z is not supported by this server"),
            (
                503,
                engine(EngineError::Overloaded { in_flight: 7 }),
                "7 requests are in flight, which is the limit: try again later",
            ),
            (503, engine(EngineError::ShuttingDown), "the server is shutting down"),
            (503, engine(EngineError::DeviceLost("gone".into())), "the device is lost: gone"),
            (
                503,
                engine(EngineError::TooManySessions { sessions: 7 }),
                "7 sessions are open, which is the limit: try again later",
            ),
            (
                400,
                engine(EngineError::SessionLost),
                "the session ended: an earlier chunk of it was cancelled or failed",
            ),
            (
                504,
                ApiError::TimedOut { timeout_us: 5 },
                "there was no reply within the request's timeout of 5 µs",
            ),
        ];
        for (status, error, message) in table {
            assert_eq!(error.to_string(), message);
            let response = error.into_response();
            assert_eq!(response.status().as_u16(), status, "{message}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), status == 503, "{message}");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        }
    }
}
