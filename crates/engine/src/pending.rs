//! A request in flight, as its submitter holds it.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use batchmaker_graph::{NamedTensor, RequestId, TensorData};
use batchmaker_manager::Event;
use batchmaker_model::{ReplyPlan, StepPlan};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;

use crate::error::EngineError;
use crate::inbox::Inbox;
use crate::reply::{Computed, Reply};

/// A request in flight: a future of its reply. Dropping it cancels the request, which then
/// leaves the batch at the next task boundary.
#[derive(Debug)]
pub struct Pending {
    reply: Awaited,
    steps: Option<Steps>,
    /// The bytes of the reply's tensors and of what the caller makes of them, at most.
    bytes: usize,
    /// The request to cancel when this is dropped before the reply is there.
    in_flight: Option<(RequestId, Arc<Inbox>)>,
}

/// The reply, or the values that it will be made of.
#[derive(Debug)]
enum Awaited {
    Values(oneshot::Receiver<Result<Computed, EngineError>>, ReplyPlan),
    Computed(Result<Computed, EngineError>, ReplyPlan),
    Reply(Reply),
    Taken,
}

/// Rows of steps that were computed, in their order.
pub(crate) type StepRows = (Range<u32>, Vec<TensorData>);

/// The stream of a reply's steps, and the plan that makes tensors of them.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) receiver: UnboundedReceiver<StepRows>,
    pub(crate) plan: Arc<StepPlan>,
}

impl Pending {
    /// A request whose values a worker will send.
    pub(crate) fn new(
        values: oneshot::Receiver<Result<Computed, EngineError>>,
        plan: ReplyPlan,
        steps: Option<Steps>,
        bytes: usize,
        in_flight: Option<(RequestId, Arc<Inbox>)>,
    ) -> Self {
        Self { reply: Awaited::Values(values, plan), steps, bytes, in_flight }
    }

    /// A request whose reply is there already.
    pub(crate) fn answered(reply: Reply) -> Self {
        Self { reply: Awaited::Reply(reply), steps: None, bytes: 0, in_flight: None }
    }

    /// An upper bound of the bytes that the reply's tensors, and what the caller makes of them
    /// ([`Request::reply_factor`](crate::Request::reply_factor)), will hold.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Waits until the reply can be put together: after that, [`wait`](Self::wait) does so without waiting, on
    /// whatever thread calls it. For a large reply this takes a while, which a thread that serves others may not
    /// have.
    pub async fn ready(&mut self) {
        std::future::poll_fn(|context| self.poll_values(context)).await;
    }

    fn poll_values(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Awaited::Values(values, _) = &mut self.reply {
            let Poll::Ready(received) = Pin::new(values).poll(context) else {
                return Poll::Pending;
            };
            self.in_flight = None;
            let received = received.unwrap_or(Err(EngineError::Cancelled));
            if let Awaited::Values(_, plan) = std::mem::replace(&mut self.reply, Awaited::Taken) {
                self.reply = Awaited::Computed(received, plan);
            }
        }
        Poll::Ready(())
    }

    /// The steps of the reply that were computed since the last call: the reply's tensors that have a
    /// row for each step, with the rows of these steps; ids as their labels, one by one. Waits for at
    /// least one step. Returns none once all steps were returned, or if
    /// [`Request::stream`](crate::Request::stream) did not ask for them, or if the model has no such
    /// tensors. The reply that follows holds all steps again.
    pub async fn next_steps(&mut self) -> Option<Vec<NamedTensor>> {
        let Steps { receiver, plan } = self.steps.as_mut()?;
        let (rows, data) = receiver.recv().await?;
        // The reply reports an id without a label.
        plan.tensors(rows, data).ok()
    }

    /// Does the same as [`Self::next_steps`], for a thread that may block.
    pub fn wait_for_steps(&mut self) -> Option<Vec<NamedTensor>> {
        let Steps { receiver, plan } = self.steps.as_mut()?;
        let (rows, data) = receiver.blocking_recv()?;
        plan.tensors(rows, data).ok()
    }

    /// Waits for the reply on a thread that may block.
    pub fn wait(mut self) -> Result<Reply, EngineError> {
        match std::mem::replace(&mut self.reply, Awaited::Taken) {
            Awaited::Values(values, plan) => {
                let result = values.blocking_recv().unwrap_or(Err(EngineError::Cancelled));
                self.in_flight = None;
                result?.into_reply(plan)
            }
            Awaited::Computed(computed, plan) => computed?.into_reply(plan),
            Awaited::Reply(reply) => Ok(reply),
            Awaited::Taken => Err(EngineError::Cancelled),
        }
    }
}

impl Future for Pending {
    type Output = Result<Reply, EngineError>;

    /// # Panics
    /// If it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.poll_values(context).is_pending() {
            return Poll::Pending;
        }
        Poll::Ready(match std::mem::replace(&mut self.reply, Awaited::Taken) {
            Awaited::Computed(computed, plan) => {
                computed.and_then(|values| values.into_reply(plan))
            }
            Awaited::Reply(reply) => Ok(reply),
            Awaited::Values(..) | Awaited::Taken => panic!("polled after it was ready"),
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some((request, inbox)) = self.in_flight.take() {
            inbox.send(Event::Cancel { request });
        }
    }
}
