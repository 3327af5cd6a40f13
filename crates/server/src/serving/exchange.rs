//! A request of the protocol to the engine, and the engine's reply to the protocol: the same for every
//! transport.

use batchmaker::Model;
use batchmaker::{Engine, Pending, Reply, Request};
use batchmaker_wire as wire;
use wire::{InferRequest, RequestedOutputs};

use crate::serving::error::ServeError;
use crate::serving::parameters::Scheduling;
use crate::serving::tensors;

/// The fields of a request that its response repeats.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) model_name: String,
    pub(crate) model_version: String,
    pub(crate) id: Option<String>,
    /// The outputs that were requested, and the form of each.
    pub(crate) requested: RequestedOutputs,
}

/// Checks a request, whose parameters were read, and submits it. `stream` says whether its steps are
/// wanted as they are computed.
pub(crate) fn submit(
    engine: &Engine,
    model: &Model,
    request: InferRequest,
    scheduling: &Scheduling,
    stream: bool,
) -> Result<(Context, Pending), ServeError> {
    let InferRequest { id, inputs, outputs: requested, .. } = request;
    let tensors = tensors::from_wire(inputs, &model.inputs)?;
    let Scheduling { priority, steps: parameters, session, .. } = scheduling.clone();
    let outputs = requested.list.iter().map(|output| output.name.clone()).collect();
    let mut wanted = Request::from(tensors).parameters(parameters).priority(priority);
    (wanted.session, wanted.outputs, wanted.stream) = (session, outputs, stream);
    let pending = engine.submit(&model.name, wanted)?;
    let (model_name, model_version) = (model.name.clone(), model.version.clone());
    Ok((Context { model_name, model_version, id, requested }, pending))
}

/// The body of the response to a request, in the forms that it asks for.
pub(crate) fn encode(context: Context, reply: Reply) -> Result<wire::EncodedBody, ServeError> {
    let Context { model_name, model_version, id, requested } = context;
    let outputs = reply.outputs.into_iter().map(tensors::to_wire).collect::<Result<_, _>>()?;
    let parameters = wire::Parameters::new();
    let response = wire::InferResponse { model_name, model_version, id, parameters, outputs };
    Ok(wire::encode_response(&response, |name| requested.format_of(name))?)
}
