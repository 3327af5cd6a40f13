//! The driver: memory, devices, and the threads that work through their streams. It lives as long as the program.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use batchmaker_cuda_emulator::{DevicePointer, Memory, Place};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::calls;
use crate::control::{Settings, is_full, report, settings};
use crate::graph::{ExecutableGraph, Graph};
use crate::handles::Handles;
use crate::image::Entry;
use crate::launches::Function;
use crate::lock::lock;
use crate::order::{Known, Operations, Preceding};
use crate::queues::{Operation, Queues, Record, Stream, Work};
use crate::status::Status;

/// The driver, once it is initialised.
static DRIVER: OnceLock<Driver> = OnceLock::new();

thread_local! {
    /// The device whose context is current on this thread of the host.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// An event: where it was recorded last.
#[derive(Default)]
pub(crate) struct Event {
    record: Mutex<Option<Arc<Record>>>,
}

impl Event {
    /// Its place in a stream, if it was recorded.
    pub(crate) fn record(&self) -> Option<Arc<Record>> {
        lock(&self.record).clone()
    }
}

/// See the [module's documentation](self).
pub(crate) struct Driver {
    pub(crate) devices: usize,
    pub(crate) memory_bytes: usize,
    /// The memory of all devices, and of the host where devices access it.
    pub(crate) memory: Memory,
    /// Held while an operation accesses the memory.
    pub(crate) running: Mutex<()>,
    /// The allocations of devices: address, device and bytes.
    allocations: Mutex<BTreeMap<usize, (usize, usize)>>,
    /// Those of the host: address and bytes.
    pinned: Mutex<BTreeMap<usize, usize>>,
    queues: Mutex<Queues>,
    /// Whether each device is lost.
    lost: Vec<AtomicBool>,
    /// An operation was submitted, or is over.
    changed: Condvar,
    operations: Arc<Operations>,
    next_stream: AtomicU32,
    pub(crate) events: Handles<Event>,
    pub(crate) modules: Handles<BTreeMap<String, Entry>>,
    pub(crate) functions: Handles<Function>,
    pub(crate) graphs: Handles<Graph>,
    pub(crate) executable_graphs: Handles<ExecutableGraph>,
}

/// Initialises the driver, and begins the devices' threads.
pub(crate) fn initialise() -> Result<(), Status> {
    let Settings { devices, memory_bytes, .. } = *settings();
    if devices == 0 {
        return Err(Status::NoDevice);
    }
    DRIVER.get_or_init(|| {
        let queues = Queues { failed: vec![None; devices], ..Queues::default() };
        for device in 0..devices {
            std::thread::spawn(move || DRIVER.wait().work(device));
        }
        Driver {
            devices,
            memory_bytes,
            memory: Memory::new(usize::MAX),
            running: Mutex::default(),
            allocations: Mutex::default(),
            pinned: Mutex::default(),
            queues: Mutex::new(queues),
            lost: (0..devices).map(|_| AtomicBool::new(false)).collect(),
            changed: Condvar::new(),
            operations: Arc::default(),
            next_stream: AtomicU32::new(0),
            events: Handles::default(),
            modules: Handles::default(),
            functions: Handles::default(),
            graphs: Handles::default(),
            executable_graphs: Handles::default(),
        }
    });
    lose_device();
    Ok(())
}

/// Loses the device that a test wants to be lost, once there is a driver.
pub(crate) fn lose_device() {
    let lost = settings().lose_device;
    if let (Some(driver), Some(device)) = (DRIVER.get(), lost) {
        driver.lose(device);
    }
}

pub(crate) fn driver() -> Result<&'static Driver, Status> {
    DRIVER.get().ok_or(Status::NotInitialized)
}

/// The driver, and the device whose context is current.
pub(crate) fn current() -> Result<(&'static Driver, usize), Status> {
    Ok((driver()?, CURRENT.get().ok_or(Status::InvalidContext)?))
}

pub(crate) fn current_device() -> Option<usize> {
    CURRENT.get()
}

