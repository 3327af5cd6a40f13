//! An engine of this process as the service that requests are sent to: without HTTP, and with the engine's own times.

use std::future::Future;
use std::pin::Pin;

use batchmaker::{Engine, EngineError, Parameters, Reply, Request, Statistics};

use crate::driver::{Answer, Service};
use crate::inputs::{Inputs, NoLength};
use crate::shape::Shape;

/// A model of an engine.
#[derive(Debug)]
pub struct InProcess<'a> {
    engine: &'a Engine,
    model: &'a str,
    inputs: Inputs,
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
        Ok(Self { engine, model, inputs: Inputs::new(tensors.collect(), seed)? })
    }
}

impl Service for InProcess<'_> {
    type Request = Request;
    type Answer = Pin<Box<dyn Future<Output = Answer>>>;

    fn prepare(&mut self, index: usize, shape: &Shape) -> Request {
        let parameters = Parameters { force_steps: shape.target(), ..Parameters::default() };
        Request::from(self.inputs.request(index, shape)).parameters(parameters)
    }

    fn arity(&self) -> Option<u32> {
        self.inputs.arity()
    }

    fn send(&mut self, request: Request) -> Self::Answer {
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
