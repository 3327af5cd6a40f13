//! Errors of HTTP requests, and the table of their statuses.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use batchmaker::EngineError;
use batchmaker_wire::{ErrorBody, WireError};

use crate::http::response::json;
use crate::serving::error::{ServeError, cut};
use crate::serving::outcome::Outcome;

/// Why an HTTP request is answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HttpError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("there is nothing at {0}")]
    UnknownPath(String),
    #[error("{path} does not take {verb}")]
    WrongVerb { verb: String, path: String },
    #[error("the body broke off: {0}")]
    BrokenBody(String),
    #[error("the body was too slow: {0}")]
    SlowBody(String),
    #[error("the server has no place for another connection: try again later")]
    TooManyConnections,
    #[error("this client has as many connections as it may have")]
    TooManyOfClient,
}

impl From<WireError> for HttpError {
    fn from(error: WireError) -> Self {
        Self::Serve(error.into())
    }
}

impl HttpError {
    /// The outcome that metrics count for a request that ends with the error.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Serve(error) => error.outcome(),
            Self::UnknownPath(_) | Self::WrongVerb { .. } => Outcome::Invalid,
            // The client is gone, or as good as.
            Self::BrokenBody(_) => Outcome::Cancelled,
            Self::SlowBody(_) => Outcome::Timeout,
            Self::TooManyConnections | Self::TooManyOfClient => Outcome::Overloaded,
        }
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Serve(error) => status_of(error),
            Self::BrokenBody(_) => StatusCode::BAD_REQUEST,
            Self::UnknownPath(_) => StatusCode::NOT_FOUND,
            Self::WrongVerb { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::SlowBody(_) => StatusCode::REQUEST_TIMEOUT,
            Self::TooManyConnections => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooManyOfClient => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

fn status_of(error: &ServeError) -> StatusCode {
    match error {
        ServeError::Engine(error) => match error {
            EngineError::Invalid(_) | EngineError::SessionLost => StatusCode::BAD_REQUEST,
            EngineError::UnknownModel(_) => StatusCode::NOT_FOUND,
            EngineError::TooLarge { .. } | EngineError::TooManyRuns { .. } => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            EngineError::Overloaded { .. }
            | EngineError::ModelOverloaded { .. }
            | EngineError::MemoryInUse { .. }
            | EngineError::TooManySessions { .. }
            | EngineError::DeviceLost(_)
            | EngineError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            EngineError::Cancelled => client_closed_request(),
            EngineError::TimedOut | EngineError::Unmeetable => StatusCode::GATEWAY_TIMEOUT,
            EngineError::Failed(_) | EngineError::Reply(_) | EngineError::Unfolding(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        },
        ServeError::Wire(error) => match error {
            WireError::Invalid(_) => StatusCode::BAD_REQUEST,
            WireError::UnsupportedEncoding(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            WireError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        },
        // Triton answers a server that is not ready with 400 too.
        ServeError::Invalid(_) | ServeError::NotReady => StatusCode::BAD_REQUEST,
        ServeError::UnknownModel { .. } | ServeError::UnknownVersion { .. } => {
            StatusCode::NOT_FOUND
        }
        ServeError::TimedOut { .. } => StatusCode::GATEWAY_TIMEOUT,
        ServeError::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
        ServeError::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        ServeError::Hung(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// 499, which nginx made usual for a request whose client gave it up.
fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(499).expect("499 is within the range of statuses")
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = json(&ErrorBody { error: cut(self.to_string()) });
        *response.status_mut() = status;
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::header::CONTENT_TYPE;
    use batchmaker::Failure;
    use batchmaker::HungWorker;
    use batchmaker::InvalidGraph;
    use batchmaker::ReplyError;

    use super::*;

    const FAILED: &str = "the request failed: a batch that held a part of it could not be run: why";

    fn engine(error: EngineError) -> HttpError {
        ServeError::Engine(error).into()
    }

    fn invalid(text: &str) -> HttpError {
        ServeError::Invalid(text.into()).into()
    }

    #[test]
    fn statuses_are_those_of_the_protocol() {
        let unknown_version =
            ServeError::UnknownVersion { model: "m".into(), asked: "9".into(), served: "1".into() };
        let wrong_verb = HttpError::WrongVerb { verb: "PUT".into(), path: "/v2".into() };
        let hung = HungWorker { worker: 1, silent_for: Duration::from_secs(61) };
        use Outcome::{Cancelled, Failed, Invalid, Overloaded, Timeout};
        let table = [
            (400, Invalid, invalid("x"), "x"),
            (400, Invalid, WireError::Invalid("y".into()).into(), "y"),
            (400, Cancelled, HttpError::BrokenBody("end".into()), "the body broke off: end"),
            (400, Invalid, ServeError::NotReady.into(), "the server is shutting down"),
            (
                404,
                Invalid,
                engine(EngineError::UnknownModel("m".into())),
                "there is no model 'm' here",
            ),
            (
                404,
                Invalid,
                ServeError::UnknownModel { model: "m".into(), served: "a, b".into() }.into(),
                "Request for unknown model: 'm' is not found; served here: a, b",
            ),
            (
                404,
                Invalid,
                unknown_version.into(),
                "Request for unknown model: 'm' version 9 is not found; served here: 1",
            ),
            (404, Invalid, HttpError::UnknownPath("/x".into()), "there is nothing at /x"),
            (405, Invalid, wrong_verb, "/v2 does not take PUT"),
            (
                408,
                Timeout,
                HttpError::SlowBody("it paused for more than 30 s".into()),
                "the body was too slow: it paused for more than 30 s",
            ),
            (
                429,
                Overloaded,
                HttpError::TooManyOfClient,
                "this client has as many connections as it may have",
            ),
            (
                413,
                Invalid,
                engine(EngineError::TooLarge { bytes: 9, bytes_max: 5 }),
                "the request needs 9 bytes; it can have 5, a part of the memory for requests",
            ),
            (
                413,
                Invalid,
                engine(EngineError::TooManyRuns { bytes_max: 5 }),
                "the request has too many sequences or nodes: their records may take 5 bytes",
            ),
            (
                503,
                Overloaded,
                engine(EngineError::ModelOverloaded { model: "m".into(), in_flight: 7 }),
                "7 requests to model 'm' are in flight, which is its limit: try again later",
            ),
            (
                503,
                Overloaded,
                HttpError::TooManyConnections,
                "the server has no place for another connection: try again later",
            ),
            (
                413,
                Invalid,
                WireError::TooLarge { limit_bytes: 5 }.into(),
                "the body has more than the 5 bytes that are allowed",
            ),
            (
                415,
                Invalid,
                WireError::UnsupportedEncoding("br".into()).into(),
                "content encoding 'br' is not supported, expected identity, gzip or deflate",
            ),
            (499, Cancelled, engine(EngineError::Cancelled), "the request was cancelled"),
            (500, Failed, ServeError::Internal("z".into()).into(), "the server failed: z"),
            (500, Failed, engine(EngineError::Failed(Failure::Task("why".into()))), FAILED),
            (500, Failed, engine(EngineError::Reply(ReplyError::Model("r".into()))), "r"),
            (
                500,
                Failed,
                engine(EngineError::Unfolding(InvalidGraph("g".into()))),
                "the unfolding function built a graph that cannot run: g",
            ),
            (
                501,
                Invalid,
                ServeError::Unsupported("z").into(),
                "z is not supported by this server",
            ),
            (
                503,
                Overloaded,
                engine(EngineError::Overloaded { in_flight: 7 }),
                "7 requests are in flight, which is the limit: try again later",
            ),
            (503, Overloaded, engine(EngineError::ShuttingDown), "the server is shutting down"),
            (
                503,
                Failed,
                ServeError::Hung(hung).into(),
                "worker 1 has work, and its device has reported nothing for 61 s",
            ),
            (
                503,
                Overloaded,
                engine(EngineError::DeviceLost("gone".into())),
                "the device is lost: gone",
            ),
            (
                503,
                Overloaded,
                engine(EngineError::TooManySessions { sessions: 7 }),
                "7 sessions are open, which is the limit: try again later",
            ),
            (
                400,
                Invalid,
                engine(EngineError::SessionLost),
                "the session ended: an earlier chunk of it was cancelled or failed",
            ),
            (
                504,
                Timeout,
                engine(EngineError::Unmeetable),
                "the request takes longer than it is from its arrival to its deadline",
            ),
            (
                504,
                Timeout,
                ServeError::TimedOut { timeout_us: 5 }.into(),
                "there was no reply within the request's timeout of 5 µs",
            ),
        ];
        for (status, outcome, error, message) in table {
            assert_eq!(error.to_string(), message);
            assert_eq!(error.outcome(), outcome, "{message}");
            let response = error.into_response();
            assert_eq!(response.status().as_u16(), status, "{message}");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        }
    }
}
