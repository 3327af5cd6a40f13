//! The threads that programs run on, and the cores that workers lend each other while they have no work.

mod attending;
mod attends;
mod lone_worker;
mod shared_cores;
mod stack;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rten::ThreadPool;

use crate::error::ExecutorError;
use crate::threads::attends::is_attending;
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
    /// Borrowed cores that look for parts of a run: see [`Self::attended`].
    attending: AtomicUsize,
    /// How often work was divided, and the most threads that any was worth: see [`Self::take_divided`].
    divided: AtomicUsize,
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
        let (attending, divided, worth) = Default::default();
        let pool = Arc::new(ThreadPool::with_num_threads(count));
        Self { pool, count, cores, attending, divided, worth }
    }

    /// Uses the worker's own cores, until the result is dropped: nobody is to borrow them.
    pub fn in_use(&self) -> InUse<'_> {
        self.cores.take(self.count)
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

    /// How often work was divided since the last call, and the most threads that any of it was worth.
    pub(crate) fn take_divided(&self) -> (usize, usize) {
        (self.divided.swap(0, Ordering::Relaxed), self.worth.swap(0, Ordering::Relaxed))
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
        let attending = self.attending.load(Ordering::Relaxed);
        let is_attended = attending > 0 || (self.count > 1 && is_attending());
        let worth = if is_attended { worth } else { (worth / WORTH_A_WAKE).max(1) };
        let own = self.count.min(worth);
        let helpers = self.cores.helpers.as_ref().filter(|_| worth > own);
        let (_borrowed, helping) = match helpers {
            None => (None, 0),
            Some(_) if attending > 0 => (None, attending.min(worth - own)),
            Some(_) => {
                let borrowed = self.cores.borrow(worth - own);
                let count = borrowed.count as usize;
                (Some(borrowed), count)
            }
        };
        let threads = own + helping;
        if threads > 1 {
            self.divided.fetch_add(1, Ordering::Relaxed);
            self.worth.fetch_max(worth, Ordering::Relaxed);
        }
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
        match helpers {
            Some(pool) if helping > 0 => pool.in_place_scope(|scope| {
                for _ in 0..helping {
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
}
