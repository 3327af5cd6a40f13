//! Why a request gets no reply, split by who must act.

use std::sync::Arc;

use batchmaker_graph::{InvalidGraph, InvalidRequest, UnfoldError};
use batchmaker_manager::Failure;
use batchmaker_model::ReplyError;

/// Why a request gets no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// No model of that name; the client must name another.
    #[error("there is no model '{0}' here")]
    UnknownModel(String),
    /// The request is wrong; the client must change it.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The model's unfolding function is wrong; the model's author must change it.
    #[error(transparent)]
    Unfolding(#[from] InvalidGraph),
    /// As many requests are in flight as the engine admits; the client may try again later.
    #[error("{in_flight} requests are in flight, which is the limit: try again later")]
    Overloaded {
        /// The requests in flight.
        in_flight: usize,
    },
    /// The requests in flight hold as much memory as the engine admits; the client may try again
    /// later.
    #[error("the requests in flight hold {bytes} bytes, which is near the limit: try again later")]
    MemoryInUse {
        /// The bytes in use.
        bytes: usize,
    },
    /// As many sessions hold state as the engine admits; the client may try again later.
    #[error("{sessions} sessions are open, which is the limit: try again later")]
    TooManySessions {
        /// The open sessions.
        sessions: usize,
    },
    /// An earlier chunk of the request's session was given up, or its state was lost; the client
    /// must begin anew.
    #[error("the session ended: an earlier chunk of it was cancelled or failed")]
    SessionLost,
    /// The engine takes no more requests.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The model computed an id that its vocabulary has no line for.
    #[error(transparent)]
    Reply(ReplyError),
    /// The request was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
    /// The device is gone: nothing runs any more until the engine is started anew.
    #[error("the device is lost: {0}")]
    DeviceLost(Arc<str>),
    /// The device could not run it.
    #[error("the request failed: {}", reason(.0))]
    Failed(Failure),
}

impl From<UnfoldError> for EngineError {
    fn from(error: UnfoldError) -> Self {
        match error {
            UnfoldError::Request(error) => Self::Invalid(error),
            UnfoldError::Graph(error) => Self::Unfolding(error),
        }
    }
}

fn reason(failure: &Failure) -> String {
    match failure {
        Failure::Task(reason) => {
            format!("a batch that held a part of it could not be run: {reason}")
        }
        Failure::WorkerLost(reason) => format!("the worker that ran it was lost: {reason}"),
        Failure::SessionLost => "an earlier chunk of its session was given up".to_owned(),
    }
}
