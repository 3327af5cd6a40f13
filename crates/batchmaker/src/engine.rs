//! The engine as a program holds it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use batchmaker_device::Device;
use batchmaker_engine::{
    BatchLimits, EngineError, HungWorker, MemoryBudget, Pending, Permit, Reply, Request, Statistics,
};
use batchmaker_model::Model;

use crate::stream::Stream;

/// Serves models on this machine. Clones share one engine; when the last one is dropped, requests in
/// flight are cancelled.
///
/// ```
/// use batchmaker::{Engine, Request, Tensor, TensorData};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let tagger = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/vectors/tagger.onnx");
/// let engine = Engine::builder().model(tagger).build()?;
/// let input = &engine.model("tagger").ok_or("no such model")?.inputs[0];
/// let ids = Tensor::new(vec![1, 3], TensorData::I64(vec![4, 0, 2]));
/// let request = Request::new().input(&input.name, ids);
/// let reply = engine.submit("tagger", request)?.wait()?;
/// assert_eq!(reply.outputs[0].tensor.shape()[..2], [1, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    engine: Arc<batchmaker_engine::Engine>,
    /// The number of the next session.
    sessions: Arc<AtomicU64>,
}

/// An engine that is not kept alive: see [`Engine::downgrade`].
#[derive(Clone, Debug)]
pub struct WeakEngine {
    engine: Weak<batchmaker_engine::Engine>,
    sessions: Arc<AtomicU64>,
}

impl WeakEngine {
    /// The engine, unless it was dropped.
    pub fn upgrade(&self) -> Option<Engine> {
        let sessions = self.sessions.clone();
        self.engine.upgrade().map(|engine| Engine { engine, sessions })
    }
}

impl From<batchmaker_engine::Engine> for Engine {
    fn from(engine: batchmaker_engine::Engine) -> Self {
        Self { engine: Arc::new(engine), sessions: Arc::default() }
    }
}

impl Engine {
    /// The models, in the order of their names.
    pub fn models(&self) -> Vec<&Model> {
        self.engine.models()
    }

    /// The model called `name`.
    pub fn model(&self, name: &str) -> Option<&Model> {
        self.engine.model(name)
    }

    /// Submits a request without waiting for its reply. The returned [`Pending`] is a future of the reply,
    /// and waits for it on threads that may block; dropping it cancels the request.
    ///
    /// # Errors
    /// The request is wrong, there is no such model, or the engine is full, closing or lost.
    pub fn submit(&self, model: &str, request: Request) -> Result<Pending, EngineError> {
        self.engine.submit(model, request)
    }

    /// Submits a request and waits for its reply, on a thread that may block.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit), and where the request fails.
    pub fn run(&self, model: &str, request: Request) -> Result<Reply, EngineError> {
        self.submit(model, request)?.wait()
    }

    /// Submits a request whose steps are wanted as they are computed.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub fn stream(&self, model: &str, request: Request) -> Result<Stream, EngineError> {
        Ok(Stream::new(self.submit(model, request.streamed())?))
    }

    /// Takes the right to submit a request to a model, for who has costly work to do before the request can be
    /// submitted, or can wait until it fits the budget:
    ///
    /// ```
    /// # use batchmaker::{Engine, EngineError, NotUnfolded, Pending, Request};
    /// async fn submit(engine: &Engine, model: &str, request: Request) -> Result<Pending, EngineError> {
    ///     let permit = engine.permit(model)?;
    ///     let mut memory = engine.memory().arrival();
    ///     memory.grow_to(request.bytes()).await?;
    ///     let mut unfolded = match permit.unfold(request, memory) {
    ///         Err(NotUnfolded::Waits(mut waiting)) => {
    ///             waiting.fit().await?;
    ///             waiting.unfold()?
    ///         }
    ///         unfolded => unfolded?,
    ///     };
    ///     unfolded.fit().await?;
    ///     unfolded.submit()
    /// }
    /// ```
    ///
    /// # Errors
    /// There is no such model, as many requests are in flight as may be, or the engine is closing or lost.
    pub fn permit(&self, model: &str) -> Result<Permit, EngineError> {
        self.engine.permit(model)
    }

    /// The byte budget that requests, their replies and open sessions share. A program may let other things count
    /// in it.
    pub fn memory(&self) -> &Arc<MemoryBudget> {
        self.engine.memory()
    }

    /// The time after which a request that was refused as overload is likely to find a place.
    pub fn retry_after(&self) -> Duration {
        self.engine.retry_after()
    }

    /// The number of a new session.
    pub(crate) fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }

    /// A reference that does not keep the engine alive, for a thread that watches it.
    pub fn downgrade(&self) -> WeakEngine {
        WeakEngine { engine: Arc::downgrade(&self.engine), sessions: self.sessions.clone() }
    }

    /// The time that a session of the model called `name` may be idle before it ends; none if the model takes no sessions, or if there is no such model.
    pub fn session_idle(&self, name: &str) -> Option<Duration> {
        self.engine.session_idle(name)
    }

    /// Returns counts of the requests in flight and of the batches that have run.
    pub fn statistics(&self) -> Statistics {
        self.engine.statistics()
    }

    /// Whether the device is lost: every request is refused from then on.
    pub fn is_lost(&self) -> bool {
        self.engine.is_lost()
    }

    /// A worker whose device has work and has reported nothing for far longer than it ever took, if there is one.
    pub fn hung(&self) -> Option<HungWorker> {
        self.engine.hung()
    }

    /// The device that the engine computes with.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.engine.device()
    }

    /// Changes limits while the engine runs.
    ///
    /// # Panics
    /// Unless there is a limit for each cell type, of at least 1.
    pub fn set_limits(&self, limits: &BatchLimits) {
        self.engine.set_limits(limits);
    }

    /// Refuses new requests, waits until those in flight are answered, and stops the workers.
    pub fn shutdown(&self) {
        self.engine.shutdown();
    }
}