pub(crate) fn set_current(device: Option<usize>) {
    CURRENT.set(device);
}

impl Driver {
    // Streams.

    /// A new stream of a device.
    pub(crate) fn add_stream(&self, device: usize) -> u32 {
        // Numbers up to the number of devices are those of default streams.
        let number = self.next_stream.fetch_add(1, Ordering::Relaxed) + self.devices as u32;
        lock(&self.queues).streams.insert(number, Stream::new(device));
        number
    }

    /// Removes a stream once its operations are over.
    pub(crate) fn remove_stream(&self, stream: u32) -> Result<(), Status> {
        let queues = &mut *lock(&self.queues);
        let of = queues.streams.get_mut(&stream).filter(|of| !of.is_destroyed);
        let of = of.ok_or(Status::InvalidHandle)?;
        of.is_destroyed = true;
        if of.is_idle() {
            queues.streams.remove(&stream);
        }
        Ok(())
    }

    /// Submits an operation to a stream.
    pub(crate) fn submit(
        &self,
        stream: u32,
        what: &str,
        waits_for: Option<Arc<Record>>,
        work: Work,
    ) -> Result<(), Status> {
        let queues = &mut *lock(&self.queues);
        self.add_operation(queues, stream, (what, &[]), waits_for, work).map(drop)
    }

    /// Submits an operation, the nodes of which are described if it is a graph. Returns its place in the stream, for which others can wait.
    pub(crate) fn submit_recorded(
        &self,
        stream: u32,
        what: (&str, &[Arc<str>]),
        waits_for: Option<Arc<Record>>,
        work: Work,
    ) -> Result<Arc<Record>, Status> {
        let queues = &mut *lock(&self.queues);
        let of = self.add_operation(queues, stream, what, waits_for, work)?;
        let is_over = AtomicBool::new(false);
        let record = Arc::new(Record { device: of.device, is_over, known: of.known.clone() });
        of.waiting.back_mut().expect("the operation").record = Some(record.clone());
        Ok(record)
    }

