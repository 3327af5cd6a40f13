//! The thread that programs run on.

use std::sync::Arc;

use rten::ThreadPool;

/// A thread of its own that programs run on, one at a time; the caller waits. Each worker of a device has
/// one.
pub struct ExecutorThread(Arc<ThreadPool>);

impl ExecutorThread {
    /// Starts the thread.
    #[expect(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Self {
        Self(Arc::new(ThreadPool::with_num_threads(1)))
    }

    pub(crate) fn pool(&self) -> Arc<ThreadPool> {
        self.0.clone()
    }
}
