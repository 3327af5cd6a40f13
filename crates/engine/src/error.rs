//! Why a request gets no reply, split by who must act.

use std::sync::Arc;

use batchmaker_graph::{InvalidGraph, InvalidRequest};
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
    /// As many requests to one model are in flight as the engine admits; the client may try again later.
    #[error(
        "{in_flight} requests to model '{model}' are in flight, which is its limit: try again later"
    )]
    ModelOverloaded {
        /// The model.
        model: String,
        /// The requests to it in flight.
        in_flight: usize,
    },
    /// The request needs more memory than the engine will ever give it; the client must send a smaller one.
    #[error(
        "the request needs {bytes} bytes; it can have {bytes_max}, a part of the memory for requests"
    )]
    TooLarge {
        /// The bytes that it needs, as far as they are known.
        bytes: usize,
        /// The bytes that it can have.
        bytes_max: usize,
    },
    /// The request has so many sequences or nodes that their records alone are too large; the client must send
    /// a smaller one.
    #[error(
        "the request has too many sequences or nodes: their records may take {bytes_max} bytes"
    )]
    TooManyRuns {
        /// The bytes that the records of one request's graph can have.
        bytes_max: usize,
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
    /// The request's deadline was reached before its reply was there.
    #[error("there was no reply before the request's deadline")]
    TimedOut,
    /// The request was refused when it came: even alone it would have ended after its deadline.
    #[error("the request takes longer than it is from its arrival to its deadline")]
    Unmeetable,
    /// The device is gone: nothing runs any more until the engine is started anew.
    #[error("the device is lost: {0}")]
    DeviceLost(Arc<str>),
    /// The device could not run it.
    #[error("the request failed: {}", reason(.0))]
    Failed(Failure),
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

impl From<ReplyError> for EngineError {
    fn from(error: ReplyError) -> Self {
        match error {
            ReplyError::Request(invalid) => Self::Invalid(invalid),
            error => Self::Reply(error),
        }
    }
}
