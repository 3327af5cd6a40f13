//! A request of the protocol to the engine, and the engine's reply to the protocol: the same for every
//! transport.

use std::pin::pin;
use std::time::{Duration, Instant};

use batchmaker::{
    ElementType, EngineError, Model, NamedTensor, NotUnfolded, Pending, Permit, Reply, Request,
    Reservation, UnfoldedRequest,
};
use batchmaker_wire as wire;
use futures_util::future::poll_immediate;
use wire::{ContentEncoding, DataFormat, InferRequest, RequestedOutputs};

use crate::serving::app::App;
use crate::serving::blocks::Blocks;
use crate::serving::classification::{self, CLASS_FACTOR};
use crate::serving::deadline::Deadline;
use crate::serving::error::ServeError;
use crate::serving::generation;
use crate::serving::heavy_work::{self, COPIED_PER_JSON_BYTE, HeavyWork};
use crate::serving::parameters::{self, Scheduling};
use crate::serving::tensors;

/// The bytes of JSON for each byte of a tensor, at most: a truth value has one byte, and `false,` six.
const JSON_FACTOR: usize = 6;

/// The most bytes of the name that a client gives a request.
const ID_BYTES_MAX: usize = 1 << 10;

/// The bytes that a request waits for before it is unfolded: the records of most graphs take less.
const GRAPH_BYTES: usize = 64 << 10;

/// The fields of a request that its response repeats.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) model_name: String,
    pub(crate) model_version: String,
    pub(crate) id: Option<String>,
    /// The outputs that were requested, and the form of each.
    pub(crate) requested: RequestedOutputs,
    /// The types of the model's outputs that are not stored as they are, by name.
    pub(crate) converted: Vec<(String, ElementType)>,
    /// The number of classes of each output that is wanted as such, by name.
    pub(crate) classes: Vec<(String, usize)>,
    /// Whether the first axis of outputs is that of the request's sequences.
    pub(crate) is_batch: bool,
}

impl Context {
    /// The work of encoding a reply of as many bytes: see [`heavy_work`].
    pub(crate) fn work(&self, bytes: usize) -> usize {
        let is_text = has_json(&self.requested) || !self.classes.is_empty();
        if is_text { bytes } else { bytes / COPIED_PER_JSON_BYTE }
    }
}

/// A request whose last byte has come.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) body: Blocks,
    pub(crate) encoding: ContentEncoding,
    /// The most bytes that the body may have once it is decompressed.
    pub(crate) body_bytes_max: usize,
    /// See [`wire::HEADER_LENGTH`].
    pub(crate) header_length: Option<usize>,
    /// When it came, and the time that it has where it names none.
    pub(crate) at: Instant,
    pub(crate) default_timeout: Option<Duration>,
    /// The session that a header names.
    pub(crate) session: Option<String>,
    /// What the body holds of the budget.
    pub(crate) memory: Reservation,
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Tensors.
    Infer,
    /// A text, whose answer is text.
    Generate {
        /// Whether its steps are wanted as they are computed.
        stream: bool,
    },
}

/// A request that the engine has.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) context: Context,
    pub(crate) scheduling: Scheduling,
    pub(crate) deadline: Deadline,
    pub(crate) pending: Pending,
}

/// A request that has arrived and holds its permit.
struct Job {
    permit: Permit,
    arrived: Arrived,
    form: Form,
}

/// Why a job has no result.
enum Unprepared {
    Refused(ServeError),
    /// It can go on once it holds as many bytes.
    Needs(usize, Box<Job>),
    /// It takes more than the work that was allowed: this much.
    IsMore(usize, Box<Job>),
}

