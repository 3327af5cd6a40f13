//! The threads that programs run on, and the cores that workers lend each other while they have no work.

use std::fmt;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rten::ThreadPool;

use crate::error::ExecutorError;

/// Parts that work is divided into for each thread that shares it: a thread that comes late takes fewer.
const PARTS_A_THREAD: usize = 2;

/// The cores of all workers of a device. A worker that has none of its own to spare borrows those of workers that are idle.
pub struct SharedCores {
    /// Cores that nobody uses; negative where helpers run on cores that their workers have come back to.
    idle: AtomicIsize,
    /// As many as there are cores beside those of one worker; none if there is but one worker.
    helpers: Option<rayon::ThreadPool>,
}

impl SharedCores {
    /// The cores of `workers` workers, `threads` each.
    pub fn new(workers: usize, threads: usize) -> Self {
        let beside = workers.saturating_sub(1) * threads;
        let pool = || {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(beside);
            // Without threads, nobody helps.
            builder.thread_name(|index| format!("helper-{index}")).build().ok()
        };
        let idle = AtomicIsize::new((workers * threads) as isize);
        Self { idle, helpers: (beside > 0).then(pool).flatten() }
    }

    /// Takes up to `count` idle cores.
    fn borrow(&self, count: usize) -> Borrowed<'_> {
        let take = |idle: isize| {
            let taken = idle.clamp(0, count as isize);
            (taken > 0).then_some(idle - taken)
        };
        let before = self.idle.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let count = before.map_or(0, |idle| idle.clamp(0, count as isize));
        Borrowed { idle: &self.idle, count }
    }
}

impl fmt::Debug for SharedCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCores").field("idle", &self.idle).finish_non_exhaustive()
    }
}

/// Cores in use, until this is dropped.
pub struct Borrowed<'a> {
    idle: &'a AtomicIsize,
    count: isize,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.idle.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// Threads of their own that programs run on, one program at a time; the caller waits. Each worker of a device has
/// some.
pub struct ExecutorThreads {
    pool: Arc<ThreadPool>,
    count: usize,
    cores: Arc<SharedCores>,
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
        Self { pool: Arc::new(ThreadPool::with_num_threads(count)), count, cores }
    }

    /// Uses the worker's own cores, until the result is dropped: nobody is to borrow them.
    pub fn in_use(&self) -> Borrowed<'_> {
        let count = self.count as isize;
        self.cores.idle.fetch_sub(count, Ordering::Relaxed);
        Borrowed { idle: &self.cores.idle, count }
    }

    /// Takes the cores of all other workers, if there are some and all are idle, or will be within `patience`.
    pub(crate) fn borrow_all(&self, patience: Duration) -> Option<Borrowed<'_>> {
        let others = self.cores.helpers.as_ref()?.current_num_threads();
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

    /// Divides work, which is worth `worth` threads at most, by calling `divide` with the number of parts, and runs the parts on these
    /// threads and on idle cores. It is called on one of the pool's threads.
    ///
    /// # Errors
    /// The first error of `run`.
    pub(crate) fn share<T: Send>(
        &self,
        worth: usize,
        divide: impl FnOnce(usize) -> Vec<T>,
        run: impl Fn(T) -> Result<(), ExecutorError> + Sync,
    ) -> Result<(), ExecutorError> {
        let own = self.count.min(worth);
        let helpers = self.cores.helpers.as_ref().filter(|_| worth > own);
        let borrowed = helpers.map(|pool| (pool, self.cores.borrow(worth - own)));
        let threads = own + borrowed.as_ref().map_or(0, |(_, borrowed)| borrowed.count as usize);
        let count = if threads > 1 { worth.min(PARTS_A_THREAD * threads) } else { 1 };
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
        let on_own = || {
            rayon::scope(|scope| {
                for _ in 1..own {
                    scope.spawn(|_| work(&|| true));
                }
                work(&|| true);
            });
        };
        match &borrowed {
            Some((pool, borrowed)) if borrowed.count > 0 => pool.in_place_scope(|scope| {
                for _ in 0..borrowed.count {
                    // Where its worker has work again, a helper leaves the rest to others.
                    scope.spawn(|_| work(&|| self.cores.idle.load(Ordering::Relaxed) >= 0));
                }
                on_own();
            }),
            _ => on_own(),
        }
        error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// A thread that programs run on: see [`ExecutorThreads::host`].
pub struct ExecutorHost(Arc<ThreadPool>);

impl ExecutorHost {
    /// Runs `work` on the thread, and waits for it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.run(work)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

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
        assert_eq!(parts(&one, 9), 4, "the other worker is idle");
        assert_eq!(parts(&one, 1), 1, "too little work");
        let other = two.in_use();
        assert_eq!(parts(&one, 9), 1, "both have work");
        drop(other);
        assert_eq!(parts(&one, 9), 4);
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
    fn an_error_of_a_part_is_told() {
        let threads = ExecutorThreads::with_threads(2);
        let run = |part: usize| match part {
            2 => Err(ExecutorError::Run("part 2".to_owned())),
            _ => Ok(()),
        };
        let shared = threads.pool().run(|| threads.share(4, |count| (0..count).collect(), run));
        assert!(matches!(shared, Err(ExecutorError::Run(reason)) if reason == "part 2"));
    }
}
