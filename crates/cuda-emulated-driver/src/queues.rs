//! The operations that wait on the streams of all devices, and the events between them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::order::{Known, Preceding};
use crate::status::Status;

/// What an operation does. It is given its number and what precedes it.
pub(crate) type Work = Box<dyn FnOnce(u32, &Preceding) -> Result<(), Status> + Send>;

/// An operation that waits.
pub(crate) struct Operation {
    pub(crate) number: u32,
    pub(crate) preceding: Preceding,
    pub(crate) work: Work,
    /// What it waits for, beside those before it on its stream.
    pub(crate) waits_for: Option<Arc<Record>>,
    /// Its own place, if others can wait for it.
    pub(crate) record: Option<Arc<Record>>,
}

/// The place of an event, or of a graph's launch, in a stream.
#[derive(Debug)]
pub(crate) struct Record {
    /// The stream's device.
    pub(crate) device: usize,
    /// Whether it is over, and all before it.
    pub(crate) is_over: AtomicBool,
    pub(crate) known: Known,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) device: usize,
    pub(crate) waiting: VecDeque<Operation>,
    pub(crate) is_running: bool,
    /// Whether the host has destroyed it: it ends when it is idle.
    pub(crate) is_destroyed: bool,
    /// Operations that it was given.
    pub(crate) submitted: u32,
    /// The operations that are over when its next one begins.
    pub(crate) known: Known,
}

impl Stream {
    pub(crate) fn new(device: usize) -> Self {
        Self {
            device,
            waiting: VecDeque::new(),
            is_running: false,
            is_destroyed: false,
            submitted: 0,
            known: Known::default(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.is_running
    }

    /// Whether its next operation can run. What waits for a device that failed waits no longer.
    fn is_ready(&self, failed: &[Option<Status>]) -> bool {
        let is_over =
            |of: &Arc<Record>| of.is_over.load(Ordering::Acquire) || failed[of.device].is_some();
        let front = self.waiting.front();
        !self.is_running && front.is_some_and(|next| next.waits_for.as_ref().is_none_or(is_over))
    }
}

/// The streams of all devices.
#[derive(Default)]
pub(crate) struct Queues {
    /// By their numbers.
    pub(crate) streams: BTreeMap<u32, Stream>,
    /// For each device, why it does nothing any more.
    pub(crate) failed: Vec<Option<Status>>,
    /// The operations that the host has waited for: those that it submits later follow them.
    pub(crate) host: Known,
}

impl Queues {
    /// The streams of a device whose next operation can run.
    pub(crate) fn ready(&self, device: usize) -> Vec<u32> {
        let of_device = self.streams.iter().filter(|(_, stream)| stream.device == device);
        of_device
            .filter(|(_, stream)| stream.is_ready(&self.failed))
            .map(|(&number, _)| number)
            .collect()
    }

    /// A device does nothing any more: what waits on its streams is dropped.
    pub(crate) fn fail(&mut self, device: usize, why: Status) {
        self.failed[device].get_or_insert(why);
        let of_device = self.streams.values_mut().filter(|stream| stream.device == device);
        of_device.for_each(|stream| stream.waiting.clear());
    }

    /// Whether all streams of a device are idle.
    pub(crate) fn is_idle(&self, device: usize) -> bool {
        self.streams.values().filter(|stream| stream.device == device).all(Stream::is_idle)
    }

    /// The host has waited for a device.
    pub(crate) fn host_waited_for(&mut self, device: usize) {
        let Self { streams, host, .. } = self;
        let of_device = streams.values().filter(|stream| stream.device == device);
        of_device.for_each(|stream| host.learn(&stream.known));
    }
}
