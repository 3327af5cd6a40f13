//! Work that would keep a thread of the runtime from its connections for long: decompressing, decoding, unfolding
//! and encoding what is large. It runs on a few threads of its own, in two lanes, so that what takes a millisecond does
//! not wait for what takes a second.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// What has fewer bytes is done at once: it takes less time than to hand it to another thread.
const LIGHT_BYTES: usize = 64 << 10;

/// The most bytes of work for the first lane.
pub(crate) const MEDIUM_BYTES: usize = 2 << 20;

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

    /// Runs `work`, which looks at so many `bytes`. Whoever waits for a thread waits in order. Work that has begun
    /// ends even if nobody waits for it any more.
    ///
    /// # Panics
    /// If `work` panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes <= LIGHT_BYTES {
            return work();
        }
        let lane = if bytes <= MEDIUM_BYTES { &self.medium } else { &self.large };
        let thread = lane.clone().acquire_owned().await.expect("it is never closed");
        let run = move || {
            let _thread = thread;
            give_way();
            work()
        };
        match tokio::task::spawn_blocking(run).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

/// Has the system prefer all other threads to this one: those of connections and of workers serve everybody.
#[cfg(target_os = "linux")]
fn give_way() {
    /// The priority of a process that is in no hurry, as `nice` gives it.
    const NICE: i32 = 10;
    // On Linux, a priority is a thread's. Where it cannot be changed, the work is done all the same.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

#[cfg(not(target_os = "linux"))]
fn give_way() {}
