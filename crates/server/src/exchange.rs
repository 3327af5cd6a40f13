//! A request of the wire to the engine, and the engine's reply to the wire: what HTTP and the
//! offline runner share.

use batchmaker_engine::{Engine, Pending, Reply, Request};
use batchmaker_model::Model;
use batchmaker_wire as wire;
use wire::{InferRequest, RequestedOutputs};

use crate::convert;
use crate::parameters::Scheduling;
use crate::status::ApiError;

/// What the reply must know of its request.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) model_name: String,
    pub(crate) model_version: String,
    pub(crate) id: Option<String>,
    requested: RequestedOutputs,
}

/// Checks a request, whose parameters were read, and submits it; `stream`: its steps are wanted as
/// they come.
pub(crate) fn submit(
    engine: &Engine,
    model: &Model,
    request: InferRequest,
    scheduling: &Scheduling,
    stream: bool,
) -> Result<(Context, Pending), ApiError> {
    let InferRequest { id, inputs, outputs: requested, .. } = request;
    let tensors = convert::from_wire(inputs, &model.inputs)?;
    let Scheduling { priority, steps: parameters, session, .. } = scheduling.clone();
    let outputs = requested.list.iter().map(|output| output.name.clone()).collect();
    let request = Request { tensors, parameters, priority, session, outputs, stream };
    let pending = engine.submit(&model.name, request)?;
    let (model_name, model_version) = (model.name.clone(), model.version.clone());
    Ok((Context { model_name, model_version, id, requested }, pending))
}

/// Writes the reply in the form that was asked for.
pub(crate) fn encode(context: Context, reply: Reply) -> Result<wire::EncodedBody, ApiError> {
    let Context { model_name, model_version, id, requested } = context;
    let response = wire::InferResponse {
        model_name,
        model_version,
        id,
        parameters: wire::Parameters::new(),
        outputs: reply.outputs.into_iter().map(convert::to_wire).collect::<Result<_, _>>()?,
    };
    Ok(wire::encode_response(&response, |name| requested.format_of(name))?)
}
