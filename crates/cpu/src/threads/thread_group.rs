//! Threads that start a job together.
//!
//! The thread that owns the group is its first member and takes part in every job. A thread that waits
//! spins a little while, then sleeps.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use batchmaker_executor::KERNEL_STACK_BYTES;

use super::phases::{Member, Phases};
use super::signal::Signal;

/// The work of a job, which every member runs.
type Job<'a> = dyn Fn(&mut Member<'_>) + Sync + 'a;

/// The threads of a worker: the one that owns this, and its helpers.
pub(crate) struct ThreadGroup {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Rises by 1 for each job, and when the group ends.
    started: Signal,
    /// Rises by 1 when a helper has ended a job.
    ended: Signal,
    is_stopping: AtomicBool,
    /// The current job. Written while no helper runs one.
    job: UnsafeCell<Option<*const Job<'static>>>,
    /// The division of the current job among members. Reset while no helper runs one.
    phases: Phases,
}

// SAFETY: `job` is written by the owner alone, while no helper is in a job, and published by the
// release of `started`; the job itself is `Sync`.
unsafe impl Send for Shared {}
// SAFETY: helpers read `job` between `started` and `ended` only, when the owner does not write it.
unsafe impl Sync for Shared {}

impl ThreadGroup {
    /// A group of `threads` threads, the calling one included. Each helper calls `pin` with its number first.
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
            phases: Phases::new(threads),
        });
        let mut group = Self { shared, helpers: Vec::new() };
        for member in 1..threads {
            let (shared, pin) = (group.shared.clone(), pin.clone());
            let helper = std::thread::Builder::new()
                .name(format!("{name}.{member}"))
                .stack_size(KERNEL_STACK_BYTES);
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
        self.shared.phases.reset();
        // SAFETY: no helper is in a job: the last `run` waited for them. The lifetime is erased;
        // this call does not return, nor unwind, before they have ended the job.
        unsafe {
            let job: *const Job<'_> = job;
            *self.shared.job.get() =
                Some(std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job));
        }
        self.shared.started.add(1);
        let _guard = AbortOnPanic;
        job(&mut self.shared.phases.member(0));
        let helpers = self.helpers.len() as u32;
        self.shared.ended.wait_until(|value| value == ended.wrapping_add(helpers));
    }

    /// Runs `job` on the calling member only, which does the others' share of all phases as well.
    pub(crate) fn run_alone(&mut self, job: &Job<'_>) {
        self.shared.phases.reset();
        job(&mut self.shared.phases.member(0));
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
    /// The loop of a helper: runs each job as member `member`, until the group ends.
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
            job(&mut self.phases.member(member));
            self.ended.add(1);
        }
    }
}

/// Ends the process when a member panics: the others would wait for it for ever.
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
    fn every_item_is_done_once_and_phases_keep_their_order() {
        const PHASES: usize = 200;
        let mut group = ThreadGroup::new("test", 3, |_| {}).unwrap();
        for items in [0, 1, 2, 7, 64] {
            let counts: Vec<AtomicU32> = (0..items).map(|_| AtomicU32::new(0)).collect();
            group.run(&|member| {
                for phase in 0..PHASES {
                    member.run_phase(items, |item| {
                        let before = counts[item].fetch_add(1, Ordering::Relaxed);
                        assert_eq!(before as usize, phase, "item {item} of {items}");
                    });
                    let is_done =
                        |count: &AtomicU32| count.load(Ordering::Relaxed) as usize > phase;
                    assert!(counts.iter().all(is_done), "phase {phase} of {items} items");
                }
            });
        }
    }

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
