//! The worker's side of a request in flight: where its values go, and what it holds.

use std::time::Instant;

use batchmaker_graph::{EndOfSequence, SessionId, TensorData};
use batchmaker_manager::{Failure, Outcome};
use tokio::sync::oneshot;

use crate::admission::Place;
use crate::error::EngineError;
use crate::memory::Reservation;
use crate::reply::{Computed, RequestTimes};
use crate::streaming::Streamed;

/// The receiver of the values of a request in flight.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) sender: oneshot::Sender<Result<Computed, EngineError>>,
    /// The request's place among those in flight.
    pub(crate) place: Place,
    /// The bytes that the request holds, and how many of them its reply needs.
    pub(crate) memory: Reservation,
    pub(crate) reply_bytes: usize,
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
        let Self { sender, place, memory, .. } = self;
        // These are free first, so that a client that has its reply finds them free.
        match &result {
            Ok(_) => place.answered(),
            Err(_) => drop(place),
        }
        drop(memory);
        let _ = sender.send(result);
    }
}

impl Ended {
    /// Sends the values, or the reason why there are none.
    pub(crate) fn answer(mut self) {
        let result = match self.outcome {
            Outcome::Cancelled => Err(EngineError::Cancelled),
            Outcome::TimedOut => Err(EngineError::TimedOut),
            Outcome::Unmeetable => Err(EngineError::Unmeetable),
            Outcome::Failed(Failure::SessionLost) => Err(EngineError::SessionLost),
            Outcome::Failed(failure) => Err(EngineError::Failed(failure)),
            Outcome::Succeeded => {
                let Responder { ends, memory, reply_bytes, .. } = &mut self.responder;
                let (ends, memory) = (std::mem::take(ends), memory.split(*reply_bytes));
                let sent = Instant::now();
                Ok(Computed { values: self.values, ends, times: self.times, sent, memory })
            }
        };
        self.responder.send(result);
    }
}
