//! The threads that programs run on, and the cores that workers lend each other while they have no work.

mod attendance;
mod attendants;
mod attends;
mod lone_worker;
mod pause;
mod shared_cores;
mod stack;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rten::ThreadPool;

use crate::error::ExecutorError;
pub(crate) use crate::threads::attendance::Attendance;
use crate::threads::attendants::Attendants;
use crate::threads::attends::is_attending;
use crate::threads::pause::pause;
use crate::threads::shared_cores::Borrowed;
pub use crate::threads::shared_cores::{InUse, Lent, SharedCores};
pub use crate::threads::stack::KERNEL_STACK_BYTES;

/// Parts that work is divided into for each thread that shares it: a thread that comes late takes fewer.
const PARTS_A_THREAD: usize = 2;

/// As many times as much work is worth a thread that has to be woken as one that waits for it.
const WORTH_A_WAKE: usize = 4;

/// Threads of their own that programs run on, one program at a time; the caller waits. Each worker of a device has
/// some.
pub struct ExecutorThreads {
    pool: Arc<ThreadPool>,
    count: usize,
    cores: Arc<SharedCores>,
    /// See [`Self::attended`].
    attendants: Arc<Attendants>,
    /// See [`Self::take_worth`].
    worth: AtomicUsize,
}

impl ExecutorThreads {
    /// Starts one thread.
    #[expect(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Self {
        Self::with_threads(1)
    }

    /// Starts `count` threads, which convolutions and other large operators share.
    pub fn with_threads(count: usize) -> Self {
        let count = count.max(1);
        Self::of_worker(count, Arc::new(SharedCores::new(1, count)))
    }

    /// Starts `count` threads of a worker that borrows from `cores` while others are idle.
    pub fn of_worker(count: usize, cores: Arc<SharedCores>) -> Self {
        let attendants = Arc::new(Attendants::new(count, cores.clone(), Arc::new(|| {})));
        let pool = Arc::new(ThreadPool::with_num_threads(count));
        Self { pool, count, cores, attendants, worth: AtomicUsize::new(1) }
    }

    /// The same threads, whose helpers call `keep_off` first. It is to keep the calling thread off the worker's own cores: the system may wake a
    /// helper on one of these, where it would share the core with a thread that waits for it.
    #[must_use]
    pub fn with_keep_off(self, keep_off: impl Fn() + Send + Sync + 'static) -> Self {
        let attendants = Attendants::new(self.count, self.cores.clone(), Arc::new(keep_off));
        Self { attendants: Arc::new(attendants), ..self }
    }

    /// Uses the worker's own cores, until the result is dropped: nobody is to borrow them.
    pub fn in_use(&self) -> InUse<'_> {
        self.attendants.note_take();
        self.cores.take(self.count)
    }

    /// Takes the cores of all other workers, if there are some and all are idle, or will be within `patience`.
    pub(crate) fn borrow_all(&self, patience: Duration) -> Option<Borrowed<'_>> {
        let others = self.cores.helpers.as_ref()?.current_num_threads();
        self.attendants.dismiss();
        let start = Instant::now();
        loop {
            let borrowed = self.cores.borrow(others);
            if borrowed.count as usize == others {
                return Some(borrowed);
            }
            drop(borrowed);
            if start.elapsed() >= patience {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// One of the threads: programs that are run from there are not handed over to another thread.
    pub fn host(&self) -> ExecutorHost {
        ExecutorHost(self.pool.clone())
    }

    pub(crate) fn pool(&self) -> Arc<ThreadPool> {
        self.pool.clone()
    }

    /// The most threads that any work was worth since the last call; 1 if none was worth being divided. Work counts whether or not cores were
    /// idle.
    pub(crate) fn take_worth(&self) -> usize {
        self.worth.swap(1, Ordering::Relaxed)
    }

    /// Runs `work`, which divides work of its own again and again. Until it ends, up to `worth` threads, those of the pool and those of idle
    /// workers, look for parts without sleeping in between. It is called on one of the pool's threads, while the worker's own
    /// cores are in use.
    pub(crate) fn attended<T>(&self, worth: usize, work: impl FnOnce() -> T) -> T {
        let _run = self.attendants.begin_run(worth);
        work()
    }

    /// Divides work, which is worth `worth` threads at most that wait for it, and fewer that sleep, by calling `divide` with the number of
    /// parts, and runs the parts on these threads and on idle cores. It is called on one of the pool's threads.
    ///
    /// # Errors
    /// The first error of `run`.
    pub(crate) fn share<T: Send>(
        &self,
        worth: usize,
        divide: impl FnOnce(usize) -> Vec<T>,
        run: impl Fn(T) -> Result<(), ExecutorError> + Sync,
    ) -> Result<(), ExecutorError> {
        let of_sleepers = (worth / WORTH_A_WAKE).max(1);
        let known = if is_attending() { worth } else { of_sleepers };
        self.worth.fetch_max(known, Ordering::Relaxed);
        if is_attending() {
            self.attendants.call_again(worth);
        }
        let awake = Others::of(self.attendants.awake());
        let is_awake = awake.count() > 0;
        let (worth, threads) = match is_awake {
            true => (worth, awake.at_most(worth.saturating_sub(1))),
            false => (of_sleepers, self.sleepers(of_sleepers - 1)),
        };
        let count = match threads.count() {
            0 => 1,
            others => worth.min(PARTS_A_THREAD * (1 + others)),
        };
        let parts = Mutex::new(divide(count).into_iter());
        let error = Mutex::new(None);
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = |goes_on: &dyn Fn() -> bool| {
            while goes_on()
                && let Some(part) = next()
            {
                if let Err(of_part) = run(part) {
                    error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(of_part);
                }
            }
        };
        self.together(&threads, is_awake, &work);
        error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Up to `count` threads that sleep, or have just been called, beside this one.
    fn sleepers(&self, count: usize) -> Others<'_> {
        if is_attending() {
            return Others::of(self.attendants.called()).at_most(count);
        }
        let own = (self.count - 1).min(count);
        let borrowed = self.cores.helpers.is_some().then(|| self.cores.borrow(count - own));
        let helpers = borrowed.as_ref().map_or(0, |borrowed| borrowed.count as usize);
        Others { own, helpers, _borrowed: borrowed }
    }

    /// Has this thread and `others` do `work`, which takes part after part as long as the function that it is called with says to go on. If the
    /// others are awake, this thread does not sleep while it waits for them.
    fn together(&self, others: &Others<'_>, are_awake: bool, work: &Work<'_>) {
        let left = AtomicUsize::new(others.count());
        let on_own = || {
            rayon::scope(|scope| {
                for _ in 0..others.own {
                    scope.spawn(|_| {
                        let _leaves = Leaves(&left);
                        work(&|| true);
                    });
                }
                work(&|| true);
                let mut looks = 0;
                while are_awake && left.load(Ordering::Relaxed) > 0 {
                    pause(&mut looks);
                }
            });
        };
        match &self.cores.helpers {
            Some(pool) if others.helpers > 0 => pool.in_place_scope(|scope| {
                for _ in 0..others.helpers {
                    scope.spawn(|_| {
                        let _leaves = Leaves(&left);
                        self.attendants.keep_off();
                        // Where its worker has work again, a helper leaves the rest to others.
                        work(&|| !self.cores.is_overdrawn());
                    });
                }
                on_own();
            }),
            _ if others.own > 0 => on_own(),
            _ => work(&|| true),
        }
    }
}

/// Work that several threads do together.
type Work<'a> = dyn Fn(&dyn Fn() -> bool) + Sync + 'a;

/// Threads beside the one that a run began on.
struct Others<'a> {
    /// Of the worker's own pool.
    own: usize,
    /// Of the pool of helpers, on idle cores.
    helpers: usize,
    _borrowed: Option<Borrowed<'a>>,
}

