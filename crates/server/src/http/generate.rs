//! Text in, text out over HTTP: `generate`, whole, and `generate_stream`, an event for each decoded token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use batchmaker::Reply;
use batchmaker_wire as wire;
use batchmaker_wire::ErrorBody;
use serde::Serialize;

use crate::http::error::HttpError;
use crate::http::infer::{ArrivedRequest, arrive, conclude, name_session};
use crate::http::reply;
use crate::http::state::HttpState;
use crate::serving::app::Target;
use crate::serving::attempt::Attempt;
use crate::serving::exchange::{self, Context, Form, Submitted};
use crate::serving::generation::{self, TextPart, TextStream};
use crate::serving::outcome::Phases;

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
    let (attempt, arrived) = match arrive(&state, target, request).await {
        Ok(arrived) => arrived,
        Err(response) => return response,
    };
    let answer = async {
        let ArrivedRequest { model, headers, at, arrived } = arrived;
        let form = Form::Generate { stream: false };
        let Submitted { context, scheduling, deadline, pending } =
            exchange::submit(&state.app, &model, arrived, form).await?;
        let input_ns = at.elapsed().as_nanos() as u64;
        let encode = move |reply: Reply| {
            let text = generation::text_of(reply.outputs)?;
            let bytes = serde_json::to_vec(&generated(&context, &text));
            let bytes = bytes.expect("what the server says is JSON");
            Ok(wire::EncodedBody { bytes, header_length: None })
        };
        let work = pending.bytes();
        let (mut response, phases) =
            reply::respond(&state.app, pending, deadline, &headers, work, encode).await?;
        name_session(&mut response, &scheduling);
        Ok((response, Phases { input_ns, ..phases }))
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
    let (attempt, arrived) = match arrive(&state, target, request).await {
        Ok(arrived) => arrived,
        Err(response) => return response,
    };
    let ArrivedRequest { model, at, arrived, .. } = arrived;
    let form = Form::Generate { stream: true };
    let Submitted { context, scheduling, deadline, pending } =
        match exchange::submit(&state.app, &model, arrived, form).await {
            Ok(submitted) => submitted,
            Err(error) => return conclude(attempt, Err(error.into())),
        };
    let input_ns = at.elapsed().as_nanos() as u64;
    let texts = TextStream::new(pending, deadline);
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
