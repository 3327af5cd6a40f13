//! A thread that waits for a GPU: it rings the worker's bell when work is done, and notices when the GPU is lost.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batchmaker_device::{Bell, DeviceError};

use crate::gpu::{Event, GpuError, Pinned};
use crate::worker::Worker;

/// The time between two looks whether a launch has run a task, once it was polled for a while.
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// The event that follows work in the stream.
pub(super) enum Behind {
    Work(Event),
    /// That of a launch that takes tasks: it has run a task long before it ends, or ends without it.
    Launch(Arc<Event>),
}

/// What the thread watches, and whom it tells.
pub(super) struct Watched {
    pub(super) worker: Arc<Worker>,
    /// The memory that begins with the number of the last work that is done.
    pub(super) counter: Arc<Pinned>,
    /// The time that it polls the counter before it sleeps until the driver wakes it.
    pub(super) poll_for: Duration,
    pub(super) bell: Arc<Bell>,
}

/// Rings a worker's bell when its GPU has done work.
pub(super) struct Watcher {
    work: Option<Sender<(u64, Behind)>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(super) fn start(watched: Watched) -> Result<Self, DeviceError> {
        let (sender, work) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("gpu-watcher-{}", watched.worker.number))
            .spawn(move || watched.watch(&work))
            .map_err(|error| DeviceError::Resources(format!("no thread: {error}")))?;
        Ok(Self { work: Some(sender), thread: Some(thread) })
    }

    /// Has the bell rung once the work of that number is done, or is left by its launch.
    pub(super) fn watch(&self, number: u64, behind: Behind) {
        if let Some(work) = &self.work {
            // A watcher that is gone has reported a loss.
            let _ = work.send((number, behind));
        }
    }
}

impl Watched {
    fn watch(&self, work: &Receiver<(u64, Behind)>) {
        while let Ok((number, behind)) = work.recv() {
            let reached = match behind {
                Behind::Work(event) if !self.poll(number) => event.wait(),
                Behind::Work(_) => Ok(()),
                Behind::Launch(event) => self.poll_launch(number, &event),
            };
            if let Err(error) = reached {
                self.worker.lose(&error.to_string());
            }
            self.bell.ring();
            if reached.is_err() {
                return;
            }
        }
    }

    /// Polls until a launch has run the task of that number, or has ended.
    fn poll_launch(&self, number: u64, event: &Event) -> Result<(), GpuError> {
        let start = Instant::now();
        while self.counter.load() < number && !event.is_reached()? {
            if start.elapsed() < self.poll_for {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
        Ok(())
    }

    /// Polls the counter for a while. Whether the work of that number is done.
    fn poll(&self, number: u64) -> bool {
        let start = Instant::now();
        loop {
            if self.counter.load() >= number {
                return true;
            }
            if start.elapsed() >= self.poll_for {
                return false;
            }
            std::hint::spin_loop();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.work.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
