//! Whether a worker without work polls for a while before it blocks.

use std::time::Duration;

/// The time that a worker polls for work: about what a client takes from a reply to its next request, over HTTP or where its own thread has to
/// wake up first.
const POLL_FOR: Duration = Duration::from_micros(150);

/// Waits in a row that end too late for polling before a worker blocks at once.
const PATIENCE: u32 = 8;

/// The record of a worker's last waits. It polls only for a client that is alone and sends its next request as soon as it is
/// answered: of several requests that come at once, one that polls would take the first without the others, and clients need the cores.
#[derive(Debug, Default)]
pub(crate) struct IdlePolling {
    /// Waits that may end late before it stops.
    left: u32,
}

impl IdlePolling {
    /// The time to poll for before the worker blocks.
    pub(crate) fn poll_for(&self) -> Duration {
        if self.left > 0 { POLL_FOR } else { Duration::ZERO }
    }

    /// Records how long the worker waited for work, polling or blocked, and how many requests it saw at a time since the wait before, at most.
    pub(crate) fn note(&mut self, waited: Duration, requests: usize) {
        self.left = match requests {
            0 | 1 if waited < POLL_FOR => PATIENCE,
            0 | 1 => self.left.saturating_sub(1),
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_polls_as_long_as_work_comes_soon() {
        let mut polling = IdlePolling::default();
        assert_eq!(polling.poll_for(), Duration::ZERO);
        polling.note(Duration::from_micros(30), 1);
        for _ in 0..PATIENCE {
            assert_eq!(polling.poll_for(), POLL_FOR);
            polling.note(Duration::from_millis(1), 1);
        }
        assert_eq!(polling.poll_for(), Duration::ZERO);
        polling.note(Duration::from_micros(30), 1);
        polling.note(Duration::from_micros(30), 2);
        assert_eq!(polling.poll_for(), Duration::ZERO, "requests come together");
    }
}
