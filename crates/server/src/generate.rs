//! Text in, text out: `generate`, whole, and `generate_stream`, an event a decoded token.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use batchmaker_engine::{NamedTensor, Pending, Reply, TensorData};
use batchmaker_model::Model;
use batchmaker_wire as wire;
use batchmaker_wire::ErrorBody;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::attempt::{Attempt, Phases};
use crate::body;
use crate::exchange::{self, Context};
use crate::infer::{deadline, name_session, reply_by, session_header};
use crate::parameters::{self, Scheduling};
use crate::router::App;
use crate::status::{self, ApiError};
use crate::target::Target;

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerateRequest {
    id: Option<String>,
    text_input: String,
    #[serde(default)]
    parameters: serde_json::Map<String, Value>,
}

/// The body of a reply, or of an event of it.
#[derive(Serialize)]
struct Generated<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    model_name: &'a str,
    model_version: &'a str,
    text_output: &'a str,
}

pub(crate) async fn generate(
    State(app): State<Arc<App>>,
    target: Result<Target, ApiError>,
    request: Request,
) -> Response {
    let asked = match Asked::read(&app, target, request).await {
        Ok(asked) => asked,
        Err(response) => return response,
    };
    let Asked { attempt, target, request, scheduling, arrival } = asked;
    let model = target.model();
    let answer = async {
        let output = text_output(model)?;
        let (context, pending) = exchange::submit(&app.engine, model, request, &scheduling, false)?;
        let input_ns = arrival.elapsed().as_nanos() as u64;
        let reply = reply_by(pending, deadline(&scheduling, arrival), &scheduling).await?;
        let start = Instant::now();
        let text = text_of(&reply.outputs, output)?;
        let mut response = status::json(&generated(&context, &text));
        name_session(&mut response, &scheduling);
        Ok((response, phases(input_ns, &reply, start)))
    };
    let answer = answer.await;
    attempt.conclude(answer)
}

pub(crate) async fn generate_stream(
    State(app): State<Arc<App>>,
    target: Result<Target, ApiError>,
    request: Request,
) -> Response {
    let asked = match Asked::read(&app, target, request).await {
        Ok(asked) => asked,
        Err(response) => return response,
    };
    let Asked { attempt, target, request, scheduling, arrival } = asked;
    let submitted = text_output(target.model())
        .and_then(|_| exchange::submit(&app.engine, target.model(), request, &scheduling, true));
    let (context, pending) = match submitted {
        Ok(submitted) => submitted,
        Err(error) => return attempt.conclude(Err(error)),
    };
    let (input_ns, named) = (arrival.elapsed().as_nanos() as u64, scheduling.clone());
    let told = Told {
        target,
        context,
        deadline: deadline(&scheduling, arrival),
        scheduling,
        input_ns,
        texts: VecDeque::new(),
        has_told: false,
        running: Some((pending, attempt)),
    };
    // Who leaves drops the stream: the request with it, and an attempt that is not over.
    let events = futures_util::stream::unfold(told, |told| async move {
        let (event, rest) = told.next().await?;
        Some((Ok::<_, Infallible>(event), rest))
    });
    let mut response = Sse::new(events).into_response();
    name_session(&mut response, &named);
    response
}

/// A request that can be read.
struct Asked {
    attempt: Attempt,
    target: Target,
    request: wire::InferRequest,
    scheduling: Scheduling,
    arrival: Instant,
}

impl Asked {
    /// Reads a request; else its answer.
    async fn read(
        app: &App,
        target: Result<Target, ApiError>,
        request: Request,
    ) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let target = match target {
            Ok(target) => target,
            Err(error) => {
                body::discard(body, app.limits).await;
                return Err(error.into_response());
            }
        };
        let mut attempt = Attempt::start(target.record().clone());
        let read = async {
            let body = body::read(&parts.headers, body, app.limits).await?;
            attempt.is_here();
            let arrival = Instant::now();
            let request = decode(&body)?;
            let scheduling = parameters::read(&request, session_header(&parts.headers)?)?;
            Ok::<_, ApiError>((request, scheduling, arrival))
        };
        match read.await {
            Ok((request, scheduling, arrival)) => {
                Ok(Self { attempt, target, request, scheduling, arrival })
            }
            Err(error) => Err(attempt.conclude(Err(error))),
        }
    }
}

