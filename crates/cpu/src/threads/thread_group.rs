//! Threads that start a job together.
//!
//! The thread that owns the group is its first member and takes part in every job. A thread that waits
//! spins a little while, then sleeps. While all other workers are idle, a group has guests: threads that run on their cores. It starts them
//! when it first has use for them.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batchmaker_executor::{KERNEL_STACK_BYTES, Lent, SharedCores};

use super::phases::{Member, Phases};
use super::signal::Signal;

/// The work of a job, which every member runs.
type Job<'a> = dyn Fn(&mut Member<'_>) + Sync + 'a;

/// The most guests of a group: small phases are not worth dividing among more.
const GUESTS_MAX: usize = 15;

/// The time for which all other workers must have been idle before guests run on their cores: a client takes less from a reply to its next
/// request, whose worker would have to wait for a guest to leave.
const IDLE_FOR: Duration = Duration::from_micros(100);

/// The threads of a worker: the one that owns this, its helpers, and guests.
pub(crate) struct ThreadGroup {
    name: String,
    shared: Arc<Shared>,
    /// Own helpers, then guests.
    helpers: Vec<JoinHandle<()>>,
    /// The number of tasks that the worker has begun.
    tasks: usize,
    /// The number of tasks that other workers had begun when the worker last asked, and since when it is this one.
    tasks_of_others: Option<(usize, Instant)>,
}

/// The members of a job, and the cores of other workers that guests run on.
pub(crate) struct Members {
    count: usize,
    lent: Option<Lent>,
}

impl Members {
    /// The number of members.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

struct Shared {
    /// For each helper, what rises by 1 for each of its jobs, and when the group ends.
    started: Box<[Signal]>,
    /// For each guest, whether it may begin the current job: one that comes late is not waited for.
    invited: Box<[AtomicBool]>,
    /// Rises by 1 when a helper has ended a job.
    ended: Signal,
    /// The guests that have left the current job.
    left: AtomicUsize,
    is_stopping: AtomicBool,
    /// The current job, and the number of its members. Written while no helper runs one.
    job: UnsafeCell<Option<(*const Job<'static>, usize)>>,
    /// The division of the current job among members. Reset while no helper runs one.
    phases: Phases,
    /// The number of members that are the worker's own, the owner included; others are guests.
    own: usize,
    cores: Arc<SharedCores>,
    /// Puts the calling helper, of this number, on the cores that it may run on.
    pin: Box<dyn Fn(usize) + Send + Sync>,
}

// SAFETY: `job` is written by the owner alone, while no helper is in a job, and published by the
// release of `started`, or of `invited`; the job itself is `Sync`.
unsafe impl Send for Shared {}
// SAFETY: helpers read `job` between `started` and `ended` only, when the owner does not write it.
unsafe impl Sync for Shared {}

impl ThreadGroup {
    /// A group of `threads` threads, the calling one included, without guests, on any core.
    pub(crate) fn new(name: &str, threads: usize) -> std::io::Result<Self> {
        Self::of_worker(name, threads, Arc::new(SharedCores::new(1, threads)), |_| {})
    }

    /// The group of a worker that borrows from `cores`. Each helper, own or guest, calls `pin` with its number first.
    pub(crate) fn of_worker(
        name: &str,
        threads: usize,
        cores: Arc<SharedCores>,
        pin: impl Fn(usize) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let members_max = threads + cores.others().min(GUESTS_MAX);
        let shared = Arc::new(Shared {
            started: (1..members_max).map(|_| Signal::default()).collect(),
            invited: (threads..members_max).map(|_| AtomicBool::new(false)).collect(),
            ended: Signal::default(),
            left: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            job: UnsafeCell::new(None),
            phases: Phases::new(members_max),
            own: threads,
            cores,
            pin: Box::new(pin),
        });
        let name = name.to_owned();
        let (helpers, tasks_of_others) = Default::default();
        let mut group = Self { name, shared, helpers, tasks: 0, tasks_of_others };
        for _ in 1..threads {
            group.start_helper()?;
        }
        Ok(group)
    }

