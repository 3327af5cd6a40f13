//! The engine: it starts workers on a device, admits requests, and shuts down.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use batchmaker_device::{Device, DeviceError, TaskQueue};
use batchmaker_graph::{CellRegistry, CellTypeId, ModelId, WorkerId};
use batchmaker_manager::{Event, Manager, Policy};
use batchmaker_model::Model;

use crate::config::{BatchLimits, EngineConfig};
use crate::error::EngineError;
use crate::lock::lock;
use crate::manager_config::{manager_config, release_cells};
use crate::memory::MemoryBudget;
use crate::pending::Pending;
use crate::permit::Permit;
use crate::request::Request;
use crate::served_model::ServedModel;
use crate::shared::Shared;
use crate::statistics::{CellStatistics, Statistics};
use crate::watch::HungWorker;
use crate::worker;

/// Bytes of address space for a worker's stack: executors of programs recur along chains of operators.
const WORKER_STACK: usize = 256 << 20;

/// Serves models on a device. Dropping it cancels what is in flight.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    models: HashMap<String, Arc<ServedModel>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Gives the device the cells of `models`, which were loaded into `registry`, each with its
    /// position here as its id, and starts the workers.
    ///
    /// # Errors
    /// The device cannot run a cell, or does not give what the configuration asks for.
    pub fn start(
        models: Vec<Model>,
        registry: &CellRegistry,
        device: Arc<dyn Device>,
        config: &EngineConfig,
    ) -> Result<Self, DeviceError> {
        let capabilities = device.capabilities();
        let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
        let (manager, slot_bytes) =
            manager_config(registry, &names, &*device, &capabilities, config)?;
        let manager = Manager::new(manager);
        let count = models.len();
        let takes_sessions = names.iter().any(|name| config.policy_of(name) == Policy::Cellular);
        let served = models.into_iter().zip(0..).map(|(model, id)| {
            let policy = config.policy_of(&model.name);
            let served = ServedModel { id: ModelId(id), model, policy };
            (served.model.name.clone(), Arc::new(served))
        });
        let shared =
            Shared::new(device, &capabilities, manager, registry, slot_bytes, count, config);
        let shared = Arc::new(shared);
        // From here on, dropping the engine stops the workers that were started and releases the cells.
        let threads = Mutex::default();
        let engine = Self { shared: shared.clone(), models: served.collect(), threads };
        let queue = |worker| {
            let bell = shared.inbox.waiting.bell(worker).clone();
            Ok((worker, shared.device.clone().queue(worker, bell)?))
        };
        let queues: Vec<(WorkerId, Box<dyn TaskQueue>)> = (0..u32::from(config.workers))
            .map(WorkerId)
            .map(queue)
            .collect::<Result<_, DeviceError>>()?;
        for (worker, queue) in queues {
            let shared = shared.clone();
            engine.spawn(&format!("worker-{}", worker.0), move || {
                worker::run(&shared, worker, queue);
            })?;
        }
        let alarms = shared.clone();
        engine.spawn("alarms", move || alarms.alarms.run())?;
        if takes_sessions {
            engine.spawn("sessions", move || shared.sessions.reap(&shared.inbox))?;
        }
        Ok(engine)
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), DeviceError> {
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(WORKER_STACK)
            .spawn(run)
            .map_err(|error| DeviceError::Resources(format!("no thread: {error}")))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// The device that it computes with.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }

    /// The models, in the order of their names.
    pub fn models(&self) -> Vec<&Model> {
        let mut models: Vec<&Model> = self.models.values().map(|served| &served.model).collect();
        models.sort_by(|a, b| a.name.cmp(&b.name));
        models
    }

    /// The model called `name`.
    pub fn model(&self, name: &str) -> Option<&Model> {
        self.models.get(name).map(|served| &served.model)
    }

    /// Admits a request: checks it, unfolds it and hands it to the workers, without waiting.
    ///
    /// # Errors
    /// The request is wrong, there is no such model, or the engine is full, closing or lost.
    pub fn submit(&self, model: &str, request: Request) -> Result<Pending, EngineError> {
        let unfolded = self.permit(model)?.unfold(request, self.memory().arrival());
        unfolded.map_err(EngineError::from)?.submit()
    }

    /// Takes the right to submit a request to a model. For who has to do costly work before the request can be
    /// submitted, or can wait until it fits the budget: [`submit`](Self::submit) is this,
    /// [`Permit::unfold`] and [`UnfoldedRequest::submit`](crate::UnfoldedRequest::submit).
    ///
    /// # Errors
    /// There is no such model, or as many requests are in flight as may be, or the engine is closing or lost.
    pub fn permit(&self, model: &str) -> Result<Permit, EngineError> {
        let served = self.models.get(model);
        let served = served.ok_or_else(|| EngineError::UnknownModel(model.to_owned()))?;
        Permit::new(self.shared.clone(), served.clone())
    }

    /// The budget that requests, their replies and open sessions share. Its other holders count too.
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        &self.shared.memory
    }

    /// The time after which a request that was refused as overload is likely to find a place: in this time, as
    /// many requests are answered as are in flight, if they are answered as fast as of late.
    pub fn retry_after(&self) -> Duration {
        self.shared.admission.stay()
    }

    /// The time that a session of the model called `name` may be idle before it ends; none if the model takes no sessions, or if there is no such
    /// model.
    pub fn session_idle(&self, name: &str) -> Option<Duration> {
        let served = self.models.get(name)?;
        let takes = served.model.why_no_sessions().is_none() && served.check_sessions().is_ok();
        takes.then(|| self.shared.sessions.idle())
    }

    /// The counts of what is in flight and what has run.
    pub fn statistics(&self) -> Statistics {
        let manager = lock(&self.shared.manager);
        let names = self.shared.cell_names.iter().zip(0..);
        let cells = names.map(|(name, cell_type)| {
            let counts = manager.statistics(CellTypeId(cell_type));
            CellStatistics {
                name: name.clone(),
                tasks: counts.tasks,
                nodes: counts.nodes,
                padding: counts.padding,
                past_end_of_sequence: counts.past_end_of_sequence,
                batches_by_size: manager.batches_by_size(CellTypeId(cell_type)),
                slots_in_use: counts.slots_in_use,
                waiting: counts.waiting,
            }
        });
        let cells = cells.collect();
        let worker_ns =
            |name: &String, model: &ServedModel| Some((name.clone(), manager.worker_ns(model.id)?));
        let worker_ns_of_models =
            self.models.iter().filter_map(|(name, model)| worker_ns(name, model)).collect();
        drop(manager);
        let times = self.shared.times.total();
        Statistics {
            permits_in_use: self.shared.admission.requests(),
            permits: self.shared.admission.max_requests,
            memory_bytes: self.shared.memory.bytes_in_use(),
            memory_bytes_max: self.shared.memory.bytes_max(),
            workers: self.shared.inbox.waiting.workers(),
            workers_up: self.shared.workers_up() as usize,
            devices: self.shared.device.usage(),
            sessions: self.shared.sessions.statistics(),
            cells,
            worker_ns_of_models,
            manager_ns: times.manager_ns,
            replies_ns: times.replies_ns,
            device_ns: times.device_ns,
        }
    }

    /// Whether all workers are lost: every request is refused from then on.
    pub fn is_lost(&self) -> bool {
        self.shared.lost.get().is_some()
    }

    /// A worker whose device has work and has reported nothing for far longer than it ever took, or which has not ended a
    /// turn for as long, if there is one: requests that need it are not answered. It may come back.
    pub fn hung(&self) -> Option<HungWorker> {
        self.shared.watch.hung(self.shared.inbox.now_ns())
    }

    /// From now on, other limits than those that the engine started with hold.
    ///
    /// # Panics
    /// Unless there is a limit for each cell type, of at least 1.
    pub fn set_limits(&self, limits: &BatchLimits) {
        let BatchLimits { batch_max, submission_window } = limits;
        assert_eq!(batch_max.len(), self.shared.cell_names.len(), "a limit for each cell type");
        assert!(batch_max.iter().all(|&max| max > 0), "a batch limit of 0 in {batch_max:?}");
        let submission_window_ns = submission_window.map(|window| window.as_nanos() as u64);
        self.shared
            .inbox
            .send(Event::Limits { batch_max: batch_max.clone(), submission_window_ns });
    }

    /// Takes no more requests, waits until those in flight are answered, and stops the
    /// workers.
    pub fn shutdown(&self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        lock(&self.shared.requests).close();
        // Idle ones may hold slots that requests in flight wait for.
        self.shared.sessions.end_all(&self.shared.inbox);
        let mut requests = lock(&self.shared.requests);
        while requests.len() > 0 {
            requests = self.shared.drained.wait(requests).unwrap_or_else(PoisonError::into_inner);
        }
        drop(requests);
        self.stop();
    }

    fn stop(&self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        if self.shared.is_stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.sessions.stop();
        self.shared.alarms.stop();
        self.shared.inbox.waiting.ring_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
        let mut requests = lock(&self.shared.requests);
        requests.close();
        for (request, responder) in requests.abandon() {
            self.shared.device.retire(request);
            responder.send(Err(EngineError::Cancelled));
        }
        // The device may outlive the engine.
        release_cells(&*self.shared.device, self.shared.cell_names.len());
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}
