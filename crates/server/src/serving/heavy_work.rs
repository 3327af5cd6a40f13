//! Work that would keep a thread of the runtime from its connections for long: decompressing, decoding, unfolding
//! and encoding what is large. It runs on a few of the runtime's threads for work that blocks, in two lanes, so that what takes a millisecond does
//! not wait for what takes a second.

use std::future::ready;
use std::sync::Arc;

use batchmaker::{Slices, ask_for_slices};
use futures_util::future::Either;
use tokio::sync::Semaphore;

/// The work of reading or writing JSON of one byte is 1. Work of at most as much as this is done at once: it takes less
/// time than to hand it to another thread.
const LIGHT: usize = 64 << 10;

/// The most work for the first lane.
pub(crate) const MEDIUM: usize = 2 << 20;

/// The bytes that are copied or cleared in the time in which one byte of JSON is read or written.
pub(crate) const COPIED_PER_JSON_BYTE: usize = 8;

/// The work of (de)compressing `bytes`, which is never light.
pub(crate) fn of_compression(bytes: usize) -> usize {
    bytes.max(LIGHT + 1)
}

/// The threads for heavy work.
#[derive(Clone, Debug)]
pub(crate) struct HeavyWork {
    medium: Arc<Semaphore>,
    large: Arc<Semaphore>,
}

impl HeavyWork {
    /// As many threads at a time in each lane; they are those of the runtime for work that blocks.
    pub(crate) fn new(threads: usize) -> Self {
        let lane = || Arc::new(Semaphore::new(threads.max(1)));
        Self { medium: lane(), large: lane() }
    }

    /// The most work that is done where `work` is done.
    pub(crate) fn most_beside(work: usize) -> usize {
        [LIGHT, MEDIUM].into_iter().find(|&most| work <= most).unwrap_or(usize::MAX)
    }

    /// Calls `function`, whose cost is `work` (see [`LIGHT`]). Light work is done before this returns; other work
    /// waits for a thread, in order. Work that has begun ends even if nobody waits for it any more.
    ///
    /// # Panics
    /// If `function` panics.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: usize,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + Send {
        match work <= LIGHT {
            true => Either::Left(ready(function())),
            // Boxed, so that the futures of light requests are small.
            false => Either::Right(Box::pin(self.run_on_thread(work, function))),
        }
    }

    async fn run_on_thread<T: Send + 'static>(
        &self,
        work: usize,
        function: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let lane = if work <= MEDIUM { &self.medium } else { &self.large };
        let thread = lane.clone().acquire_owned().await.expect("it is never closed");
        let run = move || {
            let _thread = thread;
            give_way();
            function()
        };
        match tokio::task::spawn_blocking(run).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Has the system prefer all other threads to this one: those of connections and of workers serve everybody.
fn give_way() {
    ask_for_slices(Slices::Usual);
    lower_priority();
}

#[cfg(target_os = "linux")]
fn lower_priority() {
    /// The priority of a process that is in no hurry, as `nice` gives it.
    const NICE: i32 = 10;
    // On Linux, a priority is a thread's. Where it cannot be changed, the work is done all the same.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}