    /// Starts the next helper.
    fn start_helper(&mut self) -> std::io::Result<()> {
        let (member, shared) = (self.helpers.len() + 1, self.shared.clone());
        let thread = std::thread::Builder::new()
            .name(format!("{}.{member}", self.name))
            .stack_size(KERNEL_STACK_BYTES);
        self.helpers.push(thread.spawn(move || {
            (shared.pin)(member);
            shared.help(member);
        })?);
        Ok(())
    }

    /// The number of members that are the worker's own.
    pub(crate) fn threads(&self) -> usize {
        self.shared.own
    }

    /// Notes that the worker begins a task, and has taken its own cores for it.
    pub(crate) fn begin_task(&mut self) {
        self.tasks = self.tasks.wrapping_add(1);
    }

    /// The members for a job that is worth `worth` threads: the worker's own, and guests if all other workers have been idle for a while.
    pub(crate) fn members(&mut self, worth: usize) -> Members {
        let own = self.own_members();
        let guests_max = self.shared.started.len() + 1 - self.shared.own;
        let wanted = worth.saturating_sub(self.shared.own).min(guests_max);
        if wanted == 0 {
            return own;
        }
        let cores = &self.shared.cores;
        let (tasks, now) = (cores.takes().wrapping_sub(self.tasks), Instant::now());
        let (known, since) = *self.tasks_of_others.get_or_insert((tasks, now));
        if known != tasks || !cores.are_others_idle() {
            self.tasks_of_others = Some((tasks, now));
            return own;
        }
        if now - since < IDLE_FOR {
            return own;
        }
        let lent = cores.lend(wanted);
        let count = self.shared.own + lent.count();
        while self.helpers.len() + 1 < count {
            if self.start_helper().is_err() {
                return own;
            }
        }
        Members { count, lent: Some(lent) }
    }

    /// The worker's own members.
    pub(crate) fn own_members(&self) -> Members {
        Members { count: self.shared.own, lent: None }
    }

    /// Runs `job` on the worker's own members and returns when all have ended it.
    pub(crate) fn run(&mut self, job: &Job<'_>) {
        self.run_on(self.own_members(), job);
    }

    /// Runs `job` on `members`, and returns when all have ended it, whether all guests came and stayed. Guests leave when another worker has
    /// work: all work of a job of theirs is in phases.
    pub(crate) fn run_on(&mut self, members: Members, job: &Job<'_>) -> bool {
        let Members { count: members, mut lent } = members;
        if members == 1 {
            self.run_alone(job);
            return true;
        }
        let shared = &self.shared;
        let ended = shared.ended.value();
        shared.phases.reset();
        // SAFETY: no helper is in a job: the last `run_on` waited for them. The lifetime is erased;
        // this call does not return, nor unwind, before they have ended the job.
        unsafe {
            let job: *const Job<'_> = job;
            let job = std::mem::transmute::<*const Job<'_>, *const Job<'static>>(job);
            *shared.job.get() = Some((job, members));
        }
        let guests = &shared.invited[..members - shared.own];
        guests.iter().for_each(|invited| invited.store(true, Ordering::Release));
        shared.started[..members - 1].iter().for_each(|started| started.add(1));
        let _guard = AbortOnPanic;
        job(&mut shared.phases.member(0, members));
        let is_late = |invited: &&AtomicBool| invited.swap(false, Ordering::AcqRel);
        let late = guests.iter().filter(is_late).count();
        let helpers = (members - 1 - late) as u32;
        shared.ended.wait_until(|value| value == ended.wrapping_add(helpers));
        let left = shared.left.swap(0, Ordering::Relaxed);
        if let Some(lent) = &mut lent {
            lent.forget(left);
        }
        late + left == 0
    }

