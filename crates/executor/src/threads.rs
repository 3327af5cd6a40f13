//! The threads that programs run on.

use std::sync::Arc;

use rten::ThreadPool;

/// Threads of their own that programs run on, one program at a time; the caller waits. Each worker of a device has
/// some.
pub struct ExecutorThreads(Arc<ThreadPool>);

impl ExecutorThreads {
    /// Starts one thread.
    #[expect(clippy::new_without_default, reason = "it starts a thread")]
    pub fn new() -> Self {
        Self::with_threads(1)
    }

    /// Starts `count` threads, which convolutions and other large operators share.
    pub fn with_threads(count: usize) -> Self {
        Self(Arc::new(ThreadPool::with_num_threads(count.max(1))))
    }

    pub(crate) fn pool(&self) -> Arc<ThreadPool> {
        self.0.clone()
    }
}