impl<E: Into<ServeError>> From<E> for Unprepared {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// Decodes, checks, unfolds and submits a request, as soon as it fits the budget.
pub(crate) async fn submit(
    app: &App,
    model: &str,
    arrived: Arrived,
    form: Form,
) -> Result<Submitted, ServeError> {
    let permit = app.engine.permit(model)?;
    let at = arrived.at;
    let mut work = arrived.work();
    let mut job = Box::new(Job { permit, arrived, form });
    let (context, scheduling, mut unfolding) = loop {
        let work_max = HeavyWork::most_beside(work);
        match app.heavy_work.run(work, move || job.prepare(work_max)).await {
            Ok(prepared) => break prepared,
            Err(Unprepared::Refused(error)) => return Err(error),
            Err(Unprepared::IsMore(more, waiting)) => (work, job) = (more, waiting),
            Err(Unprepared::Needs(bytes, waiting)) => {
                job = waiting;
                within(app, job.arrived.memory.grow_to(bytes)).await?;
            }
        }
    };
    let deadline = Deadline::new(at, scheduling.timeout);
    let mut unfolded = loop {
        match unfolding {
            Ok(unfolded) => break unfolded,
            Err(NotUnfolded::Refused(error)) => return Err(error.into()),
            Err(NotUnfolded::Waits(mut waiting)) => {
                deadline.bound(waiting.fit()).await??;
                unfolding = app.heavy_work.run(work, move || waiting.unfold()).await;
            }
        }
    };
    deadline.bound(unfolded.fit()).await??;
    let work = unfolded.value_bytes() / COPIED_PER_JSON_BYTE;
    let pending = app.heavy_work.run(work, || unfolded.submit()).await?;
    Ok(Submitted { context, scheduling, deadline, pending })
}

/// Waits for the memory of a body that comes, for `memory_wait` at most; then [`EngineError::MemoryInUse`].
pub(crate) async fn within<T>(
    app: &App,
    wait: impl Future<Output = Result<T, EngineError>>,
) -> Result<T, ServeError> {
    let mut wait = pin!(wait);
    // Where there is enough, no timer is needed.
    if let Some(result) = poll_immediate(wait.as_mut()).await {
        return Ok(result?);
    }
    match tokio::time::timeout(app.memory_wait, wait).await {
        Ok(result) => Ok(result?),
        Err(_) => {
            let bytes = app.engine.memory().bytes_in_use();
            Err(EngineError::MemoryInUse { bytes }.into())
        }
    }
}

impl Arrived {
    /// The work that reading it looks like: see [`heavy_work`].
    fn work(&self) -> usize {
        let bytes = self.body.len();
        match (self.encoding, self.header_length) {
            (ContentEncoding::Identity, None) => bytes,
            (ContentEncoding::Identity, Some(json)) => {
                json.saturating_add(bytes.saturating_sub(json) / COPIED_PER_JSON_BYTE)
            }
            // It may turn out to be more.
            _ => heavy_work::of_compression(bytes),
        }
    }
}

impl Job {
    /// Prepares the request, unless that is more work than `work_max`.
    fn prepare(
        mut self: Box<Self>,
        work_max: usize,
    ) -> Result<(Context, Scheduling, Result<UnfoldedRequest, NotUnfolded>), Unprepared> {
        match self.read(work_max) {
            Ok((request, scheduling)) => {
                let Self { permit, arrived, form } = *self;
                let Arrived { body, memory, at, .. } = arrived;
                drop(body);
                let (context, mut request) =
                    for_engine(permit.model(), request, &scheduling, form)?;
                request.deadline = scheduling.timeout.and_then(|timeout| at.checked_add(timeout));
                Ok((context, scheduling, permit.unfold(request, memory)))
            }
            Err(Unread::Refused(error)) => Err(Unprepared::Refused(error)),
            Err(Unread::Needs(bytes)) => Err(Unprepared::Needs(bytes, self)),
            Err(Unread::IsMore(work)) => Err(Unprepared::IsMore(work, self)),
        }
    }