    /// Adds an operation to its stream, which is returned.
    fn add_operation<'a>(
        &self,
        queues: &'a mut Queues,
        stream: u32,
        (what, nodes): (&str, &[Arc<str>]),
        waits_for: Option<Arc<Record>>,
        work: Work,
    ) -> Result<&'a mut Stream, Status> {
        let Queues { streams, failed, host } = queues;
        let of = Self::stream(streams, stream, self.devices)?;
        if let Some(why) = failed[of.device] {
            return Err(why);
        }
        calls::count_submitted(what);
        nodes.iter().for_each(|what| calls::count_submitted(what));
        of.submitted += 1;
        of.known.learn(host);
        if let Some(record) = &waits_for {
            of.known.learn(&record.known);
        }
        let number = self.operations.add(stream, of.submitted, what.into(), nodes);
        let preceding = Preceding { operations: self.operations.clone(), known: of.known.clone() };
        of.known.has(stream, of.submitted);
        of.waiting.push_back(Operation { number, preceding, work, waits_for, record: None });
        self.changed.notify_all();
        Ok(of)
    }

    /// A stream; the default one of a device begins when it is used first.
    fn stream(
        streams: &mut BTreeMap<u32, Stream>,
        stream: u32,
        devices: usize,
    ) -> Result<&mut Stream, Status> {
        if (stream as usize) < devices {
            return Ok(streams.entry(stream).or_insert_with(|| Stream::new(stream as usize)));
        }
        let of = streams.get_mut(&stream).filter(|of| !of.is_destroyed);
        of.ok_or(Status::InvalidHandle)
    }

    /// Records an event in a stream.
    pub(crate) fn record(&self, event: &Event, stream: u32) -> Result<(), Status> {
        let work = Box::new(|_: u32, _: &Preceding| Ok(()));
        let record = self.submit_recorded(stream, ("an event", &[]), None, work)?;
        *lock(&event.record) = Some(record);
        Ok(())
    }

    /// Waits until a stream's operations are over. The host knows that then, if it `learns`.
    pub(crate) fn wait_for(&self, stream: u32, learns: bool) -> Result<(), Status> {
        let mut queues = lock(&self.queues);
        let device = Self::stream(&mut queues.streams, stream, self.devices)?.device;
        while queues.failed[device].is_none()
            && queues.streams.get(&stream).is_some_and(|stream| !stream.is_idle())
        {
            queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(why) = queues.failed[device] {
            return Err(why);
        }
        let Queues { streams, host, .. } = &mut *queues;
        if let Some(stream) = streams.get(&stream).filter(|_| learns) {
            host.learn(&stream.known);
        }
        Ok(())
    }

    /// The host has seen what is known to be over.
    pub(crate) fn host_has_seen(&self, known: &Known) {
        lock(&self.queues).host.learn(known);
    }

    /// Whether a stream's operations are over.
    pub(crate) fn is_over(&self, stream: u32) -> Result<bool, Status> {
        let queues = &mut *lock(&self.queues);
        let Queues { streams, failed, host } = queues;
        let of = Self::stream(streams, stream, self.devices)?;
        if let Some(why) = failed[of.device] {
            return Err(why);
        }
        let is_over = of.is_idle();
        if is_over {
            host.learn(&of.known);
        }
        Ok(is_over)
    }

    /// Waits until a device's operations are over.
    pub(crate) fn wait_for_device(&self, device: usize) -> Result<(), Status> {
        let mut queues = lock(&self.queues);
        while queues.failed[device].is_none() && !queues.is_idle(device) {
            queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        queues.host_waited_for(device);
        queues.failed[device].map_or(Ok(()), Err)
    }

    /// Waits for an event, if `waits`, and tells whether what was recorded is over.
    pub(crate) fn event_is_over(&self, event: &Event, waits: bool) -> Result<bool, Status> {
        let Some(record) = event.record() else { return Ok(true) };
        let mut queues = lock(&self.queues);
        loop {
            if record.is_over.load(Ordering::Acquire) {
                queues.host.learn(&record.known);
                return Ok(true);
            }
            if let Some(why) = queues.failed[record.device] {
                return Err(why);
            }
            if !waits {
                return Ok(false);
            }
            queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An error if a device does nothing any more.
    pub(crate) fn check(&self, device: usize) -> Result<(), Status> {
        lock(&self.queues).failed[device].map_or(Ok(()), Err)
    }

    /// A device is lost: whoever waits for it waits no longer, and the launch that it runs ends.
    fn lose(&self, device: usize) {
        let Some(lost) = self.lost.get(device) else { return };
        lost.store(true, Ordering::Relaxed);
        lock(&self.queues).fail(device, Status::DeviceUnavailable);
        self.changed.notify_all();
    }

    pub(crate) fn is_lost(&self, device: usize) -> bool {
        self.lost[device].load(Ordering::Relaxed)
    }

    /// Works through the streams of a device.
    fn work(&self, device: usize) {
        let mut random = Pcg64Mcg::seed_from_u64(settings().seed ^ (device as u64) << 32);
        let mut queues = lock(&self.queues);
        loop {
            let ready = queues.ready(device);
            if ready.is_empty() || queues.failed[device].is_some() {
                queues = self.changed.wait(queues).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let number = ready[random.random_range(0..ready.len())];
            let stream = queues.streams.get_mut(&number).expect("a stream that is ready is there");
            stream.is_running = true;
            let Some(operation) = stream.waiting.pop_front() else { continue };
            drop(queues);
            let can_run = self.pause(device, &mut random);
            let result =
                can_run.and_then(|()| (operation.work)(operation.number, &operation.preceding));
            queues = lock(&self.queues);
            if let Some(stream) = queues.streams.get_mut(&number) {
                stream.is_running = false;
                if stream.is_destroyed && stream.is_idle() {
                    queues.streams.remove(&number);
                }
            }
            match (result, operation.record) {
                (Err(why), _) => queues.fail(device, why),
                (Ok(()), Some(record)) => record.is_over.store(true, Ordering::Release),
                (Ok(()), None) => {}
            }
            self.changed.notify_all();
        }
    }

    /// Pauses before a device does something. An error if it does nothing any more.
    pub(crate) fn pause(&self, device: usize, random: &mut Pcg64Mcg) -> Result<(), Status> {
        let pause_us = settings().pause_us;
        if pause_us > 0 {
            std::thread::sleep(Duration::from_micros(random.random_range(0..=pause_us)));
        }
        self.check(device)
    }

    // Memory.

    /// Allocates memory of a device.
    pub(crate) fn allocate(&self, device: usize, bytes: usize) -> Result<DevicePointer, Status> {
        if bytes == 0 {
            return Err(Status::InvalidValue);
        }
        if bytes > self.memory_bytes.saturating_sub(self.used(device)) || is_full() {
            return Err(Status::OutOfMemory);
        }
        let _running = lock(&self.running);
        let at = self.memory.allocate(bytes, &format!("memory of device {device}"), Place::Device);
        let at = at.ok_or(Status::OutOfMemory)?;
        lock(&self.allocations).insert(at as usize, (device, bytes));
        Ok(at)
    }

    /// Takes an allocation off the list: its memory is free for others, once [`Self::free`] is called.
    pub(crate) fn end_allocation(&self, at: DevicePointer) -> Result<usize, Status> {
        let ended = lock(&self.allocations).remove(&(at as usize));
        ended.map(|(_, bytes)| bytes).ok_or(Status::InvalidValue)
    }

    /// Frees memory of an allocation that has ended.
    pub(crate) fn free(&self, at: DevicePointer) -> Result<(), Status> {
        self.memory.free(at).then_some(()).ok_or(Status::InvalidValue)
    }

    /// Bytes of memory of a device that are allocated.
    pub(crate) fn used(&self, device: usize) -> usize {
        lock(&self.allocations).values().filter(|of| of.0 == device).map(|of| of.1).sum()
    }

    /// Allocates memory of the host that devices access.
    pub(crate) fn allocate_pinned(&self, bytes: usize) -> Result<DevicePointer, Status> {
        let _running = lock(&self.running);
        let at = self.memory.allocate(bytes, "memory of the host", Place::Host);
        let at = at.ok_or(Status::OutOfMemory)?;
        // What the host writes there is not seen.
        self.memory.mark_written(at, bytes);
        lock(&self.pinned).insert(at as usize, bytes);
        Ok(at)
    }

    pub(crate) fn free_pinned(&self, at: DevicePointer) -> Result<(), Status> {
        lock(&self.pinned).remove(&(at as usize)).ok_or(Status::InvalidValue)?;
        let _running = lock(&self.running);
        self.memory.free(at).then_some(()).ok_or(Status::InvalidValue)
    }

    /// Whether an address is in memory of the host that devices access.
    pub(crate) fn is_pinned(&self, at: *const u8) -> bool {
        let pinned = lock(&self.pinned);
        let before = pinned.range(..=at as usize).next_back();
        before.is_some_and(|(first, bytes)| (at as usize) < first + bytes)
    }

    /// An operation accesses memory of a device. An error if it is not allocated, or another operation's access is not ordered before.
    pub(crate) fn access(
        &self,
        (operation, preceding): (u32, &Preceding),
        (at, bytes): (*const u8, usize),
        is_write: bool,
    ) -> Result<(), Status> {
        let name = |operation| preceding.operations.name(operation);
        if !self.memory.is_allocated(at, bytes) {
            report(format!("{} accesses {bytes} bytes that are not allocated", name(operation)));
            return Err(Status::IllegalAddress);
        }
        // SAFETY: the caller holds `running`, as all operations do.
        let race = unsafe { self.memory.operate((operation, preceding), at, bytes, is_write) };
        let Some(other) = race else { return Ok(()) };
        let (now, before) = (name(operation), name(other));
        report(format!("data race: {now} accesses what {before} does, and nothing orders them"));
        Err(Status::LaunchFailed)
    }
}
