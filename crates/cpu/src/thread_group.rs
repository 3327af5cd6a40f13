//! Threads that start a job together and meet at barriers.
//!
//! The thread that owns the group is its first member and takes part in every job. Whoever waits,
//! for a job, at a barrier or for a job's end, spins a little while, then sleeps.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Turns of a waiting loop before a thread lets others run: who is waited for may need the core.
const SPINS_BEFORE_YIELD: u32 = 1_000;

/// Turns of a waiting loop before a thread sleeps; some hundred microseconds, many times what it
/// costs to sleep and be woken.
const SPINS_BEFORE_PARK: u32 = 20_000;

/// What every member runs: its own number is the argument.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

pub(crate) struct ThreadGroup {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Counts jobs; odd or even does not matter, a change does.
    started: Signal,
    /// Counts jobs that helpers have ended.
    ended: Signal,
    is_stopping: AtomicBool,
    /// The current job. Written while no helper runs one.
    job: UnsafeCell<Option<*const Job<'static>>>,
}

// SAFETY: `job` is written only by the owner while no helper is in a job, and published by the
// release of `started`; the job itself is `Sync`.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

impl ThreadGroup {
    /// A group of `threads`, the calling one included. `pin` is called first in each helper,
    /// with its number.
    pub(crate) fn new(
        name: &str,
        threads: usize,
        pin: impl Fn(usize) + Send + Clone + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            started: Signal::default(),
            ended: Signal::default(),
            is_stopping: AtomicBool::new(false),
            job: UnsafeCell::new(None),
        });
        let mut group = Self { shared, helpers: Vec::new() };
        for member in 1..threads {
            let (shared, pin) = (group.shared.clone(), pin.clone());
            let helper = std::thread::Builder::new().name(format!("{name}.{member}"));
            group.helpers.push(helper.spawn(move || {
                pin(member);
                shared.help(member);
            })?);
        }
        Ok(group)
    }

    /// The number of members.
    pub(crate) fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Runs `job` on all members and returns when all have ended it.
    pub(crate) fn run(&mut self, job: &Job<'_>) {
        if self.helpers.is_empty() {
            return job(0);
        }
        let ended = self.shared.ended.value.load(Ordering::Acquire);
        // SAFETY: no helper is in a job: the last `run` waited for them. The lifetime is erased;
        // this call does not return, nor unwind, before they have ended the job.
        unsafe {
            let job: *const Job<'_> = job;
            *self.shared.job.get() =
                Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job));
        }
        self.shared.started.add_one();
        let _guard = AbortOnPanic;
        job(0);
        let helpers = self.helpers.len() as u32;
        self.shared.ended.wait_until(|value| value == ended.wrapping_add(helpers));
    }
}

impl Drop for ThreadGroup {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.started.add_one();
        for helper in self.helpers.drain(..) {
            let _ = helper.join();
        }
    }
}

impl Shared {
    fn help(&self, member: usize) {
        let _guard = AbortOnPanic;
        let mut seen = 0;
        loop {
            self.started.wait_until(|value| value != seen);
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            seen = seen.wrapping_add(1);
            // SAFETY: published before `started` was raised; the owner waits for `ended`
            // before it writes again or lets the job go.
            let job = unsafe { &*(*self.job.get()).expect("a started job is there") };
            job(member);
            self.ended.add_one();
        }
    }
}

/// A member that dies would be waited for for ever.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("batchmaker: a compute thread failed; this is a bug, the process ends");
            std::process::abort();
        }
    }
}

/// A place where all members of a job wait for each other, again and again.
pub(crate) struct Barrier {
    members: u32,
    arrived: AtomicU32,
    round: Signal,
}

impl Barrier {
    pub(crate) fn new(members: usize) -> Self {
        Self { members: members as u32, arrived: AtomicU32::new(0), round: Signal::default() }
    }

    /// Returns once all members have called it. What they wrote before is visible after.
    pub(crate) fn wait(&self) {
        if self.members == 1 {
            return;
        }
        let round = self.round.value.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.add_one();
        } else {
            self.round.wait_until(|value| value != round);
        }
    }
}

/// A number that rises, and that threads wait for: they spin a while, in case it is soon, then
/// sleep, in case who raises it has no core to run on.
#[derive(Default)]
struct Signal {
    value: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    risen: Condvar,
}

impl Signal {
    fn add_one(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Who counts itself a sleeper holds the lock until it sleeps.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.risen.notify_all();
        }
    }

    fn wait_until(&self, is_reached: impl Fn(u32) -> bool) {
        for spin in 1..=SPINS_BEFORE_PARK {
            if is_reached(self.value.load(Ordering::Acquire)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_meet_at_every_barrier() {
        let mut group = ThreadGroup::new("test", 3, |_| {}).unwrap();
        for _ in 0..50 {
            let barrier = Barrier::new(group.threads());
            let count = AtomicU32::new(0);
            group.run(&|_| {
                for round in 1..=20 {
                    count.fetch_add(1, Ordering::Relaxed);
                    barrier.wait();
                    assert_eq!(count.load(Ordering::Relaxed), 3 * round);
                    barrier.wait();
                }
            });
            assert_eq!(count.into_inner(), 60);
        }
    }

    #[test]
    fn a_sleeping_group_wakes_up() {
        let mut group = ThreadGroup::new("test", 2, |_| {}).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let members = AtomicU32::new(0);
            group.run(&|member| {
                members.fetch_or(1 << member, Ordering::Relaxed);
            });
            assert_eq!(members.into_inner(), 0b11);
        }
    }
}
