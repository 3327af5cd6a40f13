//! Waiting for another thread: spinning, then yielding, then sleeping.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Turns of a waiting loop before a thread lets others run: who is waited for may need the core.
const SPINS_BEFORE_YIELD: u32 = 1_000;

/// Turns of a waiting loop before a thread sleeps; some hundred microseconds, many times what it
/// costs to sleep and be woken.
const SPINS_BEFORE_PARK: u32 = 20_000;

/// A number that rises, and that threads wait for: they spin a while, in case it is soon, then
/// sleep, in case who raises it has no core to run on.
#[derive(Default)]
pub(crate) struct Signal {
    value: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    risen: Condvar,
}

impl Signal {
    /// Raises it by `more`. What was written before is visible to who sees it risen.
    pub(crate) fn add(&self, more: u32) {
        self.value.fetch_add(more, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Who counts itself a sleeper holds the lock until it sleeps.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.risen.notify_all();
        }
    }

    /// Where it is. What was written before it was raised there is visible.
    pub(crate) fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Sets it to 0, while nobody waits for it.
    pub(crate) fn reset(&self) {
        self.value.store(0, Ordering::SeqCst);
    }

    /// Returns when it has risen to where `is_reached` says so.
    pub(crate) fn wait_until(&self, is_reached: impl Fn(u32) -> bool) {
        for spin in 1..=SPINS_BEFORE_PARK {
            if is_reached(self.value()) {
                return;
            }
            if spin.is_multiple_of(SPINS_BEFORE_YIELD) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !is_reached(self.value.load(Ordering::SeqCst)) {
            lock = self.risen.wait(lock).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
