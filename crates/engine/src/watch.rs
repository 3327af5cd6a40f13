//! How long each worker's device has been silent with work in flight: a device that hangs reports nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batchmaker_graph::WorkerId;

/// A device that has been silent for as many times its longest silence hangs.
const TIMES_LONGEST: u64 = 20;

/// A worker whose device reports nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HungWorker {
    /// The worker, from 0.
    pub worker: u32,
    /// The time since it had work and its device last reported something.
    pub silent_for: Duration,
}

/// The silence of each worker's device.
#[derive(Debug)]
pub(crate) struct Watch {
    workers: Vec<Silence>,
    /// The least silence, in nanoseconds, that is taken for a device that hangs.
    hung_after_ns: u64,
}

#[derive(Debug, Default)]
struct Silence {
    /// When the device last reported something, or got work, in nanoseconds since the engine's start, plus 1; 0: it
    /// has no work.
    since_ns: AtomicU64,
    /// The longest silence that ended, in nanoseconds.
    longest_ns: AtomicU64,
}

impl Watch {
    pub(crate) fn new(workers: usize, hung_after: Duration) -> Self {
        let hung_after_ns = u64::try_from(hung_after.as_nanos()).unwrap_or(u64::MAX);
        Self { workers: (0..workers).map(|_| Silence::default()).collect(), hung_after_ns }
    }

    /// Notes that the worker's device has work, unless that is known.
    pub(crate) fn expects(&self, worker: WorkerId, now_ns: u64) {
        let since_ns = &self.workers[worker.index()].since_ns;
        if since_ns.load(Ordering::Relaxed) == 0 {
            since_ns.store(now_ns + 1, Ordering::Relaxed);
        }
    }

    /// Notes that the worker's device reported something, or is lost.
    pub(crate) fn heard(&self, worker: WorkerId, now_ns: u64) {
        let silence = &self.workers[worker.index()];
        if let Some(since_ns) = silence.since_ns.swap(0, Ordering::Relaxed).checked_sub(1) {
            silence.longest_ns.fetch_max(now_ns.saturating_sub(since_ns), Ordering::Relaxed);
        }
    }

    /// A worker whose device has been silent for longer than it ever was, by far.
    pub(crate) fn hung(&self, now_ns: u64) -> Option<HungWorker> {
        (0..).zip(&self.workers).find_map(|(worker, silence)| {
            let since_ns = silence.since_ns.load(Ordering::Relaxed).checked_sub(1)?;
            let silent_ns = now_ns.saturating_sub(since_ns);
            let of_history =
                silence.longest_ns.load(Ordering::Relaxed).saturating_mul(TIMES_LONGEST);
            let is_hung = silent_ns > self.hung_after_ns.max(of_history);
            is_hung.then_some(HungWorker { worker, silent_for: Duration::from_nanos(silent_ns) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_hangs_when_it_is_silent_for_far_longer_than_before() {
        let watch = Watch::new(2, Duration::from_nanos(100));
        let worker = WorkerId(1);
        watch.expects(worker, 1000);
        watch.expects(worker, 1050);
        assert_eq!(watch.hung(1100), None);
        let silent_for = Duration::from_nanos(101);
        assert_eq!(watch.hung(1101), Some(HungWorker { worker: 1, silent_for }));
        watch.heard(worker, 1110);
        watch.expects(worker, 1110);
        assert_eq!(watch.hung(1110 + 20 * 110), None);
        assert!(watch.hung(1111 + 20 * 110).is_some());
        watch.heard(worker, 1120);
        assert_eq!(watch.hung(1_000_000), None);
    }
}
