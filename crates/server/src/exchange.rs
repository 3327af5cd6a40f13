//! A request of the wire to the engine, and the engine's reply to the wire: what HTTP and the
//! offline runner share.

use batchmaker_engine::{Engine, NamedTensor, Pending, Reply, Request};
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
    check_requested(&requested, model)?;
    let tensors = convert::from_wire(inputs, &model.inputs)?;
    let Scheduling { priority, steps: parameters, session, .. } = scheduling.clone();
    let request = Request { tensors, parameters, priority, session, stream };
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
        outputs: select(reply.outputs, &requested)?,
    };
    Ok(wire::encode_response(&response, |name| requested.format_of(name))?)
}

/// Checks that the outputs asked for are the model's.
fn check_requested(requested: &RequestedOutputs, model: &Model) -> Result<(), ApiError> {
    let names = || model.outputs.iter().map(|output| &*output.name);
    match requested.list.iter().find(|output| names().all(|name| name != output.name)) {
        None => Ok(()),
        Some(output) => Err(ApiError::Invalid(format!(
            "output '{}' is unknown, expected {}",
            output.name,
            names().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// The outputs asked for, in that order; all where none is named.
fn select(
    outputs: Vec<NamedTensor>,
    requested: &RequestedOutputs,
) -> Result<Vec<wire::Tensor>, ApiError> {
    // A session's end may have none.
    if requested.list.is_empty() || outputs.is_empty() {
        return outputs.into_iter().map(convert::to_wire).collect();
    }
    let mut outputs: Vec<_> = outputs.into_iter().map(Some).collect();
    let mut take = |name: &str| {
        let found = outputs
            .iter_mut()
            .find(|output| output.as_ref().is_some_and(|output| output.name == name));
        found
            .and_then(Option::take)
            .ok_or_else(|| ApiError::Internal(format!("the model left out its output '{name}'")))
    };
    requested.list.iter().map(|output| convert::to_wire(take(&output.name)?)).collect()
}
