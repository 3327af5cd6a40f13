//! Threads that start a job together.
//!
//! The thread that owns the group is its first member and takes part in every job. Whoever waits
//! spins a little while, then sleeps.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::threads::phases::{Member, Stages};
use crate::threads::signal::Signal;

/// What every member runs.
type Job<'a> = dyn Fn(&mut Member<'_>) + Sync + 'a;

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
    /// How the current job's members divide their work. Reset while no helper runs one.
    stages: Stages,
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
            stages: Stages::new(threads),
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
            return self.run_alone(job);
        }
        let ended = self.shared.ended.value();
        self.shared.stages.reset();
        // SAFETY: no helper is in a job: the last `run` waited for them. The lifetime is erased;
        // this call does not return, nor unwind, before they have ended the job.
        unsafe {
            let job: *const Job<'_> = job;
            *self.shared.job.get() =
                Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job));
        }
        self.shared.started.add(1);
        let _guard = AbortOnPanic;
        job(&mut self.shared.stages.member(0));
        let helpers = self.helpers.len() as u32;
        self.shared.ended.wait_until(|value| value == ended.wrapping_add(helpers));
    }

    /// Runs `job` on the calling member only: the others' part in shared stages falls to it.
    pub(crate) fn run_alone(&mut self, job: &Job<'_>) {
        self.shared.stages.reset();
        job(&mut self.shared.stages.member(0));
    }
}

impl Drop for ThreadGroup {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.started.add(1);
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
            job(&mut self.stages.member(member));
            self.ended.add(1);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn a_sleeping_group_wakes_up() {
        let mut group = ThreadGroup::new("test", 2, |_| {}).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let members = AtomicU32::new(0);
            group.run(&|member| {
                members.fetch_or(1 << member.number(), Ordering::Relaxed);
            });
            assert_eq!(members.into_inner(), 0b11);
        }
    }
}
