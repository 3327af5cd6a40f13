//! Requests and replies as lines, without a network: for a program that runs a model over a file.

use batchmaker::Model;
use batchmaker::{Engine, Pending, Reply, Request};
use batchmaker_wire as wire;
use wire::{DataFormat, InferRequest, Tensor};

use crate::serving::app::find_model;
use crate::serving::error::ServeError;
use crate::serving::exchange::Form;
use crate::serving::{exchange, parameters};

/// The parts of a request that its reply repeats.
#[derive(Debug)]
pub struct Context(exchange::Context);

/// Why a line has no reply; the text says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LineError(String);

impl From<ServeError> for LineError {
    fn from(error: ServeError) -> Self {
        Self(error.to_string())
    }
}

/// Submits a line: the JSON body of a request, which begins with `{`, or else plain text for a
/// model that takes `text`.
///
/// # Errors
/// Where the line is no request that `model` can answer, or asks for what only a network has:
/// a timeout, binary tensors.
pub fn submit(engine: &Engine, model: &str, line: &[u8]) -> Result<(Context, Pending), LineError> {
    let (context, request) = read(engine, model, line)?;
    let pending = engine.submit(model, request).map_err(ServeError::Engine)?;
    Ok((context, pending))
}

/// Reads a line, as [`submit`] does, and submits nothing.
///
/// # Errors
/// As [`submit`].
pub fn request(engine: &Engine, model: &str, line: &[u8]) -> Result<Request, LineError> {
    Ok(read(engine, model, line)?.1)
}

/// Writes a reply as a line of JSON, without its end.
///
/// # Errors
/// Where the reply cannot be written as JSON: BYTES that are not UTF-8.
pub fn encode(context: Context, reply: Reply) -> Result<Vec<u8>, LineError> {
    Ok(exchange::encode(context.0, reply)?.bytes)
}

fn read(engine: &Engine, model: &str, line: &[u8]) -> Result<(Context, Request), ServeError> {
    let model = find_model(engine, model)?;
    let request = parse(model, line)?;
    let scheduling = parameters::read(&request, None)?;
    if scheduling.timeout.is_some() {
        return Err(ServeError::Invalid("parameter 'timeout' has no meaning here".into()));
    }
    let (context, request) = exchange::for_engine(model, request, &scheduling, Form::Infer)?;
    Ok((Context(context), request))
}

fn parse(model: &Model, line: &[u8]) -> Result<InferRequest, ServeError> {
    let is_json = line.trim_ascii_start().starts_with(b"{");
    if !is_json && model.inputs.iter().any(|input| input.name == "text") {
        let text = Tensor::new("text", vec![1], vec![line.to_vec()])?;
        return Ok(InferRequest { inputs: vec![text], ..Default::default() });
    }
    let request = wire::decode_request(line, None)?;
    let outputs = &request.outputs;
    let is_binary = outputs.default_format == DataFormat::Binary
        || outputs.list.iter().any(|output| output.format == Some(DataFormat::Binary));
    if is_binary {
        return Err(ServeError::Invalid("replies are lines of JSON, never binary".into()));
    }
    Ok(request)
}
