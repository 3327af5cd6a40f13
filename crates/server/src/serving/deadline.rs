//! Until when a client waits for its reply.

use std::time::{Duration, Instant};

use batchmaker::{EngineError, NamedTensor, Pending, Reply};

use crate::serving::error::ServeError;

/// The end of a request's `timeout`, if it has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    /// The deadline of a request that was complete at `arrival`.
    pub(crate) fn new(arrival: Instant, timeout: Option<Duration>) -> Self {
        let at = timeout.and_then(|timeout| arrival.checked_add(timeout));
        Self { at, timeout: timeout.unwrap_or_default() }
    }

    /// The reply, unless it comes too late. A request whose reply comes too late is cancelled.
    pub(crate) async fn reply(self, mut pending: Pending) -> Result<Reply, ServeError> {
        self.ready(&mut pending).await?;
        pending.await.map_err(|error| self.told(error))
    }

    /// An error of the engine, which knows when the request's time is over but not how long it was.
    pub(crate) fn told(self, error: EngineError) -> ServeError {
        match error {
            EngineError::TimedOut => {
                ServeError::TimedOut { timeout_us: self.timeout.as_micros() as u64 }
            }
            error => ServeError::Engine(error),
        }
    }

    /// Waits until the reply can be put together, unless that is too late.
    pub(crate) async fn ready(self, pending: &mut Pending) -> Result<(), ServeError> {
        let Some(at) = self.at else {
            pending.ready().await;
            return Ok(());
        };
        let timeout_us = self.timeout.as_micros() as u64;
        let ready = tokio::time::timeout_at(at.into(), pending.ready()).await;
        ready.map_err(|_| ServeError::TimedOut { timeout_us })
    }

    /// The next steps of the reply; none at the end, and when they come too late.
    pub(crate) async fn steps(self, pending: &mut Pending) -> Option<Vec<NamedTensor>> {
        let steps = pending.next_steps();
        match self.at {
            None => steps.await,
            Some(at) => tokio::time::timeout_at(at.into(), steps).await.unwrap_or(None),
        }
    }
}
