//! Why a request is refused or fails, whatever the transport.

use batchmaker::{EngineError, HungWorker};
use batchmaker_wire::WireError;

use crate::serving::outcome::Outcome;

/// The most bytes of a message: it may repeat what a client sent, and its memory is counted nowhere.
const MESSAGE_BYTES_MAX: usize = 1 << 10;

/// Why a request has no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("{0}")]
    Invalid(String),
    // Triton's text, which its stock clients look for.
    #[error("Request for unknown model: '{model}' is not found; served here: {served}")]
    UnknownModel { model: String, served: String },
    #[error(
        "Request for unknown model: '{model}' version {asked} is not found; served here: {served}"
    )]
    UnknownVersion { model: String, asked: String, served: String },
    #[error("there was no reply within the request's timeout of {timeout_us} µs")]
    TimedOut { timeout_us: u64 },
    #[error("{0} is not supported by this server")]
    Unsupported(&'static str),
    #[error("the server is shutting down")]
    NotReady,
    #[error(
        "worker {} has work, and its device has reported nothing for {} s",
        .0.worker,
        .0.silent_for.as_secs()
    )]
    Hung(HungWorker),
    #[error("the server failed: {0}")]
    Internal(String),
}

impl ServeError {
    /// The outcome that metrics count for a request that ends with the error.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Engine(error) => outcome_of(error),
            Self::Wire(_)
            | Self::Invalid(_)
            | Self::UnknownModel { .. }
            | Self::UnknownVersion { .. }
            | Self::Unsupported(_)
            | Self::NotReady => Outcome::Invalid,
            Self::TimedOut { .. } => Outcome::Timeout,
            Self::Internal(_) | Self::Hung(_) => Outcome::Failed,
        }
    }
}

/// The beginning of a message that is longer than an answer may be.
pub(crate) fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        message.push('…');
        message.shrink_to_fit();
    }
    message
}

fn outcome_of(error: &EngineError) -> Outcome {
    match error {
        EngineError::UnknownModel(_)
        | EngineError::Invalid(_)
        | EngineError::TooLarge { .. }
        | EngineError::TooManyRuns { .. }
        | EngineError::SessionLost => Outcome::Invalid,
        EngineError::Overloaded { .. }
        | EngineError::ModelOverloaded { .. }
        | EngineError::MemoryInUse { .. }
        | EngineError::TooManySessions { .. }
        | EngineError::ShuttingDown
        | EngineError::DeviceLost(_) => Outcome::Overloaded,
        EngineError::Cancelled => Outcome::Cancelled,
        EngineError::TimedOut | EngineError::Unmeetable => Outcome::Timeout,
        EngineError::Failed(_) | EngineError::Reply(_) | EngineError::Unfolding(_) => {
            Outcome::Failed
        }
    }
}
