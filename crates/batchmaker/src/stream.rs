//! Streams: the steps of a reply as they are computed.

use batchmaker_engine::{EngineError, Pending, Reply};
use batchmaker_graph::NamedTensor;

/// A request whose steps are returned as they are computed. Dropping it cancels the request.
///
/// ```
/// use batchmaker::{Engine, Request, Tensor, TensorData};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let g2p = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/g2p");
/// let engine = Engine::builder().model(g2p).build()?;
/// let word = Tensor::new(vec![1], TensorData::Bytes(vec![b"hello".to_vec()]));
/// let mut stream = engine.stream("g2p", Request::new().input("text", word))?;
/// while let Some(step) = stream.wait_next() {
///     println!("{step:?}");
/// }
/// println!("{:?}", stream.wait()?.outputs);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stream {
    pending: Pending,
}

impl Stream {
    pub(crate) fn new(pending: Pending) -> Self {
        Self { pending }
    }

    /// The next steps: the reply's tensors that have a row for each step, with the rows of the steps that
    /// were computed since the last call. None after the last step, or if the model has no such tensors.
    pub async fn next(&mut self) -> Option<Vec<NamedTensor>> {
        self.pending.next_steps().await
    }

    /// Does the same as [`next`](Self::next), for a thread that may block.
    pub fn wait_next(&mut self) -> Option<Vec<NamedTensor>> {
        self.pending.wait_for_steps()
    }

    /// The reply, which holds all steps again.
    ///
    /// # Errors
    /// The request failed.
    pub async fn reply(self) -> Result<Reply, EngineError> {
        self.pending.await
    }

    /// Does the same as [`reply`](Self::reply), for a thread that may block.
    ///
    /// # Errors
    /// The request failed.
    pub fn wait(self) -> Result<Reply, EngineError> {
        self.pending.wait()
    }
}
