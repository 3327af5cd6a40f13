//! The engine's table of requests in flight: ids, and what their end needs.

use batchmaker_device::Device;
use batchmaker_graph::{OutputTensor, RequestId, RunIndex, SessionId, Stopped, Tensor};
use batchmaker_manager::{Failure, Outcome};
use batchmaker_model::ReplyPlan;
use tokio::sync::oneshot;

use std::sync::Arc;
use std::time::Instant;

use crate::admission::Permit;
use crate::engine::ServedModel;
use crate::error::EngineError;
use crate::pending::Reply;
use crate::streaming::Streamed;

/// Where a reply goes, and how it is put together.
#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) sender: oneshot::Sender<Result<Reply, EngineError>>,
    pub(crate) model: Arc<ServedModel>,
    pub(crate) permit: Permit,
    pub(crate) plan: ReplyPlan,
    /// The graph's output values, by position in [`batchmaker_graph::CellGraph::outputs`].
    pub(crate) outputs: Vec<(usize, OutputTensor)>,
    /// Chains of it that said stop.
    pub(crate) stopped: Vec<Stopped>,
    /// Of which it is a piece.
    pub(crate) session: Option<SessionId>,
    /// Whom its steps are told to as they come.
    pub(crate) streamed: Option<Streamed>,
}

impl Responder {
    /// Tells of the steps that are new once the first `completed` of the streamed chain are complete.
    pub(crate) fn tell_steps(
        &mut self,
        device: &dyn Device,
        request: RequestId,
        completed: impl FnOnce(RunIndex) -> u32,
    ) {
        if let Some(streamed) = &mut self.streamed {
            let completed = completed(streamed.run);
            streamed.tell(device, request, completed, &self.stopped);
        }
    }
}

/// A request that ended, taken out of all tables.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) responder: Responder,
    pub(crate) outcome: Outcome,
    pub(crate) values: Vec<Tensor>,
    pub(crate) queue_ns: u64,
    /// Up to the end of its last batch.
    pub(crate) compute_ns: u64,
    /// When that was.
    pub(crate) ended: Instant,
}

impl Ended {
    /// Puts the reply together and sends it. Nobody may be there to take it.
    pub(crate) fn answer(self) {
        let Responder { sender, model, permit, plan, outputs, stopped, .. } = self.responder;
        let reply = match self.outcome {
            Outcome::Cancelled => Err(EngineError::Cancelled),
            Outcome::Failed(Failure::SessionLost) => Err(EngineError::SessionLost),
            Outcome::Failed(failure) => Err(EngineError::Failed(failure)),
            Outcome::Succeeded => {
                let named = model.named_outputs(outputs, &stopped, self.values);
                let outputs = model.model.reply(&plan, named).map_err(EngineError::Reply);
                let answered = Instant::now();
                let since_end_ns = (answered - self.ended).as_nanos() as u64;
                outputs.map(|outputs| Reply {
                    outputs,
                    queue_ns: self.queue_ns,
                    compute_ns: self.compute_ns + since_end_ns,
                    answered,
                })
            }
        };
        // The permit first: whoever has the reply may count permits.
        drop(permit);
        let _ = sender.send(reply);
    }
}

/// Requests by the position of their ids.
#[derive(Debug, Default)]
pub(crate) struct RequestTable {
    generations: Vec<u32>,
    free: Vec<u32>,
    responders: Vec<Option<Responder>>,
    /// Requests whose steps are told as they come.
    streamed: Vec<RequestId>,
    is_closed: bool,
}

impl RequestTable {
    /// None once the table is closed.
    pub(crate) fn insert(&mut self, responder: Responder) -> Option<RequestId> {
        if self.is_closed {
            return None;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.generations.push(0);
            self.responders.push(None);
            self.generations.len() as u32 - 1
        });
        let id = RequestId { index, generation: self.generations[index as usize] };
        if responder.streamed.is_some() {
            self.streamed.push(id);
        }
        self.responders[index as usize] = Some(responder);
        Some(id)
    }

    /// Tells of what is new of the steps of all requests that want them as they come, where the
    /// manager says how many nodes of a run are complete.
    pub(crate) fn tell_steps(
        &mut self,
        device: &dyn Device,
        completed: impl Fn(RequestId, RunIndex) -> u32,
    ) {
        for &id in &self.streamed {
            let responder = self.responders[id.index as usize].as_mut();
            let responder = responder.expect("a request in flight has a responder");
            responder.tell_steps(device, id, |run| completed(id, run));
        }
    }

    /// Tells of the steps of a request of which all have run.
    pub(crate) fn tell_last_steps(&mut self, device: &dyn Device, request: RequestId) {
        let responder = self.responders[request.index as usize].as_mut();
        let responder = responder.expect("a request in flight has a responder");
        responder.tell_steps(device, request, |_| u32::MAX);
    }

    /// Says of which session a request in flight is a piece.
    pub(crate) fn set_session(&mut self, request: RequestId, session: SessionId) {
        let responder = self.responders[request.index as usize].as_mut();
        responder.expect("a request in flight has a responder").session = Some(session);
    }

    /// Notes that a chain of a request in flight said stop.
    pub(crate) fn note_stop(&mut self, stopped: Stopped) {
        let index = stopped.request.index as usize;
        if self.generations[index] == stopped.request.generation
            && let Some(responder) = &mut self.responders[index]
        {
            responder.stopped.push(stopped);
        }
    }

    pub(crate) fn remove(&mut self, request: RequestId) -> Responder {
        let index = request.index as usize;
        assert_eq!(self.generations[index], request.generation, "{request:?} is not in flight");
        self.generations[index] = self.generations[index].wrapping_add(1);
        self.free.push(request.index);
        self.streamed.retain(|&streamed| streamed != request);
        self.responders[index].take().expect("a request in flight has a responder")
    }

    /// Takes no more requests.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Those who still wait for an answer, when nobody is left to give it.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = Responder> + '_ {
        self.responders.iter_mut().filter_map(Option::take)
    }

    pub(crate) fn len(&self) -> usize {
        self.generations.len() - self.free.len()
    }
}
