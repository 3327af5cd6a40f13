//! A request on its way in: it takes a permit, is unfolded, and is submitted once its bytes fit the budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use batchmaker_device::DeviceError;
use batchmaker_graph::{
    CellGraph, Chunk, InvalidRequest, SessionId, Tensor, UnfoldError, Unfolded,
};
use batchmaker_manager::Event;
use batchmaker_model::{Model, ReplyPlan};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use crate::admission::Place;
use crate::error::EngineError;
use crate::lock::lock;
use crate::memory::Reservation;
use crate::needs::{Needs, ReplyForm};
use crate::pending::{Pending, Steps};
use crate::reply::{Computed, Reply};
use crate::request::Request;
use crate::responder::Responder;
use crate::served_model::ServedModel;
use crate::sessions::Entering;
use crate::shared::Shared;
use crate::streaming::Streamed;

/// The records of one request's graph may take the whole budget divided by this.
const GRAPH_SHARE: usize = 4;

/// The right to submit one request to a model. It is taken before anything is done for the request that costs
/// much, and held until the request is answered.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    served: Arc<ServedModel>,
    place: Place,
}

/// The bytes of records that a request of which a copy is kept is unfolded with, at least.
const GRAPH_BYTES: usize = 64 << 10;

/// Why a request was not unfolded.
#[derive(Debug)]
pub enum NotUnfolded {
    /// It is wrong, or can never fit the budget.
    Refused(EngineError),
    /// It can be unfolded once it holds more bytes of the budget.
    Waits(Box<WaitingRequest>),
}

/// A request with its permit, which can be unfolded once it holds more bytes of the budget.
#[derive(Debug)]
pub struct WaitingRequest {
    permit: Permit,
    request: Request,
    memory: Reservation,
    /// The bytes that it needs for that.
    bytes: usize,
}

/// A request as a cell graph, which has to be submitted yet.
#[derive(Debug)]
pub struct UnfoldedRequest(Unfolding);

#[derive(Debug)]
enum Unfolding {
    Graph(Box<Submission>),
    /// There was a session to end, and nothing else to do.
    Reply(Reply),
}

#[derive(Debug)]
struct Submission {
    permit: Permit,
    parts: Parts,
    memory: Reservation,
}

/// The results of unfolding a request: its cell graph, its inputs, the plan of its reply and its needs.
#[derive(Debug)]
struct Parts {
    graph: Arc<CellGraph>,
    inputs: Vec<Tensor>,
    plan: ReplyPlan,
    entering: Option<Entering>,
    priority: u32,
    deadline: Option<Instant>,
    stream: bool,
    needs: Needs,
}

impl From<EngineError> for NotUnfolded {
    fn from(error: EngineError) -> Self {
        Self::Refused(error)
    }
}

impl From<NotUnfolded> for EngineError {
    /// The error of a caller that does not wait.
    fn from(reason: NotUnfolded) -> Self {
        match reason {
            NotUnfolded::Refused(error) => error,
            NotUnfolded::Waits(waiting) => {
                let budget = waiting.permit.shared.memory.clone();
                drop(waiting);
                budget.error_in_use()
            }
        }
    }
}

impl Permit {
    pub(crate) fn new(shared: Arc<Shared>, served: Arc<ServedModel>) -> Result<Self, EngineError> {
        if shared.is_closing.load(Ordering::SeqCst) {
            return Err(EngineError::ShuttingDown);
        }
        if let Some(reason) = shared.lost.get() {
            return Err(EngineError::DeviceLost(reason.clone()));
        }
        let place = shared.admission.place(served.id, &served.model.name)?;
        Ok(Self { shared, served, place })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.served.model
    }

