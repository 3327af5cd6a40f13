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
        pending.await.map_err(|error| self.with_timeout(error))
    }

    /// An error of the engine, which knows when the request's time is over but not how long it was.
    pub(crate) fn with_timeout(self, error: EngineError) -> ServeError {
        match error {
            EngineError::TimedOut => self.timed_out(),
            error => ServeError::Engine(error),
        }
    }

    /// Waits until the reply can be put together, unless that is too late.
    pub(crate) async fn ready(self, pending: &mut Pending) -> Result<(), ServeError> {
        self.bound(pending.ready()).await
    }

    /// The output of `wait`, unless that comes too late.
    pub(crate) async fn bound<T>(self, wait: impl Future<Output = T>) -> Result<T, ServeError> {
        match self.at {
            None => Ok(wait.await),
            Some(at) => {
                tokio::time::timeout_at(at.into(), wait).await.map_err(|_| self.timed_out())
            }
        }
    }

    fn timed_out(self) -> ServeError {
        ServeError::TimedOut { timeout_us: self.timeout.as_micros() as u64 }
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
