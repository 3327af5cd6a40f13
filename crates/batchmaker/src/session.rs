//! Sessions: sequences that come in chunks.

use batchmaker_engine::{EngineError, Pending, Request, SessionChunk, SessionKey};

use crate::engine::Engine;

/// A sequence of a model that comes in chunks. The state that a chunk leaves stays in the engine, and
/// the next chunk begins with it. Chunks share batches with everything else in flight. Dropping a session
/// ends it.
///
/// ```
/// use batchmaker::{Engine, Request, Tensor, TensorData};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let lstm = concat!(env!("CARGO_MANIFEST_DIR"), "/../model/tests/vectors/lstm1.onnx");
/// let engine = Engine::builder().model(lstm).build()?;
/// let x = |steps: usize| Tensor::new(vec![steps, 1, 5], TensorData::F32(vec![0.5; 5 * steps]));
/// let name = engine.models()[0].inputs[0].name.clone();
/// let whole = engine.run("lstm1", Request::new().input(&name, x(5)))?;
///
/// let mut session = engine.session("lstm1");
/// session.submit(Request::new().input(&name, x(2)))?.wait()?;
/// let last = session.finish(Request::new().input(&name, x(3)))?.wait()?;
/// // The last state is that of the whole sequence, bit for bit.
/// assert_eq!(last.outputs[1], whole.outputs[1]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Session {
    engine: Engine,
    model: String,
    key: SessionKey,
    /// Whether a first chunk was accepted.
    has_begun: bool,
}

impl Engine {
    /// A session of a model: a sequence that comes in chunks, between which its state stays in the engine.
    pub fn session(&self, model: &str) -> Session {
        let key = SessionKey::Local(self.next_session());
        Session { engine: self.clone(), model: model.to_owned(), key, has_begun: false }
    }
}

impl Session {
    /// Submits the next chunk. Chunks run in the order in which they are submitted; the next one may be
    /// submitted before the reply to the one before is there.
    ///
    /// # Errors
    /// As for [`Engine::submit`]; [`EngineError::SessionLost`] or an invalid request where an earlier chunk
    /// was cancelled or failed, or where the session was idle for too long.
    pub fn submit(&mut self, request: Request) -> Result<Pending, EngineError> {
        self.chunk(request, false)
    }

    /// Submits the last chunk, and ends the session.
    ///
    /// # Errors
    /// As for [`submit`](Self::submit).
    pub fn finish(mut self, request: Request) -> Result<Pending, EngineError> {
        let pending = self.chunk(request, true)?;
        self.has_begun = false;
        Ok(pending)
    }

    fn chunk(&mut self, mut request: Request, end: bool) -> Result<Pending, EngineError> {
        let start = !self.has_begun;
        request.session = Some(SessionChunk { key: self.key.clone(), start, end });
        let pending = self.engine.submit(&self.model, request)?;
        self.has_begun = true;
        Ok(pending)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.has_begun {
            // An error means that the session has ended already.
            let _ = self.chunk(Request::new(), true);
        }
    }
}
