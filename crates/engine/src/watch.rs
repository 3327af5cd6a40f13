//! How long each worker has been silent: a device that hangs reports nothing, and a worker that hangs begins no turn.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use batchmaker_graph::WorkerId;

/// A worker that has been silent for as many times its device's longest silence hangs.
const TIMES_LONGEST: u64 = 20;

/// A worker that gives no sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HungWorker {
    /// The worker, from 0.
    pub worker: u32,
    /// The time since its device, which has work, last reported something, or since the worker began a turn.
    pub silent_for: Duration,
}

/// The silence of each worker.
#[derive(Debug)]
pub(crate) struct Watch {
    workers: Vec<Silence>,
    /// The least silence, in nanoseconds, that is taken for a hang.
    hung_after_ns: u64,
}

/// The silence of one worker, which writes it at every turn: it shares no cache line with another's.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Silence {
    /// When the device last reported something, or got work, in nanoseconds since the engine's start, plus 1; 0: it
    /// has no work.
    device_ns: AtomicU64,
    /// When the worker last began a turn, in the same way; 0: it waits.
    turn_ns: AtomicU64,
    /// The longest silence of the device that ended, in nanoseconds.
    longest_ns: AtomicU64,
}

impl Watch {
    pub(crate) fn new(workers: usize, hung_after: Duration) -> Self {
        let hung_after_ns = u64::try_from(hung_after.as_nanos()).unwrap_or(u64::MAX);
        Self { workers: (0..workers).map(|_| Silence::default()).collect(), hung_after_ns }
    }

    /// Records that the worker begins a turn.
    pub(crate) fn turns(&self, worker: WorkerId, now_ns: u64) {
        self.workers[worker.index()].turn_ns.store(now_ns + 1, Ordering::Relaxed);
    }

    /// Records that the worker waits, or has stopped.
    pub(crate) fn waits(&self, worker: WorkerId) {
        self.workers[worker.index()].turn_ns.store(0, Ordering::Relaxed);
    }

    /// Records that the worker's device has work, unless that is known.
    pub(crate) fn expects(&self, worker: WorkerId, now_ns: u64) {
        let device_ns = &self.workers[worker.index()].device_ns;
        if device_ns.load(Ordering::Relaxed) == 0 {
            device_ns.store(now_ns + 1, Ordering::Relaxed);
        }
    }

    /// Records that the worker's device reported something, or is lost.
    pub(crate) fn heard(&self, worker: WorkerId, now_ns: u64) {
        let silence = &self.workers[worker.index()];
        if let Some(since_ns) = silence.device_ns.swap(0, Ordering::Relaxed).checked_sub(1) {
            silence.longest_ns.fetch_max(now_ns.saturating_sub(since_ns), Ordering::Relaxed);
        }
    }

    /// A worker that has been silent for far longer than its device ever was. A device that hung once and came back
    /// does not put this off for ever: of its longest silence, no more than the least that is taken for a hang counts.
    pub(crate) fn hung(&self, now_ns: u64) -> Option<HungWorker> {
        (0..).zip(&self.workers).find_map(|(worker, silence)| {
            let silent_ns = |since_ns: &AtomicU64| {
                Some(now_ns.saturating_sub(since_ns.load(Ordering::Relaxed).checked_sub(1)?))
            };
            let silent_ns = silent_ns(&silence.device_ns).max(silent_ns(&silence.turn_ns))?;
            let longest_ns = silence.longest_ns.load(Ordering::Relaxed).min(self.hung_after_ns);
            let of_history = longest_ns.saturating_mul(TIMES_LONGEST);
            let is_hung = silent_ns > self.hung_after_ns.max(of_history);
            is_hung.then_some(HungWorker { worker, silent_for: Duration::from_nanos(silent_ns) })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKER: WorkerId = WorkerId(1);

    #[test]
    fn a_device_hangs_when_it_is_silent_for_far_longer_than_before() {
        let watch = Watch::new(2, Duration::from_nanos(100));
        watch.expects(WORKER, 1000);
        watch.expects(WORKER, 1050);
        assert_eq!(watch.hung(1100), None);
        let silent_for = Duration::from_nanos(101);
        assert_eq!(watch.hung(1101), Some(HungWorker { worker: 1, silent_for }));
        watch.heard(WORKER, 1090);
        watch.expects(WORKER, 1110);
        assert_eq!(watch.hung(1110 + 20 * 90), None);
        assert!(watch.hung(1111 + 20 * 90).is_some());
        watch.heard(WORKER, 1120);
        assert_eq!(watch.hung(1_000_000), None);
    }

    #[test]
    fn a_device_that_came_back_is_found_when_it_hangs_again() {
        let watch = Watch::new(2, Duration::from_nanos(100));
        watch.expects(WORKER, 0);
        watch.heard(WORKER, 100_000);
        watch.expects(WORKER, 100_000);
        assert_eq!(watch.hung(100_000 + 20 * 100), None);
        assert!(watch.hung(100_001 + 20 * 100).is_some());
    }

    #[test]
    fn a_worker_hangs_that_neither_begins_a_turn_nor_waits() {
        let watch = Watch::new(2, Duration::from_nanos(100));
        watch.turns(WORKER, 1000);
        watch.turns(WORKER, 1050);
        assert_eq!(watch.hung(1150), None);
        assert_eq!(watch.hung(1151).map(|hung| hung.worker), Some(1));
        watch.waits(WORKER);
        assert_eq!(watch.hung(1_000_000), None);
    }
}
