//! The cores that workers lend each other while they have no work.

use std::fmt;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use super::stack::KERNEL_STACK_BYTES;

/// The longest that a worker waits for guests to leave its cores: what they do at a time takes less.
const PATIENCE: Duration = Duration::from_micros(50);

/// The cores of all workers of a device. A worker that has none of its own to spare borrows those of workers that are idle.
pub struct SharedCores {
    /// Cores that nobody uses; negative where helpers run on cores that their workers have come back to.
    pub(super) idle: AtomicIsize,
    /// Cores whose workers have no work, whoever has borrowed them.
    unused: AtomicIsize,
    /// As many as there are cores beside those of one worker; none if there is but one worker.
    pub(super) helpers: Option<rayon::ThreadPool>,
}

impl SharedCores {
    /// The cores of `workers` workers, `threads` each.
    pub fn new(workers: usize, threads: usize) -> Self {
        let beside = workers.saturating_sub(1) * threads;
        let pool = || {
            let builder =
                rayon::ThreadPoolBuilder::new().num_threads(beside).stack_size(KERNEL_STACK_BYTES);
            // Without threads, nobody helps.
            builder.thread_name(|index| format!("helper-{index}")).build().ok()
        };
        let all = || AtomicIsize::new((workers * threads) as isize);
        Self { idle: all(), unused: all(), helpers: (beside > 0).then(pool).flatten() }
    }

    /// The number of cores beside those of one worker.
    pub fn others(&self) -> usize {
        self.helpers.as_ref().map_or(0, rayon::ThreadPool::current_num_threads)
    }

    /// Whether no worker waits for a core that it lent.
    pub fn lends(&self) -> bool {
        self.idle.load(Ordering::Relaxed) >= 0
    }

    /// Gives back a core that was borrowed: see [`Borrowed::forget`].
    pub fn give_one_back(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there is a worker that has no work.
    pub fn has_unused(&self) -> bool {
        self.unused.load(Ordering::Relaxed) > 0
    }

    /// Takes a worker's own cores, `count` of them, and waits a moment for those who have borrowed some to leave.
    pub(super) fn take(&self, count: usize) -> InUse<'_> {
        let count = count as isize;
        self.unused.fetch_sub(count, Ordering::Relaxed);
        if self.idle.fetch_sub(count, Ordering::Relaxed) < count {
            let start = Instant::now();
            while !self.lends() && start.elapsed() < PATIENCE {
                // They may run on this very core.
                std::thread::yield_now();
            }
        }
        InUse { cores: self, count }
    }

    /// Takes up to `count` idle cores.
    pub fn borrow(&self, count: usize) -> Borrowed<'_> {
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

/// A worker's own cores, which it uses until this is dropped.
pub struct InUse<'a> {
    cores: &'a SharedCores,
    count: isize,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        self.cores.unused.fetch_add(self.count, Ordering::Relaxed);
        self.cores.idle.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// Cores of other workers, which are borrowed until this is dropped.
pub struct Borrowed<'a> {
    pub(super) idle: &'a AtomicIsize,
    pub(super) count: isize,
}

impl Borrowed<'_> {
    /// The number of cores.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Notes that `count` of them were given back by those who ran on them.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn forget(&mut self, count: usize) {
        assert!(count <= self.count(), "{count} of {} cores", self.count);
        self.count -= count as isize;
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.idle.fetch_add(self.count, Ordering::Relaxed);
    }
}
