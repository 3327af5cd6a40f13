//! Whether a worker is the only one that has work, and the guests that it has on the cores of the others.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest that a worker waits for guests to leave: what they do at a time takes less, mostly.
const PATIENCE: Duration = Duration::from_micros(50);

/// Which workers have work, and how many guests run on cores of others.
#[derive(Debug)]
pub(super) struct LoneWorker {
    /// Cores whose workers have no work, whoever runs on them.
    unused: AtomicIsize,
    /// The number of cores beside those of one worker.
    others: isize,
    /// The number of times that workers took their cores.
    takes: AtomicUsize,
    guests: AtomicIsize,
}

impl LoneWorker {
    pub(super) fn new(cores: usize, others: usize) -> Self {
        Self {
            unused: AtomicIsize::new(cores as isize),
            others: others as isize,
            takes: AtomicUsize::new(0),
            guests: AtomicIsize::new(0),
        }
    }

    /// A worker takes its own `count` cores. It waits a moment for guests to leave: they may run on these very cores.
    pub(super) fn begin(&self, count: usize) {
        self.takes.fetch_add(1, Ordering::Relaxed);
        self.unused.fetch_sub(count as isize, Ordering::Relaxed);
        if self.guests.load(Ordering::Relaxed) > 0 {
            let start = Instant::now();
            while self.guests.load(Ordering::Relaxed) > 0 && start.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
        }
    }

    /// The worker gives its `count` cores back.
    pub(super) fn end(&self, count: usize) {
        self.unused.fetch_add(count as isize, Ordering::Relaxed);
    }

    /// The number of times that workers took their cores, all of them together.
    pub(super) fn takes(&self) -> usize {
        self.takes.load(Ordering::Relaxed)
    }

    /// Whether no more than one worker has work.
    pub(super) fn are_others_idle(&self) -> bool {
        self.unused.load(Ordering::Relaxed) >= self.others
    }

    /// `count` guests come.
    pub(super) fn come(&self, count: usize) {
        self.guests.fetch_add(count as isize, Ordering::Relaxed);
    }

    /// `count` guests leave.
    pub(super) fn leave(&self, count: usize) {
        self.guests.fetch_sub(count as isize, Ordering::Relaxed);
    }
}
