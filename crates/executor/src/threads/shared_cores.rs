//! The cores that workers lend each other while they have no work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::lone_worker::LoneWorker;
use super::stack::KERNEL_STACK_BYTES;

/// The cores of all workers of a device. A worker that has none of its own to spare borrows those of workers that are idle.
pub struct SharedCores {
    /// Cores that nobody uses; negative where helpers run on cores that their workers have come back to.
    pub(super) idle: AtomicIsize,
    /// As many as there are cores beside those of one worker; none if there is but one worker.
    pub(super) helpers: Option<rayon::ThreadPool>,
    /// Which workers have work, and the guests of the only one that has.
    pub(super) lone: LoneWorker,
    /// Helpers that were called and have not woken up yet.
    pub(super) waking: Arc<AtomicUsize>,
    start: Instant,
    /// When a worker last gave its own cores back, in nanoseconds since `start`.
    given_back_ns: AtomicU64,
}

impl SharedCores {
    /// The cores of `workers` workers, `threads` each.
    pub fn new(workers: usize, threads: usize) -> Self {
        Self::with_helpers(workers, threads, || ())
    }

    /// The cores of `workers` workers, `threads` each. Every helper calls `on_start` once, before it helps.
    pub fn with_helpers(
        workers: usize,
        threads: usize,
        on_start: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let beside = workers.saturating_sub(1) * threads;
        let pool = || {
            let builder =
                rayon::ThreadPoolBuilder::new().num_threads(beside).stack_size(KERNEL_STACK_BYTES);
            let builder = builder.start_handler(move |_| on_start());
            // Without threads, nobody helps.
            builder.thread_name(|index| format!("helper-{index}")).build().ok()
        };
        let idle = AtomicIsize::new((workers * threads) as isize);
        let lone = LoneWorker::new(workers * threads, beside);
        let helpers = (beside > 0).then(pool).flatten();
        let (waking, given_back_ns) = Default::default();
        Self { idle, helpers, lone, waking, start: Instant::now(), given_back_ns }
    }

    /// The number of cores beside those of one worker.
    pub fn others(&self) -> usize {
        self.helpers.as_ref().map_or(0, rayon::ThreadPool::current_num_threads)
    }

    /// Takes a worker's own cores, `count` of them, until the result is dropped.
    pub(super) fn take(&self, count: usize) -> InUse<'_> {
        self.idle.fetch_sub(count as isize, Ordering::Relaxed);
        self.lone.begin(count);
        InUse { cores: self, count }
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

impl SharedCores {
    /// Takes an idle core, if there is one.
    pub(super) fn borrow_one(cores: &Arc<Self>) -> Option<Core> {
        let count = std::mem::take(&mut cores.borrow(1).count);
        (count > 0).then(|| Core(cores.clone()))
    }

    /// The time since a worker last gave its own cores back; zero while more than one worker uses its cores.
    pub(super) fn idle_for(&self) -> Duration {
        let given_back = Duration::from_nanos(self.given_back_ns.load(Ordering::Relaxed));
        match self.are_others_idle() {
            true => self.start.elapsed().saturating_sub(given_back),
            false => Duration::ZERO,
        }
    }

    /// Whether helpers run on cores that their workers have come back to.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.idle.load(Ordering::Relaxed) < 0
    }
}

/// Cores for guests: threads of the only worker that has work, which run on the cores of the others.
impl SharedCores {
    /// The number of times that workers took their cores, all of them together.
    pub fn takes(&self) -> usize {
        self.lone.takes()
    }

    /// Whether no more than one worker has work.
    pub fn are_others_idle(&self) -> bool {
        self.lone.are_others_idle()
    }

    /// Takes up to `count` idle cores for guests, which leave once [`Self::are_others_idle`] is false.
    pub fn lend(self: &Arc<Self>, count: usize) -> Lent {
        let count = std::mem::take(&mut self.borrow(count).count) as usize;
        self.lone.come(count);
        Lent { cores: self.clone(), count }
    }

    /// Gives back the core of a guest that leaves before the others: see [`Lent::forget`].
    pub fn guest_leaves(&self) {
        self.give_back(1);
    }

    fn give_back(&self, count: usize) {
        self.lone.leave(count);
        self.idle.fetch_add(count as isize, Ordering::Relaxed);
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
    count: usize,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let now_ns = self.cores.start.elapsed().as_nanos() as u64;
        self.cores.given_back_ns.store(now_ns, Ordering::Relaxed);
        self.cores.lone.end(self.count);
        self.cores.idle.fetch_add(self.count as isize, Ordering::Relaxed);
    }
}

/// Cores of other workers, which are borrowed until this is dropped.
pub(crate) struct Borrowed<'a> {
    pub(super) idle: &'a AtomicIsize,
    pub(super) count: isize,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.idle.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// A core of another worker, which is borrowed until this is dropped.
pub(super) struct Core(Arc<SharedCores>);

impl Core {
    /// All cores.
    pub(super) fn cores(&self) -> &SharedCores {
        &self.0
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.0.idle.fetch_add(1, Ordering::Relaxed);
    }
}

/// Cores of other workers for guests, which are given back when this is dropped.
pub struct Lent {
    cores: Arc<SharedCores>,
    count: usize,
}

impl Lent {
    /// The number of cores.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Notes that `count` guests have left, and given their cores back.
    ///
    /// # Panics
    /// If there were fewer.
    pub fn forget(&mut self, count: usize) {
        assert!(count <= self.count, "{count} of {} guests", self.count);
        self.count -= count;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.cores.give_back(self.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_lent_to_the_only_worker_with_work() {
        let cores = Arc::new(SharedCores::new(3, 2));
        let own = cores.take(2);
        assert!(cores.are_others_idle() && cores.takes() == 1);
        let mut lent = cores.lend(9);
        assert_eq!((lent.count(), cores.lend(1).count()), (4, 0));
        cores.guest_leaves();
        lent.forget(1);
        drop(lent);
        assert_eq!(cores.lend(9).count(), 4, "all were given back");
        let lent = cores.lend(1);
        let start = Instant::now();
        let other = cores.take(2);
        assert!(
            start.elapsed() >= Duration::from_micros(50),
            "a worker waits for a guest that does not leave"
        );
        assert!(!cores.are_others_idle() && cores.takes() == 2);
        drop((lent, other));
        assert!(cores.are_others_idle());
        drop(own);
        assert_eq!(cores.lend(9).count(), 6);
    }
}
