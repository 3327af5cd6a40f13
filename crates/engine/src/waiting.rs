//! Which workers wait for something to do, and how they are woken.
//!
//! A worker that finds nothing to do marks itself as waiting ([`Waiting::begin`]), looks for work once
//! more, and blocks on its bell. A thread that has work for it first makes the work visible (in the inbox, or
//! in a turn under the manager's lock), then looks for waiting workers. One of the two sees the other, so
//! that no work is left beside a worker that waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use batchmaker_device::Bell;
use batchmaker_graph::WorkerId;

/// The workers that wait, and their bells.
#[derive(Debug)]
pub(crate) struct Waiting {
    bells: Vec<Arc<Bell>>,
    /// A bit for each worker that waits, or is about to.
    waiting: AtomicU64,
    /// Among these, a bit for each worker without a task in flight.
    idle: AtomicU64,
    /// Turns that workers took under the manager's lock.
    turns: AtomicU64,
}

impl Waiting {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            bells: (0..workers).map(|_| Arc::default()).collect(),
            waiting: AtomicU64::new(0),
            idle: AtomicU64::new(0),
            turns: AtomicU64::new(0),
        }
    }

    pub(crate) fn workers(&self) -> usize {
        self.bells.len()
    }

    /// The bell that a worker blocks on.
    pub(crate) fn bell(&self, worker: WorkerId) -> &Arc<Bell> {
        &self.bells[worker.index()]
    }

    /// Counts a turn, which has made its work visible to later holders of the manager's lock. A worker that
    /// is not among [`those_waiting`](Self::those_waiting) afterwards sees the count.
    pub(crate) fn note_turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::SeqCst)
    }

    /// Marks a worker as waiting; `is_idle` if it has no task in flight.
    pub(crate) fn begin(&self, worker: WorkerId, is_idle: bool) {
        if is_idle {
            self.idle.fetch_or(bit(worker), Ordering::SeqCst);
        }
        self.waiting.fetch_or(bit(worker), Ordering::SeqCst);
    }

    /// Marks a worker as no longer waiting. Returns whether another thread woke it.
    pub(crate) fn end(&self, worker: WorkerId) -> bool {
        self.idle.fetch_and(!bit(worker), Ordering::SeqCst);
        self.waiting.fetch_and(!bit(worker), Ordering::SeqCst) & bit(worker) == 0
    }

    pub(crate) fn those_waiting(&self) -> impl Iterator<Item = WorkerId> + use<> {
        let waiting = self.waiting.load(Ordering::SeqCst);
        (0..u64::BITS).filter(move |worker| waiting & (1 << worker) != 0).map(WorkerId)
    }

    /// Wakes a worker, if it waits. Returns whether it did.
    pub(crate) fn wake(&self, worker: WorkerId) -> bool {
        let did_wait = self.waiting.fetch_and(!bit(worker), Ordering::SeqCst) & bit(worker) != 0;
        if did_wait {
            self.bell(worker).ring();
        }
        did_wait
    }

    /// Wakes one worker, if any waits: one without tasks in flight rather than one with.
    pub(crate) fn wake_one(&self) {
        let idle = self.idle.load(Ordering::SeqCst);
        let is_idle = |worker: &WorkerId| idle & bit(*worker) != 0;
        let idle_first = self.those_waiting().filter(is_idle).chain(self.those_waiting());
        for worker in idle_first {
            if self.wake(worker) {
                return;
            }
        }
    }

    /// Rings for all workers, whether they wait or not.
    pub(crate) fn ring_all(&self) {
        self.bells.iter().for_each(|bell| bell.ring());
    }
}

fn bit(worker: WorkerId) -> u64 {
    1 << worker.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_tasks_is_woken_first() {
        let waiting = Waiting::new(3);
        waiting.begin(WorkerId(0), false);
        waiting.begin(WorkerId(2), true);
        waiting.wake_one();
        assert_eq!(waiting.those_waiting().collect::<Vec<_>>(), [WorkerId(0)]);
        waiting.wake_one();
        assert_eq!(waiting.those_waiting().count(), 0);
        waiting.wake_one();
        let rung: Vec<u64> = waiting.bells.iter().map(|bell| bell.rung()).collect();
        assert_eq!(rung, [1, 0, 1]);
    }

    #[test]
    fn a_worker_learns_whether_it_was_woken() {
        let waiting = Waiting::new(1);
        waiting.begin(WorkerId(0), true);
        assert!(!waiting.end(WorkerId(0)));
        waiting.begin(WorkerId(0), true);
        assert!(waiting.wake(WorkerId(0)) && !waiting.wake(WorkerId(0)));
        assert!(waiting.end(WorkerId(0)));
    }
}
