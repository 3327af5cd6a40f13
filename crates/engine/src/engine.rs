//! The engine: admission, and what its workers share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use batchmaker_device::{Device, DeviceError, TaskQueue};
use batchmaker_graph::{
    CellGraph, CellRegistry, CellTypeId, Chunk, InvalidRequest, ModelId, NamedTensor, OutputTensor,
    Parameters, RequestId, RunKind, SessionId, StatePlacement, WorkerId,
};
use batchmaker_manager::{Config, Event, Manager, Policy};
use batchmaker_model::Model;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::admission::Admission;
use crate::error::EngineError;
use crate::manager_config::{manager_config, release_cells};
use crate::pending::{Pending, Steps};
use crate::reply::answer_at_once;
use crate::request_table::{RequestTable, Responder};
use crate::sessions::{SessionChunk, Sessions};
use crate::statistics::{CellStatistics, Statistics, Times};
use crate::streaming::Streamed;
use crate::waiting::Waiting;
use crate::worker;

/// Bytes of address space for a worker's stack: executors of programs recur along chains of operators.
const WORKER_STACK: usize = 256 << 20;

/// What an engine is told when it starts.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Workers; each has a thread and a queue of the device.
    pub workers: u16,
    /// How requests share batches.
    pub policy: Policy,
    /// See [`Config::max_tasks_to_submit`].
    pub max_tasks_to_submit: u32,
    /// The most work of a cell type's chains that is submitted at a time; none: as many steps as
    /// `max_tasks_to_submit` says.
    pub submission_window: Option<Duration>,
    /// The most requests in flight; one more is refused as overload.
    pub max_requests: usize,
    /// The most bytes that the values of all requests in flight may hold: inputs, outputs and
    /// what stands between.
    pub max_bytes: usize,
    /// The most sessions that may hold state; one more is refused as overload.
    pub max_sessions: usize,
    /// How long a session may be idle before it ends.
    pub session_idle: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            workers: 1,
            policy: Policy::Cellular,
            max_tasks_to_submit: Config::MAX_TASKS_TO_SUBMIT,
            submission_window: None,
            max_requests: 4096,
            max_bytes: 4 << 30,
            max_sessions: 4096,
            session_idle: Duration::from_secs(300),
        }
    }
}

/// BatchLimits that can change while an engine runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most rows of a batch of each cell type, by id.
    pub batch_max: Vec<u32>,
    /// See [`EngineConfig::submission_window`].
    pub submission_window: Option<Duration>,
}

/// A request to a model.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The input tensors, in any order.
    pub tensors: Vec<NamedTensor>,
    /// What else is said of how to unfold it.
    pub parameters: Parameters,
    /// 1 is served first, then 2, …; 0, the default, comes after all of them.
    pub priority: u32,
    /// If the tensors are a chunk of a session's sequence: which, and of what session. What
    /// `parameters` say of chunks is not looked at. A last chunk without tensors just ends it; its
    /// reply has none either.
    pub session: Option<SessionChunk>,
    /// Whether the steps of the reply are wanted as they come ([`Pending::next_steps`]).
    pub stream: bool,
}

/// Serves models on a device. Dropping it cancels what is in flight.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    models: HashMap<String, Arc<ServedModel>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A model with its id.
#[derive(Debug)]
pub(crate) struct ServedModel {
    pub(crate) id: ModelId,
    pub(crate) model: Model,
}

/// What submitters and workers share.
pub(crate) struct Shared {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) manager: Mutex<Manager>,
    pub(crate) requests: Mutex<RequestTable>,
    /// Signalled when the last request in flight has ended.
    pub(crate) drained: Condvar,
    /// Events that the manager has not seen, each with its time.
    pub(crate) inbox: Mutex<Vec<(u64, Event)>>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) sessions: Sessions,
    pub(crate) is_closing: AtomicBool,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) waiting: Waiting,
    /// When the manager wants to be asked again, in nanoseconds since the start; `u64::MAX`: only
    /// when something happens.
    pub(crate) deadline_ns: AtomicU64,
    /// A bit for each worker that is not lost.
    workers_up: AtomicU64,
    /// Why nothing runs any more: set once all workers are lost.
    pub(crate) lost: OnceLock<Arc<str>>,
    /// How long a worker with work in flight polls before it blocks.
    pub(crate) poll_for: Duration,
    pub(crate) times: Times,
    pub(crate) placement: StatePlacement,
    cell_names: Vec<String>,
    /// Whether the policy has batches that a session's chunks can join.
    takes_sessions: bool,
    /// By cell type, the bytes of the states of a chain.
    state_bytes: Vec<usize>,
    /// See [`Capabilities::slots_max`].
    slots_max: Option<u32>,
    start: Instant,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A lock of state that stays whole even if a thread dies holding it: the engine's threads
