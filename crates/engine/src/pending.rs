//! A request in flight, as its submitter holds it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use batchmaker_graph::{NamedTensor, RequestId};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::engine::{ServedModel, Shared};
use crate::error::EngineError;

/// What a model made of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The output tensors, in the order in which the model declares them.
    pub outputs: Vec<NamedTensor>,
    /// From admission to the first batch that held a part of it, in nanoseconds.
    pub queue_ns: u64,
    /// From the first batch to the reply, in nanoseconds.
    pub compute_ns: u64,
    /// When the reply was there.
    pub answered: Instant,
}

/// A request in flight: a future of its reply. Dropping it cancels the request, which then
/// leaves the batch at the next task boundary.
#[derive(Debug)]
pub struct Pending {
    pub(crate) reply: oneshot::Receiver<Result<Reply, EngineError>>,
    /// Of a request whose steps are wanted as they come.
    pub(crate) steps: Option<Steps>,
    pub(crate) request: RequestId,
    pub(crate) shared: Arc<Shared>,
    pub(crate) is_over: bool,
}

/// Where the steps of a reply come from.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) receiver: UnboundedReceiver<Vec<NamedTensor>>,
    pub(crate) model: Arc<ServedModel>,
}

impl Pending {
    /// Of a request that asked for nothing.
    pub(crate) fn answered(shared: Arc<Shared>) -> Self {
        let (sender, reply) = oneshot::channel();
        let answered = Instant::now();
        let empty = Reply { outputs: Vec::new(), queue_ns: 0, compute_ns: 0, answered };
        let _ = sender.send(Ok(empty));
        Self::of_no_request(reply, None, shared)
    }

    /// Of what is answered without being in flight.
    pub(crate) fn of_no_request(
        reply: oneshot::Receiver<Result<Reply, EngineError>>,
        steps: Option<Steps>,
        shared: Arc<Shared>,
    ) -> Self {
        let request = RequestId { index: u32::MAX, generation: 0 };
        Self { reply, steps, request, shared, is_over: true }
    }

    /// The steps of the reply that came since the last call: its tensors that have a row a step, with
    /// the rows of these steps, ids as their labels one by one. Waits for one at least; none once all
    /// have come, or where [`Request::stream`](crate::Request::stream) did not ask for them, or the
    /// reply comes at once. The reply that follows holds them again.
    pub async fn next_steps(&mut self) -> Option<Vec<NamedTensor>> {
        let Steps { receiver, model } = self.steps.as_mut()?;
        let steps = receiver.recv().await?;
        // What cannot be put into words, the reply tells of.
        model.model.steps(steps).ok()
    }

    /// Waits for the reply on a thread that may block.
    pub fn wait(mut self) -> Result<Reply, EngineError> {
        self.is_over = true;
        let (_closed, empty) = oneshot::channel();
        let reply = std::mem::replace(&mut self.reply, empty);
        reply.blocking_recv().unwrap_or(Err(EngineError::Cancelled))
    }
}

impl Future for Pending {
    type Output = Result<Reply, EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = Pin::new(&mut self.reply).poll(context);
        reply.map(|reply| {
            self.is_over = true;
            reply.unwrap_or(Err(EngineError::Cancelled))
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.cancel(self.request);
        }
    }
}