/// As a request of the tensor `text`.
fn decode(body: &[u8]) -> Result<wire::InferRequest, ApiError> {
    let request: GenerateRequest =
        serde_json::from_slice(body).map_err(|e| ApiError::Invalid(format!("request: {e}")))?;
    let GenerateRequest { id, text_input, parameters } = request;
    let head = json!({"parameters": parameters, "inputs": []}).to_string();
    let wire::InferRequest { parameters, .. } = wire::decode_request(head.as_bytes(), None)?;
    let text = wire::Tensor::new("text", vec![1], vec![text_input.into_bytes()])?;
    Ok(wire::InferRequest { id, parameters, inputs: vec![text], ..Default::default() })
}

fn text_output(model: &Model) -> Result<&str, ApiError> {
    let name = &model.name;
    if !model.inputs.iter().any(|input| input.name == "text") {
        let reason = format!("model '{name}' takes no text: its model.toml has no [inputs.text]");
        return Err(ApiError::Invalid(reason));
    }
    model.text_output().ok_or_else(|| {
        ApiError::Invalid(format!("model '{name}' gives no text: its model.toml has no [outputs]"))
    })
}

/// The text of an output; several with spaces between.
fn text_of(outputs: &[NamedTensor], name: &str) -> Result<String, ApiError> {
    let missing = || ApiError::Internal(format!("the model left out its output '{name}'"));
    let output = outputs.iter().find(|output| output.name == name).ok_or_else(missing)?;
    let TensorData::Bytes(texts) = output.tensor.data() else { return Err(missing()) };
    let texts: Vec<_> = texts.iter().map(|text| String::from_utf8_lossy(text)).collect();
    Ok(texts.join(" "))
}

fn generated<'a>(context: &'a Context, text_output: &'a str) -> Generated<'a> {
    let Context { model_name, model_version, id, .. } = context;
    Generated { id: id.as_deref(), model_name, model_version, text_output }
}

fn phases(input_ns: u64, reply: &Reply, start: Instant) -> Phases {
    let (queue_ns, compute_ns) = (reply.queue_ns, reply.compute_ns);
    Phases { input_ns, queue_ns, compute_ns, output_ns: start.elapsed().as_nanos() as u64 }
}

/// A reply that is told step by step.
struct Told {
    target: Target,
    context: Context,
    scheduling: Scheduling,
    deadline: Option<Instant>,
    input_ns: u64,
    /// What came and is not told.
    texts: VecDeque<String>,
    has_told: bool,
    /// None once the reply is there.
    running: Option<(Pending, Attempt)>,
}

impl Told {
    /// The next event, and what comes after; none at the end.
    async fn next(mut self) -> Option<(Event, Self)> {
        loop {
            if let Some(text) = self.texts.pop_front() {
                self.has_told = true;
                return Some((event(&generated(&self.context, &text)), self));
            }
            let (pending, _) = self.running.as_mut()?;
            let steps = pending.next_steps();
            let steps = match self.deadline {
                None => steps.await,
                // The reply is late as well, and says so.
                Some(at) => tokio::time::timeout_at(at.into(), steps).await.unwrap_or(None),
            };
            let name = text_output(self.target.model()).expect("it was asked before");
            if let Some(texts) = steps.and_then(|steps| texts_of(steps, name)) {
                self.texts.extend(texts);
                continue;
            }
            let (pending, attempt) = self.running.take()?;
            let reply = reply_by(pending, self.deadline, &self.scheduling).await;
            let start = Instant::now();
            let done = reply.and_then(|reply| {
                // What has no steps to tell of is told as a whole.
                let text = if self.has_told { None } else { Some(text_of(&reply.outputs, name)?) };
                self.texts.extend(text.filter(|text| !text.is_empty()));
                Ok(phases(self.input_ns, &reply, start))
            });
            match done {
                Ok(phases) => attempt.succeeded(phases),
                Err(error) => {
                    attempt.failed(&error);
                    return Some((event(&ErrorBody { error: error.to_string() }), self));
                }
            }
        }
    }
}

fn event(data: &impl Serialize) -> Event {
    Event::default().data(serde_json::to_string(data).expect("what the server says is JSON"))
}

/// The texts of an output, one a step.
fn texts_of(steps: Vec<NamedTensor>, name: &str) -> Option<Vec<String>> {
    let output = steps.into_iter().find(|output| output.name == name)?;
    let TensorData::Bytes(texts) = output.tensor.into_data() else { return None };
    Some(texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}