/// end the process when they panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Gives the device the cells of `models`, which were loaded into `registry`, each with its
    /// position here as its id, and starts the workers.
    ///
    /// # Errors
    /// Where the device cannot run a cell, or has not what the configuration asks for.
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
        let max_bytes = capabilities
            .bytes_max
            .map_or(config.max_bytes, |of_device| of_device.min(config.max_bytes));
        let ids = || (0..u32::from(config.workers)).map(WorkerId);
        let shared = Arc::new(Shared {
            device,
            manager: Mutex::new(manager),
            requests: Mutex::default(),
            drained: Condvar::new(),
            inbox: Mutex::default(),
            admission: Admission::new(config.max_requests, max_bytes),
            sessions: Sessions::new(config.max_sessions, config.session_idle),
            takes_sessions: config.policy == Policy::Cellular,
            is_closing: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            waiting: Waiting::new(usize::from(config.workers)),
            deadline_ns: AtomicU64::new(u64::MAX),
            workers_up: AtomicU64::new(ids().fold(0, |bits, worker| bits | 1 << worker.0)),
            lost: OnceLock::new(),
            poll_for: capabilities.poll_for,
            times: Times::default(),
            placement: capabilities.placement,
            cell_names: registry.cell_types().iter().map(|cell| cell.name.clone()).collect(),
            state_bytes: registry.cell_types().iter().map(|cell| cell.cell.state_bytes()).collect(),
            slots_max: capabilities.slots_max,
            start: Instant::now(),
        });
        // Whole from here on: what fails stops those that were started, and gives the cells back.
        let threads = Mutex::default();
        let engine = Self { shared: shared.clone(), models: served.collect(), threads };
        let queue = |worker| {
            let bell = shared.waiting.bell(worker).clone();
            Ok((worker, shared.device.clone().queue(worker, bell)?))
        };
        let queues: Vec<(WorkerId, Box<dyn TaskQueue>)> =
            ids().map(queue).collect::<Result<_, DeviceError>>()?;
        for (worker, queue) in queues {
            let shared = shared.clone();
            engine.spawn(&format!("worker-{}", worker.0), move || {
                worker::run(&shared, worker, queue);
            })?;
        }
        if shared.takes_sessions {
            engine.spawn("sessions", move || shared.sessions.reap(&shared))?;
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
    pub fn submit(&self, model: &str, request: Request) -> Result<Pending, EngineError> {
        let served = self.models.get(model);
        let served = served.ok_or_else(|| EngineError::UnknownModel(model.to_owned()))?;
        if self.shared.is_closing.load(Ordering::SeqCst) {
            return Err(EngineError::ShuttingDown);
        }
        if let Some(reason) = self.shared.lost.get() {
            return Err(EngineError::DeviceLost(reason.clone()));
        }
        let Request { mut tensors, mut parameters, priority, session, stream } = request;
        let mut entering = None;
        parameters.chunk = Chunk::Whole;
        if let Some(part) = session {
            self.check_sessions()?;
            if part.end && !part.start && tensors.is_empty() {
                self.shared.sessions.end(served, &part.key, &self.shared)?;
                return Ok(Pending::answered(self.shared.clone()));
            }
            let (found, completed) = self.shared.sessions.prepare(served, part, tensors)?;
            parameters.chunk = found.chunk();
            (entering, tensors) = (Some(found), completed);
        }
        let mut permit = self.shared.admission.permit()?;
        let (unfolded, plan) = served.model.unfold_with(tensors, &parameters)?;
        let graph = Arc::new(unfolded.graph);
        if graph.runs().is_empty() && entering.is_some() {
            return Err(InvalidRequest("a chunk of a sequence without a step".to_owned()).into());
        }
        if entering.is_some() {
            self.check_slots(&graph)?;
        }
        let chains = graph.runs().iter().filter(|run| run.kind == RunKind::Chain);
        let states = chains.map(|run| self.shared.state_bytes[run.cell_type.index()]);
        permit.add_bytes(graph.bytes() + states.sum::<usize>())?;
        let position = |output: &OutputTensor| {
            let position = graph.outputs().iter().position(|&value| value == output.value);
            position.expect("an output tensor reads an output value")
        };
        let outputs = unfolded.outputs.into_iter().map(|output| (position(&output), output));
        let outputs: Vec<_> = outputs.collect();
        let (told, receiver) = stream.then(unbounded_channel).unzip();
        let streamed = told.and_then(|told| Streamed::new(&graph, &outputs, told)).map(Box::new);
        let steps = receiver.map(|receiver| Steps { receiver, model: served.clone() });
        let (sender, reply) = oneshot::channel();
        let responder = Responder {
            sender,
            model: served.clone(),
            permit,
            plan,
            outputs,
            stopped: Vec::new(),
            session: None,
            streamed,
        };
        if graph.runs().is_empty() {
            answer_at_once(responder, &graph, unfolded.inputs);
            return Ok(Pending::of_no_request(reply, steps, self.shared.clone()));
        }
        let id = lock(&self.shared.requests).insert(responder);
        let id = id.ok_or(EngineError::ShuttingDown)?;
        if let Err(error) = self.shared.device.admit(id, graph.clone(), unfolded.inputs) {
            self.take_back(id);
            return Err(match error {
                DeviceError::Full { .. } => {
                    EngineError::MemoryInUse { bytes: self.shared.admission.bytes() }
                }
                DeviceError::Lost(reason) => EngineError::DeviceLost(reason.into()),
                error => EngineError::DeviceLost(error.to_string().into()),
            });
        }
        let tell = |session: Option<SessionId>| {
            if let Some(session) = session {
                lock(&self.shared.requests).set_session(id, session);
            }
            let model = served.id;
            self.shared.tell(Event::Arrive { request: id, model, priority, graph, session });
        };
        match entering {
            None => tell(None),
            Some(entering) => {
                let (sessions, tell) = (&self.shared.sessions, |id| tell(Some(id)));
                if let Err(error) = sessions.enter(served, entering, &self.shared, tell) {
                    self.shared.device.retire(id);
                    self.take_back(id);
                    return Err(error);
                }
            }
        }
        Ok(Pending { reply, steps, request: id, shared: self.shared.clone(), is_over: false })
    }

    /// Forgets a request that neither the manager nor the device has.
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

    /// What is in flight, and what has run.
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
                wasted: counts.wasted,
                batches_by_size: manager.batches_by_size(CellTypeId(cell_type)).to_vec(),
                slots_in_use: counts.slots_in_use,
                waiting: counts.waiting,
            }
        });
        let times = self.shared.times.total();
        Statistics {
            permits_in_use: self.shared.admission.requests(),
            permits: self.shared.admission.max_requests,
            workers: self.shared.waiting.workers(),
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
        let submission_window_ns =
            submission_window.map(|submission_window| submission_window.as_nanos() as u64);
        self.shared.tell(Event::Limits { batch_max: batch_max.clone(), submission_window_ns });
    }

    /// Takes no more requests, waits until those in flight are answered, and stops the
    /// workers.
    pub fn shutdown(&self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        lock(&self.shared.requests).close();
        // Idle ones may hold slots that requests in flight wait for.
        self.shared.sessions.end_all(&self.shared);
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
        self.shared.waiting.ring_all();
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
        let mut requests = lock(&self.shared.requests);
        requests.close();
        for (request, responder) in requests.abandon() {
            self.shared.device.retire(request);
            drop(responder.permit);
            let _ = responder.sender.send(Err(EngineError::Cancelled));
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

impl Shared {
    /// Nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// The instant that is so many nanoseconds since the start.
    pub(crate) fn instant_of(&self, ns: u64) -> Instant {
        self.start + Duration::from_nanos(ns)
    }

    /// How many workers are not lost.
    pub(crate) fn workers_up(&self) -> u32 {
        self.workers_up.load(Ordering::SeqCst).count_ones()
    }

    /// Notes that a worker's part of the device is lost.
    pub(crate) fn worker_lost(&self, worker: WorkerId, reason: &Arc<str>) {
        let bit = 1 << worker.0;
        if self.workers_up.fetch_and(!bit, Ordering::SeqCst) == bit {
            let _ = self.lost.set(reason.clone());
        }
    }

    pub(crate) fn cancel(&self, request: RequestId) {
        self.tell(Event::Cancel { request });
    }

    pub(crate) fn tell(&self, event: Event) {
        let mut inbox = lock(&self.inbox);
        inbox.push((self.now_ns(), event));
        drop(inbox);
        self.waiting.wake_one();
    }
}
