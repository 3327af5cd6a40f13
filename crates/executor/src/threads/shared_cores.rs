//! The cores that workers lend each other while they have no work.

use std::fmt;
use std::sync::atomic::{AtomicIsize, Ordering};

use super::stack::KERNEL_STACK_BYTES;

/// The cores of all workers of a device. A worker that has none of its own to spare borrows those of workers that are idle.
pub struct SharedCores {
    /// Cores that nobody uses; negative where helpers run on cores that their workers have come back to.
    pub(super) idle: AtomicIsize,
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
        let idle = AtomicIsize::new((workers * threads) as isize);
        Self { idle, helpers: (beside > 0).then(pool).flatten() }
    }

    /// Takes up to `count` idle cores.
    pub(super) fn borrow(&self, count: usize) -> Borrowed<'_> {
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
    pub(super) idle: &'a AtomicIsize,
    pub(super) count: isize,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.idle.fetch_add(self.count, Ordering::Relaxed);
    }
}