impl Others<'_> {
    fn of([own, helpers]: [usize; 2]) -> Self {
        Self { own, helpers, _borrowed: None }
    }

    fn count(&self) -> usize {
        self.own + self.helpers
    }

    /// These, or `count` of them.
    fn at_most(self, count: usize) -> Self {
        let own = self.own.min(count);
        Self { own, helpers: self.helpers.min(count - own), ..self }
    }
}

/// A thread that leaves work when this is dropped, even by a panic.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A thread that programs run on: see [`ExecutorThreads::host`].
pub struct ExecutorHost(Arc<ThreadPool>);

impl ExecutorHost {
    /// Runs `work` on the thread, with a large stack, and waits for it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.run(|| stacker::grow(KERNEL_STACK_BYTES, work))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// As much as kernels take that are compiled without optimisation, and more.
    #[test]
    fn a_host_has_a_large_stack() {
        #[inline(never)]
        fn sum(depth: usize) -> usize {
            let numbers = std::hint::black_box([depth; 1 << 10]);
            numbers[0] + if depth > 0 { sum(depth - 1) } else { 0 }
        }
        // 4 MiB and more in all.
        assert_eq!(ExecutorThreads::new().host().run(|| sum(512)), 512 * 513 / 2);
    }

    #[test]
    fn idle_cores_are_borrowed_and_given_back() {
        let cores = Arc::new(SharedCores::new(2, 1));
        let [one, two] = [0, 1].map(|_| ExecutorThreads::of_worker(1, cores.clone()));
        let parts = |threads: &ExecutorThreads, worth: usize| {
            let (divided, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let divide = |count| {
                divided.store(count, Ordering::Relaxed);
                (1..=count).collect::<Vec<usize>>()
            };
            let run = |part| {
                sum.fetch_add(part, Ordering::Relaxed);
                Ok(())
            };
            threads.pool().run(|| threads.share(worth, divide, run)).unwrap();
            let count = divided.into_inner();
            assert_eq!(sum.into_inner(), count * (count + 1) / 2);
            count
        };
        let in_use = one.in_use();
        assert_eq!(parts(&one, 9 * WORTH_A_WAKE), 4, "the other worker is idle");
        assert_eq!(parts(&one, WORTH_A_WAKE), 1, "too little work");
        let other = two.in_use();
        assert_eq!(parts(&one, 9 * WORTH_A_WAKE), 1, "both have work");
        drop(other);
        assert_eq!(parts(&one, 9 * WORTH_A_WAKE), 4);
        drop(in_use);
        assert_eq!(cores.idle.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn all_cores_are_borrowed_once_the_others_are_idle() {
        let cores = Arc::new(SharedCores::new(3, 1));
        let [one, two] = [0, 1].map(|_| ExecutorThreads::of_worker(1, cores.clone()));
        let _in_use = one.in_use();
        let other = two.in_use();
        assert!(one.borrow_all(Duration::from_micros(10)).is_none());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(1));
                drop(other);
            });
            assert!(one.borrow_all(Duration::from_secs(60)).is_some());
        });
        assert!(one.borrow_all(Duration::ZERO).is_some(), "they were given back");
    }

    #[test]
    fn threads_stay_awake_between_runs_until_another_worker_has_work() {
        let cores = Arc::new(SharedCores::new(2, 1));
        let [mut one, two] = [0, 1].map(|_| ExecutorThreads::of_worker(1, cores.clone()));
        let mut attendants = Attendants::new(1, cores.clone(), Arc::new(|| ()));
        attendants.stays_for = Duration::from_secs(600);
        one.attendants = Arc::new(attendants);
        let wait_for_awake = |helpers: usize| {
            while one.attendants.awake() != [0, helpers] {
                std::thread::yield_now();
            }
        };
        let run = || {
            let _in_use = one.in_use();
            one.pool().run(|| one.attended(2, || wait_for_awake(1)));
        };
        run();
        run();
        assert_eq!(one.attendants.awake(), [0, 1], "between runs");
        let in_use = two.in_use();
        while one.attendants.called() != [0, 0] {
            std::thread::yield_now();
        }
        drop(in_use);
        while cores.idle.load(Ordering::Relaxed) != 2 {
            std::thread::yield_now();
        }
        run();
        let _in_use = one.in_use();
        assert!(one.borrow_all(Duration::from_secs(60)).is_some(), "it was told to leave");
        assert_eq!(one.attendants.awake(), [0, 0]);
    }

    #[test]
    fn an_error_of_a_part_is_told() {
        let threads = ExecutorThreads::with_threads(2);
        let run = |part: usize| match part {
            2 => Err(ExecutorError::Run("part 2".to_owned())),
            _ => Ok(()),
        };
        let shared = threads
            .pool()
            .run(|| threads.share(4 * WORTH_A_WAKE, |count| (0..count).collect(), run));
        assert!(matches!(shared, Err(ExecutorError::Run(reason)) if reason == "part 2"));
    }

    /// Work that is divided again and again, attended by the other threads of a worker and by the cores of an idle one.
    #[test]
    fn threads_attend_until_the_work_ends() {
        let cores = Arc::new(SharedCores::new(2, 2));
        let [one, two] = [0, 1].map(|_| ExecutorThreads::of_worker(2, cores.clone()));
        let sum = AtomicUsize::new(0);
        let run = |part| {
            sum.fetch_add(part, Ordering::Relaxed);
            Ok(())
        };
        let parts = || one.share(8, |count| (1..=count).collect(), run).unwrap();
        let wait_for_idle = |idle: isize| {
            while cores.idle.load(Ordering::Relaxed) != idle {
                std::thread::yield_now();
            }
        };
        let in_use = one.in_use();
        let work = || {
            one.attended(8, || {
                (0..100).for_each(|_| parts());
                let mut expected = None;
                // A thread that attends may take the call of another one, which then sleeps on until work is divided again.
                while one.attendants.awake() != [1, 2] {
                    parts();
                    std::thread::yield_now();
                }
                for _ in 0..100 {
                    let before = sum.load(Ordering::Relaxed);
                    parts();
                    let of_parts = sum.load(Ordering::Relaxed) - before;
                    assert_eq!(
                        *expected.get_or_insert(of_parts),
                        of_parts,
                        "as many parts each time"
                    );
                }
                assert_eq!(expected, Some(36), "two parts for each of four threads");
                // The other worker has work: helpers leave, and give its cores back.
                let in_use = two.in_use();
                wait_for_idle(0);
                drop(in_use);
                parts();
                "the result"
            })
        };
        assert_eq!(one.pool().run(work), "the result");
        assert_eq!((one.take_worth(), one.take_worth()), (8, 1));
        wait_for_idle(2);
        let panics = || one.pool().run(|| one.attended(8, || panic!("in attended work")));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        wait_for_idle(2);
        drop(in_use);
        wait_for_idle(4);
    }
}
