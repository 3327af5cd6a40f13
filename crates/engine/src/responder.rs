//! The worker's side of a request in flight: where its values go, and the permit that it holds.

use std::time::Instant;

use batchmaker_graph::{EndOfSequence, SessionId, TensorData};
use batchmaker_manager::{Failure, Outcome};
use tokio::sync::oneshot;

use crate::admission::Permit;
use crate::error::EngineError;
use crate::reply::{Computed, RequestTimes};
use crate::streaming::Streamed;

/// The receiver of the values of a request in flight.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) sender: oneshot::Sender<Result<Computed, EngineError>>,
    pub(crate) permit: Permit,
    /// The chains of the request that reached their end of sequence.
    pub(crate) ends: Vec<EndOfSequence>,
    /// The session that the request brings a chunk of.
    pub(crate) session: Option<SessionId>,
    /// The receiver of steps as they are computed, if they are wanted.
    pub(crate) streamed: Option<Box<Streamed>>,
}

/// A request that ended, taken out of all tables.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) responder: Responder,
    pub(crate) outcome: Outcome,
    /// The elements of each output value.
    pub(crate) values: Vec<TensorData>,
    pub(crate) times: RequestTimes,
}

impl Responder {
    /// Sends a result. Nobody may be there to take it.
    pub(crate) fn send(self, result: Result<Computed, EngineError>) {
        // The permit is freed first, so that a client that has its reply finds it free.
        drop(self.permit);
        let _ = self.sender.send(result);
    }
}

impl Ended {
    /// Sends the values, or the reason why there are none.
    pub(crate) fn answer(mut self) {
        let result = match self.outcome {
            Outcome::Cancelled | Outcome::TimedOut | Outcome::Unmeetable => {
                Err(EngineError::Cancelled)
            }
            Outcome::Failed(Failure::SessionLost) => Err(EngineError::SessionLost),
            Outcome::Failed(failure) => Err(EngineError::Failed(failure)),
            Outcome::Succeeded => {
                let ends = std::mem::take(&mut self.responder.ends);
                let sent = Instant::now();
                Ok(Computed { values: self.values, ends, times: self.times, sent })
            }
        };
        self.responder.send(result);
    }
}
