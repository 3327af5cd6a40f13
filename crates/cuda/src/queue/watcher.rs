//! A thread that waits for a GPU while its worker sleeps, and notices when the GPU is lost.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use batchmaker_device::{Bell, DeviceError};

use crate::gpu::Event;
use crate::worker::Worker;

/// Rings a worker's bell when its GPU has reached an event.
pub(super) struct Watcher {
    events: Option<Sender<Event>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    pub(super) fn start(worker: Arc<Worker>, bell: Arc<Bell>) -> Result<Self, DeviceError> {
        let (sender, events) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("gpu-watcher-{}", worker.number))
            .spawn(move || watch(&worker, &bell, &events))
            .map_err(|error| DeviceError::Resources(format!("no thread: {error}")))?;
        Ok(Self { events: Some(sender), thread: Some(thread) })
    }

    /// Has the bell rung once the GPU has reached an event.
    pub(super) fn watch(&self, event: Event) {
        if let Some(events) = &self.events {
            // A watcher that is gone has reported a loss.
            let _ = events.send(event);
        }
    }
}

fn watch(worker: &Worker, bell: &Bell, events: &Receiver<Event>) {
    while let Ok(event) = events.recv() {
        let reached = event.wait();
        if let Err(error) = reached {
            worker.lose(&error.to_string());
        }
        bell.ring();
        if reached.is_err() {
            return;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.events.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
