//! The engine: it starts workers on a device, admits requests, and shuts down.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use batchmaker_device::{Device, DeviceError, TaskQueue};
use batchmaker_graph::{
    CellGraph, CellRegistry, CellTypeId, Chunk, InvalidRequest, ModelId, RequestId, RunKind,
    SessionId, WorkerId,
};
use batchmaker_manager::{Event, Manager};
use batchmaker_model::Model;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::config::{BatchLimits, EngineConfig};
use crate::error::EngineError;
use crate::lock::lock;
use crate::manager_config::{manager_config, release_cells};
use crate::pending::{Pending, Steps};
use crate::reply::{Computed, Reply};
use crate::request::Request;
use crate::responder::Responder;
use crate::served_model::ServedModel;
use crate::shared::Shared;
use crate::statistics::{CellStatistics, Statistics};
use crate::streaming::Streamed;
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
        let manager = Manager::new(manager_config(registry, &*device, &capabilities, config)?);
        let served = models.into_iter().zip(0..).map(|(model, id)| {
            let served = ServedModel { id: ModelId(id), model };
            (served.model.name.clone(), Arc::new(served))
        });
        let shared = Arc::new(Shared::new(device, &capabilities, manager, registry, config));
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
        if shared.takes_sessions {
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
        let shared = &self.shared;
        let served = self.models.get(model);
        let served = served.ok_or_else(|| EngineError::UnknownModel(model.to_owned()))?;
        if shared.is_closing.load(Ordering::SeqCst) {
            return Err(EngineError::ShuttingDown);
        }
        if let Some(reason) = shared.lost.get() {
            return Err(EngineError::DeviceLost(reason.clone()));
        }
        let Request { mut tensors, mut parameters, priority, session, outputs, stream } = request;
        let mut entering = None;
        parameters.chunk = Chunk::Whole;
        if let Some(part) = session {
            self.check_sessions()?;
            if part.end && !part.start && tensors.is_empty() {
                shared.sessions.end(served, &part.key, &shared.inbox)?;
                return Ok(Pending::answered(Reply::empty()));
            }
            let (found, completed) = shared.sessions.prepare(served, part, tensors)?;
            parameters.chunk = found.chunk();
            (entering, tensors) = (Some(found), completed);
        }
        let mut permit = shared.admission.permit()?;
        let (unfolded, plan) = served.model.unfold(tensors, &parameters, &outputs)?;
        let graph = Arc::new(unfolded.graph);
        if graph.runs().is_empty() && entering.is_some() {
            return Err(InvalidRequest("a chunk of a sequence without a step".to_owned()).into());
        }
        if entering.is_some() {
            self.check_slots(&graph)?;
        }
        let chains = graph.runs().iter().filter(|run| run.kind == RunKind::Chain);
        let states = chains.map(|run| shared.state_bytes[run.cell_type.index()]);
        permit.add_bytes(graph.bytes() + states.sum::<usize>())?;
        if graph.runs().is_empty() {
            let computed = Computed::without_runs(&graph, unfolded.inputs);
            return computed.into_reply(plan).map(Pending::answered);
        }
        let step_plan = if stream { plan.steps(&graph).map(Arc::new) } else { None };
        let (streamed, steps) = match step_plan {
            None => (None, None),
            Some(plan) => {
                let (sender, receiver) = unbounded_channel();
                let streamed = Streamed::new(plan.clone(), sender);
                (Some(Box::new(streamed)), Some(Steps { receiver, plan }))
            }
        };
        let (sender, values) = oneshot::channel();
        let (ends, session) = (Vec::new(), None);
        let responder = Responder { sender, permit, ends, session, streamed };
        let id = lock(&shared.requests).insert(responder);
        let id = id.ok_or(EngineError::ShuttingDown)?;
        if let Err(error) = shared.device.admit(id, graph.clone(), unfolded.inputs) {
            self.take_back(id);
            return Err(match error {
                DeviceError::Full { .. } => {
                    EngineError::MemoryInUse { bytes: shared.admission.bytes() }
                }
                DeviceError::Graph(error) => EngineError::Unfolding(error),
                DeviceError::Lost(reason) => EngineError::DeviceLost(reason.into()),
                error => EngineError::DeviceLost(error.to_string().into()),
            });
        }
        let arrive = |session: Option<SessionId>| {
            if let Some(session) = session {
                lock(&shared.requests).set_session(id, session);
            }
            let model = served.id;
            let deadline_ns = None;
            let request = id;
            let arrival = Event::Arrive { request, model, priority, deadline_ns, graph, session };
            shared.inbox.send(arrival);
        };
        match entering {
            None => arrive(None),
            Some(entering) => {
                let arrive = |id| arrive(Some(id));
                let entered = shared.sessions.enter(served, entering, &shared.inbox, arrive);
                if let Err(error) = entered {
                    shared.device.retire(id);
                    self.take_back(id);
                    return Err(error);
                }
            }
        }
        Ok(Pending::new(values, plan, steps, Some((id, shared.inbox.clone()))))
    }

    /// Drops a request that neither the manager nor the device has.
    fn take_back(&self, id: RequestId) {
        let mut requests = lock(&self.shared.requests);
        drop(requests.take_back(id));
        if requests.len() == 0 {
            self.shared.drained.notify_all();
        }
    }

    /// Checks that the device has slots for all chains of a session at once.
    fn check_slots(&self, graph: &CellGraph) -> Result<(), EngineError> {
        let Some(max) = self.shared.slots_max else { return Ok(()) };
        let mut chains: HashMap<CellTypeId, u32> = HashMap::new();
        for run in graph.runs().iter().filter(|run| run.kind == RunKind::Chain) {
            *chains.entry(run.cell_type).or_default() += 1;
        }
        match chains.values().max() {
            Some(&most) if most > max => {
                let text =
                    format!("a session of {most} chains of one cell; the device holds {max}");
                Err(InvalidRequest(text).into())
            }
            _ => Ok(()),
        }
    }

    fn check_sessions(&self) -> Result<(), EngineError> {
        if self.shared.takes_sessions {
            return Ok(());
        }
        let text = "sessions need the policy 'cellular': closed batches take whole sequences";
        Err(InvalidRequest(text.to_owned()).into())
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
                batches_by_size: manager.batches_by_size(CellTypeId(cell_type)).to_vec(),
                slots_in_use: counts.slots_in_use,
                waiting: counts.waiting,
            }
        });
        let times = self.shared.times.total();
        Statistics {
            permits_in_use: self.shared.admission.requests(),
            permits: self.shared.admission.max_requests,
            workers: self.shared.inbox.waiting.workers(),
            workers_up: self.shared.workers_up() as usize,
            sessions: self.shared.sessions.statistics(),
            cells: cells.collect(),
            manager_ns: times.manager_ns,
            replies_ns: times.replies_ns,
            device_ns: times.device_ns,
        }
    }

    /// Whether all workers are lost: every request is refused from then on.
    pub fn is_lost(&self) -> bool {
        self.shared.lost.get().is_some()
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