    /// Checks and unfolds a request, in time that is linear in its tensors. `memory` holds
    /// [`Request::bytes`], or grows to them; the records of the request's graph count as well.
    ///
    /// # Errors
    /// The request is wrong, or it does not fit the budget, now or ever.
    pub fn unfold(
        self,
        mut request: Request,
        mut memory: Reservation,
    ) -> Result<UnfoldedRequest, NotUnfolded> {
        let default = || Instant::now().checked_add(self.shared.default_timeout?);
        request.deadline = request.deadline.or_else(default);
        let (brought, bytes_max) = (request.bytes(), memory.bytes_max());
        if brought > bytes_max {
            return Err(EngineError::TooLarge { bytes: brought, bytes_max }.into());
        }
        let graph_bytes_most = (bytes_max / GRAPH_SHARE).min(bytes_max - brought);
        let enough = brought + graph_bytes_most;
        if memory.try_grow_to(enough).is_err() {
            memory.grow_towards(enough);
        }
        let held = memory.bytes();
        // With less than enough, the records may turn out to need more: a copy of the request waits for that.
        let is_short = held < enough;
        let needed = brought.saturating_mul(2).saturating_add(GRAPH_BYTES).min(enough);
        let wait = |permit, request, mut memory: Reservation, bytes| {
            memory.shrink_to(brought);
            NotUnfolded::Waits(Box::new(WaitingRequest { permit, request, memory, bytes }))
        };
        if held < needed {
            return Err(wait(self, request, memory, needed));
        }
        let copy = is_short.then(|| request.clone());
        let graph_bytes_max = if is_short { held - 2 * brought } else { graph_bytes_most };
        let parts = match (self.parts(request, graph_bytes_max), copy) {
            (Ok(Some(parts)), _) => parts,
            (Ok(None), _) => return Ok(UnfoldedRequest(Unfolding::Reply(Reply::empty()))),
            (Err(EngineError::TooManyRuns { .. }), Some(copy)) => {
                return Err(wait(self, copy, memory, enough));
            }
            (Err(error), _) => return Err(error.into()),
        };
        // What the graph might have taken is for others. What waits for more holds as little as it can.
        let (all, records) = (parts.needs.all, parts.graph.record_bytes());
        memory.shrink_to(if memory.bytes() >= all { all } else { brought + records });
        Ok(UnfoldedRequest(Unfolding::Graph(Box::new(Submission { permit: self, parts, memory }))))
    }

    /// Checks and unfolds a request, with records of up to `graph_bytes_max`. None of one that only ends its session.
    fn parts(
        &self,
        request: Request,
        graph_bytes_max: usize,
    ) -> Result<Option<Parts>, EngineError> {
        let (stream, reply_factor, deadline) =
            (request.stream, request.reply_factor, request.deadline);
        let Request { mut tensors, mut parameters, priority, session, outputs, .. } = request;
        let (shared, served) = (&self.shared, &self.served);
        let mut entering = None;
        (parameters.chunk, parameters.answered_steps) = (Chunk::Whole, 0);
        if let Some(part) = session {
            served.check_sessions()?;
            if part.end && !part.start && tensors.is_empty() {
                shared.sessions.end(served, &part.key, &shared.inbox)?;
                return Ok(None);
            }
            let (found, completed) = shared.sessions.prepare(served, part, tensors)?;
            (parameters.chunk, parameters.answered_steps) = (found.chunk(), found.answered());
            (entering, tensors) = (Some(found), completed);
        }
        parameters.graph_bytes_max = Some(graph_bytes_max);
        let unfolded = served.model.unfold(tensors, &parameters, &outputs);
        let (unfolded, plan) = unfolded.map_err(|error| match error {
            UnfoldError::Request(error) => EngineError::Invalid(error),
            UnfoldError::Graph(error) => EngineError::Unfolding(error),
            UnfoldError::TooLarge { bytes_max } => EngineError::TooManyRuns { bytes_max },
        })?;
        let Unfolded { graph, inputs, .. } = unfolded;
        if entering.is_some() {
            // Windows of steps wait for more.
            if graph.runs().is_empty() && served.model.kept_bytes_max() == 0 {
                let text = "a chunk of a sequence without a step".to_owned();
                return Err(InvalidRequest(text).into());
            }
            shared.check_slots(&graph)?;
        }
        served.check_runs(&graph)?;
        shared.check_values(&graph)?;
        let static_bytes = entering.as_ref().map_or(0, |entering| entering.static_bytes(served));
        let bytes = plan.bytes(&graph);
        let reply = ReplyForm { bytes, factor: reply_factor, is_stream: stream };
        let working_bytes = shared.device.working_bytes(&graph, shared.inbox.waiting.workers());
        let mut needs = Needs::of(&graph, &shared.slot_bytes, static_bytes, reply);
        needs.all = needs.all.saturating_add(usize::try_from(working_bytes).unwrap_or(usize::MAX));
        let graph = Arc::new(graph);
        Ok(Some(Parts { graph, inputs, plan, entering, priority, deadline, stream, needs }))
    }
}

impl WaitingRequest {
    /// Waits until the request holds the bytes that it needs to be unfolded.
    ///
    /// # Errors
    /// It never can, or others hold them for longer than a request may wait.
    pub async fn fit(&mut self) -> Result<(), EngineError> {
        self.permit.shared.wait_for_memory(self.memory.grow_to(self.bytes)).await
    }

