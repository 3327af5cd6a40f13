//! Text in, text out over HTTP: `generate`, whole, and `generate_stream`, an event for each decoded token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use batchmaker::{Pending, Reply};
use batchmaker_wire as wire;
use batchmaker_wire::ErrorBody;
use serde::{Deserialize, Serialize};

use crate::http::body;
use crate::http::error::HttpError;
use crate::http::infer::{conclude, name_session, session_header};
use crate::http::response::json;
use crate::http::state::HttpState;
use crate::serving::app::Target;
use crate::serving::attempt::Attempt;
use crate::serving::deadline::Deadline;
use crate::serving::error::ServeError;
use crate::serving::exchange::{self, Context};
use crate::serving::generation::{self, TextPart, TextStream};
use crate::serving::outcome::Phases;
use crate::serving::parameters::{self, Scheduling};

/// The body of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerateRequest {
    id: Option<String>,
    text_input: String,
    #[serde(default)]
    parameters: wire::Parameters,
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

/// `POST /v2/models/M/generate`.
pub(crate) async fn generate(
    State(state): State<Arc<HttpState>>,
    target: Result<Target, HttpError>,
    request: Request,
) -> Response {
    let (attempt, submitted) = match submit(&state, target, request, false).await {
        Ok(submitted) => submitted,
        Err(response) => return response,
    };
    let Submitted { context, pending, scheduling, arrival, input_ns } = submitted;
    let answer = async {
        let mut reply = Deadline::new(arrival, scheduling.timeout).reply(pending).await?;
        let start = Instant::now();
        let text = generation::text_of(std::mem::take(&mut reply.outputs))?;
        let mut response = json(&generated(&context, &text));
        name_session(&mut response, &scheduling);
        Ok((response, phases(input_ns, &reply, start)))
    };
    let answer = answer.await;
    conclude(attempt, answer)
}

/// `POST /v2/models/M/generate_stream`.
pub(crate) async fn generate_stream(
    State(state): State<Arc<HttpState>>,
    target: Result<Target, HttpError>,
    request: Request,
) -> Response {
    let (attempt, submitted) = match submit(&state, target, request, true).await {
        Ok(submitted) => submitted,
        Err(response) => return response,
    };
    let Submitted { context, pending, scheduling, arrival, input_ns } = submitted;
    let texts = TextStream::new(pending, Deadline::new(arrival, scheduling.timeout));
    // When the client leaves, the stream is dropped: the request with it, and an attempt that is not over.
    let events = Events { context, input_ns, texts, attempt: Some(attempt) };
    let events = futures_util::stream::unfold(events, |mut events| async move {
        let event = events.next().await?;
        Some((Ok::<_, Infallible>(event), events))
    });
    let mut response = Sse::new(events).into_response();
    name_session(&mut response, &scheduling);
    response
}

/// A request that was submitted.
struct Submitted {
    context: Context,
    pending: Pending,
    scheduling: Scheduling,
    arrival: Instant,
    /// The time to read and submit it, in nanoseconds.
    input_ns: u64,
}

/// Reads and submits a request; or returns the response that refuses it.
async fn submit(
    state: &HttpState,
    target: Result<Target, HttpError>,
    request: Request,
    stream: bool,
) -> Result<(Attempt, Submitted), Response> {
    let (parts, body) = request.into_parts();
    let target = match target {
        Ok(target) => target,
        Err(error) => {
            body::discard(body, state.limits).await;
            return Err(error.into_response());
        }
    };
    let mut attempt = Attempt::start(target.record().clone());
    let submitted = async {
        let body = body::read(&parts.headers, body, state.limits).await?;
        attempt.arrived();
        let arrival = Instant::now();
        let request: GenerateRequest = serde_json::from_slice(&body)
            .map_err(|error| ServeError::Invalid(format!("request: {error}")))?;
        let GenerateRequest { id, text_input, parameters } = request;
        let model = target.model();
        let request = generation::request(model, id, text_input, parameters)?;
        let scheduling = parameters::read(&request, session_header(&parts.headers)?)?;
        let engine = &state.app.engine;
        let (context, pending) = exchange::submit(engine, model, request, &scheduling, stream)?;
        let input_ns = arrival.elapsed().as_nanos() as u64;
        Ok(Submitted { context, pending, scheduling, arrival, input_ns })
    };
    match submitted.await {
        Ok(submitted) => Ok((attempt, submitted)),
        Err(error) => Err(conclude(attempt, Err(error))),
    }
}

fn generated<'a>(context: &'a Context, text_output: &'a str) -> Generated<'a> {
    let Context { model_name, model_version, id, .. } = context;
    Generated { id: id.as_deref(), model_name, model_version, text_output }
}

fn phases(input_ns: u64, reply: &Reply, start: Instant) -> Phases {
    let (queue_ns, compute_ns) = (reply.queue_ns, reply.compute_ns);
    Phases { input_ns, queue_ns, compute_ns, output_ns: start.elapsed().as_nanos() as u64 }
}

/// The events of a reply that is sent as it is computed.
struct Events {
    context: Context,
    input_ns: u64,
    texts: TextStream,
    /// None once the end is recorded.
    attempt: Option<Attempt>,
}

impl Events {
    /// The next event; none at the end.
    async fn next(&mut self) -> Option<Event> {
        match self.texts.next().await? {
            TextPart::Text(text) => Some(event(&generated(&self.context, &text))),
            TextPart::End(reply) => {
                let phases = phases(self.input_ns, &reply, Instant::now());
                self.attempt.take()?.succeeded(phases);
                None
            }
            TextPart::Failed(error) => {
                self.attempt.take()?.failed(error.outcome());
                Some(event(&ErrorBody { error: error.to_string() }))
            }
        }
    }
}

fn event(data: &impl Serialize) -> Event {
    Event::default().data(serde_json::to_string(data).expect("what the server says is JSON"))
}