    /// Runs `job` on the calling member only, which does the share of the worker's others of all phases as well.
    pub(crate) fn run_alone(&mut self, job: &Job<'_>) {
        self.shared.phases.reset();
        job(&mut self.shared.phases.member(0, self.shared.own));
    }
}

impl Drop for ThreadGroup {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.started.iter().for_each(|started| started.add(1));
        for helper in self.helpers.drain(..) {
            let _ = helper.join();
        }
    }
}

impl Shared {
    /// The loop of a helper: runs each job as member `member`, until the group ends.
    fn help(&self, member: usize) {
        let _guard = AbortOnPanic;
        let stays = || self.cores.are_others_idle();
        let is_own = member < self.own;
        let mut seen = 0;
        loop {
            let started = &self.started[member - 1];
            match is_own {
                true => started.wait_until(|value| value != seen),
                false => started.wait_as_guest(stays, |value| value != seen),
            }
            if self.is_stopping.load(Ordering::SeqCst) {
                return;
            }
            seen = started.value();
            if !is_own && !self.invited[member - self.own].swap(false, Ordering::AcqRel) {
                continue;
            }
            // SAFETY: published before `started` was raised, and before a guest was invited; the owner waits for `ended`
            // before it writes again or lets the job go.
            let (job, members) = unsafe { (*self.job.get()).expect("a started job is there") };
            // SAFETY: likewise.
            let job = unsafe { &*job };
            let mut member = match is_own {
                true => self.phases.member(member, members),
                false => self.phases.guest(member, members, &stays),
            };
            job(&mut member);
            if member.has_left() {
                self.left.fetch_add(1, Ordering::Relaxed);
                self.cores.guest_leaves();
            }
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
    use std::sync::Mutex;
    use std::sync::atomic::AtomicU32;

    use batchmaker_executor::ExecutorThreads;

    use super::*;

    #[test]
    fn every_item_is_done_once_and_phases_keep_their_order() {
        const PHASES: usize = 200;
        let mut group = ThreadGroup::new("test", 3).unwrap();
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
        let mut group = ThreadGroup::new("test", 2).unwrap();
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let members = AtomicU32::new(0);
            group.run(&|member| {
                members.fetch_or(1 << member.number(), Ordering::Relaxed);
            });
            assert_eq!(members.into_inner(), 0b11);
        }
    }

    /// Jobs whose guests stay, and jobs that they leave, as another worker has work again.
    #[test]
    fn guests_come_and_leave() {
        const PHASES: usize = 50;
        let cores = Arc::new(SharedCores::new(3, 1));
        let mut group = ThreadGroup::of_worker("test", 1, cores.clone(), |_| {}).unwrap();
        let [own, other] = [0, 1].map(|_| ExecutorThreads::of_worker(1, cores.clone()));
        let begin = |group: &mut ThreadGroup| {
            group.begin_task();
            own.in_use()
        };
        let task = begin(&mut group);
        assert_eq!(group.members(1).count(), 1, "one thread is enough");
        assert_eq!(group.members(3).count(), 1, "the others were not idle for long");
        let mut of_guests = 0;
        for turn in 0..100 {
            std::thread::sleep(2 * IDLE_FOR);
            assert_eq!(group.members(2).count(), 2);
            let members = group.members(3);
            assert_eq!(members.count(), 3);
            let counts: Vec<AtomicU32> = (0..8).map(|_| AtomicU32::new(0)).collect();
            let (by_guests, in_use) = (AtomicU32::new(0), Mutex::new(None));
            let job = |member: &mut Member<'_>| {
                let number = member.number();
                for phase in 0..PHASES {
                    member.run_phase(counts.len(), |item| {
                        counts[item].fetch_add(1, Ordering::Relaxed);
                        by_guests.fetch_add(u32::from(number > 0), Ordering::Relaxed);
                        std::thread::sleep(Duration::from_micros(1));
                    });
                    if number == 0 && turn % 2 == 1 && phase == PHASES / 2 {
                        *in_use.lock().unwrap() = Some(other.in_use());
                    }
                }
            };
            let stayed = group.run_on(members, &job);
            drop(in_use.into_inner());
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) as usize == PHASES));
            of_guests += by_guests.into_inner();
            if turn % 2 == 1 {
                assert!(!stayed, "another worker had work");
                assert_eq!(group.members(3).count(), 1, "a moment ago");
            }
        }
        assert!(of_guests > 100, "guests did {of_guests} items");
        let busy = other.in_use();
        std::thread::sleep(2 * IDLE_FOR);
        assert_eq!(group.members(3).count(), 1, "another worker has work");
        drop((busy, task));
        assert_eq!(cores.lend(9).count(), 3, "all cores were given back");
    }
}