    /// Unfolds the request: see [`Permit::unfold`].
    ///
    /// # Errors
    /// As for [`Permit::unfold`].
    pub fn unfold(self) -> Result<UnfoldedRequest, NotUnfolded> {
        self.permit.unfold(self.request, self.memory)
    }
}

impl UnfoldedRequest {
    /// The bytes that the request needs from its submission to its answer.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Unfolding::Graph(submission) => submission.parts.needs.all,
            Unfolding::Reply(_) => 0,
        }
    }

    /// The bytes of the request's values, which [`submit`](Self::submit) clears or moves.
    pub fn value_bytes(&self) -> usize {
        match &self.0 {
            Unfolding::Graph(submission) => submission.parts.graph.bytes(),
            Unfolding::Reply(_) => 0,
        }
    }

    /// Waits until the request fits the budget, and holds its bytes from then on.
    ///
    /// # Errors
    /// It can never fit, or others hold the bytes for longer than a request may wait.
    pub async fn fit(&mut self) -> Result<(), EngineError> {
        match &mut self.0 {
            Unfolding::Graph(submission) => {
                let Submission { permit, parts, memory } = &mut **submission;
                permit.shared.wait_for_memory(memory.take(parts.needs.all)).await
            }
            Unfolding::Reply(_) => Ok(()),
        }
    }

    /// Hands the request to the workers, without waiting. This takes time that is linear in
    /// [`value_bytes`](Self::value_bytes).
    ///
    /// # Errors
    /// It does not fit the budget now; the graph cannot run; the engine is closing or lost.
    pub fn submit(self) -> Result<Pending, EngineError> {
        match self.0 {
            Unfolding::Reply(reply) => Ok(Pending::answered(reply)),
            Unfolding::Graph(mut submission) => {
                submission.memory.try_take(submission.parts.needs.all)?;
                submission.start()
            }
        }
    }
}

impl Submission {
    /// Hands the request, whose bytes are reserved, to the device and to the manager.
    fn start(self) -> Result<Pending, EngineError> {
        let Self { permit, parts, mut memory } = self;
        let Parts { graph, inputs, plan, entering, priority, deadline, stream, needs } = parts;
        let Permit { shared, served, place } = permit;
        if graph.runs().is_empty() {
            if let Some(entering) = entering {
                let of_session = memory.split(needs.session);
                let (sessions, inbox) = (&shared.sessions, &shared.inbox);
                sessions.enter(&served, entering, of_session, inbox, None::<fn(SessionId)>)?;
            }
            let computed = Computed::without_runs(&graph, inputs, memory);
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
        let of_session = memory.split(needs.session);
        let (ends, session, reply_bytes) = (Vec::new(), None, needs.reply);
        let responder = Responder { sender, place, memory, reply_bytes, ends, session, streamed };
        let id = lock(&shared.requests).insert(responder);
        let id = id.ok_or(EngineError::ShuttingDown)?;
        if let Err(error) = shared.device.admit(id, graph.clone(), inputs) {
            // Its bytes are free for others only then.
            drop(graph);
            shared.take_back(id);
            return Err(match error {
                DeviceError::Full { .. } => shared.memory.error_in_use(),
                DeviceError::Graph(error) => EngineError::Unfolding(error),
                DeviceError::Lost(reason) => EngineError::DeviceLost(reason.into()),
                error => EngineError::DeviceLost(error.to_string().into()),
            });
        }
        let arrive = |session: Option<SessionId>| {
            if let Some(session) = session {
                lock(&shared.requests).set_session(id, session);
            }
            let (request, model) = (id, served.id);
            let deadline_ns = deadline.map(|at| shared.inbox.ns_of(at));
            let arrival = Event::Arrive { request, model, priority, deadline_ns, graph, session };
            shared.inbox.send(arrival);
        };
        match entering {
            None => arrive(None),
            Some(entering) => {
                let arrive = |id| arrive(Some(id));
                let inbox = &shared.inbox;
                let entered =
                    shared.sessions.enter(&served, entering, of_session, inbox, Some(arrive));
                if let Err(error) = entered {
                    shared.device.retire(id);
                    shared.take_back(id);
                    return Err(error);
                }
            }
        }
        let in_flight = Some((id, shared.inbox.clone()));
        Ok(Pending::new(values, plan, steps, reply_bytes, in_flight))
    }
}
