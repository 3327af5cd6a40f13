//! An engine of this process as the service that requests are sent to: without HTTP, and with the engine's own times.

use std::future::Future;
use std::pin::Pin;

use batchmaker::{Engine, EngineError, Parameters, Reply, Request, Statistics};

use crate::batcher::{Batcher, Batching};
use crate::driver::{Answer, Service};
use crate::inputs::{Inputs, NoLength};
use crate::padding::BatchAxes;
use crate::shape::Shape;

/// A model of an engine.
#[derive(Debug)]
pub struct InProcess<'a> {
    engine: &'a Engine,
    model: &'a str,
    requests: Requests,
    /// The batcher that joins requests before the engine gets them; none: each is sent by itself.
    batcher: Option<Batcher>,
}

/// A model without an input that has an axis with a row for each sequence, such as one of texts: several requests cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no input of the model has an axis of sequences, so that requests cannot be padded and joined to one"
)]
pub struct NoSequences;

/// The requests that are sent.
#[derive(Debug)]
enum Requests {
    /// They are drawn for the shape that each has.
    Drawn(Inputs),
    /// They are given, and come again and again.
    Given(Vec<Request>),
}

impl<'a> InProcess<'a> {
    /// Draws what requests to `model` of `engine` hold.
    ///
    /// # Errors
    /// If its requests have no lengths.
    ///
    /// # Panics
    /// If the engine has no such model.
    pub fn new(engine: &'a Engine, model: &'a str, seed: u64) -> Result<Self, NoLength> {
        let served = engine.model(model).expect("the engine has the model");
        let tensors = served.inputs.iter().zip(served.layouts());
        let tensors = tensors.map(|(info, layout)| (info.name.clone(), info.element, layout));
        let requests = Requests::Drawn(Inputs::new(tensors.collect(), seed)?);
        Ok(Self { engine, model, requests, batcher: None })
    }

    /// Sends these requests to `model` of `engine`, again and again; the shapes of a load mean nothing then.
    ///
    /// # Panics
    /// If there are none.
    pub fn replaying(engine: &'a Engine, model: &'a str, requests: Vec<Request>) -> Self {
        assert!(!requests.is_empty(), "requests to send");
        Self { engine, model, requests: Requests::Given(requests), batcher: None }
    }

    /// Has requests that wait padded to the longest of them and sent as one, as a framework's dynamic batcher does. Whether replies
    /// are right depends on the model, which has to mask zeros; nobody looks at them.
    ///
    /// # Errors
    /// No input of the model has an axis of sequences.
    ///
    /// # Panics
    /// If the engine has no such model.
    pub fn padded(self, batching: Batching) -> Result<Self, NoSequences> {
        let served = self.engine.model(self.model).expect("the engine has the model");
        let names = served.inputs.iter().map(|info| info.name.as_str());
        let axes = BatchAxes::of(names.zip(served.layouts())).ok_or(NoSequences)?;
        let batcher = Batcher::start(self.engine, self.model, axes, batching);
        Ok(Self { batcher: Some(batcher), ..self })
    }
}

impl Service for InProcess<'_> {
    type Request = Request;
    type Answer = Pin<Box<dyn Future<Output = Answer>>>;

    fn prepare(&mut self, index: usize, shape: &Shape) -> Request {
        match &self.requests {
            Requests::Drawn(inputs) => {
                let parameters =
                    Parameters { force_steps: shape.target(), ..Parameters::default() };
                Request::from(inputs.request(index, shape)).parameters(parameters)
            }
            Requests::Given(requests) => requests[index % requests.len()].clone(),
        }
    }

    fn arity(&self) -> Option<u32> {
        match &self.requests {
            Requests::Drawn(inputs) => inputs.arity(),
            Requests::Given(_) => None,
        }
    }

    fn send(&mut self, request: Request) -> Self::Answer {
        if let Some(batcher) = &self.batcher {
            return batcher.send(request);
        }
        let pending = self.engine.submit(self.model, request);
        let answer = move |reply: Result<Reply, EngineError>| match reply {
            Ok(Reply { queue_ns, compute_ns, answered, .. }) => {
                Answer::Reply { at: answered, queue_and_compute_ns: Some((queue_ns, compute_ns)) }
            }
            Err(error) => Answer::Error(error.to_string()),
        };
        match pending {
            Ok(pending) => Box::pin(async move { answer(pending.await) }),
            Err(error) => Box::pin(std::future::ready(answer(Err(error)))),
        }
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.engine.statistics())
    }
}
