//! Waiting for another thread: spinning, then yielding, then sleeping.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Turns of a waiting loop before a thread lets others run: the thread that it waits for may need the core.
const SPINS_BEFORE_YIELD: u32 = 1_000;

/// How a thread waits: turns of the waiting loop before it lets others run, and before it sleeps.
struct Spins {
    before_yield: u32,
    before_park: u32,
}

/// Of a worker's own thread.
const OWN: Spins = Spins { before_yield: SPINS_BEFORE_YIELD, before_park: SPINS_BEFORE_PARK };

/// Of a guest on another worker's core: that worker may wake up at any moment.
const GUEST: Spins = Spins { before_yield: 50, before_park: 2_000 };

/// Turns of a waiting loop before a thread sleeps: some hundred microseconds, many times the cost of
/// sleeping and waking.
const SPINS_BEFORE_PARK: u32 = 20_000;

/// A number that rises, and that threads wait for: they spin a while, in case it rises soon, then
/// sleep, in case the thread that raises it has no core to run on.
#[derive(Default)]
pub(crate) struct Signal {
    value: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    risen: Condvar,
}

impl Signal {
    /// Raises the number by `more`. A thread that sees it risen sees what was written before.
    pub(crate) fn add(&self, more: u32) {
        self.value.fetch_add(more, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A thread that counts itself a sleeper holds the lock until it sleeps.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.risen.notify_all();
        }
    }

    /// The number. What was written before it was raised to this is visible.
    pub(crate) fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Sets the number to 0. Nobody may wait for it.
    pub(crate) fn reset(&self) {
        self.value.store(0, Ordering::SeqCst);
    }

    /// Returns once `is_reached` is true of the number.
    pub(crate) fn wait_until(&self, is_reached: impl Fn(u32) -> bool) {
        self.wait(OWN, || true, is_reached);
    }

    /// Returns once `is_reached` is true of the number. The caller is a guest on another worker's core, which sleeps at once where `may_spin` says
    /// no.
    pub(crate) fn wait_as_guest(
        &self,
        may_spin: impl Fn() -> bool,
        is_reached: impl Fn(u32) -> bool,
    ) {
        self.wait(GUEST, may_spin, is_reached);
    }

    fn wait(&self, spins: Spins, may_spin: impl Fn() -> bool, is_reached: impl Fn(u32) -> bool) {
        for spin in 1..=spins.before_park {
            if is_reached(self.value()) {
                return;
            }
            if !may_spin() {
                break;
            }
            if spin.is_multiple_of(spins.before_yield) {
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
