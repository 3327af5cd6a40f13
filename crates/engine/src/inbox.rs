//! Events for the manager, and the engine's clock.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use batchmaker_manager::Event;

use crate::lock::lock;
use crate::waiting::Waiting;

/// Events that the manager has not handled, each with its time; and the workers, one of which is
/// woken to hand an event on.
#[derive(Debug)]
pub(crate) struct Inbox {
    events: Mutex<Vec<(u64, Event)>>,
    pub(crate) waiting: Waiting,
    start: Instant,
}

impl Inbox {
    /// An empty inbox of an engine with this number of workers, which starts now.
    pub(crate) fn new(workers: usize) -> Self {
        Self { events: Mutex::default(), waiting: Waiting::new(workers), start: Instant::now() }
    }

    /// Nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// The nanoseconds from the start to `instant`; 0 before the start.
    pub(crate) fn ns_of(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.start);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The instant that is `ns` nanoseconds after the start.
    pub(crate) fn instant_of(&self, ns: u64) -> Instant {
        self.start + Duration::from_nanos(ns)
    }

    /// Adds an event that happens now, and wakes a worker for it.
    pub(crate) fn send(&self, event: Event) {
        let mut events = lock(&self.events);
        events.push((self.now_ns(), event));
        drop(events);
        self.waiting.wake_one();
    }

    /// Takes all events out, with their times in nanoseconds since the start.
    pub(crate) fn take(&self) -> Vec<(u64, Event)> {
        std::mem::take(&mut *lock(&self.events))
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.events).is_empty()
    }
}