    /// Reads the body. What is made of it is counted before it is made.
    fn read(&mut self, work_max: usize) -> Result<(InferRequest, Scheduling), Unread> {
        let Self { permit, arrived, form } = self;
        let Arrived {
            body,
            encoding,
            body_bytes_max,
            header_length,
            default_timeout,
            session,
            memory,
            ..
        } = arrived;
        if !body.is_joined() {
            hold(memory, 2 * body.capacity())?;
        }
        let body = body.join();
        let held = body.capacity();
        let decompressed = match encoding {
            ContentEncoding::Identity => None,
            encoding => {
                let may_hold = |bytes| match bytes > work_max {
                    true => Err(Unread::IsMore(bytes)),
                    false => hold(memory, held + bytes),
                };
                Some(wire::decompress(*encoding, body, *body_bytes_max, may_hold)?)
            }
        };
        let held = held + decompressed.as_ref().map_or(0, Vec::capacity);
        let text = decompressed.as_deref().unwrap_or(body);
        let model = permit.model();
        let request = match form {
            Form::Infer => {
                let encoded = wire::read_request(text, *header_length)?;
                tensors::check(&encoded.inputs, &model.inputs)?;
                let work = tensors::work(&encoded.inputs, &model.inputs);
                if work > work_max {
                    return Err(Unread::IsMore(work));
                }
                hold(memory, held + encoded.decoded_bytes() + GRAPH_BYTES)?;
                encoded.decode()?
            }
            Form::Generate { .. } => {
                // The text once more, as a string and as an element of a tensor.
                hold(memory, held + 2 * text.len() + GRAPH_BYTES)?;
                generation::read(model, text)?
            }
        };
        check_id(request.id.as_deref())?;
        let mut scheduling = parameters::read(&request, session.as_deref())?;
        scheduling.timeout = scheduling.timeout.or(*default_timeout);
        Ok((request, scheduling))
    }
}

/// Why a body was not read.
enum Unread {
    Refused(ServeError),
    /// It can be read once the request holds as many bytes.
    Needs(usize),
    /// It takes more than the work that was allowed: this much.
    IsMore(usize),
}

impl<E: Into<ServeError>> From<E> for Unread {
    fn from(error: E) -> Self {
        Self::Refused(error.into())
    }
}

/// Checks that a request's id is short: it is kept beside what the request holds, and its reply repeats it.
fn check_id(id: Option<&str>) -> Result<(), ServeError> {
    match id.map_or(0, str::len) {
        ..=ID_BYTES_MAX => Ok(()),
        bytes => Err(ServeError::Invalid(format!(
            "the id has {bytes} bytes, expected at most {ID_BYTES_MAX}"
        ))),
    }
}

/// Has the reservation hold `bytes`.
fn hold(memory: &mut Reservation, bytes: usize) -> Result<(), Unread> {
    memory.try_grow_to(bytes).map_err(|error| match error {
        EngineError::MemoryInUse { .. } => Unread::Needs(bytes),
        error => Unread::Refused(error.into()),
    })
}

/// A request of the protocol as the engine takes it, and what its response repeats.
pub(crate) fn for_engine(
    model: &Model,
    request: InferRequest,
    scheduling: &Scheduling,
    form: Form,
) -> Result<(Context, Request), ServeError> {
    let InferRequest { id, inputs, outputs: requested, .. } = request;
    let tensors = tensors::from_wire(inputs, &model.inputs)?;
    let Scheduling { priority, steps: parameters, session, .. } = scheduling.clone();
    let outputs = requested.list.iter().map(|output| output.name.clone()).collect();
    let mut wanted = Request::from(tensors).parameters(parameters).priority(priority);
    (wanted.session, wanted.outputs) = (session, outputs);
    wanted.stream = form == Form::Generate { stream: true };
    let classes = classification::wanted(&requested.list, model)?;
    wanted.reply_factor = match has_json(&requested) {
        _ if !classes.is_empty() => CLASS_FACTOR,
        true => JSON_FACTOR,
        false => 1,
    };
    let (model_name, model_version) = (model.name.clone(), model.version.clone());
    let converted = model.outputs.iter().filter(|info| info.element != info.element.stored());
    let converted = converted.map(|info| (info.name.clone(), info.element)).collect();
    let is_batch = model.sequences_max().is_some();
    let context =
        Context { model_name, model_version, id, requested, converted, classes, is_batch };
    Ok((context, wanted))
}

/// Whether any output is wanted as JSON.
fn has_json(requested: &RequestedOutputs) -> bool {
    let is_json = |format| format == DataFormat::Json;
    match &requested.list[..] {
        [] => is_json(requested.default_format),
        list => list.iter().any(|output| is_json(requested.format_of(&output.name))),
    }
}

/// The body of the response to a request, in the forms that it asks for.
pub(crate) fn encode(context: Context, reply: Reply) -> Result<wire::EncodedBody, ServeError> {
    let Context { model_name, model_version, id, requested, converted, classes, is_batch } =
        context;
    let output = |output: NamedTensor| {
        let tensor = tensors::to_wire(output, &converted)?;
        match classes.iter().find(|(name, _)| *name == tensor.name) {
            Some(&(_, classes)) => classification::classify(tensor, classes, is_batch),
            None => Ok(tensor),
        }
    };
    let outputs = reply.outputs.into_iter().map(output).collect::<Result<_, _>>()?;
    let parameters = wire::Parameters::new();
    let response = wire::InferResponse { model_name, model_version, id, parameters, outputs };
    Ok(wire::encode_response(&response, |name| requested.format_of(name))?)
}
