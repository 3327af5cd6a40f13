//! Threads that start a job together and meet at barriers.
//!
//! The thread that owns the group is its first member and takes part in every job. The others
//! spin a little while between jobs, then sleep.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, Thread};

/// Turns of a waiting loop before a thread lets others run.
const SPINS_BEFORE_YIELD: u32 = 2_000;

/// Turns of a waiting loop before a helper sleeps; some tens of microseconds.
const SPINS_BEFORE_PARK: u32 = 20_000;

/// What every member runs: its own number is the argument.
type Job<'a> = dyn Fn(usize) + Sync + 'a;

pub(crate) struct ThreadGroup {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Counts jobs; odd or even does not matter, a change does.
    started: AtomicU32,
    /// Helpers that have ended the current job.
    ended: AtomicU32,
    is_stopping: AtomicBool,
    /// The current job. Written while no helper runs one.
    job: UnsafeCell<Option<*const Job<'static>>>,
    /// A flag for each helper that sleeps or is about to.
    sleeping: Vec<AtomicBool>,
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
            started: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            is_stopping: AtomicBool::new(false),
            job: UnsafeCell::new(None),
            sleeping: (1..threads).map(|_| AtomicBool::new(false)).collect(),
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
        self.shared.ended.store(0, Ordering::Relaxed);
        // SAFETY: no helper is in a job: the last `run` waited for them. The lifetime is erased;
        // this call does not return, nor unwind, before they have ended the job.
        unsafe {
            let job: *const Job<'_> = job;
            *self.shared.job.get() =
                Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job));
        }
        self.shared.started.fetch_add(1, Ordering::SeqCst);
        for (sleeping, helper) in self.shared.sleeping.iter().zip(&self.helpers) {
            if sleeping.swap(false, Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        let _guard = AbortOnPanic;
        job(0);
        let helpers = self.helpers.len() as u32;
        spin_until(|| self.shared.ended.load(Ordering::Acquire) == helpers);
    }
}

impl Drop for ThreadGroup {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.helpers.iter().map(JoinHandle::thread).for_each(Thread::unpark);
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
            self.wait_for_job(member, seen);
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            seen = seen.wrapping_add(1);
            // SAFETY: published before `started` was raised; the owner waits for `ended`
            // before it writes again or lets the job go.
            let job = unsafe { &*(*self.job.get()).expect("a started job is there") };
            job(member);
            self.ended.fetch_add(1, Ordering::Release);
        }
    }

    fn wait_for_job(&self, member: usize, seen: u32) {
        let is_due = || {
            self.started.load(Ordering::SeqCst) != seen || self.is_stopping.load(Ordering::SeqCst)
        };
        for spin in 0..SPINS_BEFORE_PARK {
            if is_due() {
                return;
            }
            relax(spin);
        }
        let sleeping = &self.sleeping[member - 1];
        loop {
            sleeping.store(true, Ordering::SeqCst);
            if is_due() {
                sleeping.store(false, Ordering::SeqCst);
                return;
            }
            std::thread::park();
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
    round: AtomicU32,
}

impl Barrier {
    pub(crate) fn new(members: usize) -> Self {
        Self { members: members as u32, arrived: AtomicU32::new(0), round: AtomicU32::new(0) }
    }

    /// Returns once all members have called it. What they wrote before is visible after.
    pub(crate) fn wait(&self) {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.members {
            self.arrived.store(0, Ordering::Relaxed);
            self.round.store(round.wrapping_add(1), Ordering::Release);
        } else {
            spin_until(|| self.round.load(Ordering::Acquire) != round);
        }
    }
}

fn spin_until(is_done: impl Fn() -> bool) {
    let mut spin = 0u32;
    while !is_done() {
        relax(spin);
        spin = spin.wrapping_add(1);
    }
}

fn relax(spin: u32) {
    if spin % SPINS_BEFORE_YIELD == SPINS_BEFORE_YIELD - 1 {
        std::thread::yield_now();
    } else {
        std::hint::spin_loop();
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
