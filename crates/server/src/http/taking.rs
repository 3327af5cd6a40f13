//! How a client takes what it is sent: since when the server waits for it, and the time that it earns by what it takes.
//!
//! A client that takes nothing is waited for as long as its patience lasts. What it takes at the least rate gives back
//! the time that has passed, and no more than that: nobody saves time for later.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time for which a client has kept the server waiting with bytes to write.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    /// Since when the client has been waited for, less what it earned, in milliseconds since the port's start, plus 1;
    /// 0: it is not.
    since_ms: AtomicU64,
    /// The bytes that it took since the last look.
    bytes: AtomicU64,
}

impl Taking {
    /// Notes that the client is waited for, unless that is known.
    pub(crate) fn waits(&self, now_ms: u64) {
        let (relaxed, new) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.since_ms.compare_exchange(0, now_ms + 1, relaxed, new).is_ok() {
            self.bytes.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that the client took bytes.
    pub(crate) fn took(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that the client took all there was.
    pub(crate) fn took_all(&self) {
        self.since_ms.store(0, Ordering::Relaxed);
    }

    /// Whether the client is waited for.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.since_ms.load(Ordering::Relaxed) != 0
    }

    /// Looks at what the client took since the last look: whether it has been waited for longer than `patience`, where
    /// `rate_min` bytes earn a second.
    pub(crate) fn is_stuck(&self, now_ms: u64, patience: Duration, rate_min: u64) -> bool {
        let relaxed = Ordering::Relaxed;
        let known = self.since_ms.load(relaxed);
        let Some(since_ms) = known.checked_sub(1) else {
            return false;
        };
        let bytes = self.bytes.swap(0, relaxed);
        let earned_ms = match (bytes, rate_min) {
            (0, _) => 0,
            (_, 0) => u64::MAX,
            _ => bytes.saturating_mul(1000).div_ceil(rate_min),
        };
        let since_ms = since_ms.saturating_add(earned_ms).min(now_ms);
        // Meanwhile it may have taken all.
        let _ = self.since_ms.compare_exchange(known, since_ms + 1, relaxed, relaxed);
        now_ms - since_ms > patience.as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    fn is_stuck(taking: &Taking, now_ms: u64) -> bool {
        taking.is_stuck(now_ms, PATIENCE, 1000)
    }

    #[test]
    fn bytes_that_are_taken_earn_time() {
        let taking = Taking::default();
        taking.waits(0);
        assert!(!is_stuck(&taking, 1000));
        taking.took(500);
        assert!(!is_stuck(&taking, 1100));
        assert!(!is_stuck(&taking, 1500));
        assert!(is_stuck(&taking, 1501));
        taking.took_all();
        assert!(!is_stuck(&taking, 9999) && !taking.is_waited_for());
    }

    #[test]
    fn no_time_is_saved_for_later() {
        let taking = Taking::default();
        taking.waits(0);
        taking.took(1 << 30);
        assert!(!is_stuck(&taking, 500));
        assert!(!is_stuck(&taking, 1500));
        assert!(is_stuck(&taking, 1501));
    }

    #[test]
    fn without_a_least_rate_any_byte_is_enough() {
        let taking = Taking::default();
        taking.waits(0);
        for now_ms in [900, 1800, 2700] {
            taking.took(1);
            assert!(!taking.is_stuck(now_ms, PATIENCE, 0));
        }
        assert!(taking.is_stuck(3701, PATIENCE, 0));
    }
}
