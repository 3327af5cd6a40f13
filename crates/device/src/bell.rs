//! The bell that wakes a waiting worker: its queue rings it, or anyone that has work for the worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The number of spins of a waiting loop between two reads of the clock.
const SPINS_A_LOOK: u32 = 64;

/// Counts its rings. A worker notes the count, looks for something to do and, if there is nothing, waits
/// until the count has risen: so it misses no ring.
#[derive(Debug, Default)]
pub struct Bell {
    rung: AtomicU64,
    /// The number of threads that block, or are about to.
    blocked: AtomicU64,
    lock: Mutex<()>,
    ringing: Condvar,
}

impl Bell {
    /// The number of rings so far. Writes before a ring that is counted are visible.
    pub fn rung(&self) -> u64 {
        self.rung.load(Ordering::Acquire)
    }

    /// Wakes the threads that wait.
    pub fn ring(&self) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        if self.blocked.load(Ordering::SeqCst) > 0 {
            // A thread that counts itself as blocked holds the lock until it waits.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.ringing.notify_all();
        }
    }

    /// Waits until the bell was rung more than `seen` times, or until `deadline`. Polls for
    /// `poll_for`, then blocks.
    pub fn wait(&self, seen: u64, poll_for: Duration, deadline: Option<Instant>) {
        if self.rung() > seen || (!poll_for.is_zero() && self.poll(seen, poll_for, deadline)) {
            return;
        }
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.blocked.fetch_add(1, Ordering::SeqCst);
        while self.rung.load(Ordering::SeqCst) <= seen {
            lock = match deadline {
                None => self.ringing.wait(lock).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.ringing.wait_timeout(lock, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        self.blocked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Polls for `poll_for`. Tells whether the bell was rung or the deadline came.
    fn poll(&self, seen: u64, poll_for: Duration, deadline: Option<Instant>) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..SPINS_A_LOOK {
                if self.rung() > seen {
                    return true;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return true;
            }
            if now - start >= poll_for {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_missed() {
        let bell = Bell::default();
        let seen = bell.rung();
        bell.ring();
        bell.wait(seen, Duration::ZERO, None);
    }

    #[test]
    fn every_ring_wakes() {
        const RINGS: u64 = 2_000;
        for poll_for in [Duration::ZERO, Duration::from_micros(20)] {
            let (there, back) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
            let (here, answer) = (there.clone(), back.clone());
            let thread = std::thread::spawn(move || {
                for turn in 0..RINGS {
                    here.wait(turn, poll_for, None);
                    answer.ring();
                }
            });
            for turn in 0..RINGS {
                there.ring();
                back.wait(turn, poll_for, None);
            }
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let (bell, start) = (Bell::default(), Instant::now());
        for poll_for in [Duration::ZERO, Duration::from_secs(60)] {
            bell.wait(0, poll_for, Some(start + Duration::from_millis(5)));
            assert!(start.elapsed() >= Duration::from_millis(5));
        }
    }
}
