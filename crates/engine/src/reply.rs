//! Replies, and the values that a worker sends for one.

use std::time::Instant;

use batchmaker_graph::{CellGraph, EndOfSequence, NamedTensor, Tensor, TensorData, ValueIndex};
use batchmaker_model::ReplyPlan;

use crate::error::EngineError;
use crate::memory::Reservation;

/// The outputs that a model computed for a request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Reply {
    /// The output tensors, in the order in which the request names them or the model declares them.
    pub outputs: Vec<NamedTensor>,
    /// The time from admission to the first batch that held a part of the request, in nanoseconds.
    pub queue_ns: u64,
    /// The time from the first batch to the reply, in nanoseconds.
    pub compute_ns: u64,
    /// When the reply was there: the time at which its values came, and the time that it took to make tensors
    /// of them. It does not matter when somebody took the reply.
    pub answered: Instant,
    /// The bytes of the engine's budget that the tensors hold, and what the caller makes of them
    /// ([`Request::reply_factor`](crate::Request::reply_factor)): whoever keeps them for long keeps this.
    pub memory: Option<Reservation>,
}

/// The values that were computed for a request, as a worker sends them. Who waits for the reply puts
/// it together, so that the worker's thread goes on with the next batch.
#[derive(Debug)]
pub(crate) struct Computed {
    /// The elements of the graph's output values, in the order of [`CellGraph::outputs`].
    pub(crate) values: Vec<TensorData>,
    /// The chains that reached their end of sequence.
    pub(crate) ends: Vec<EndOfSequence>,
    pub(crate) times: RequestTimes,
    /// When they were sent.
    pub(crate) sent: Instant,
    /// The bytes that the values, the reply and what the caller makes of it need.
    pub(crate) memory: Reservation,
}

/// The times of a request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTimes {
    /// The time from admission to the first batch, in nanoseconds.
    pub(crate) queue_ns: u64,
    /// The time from the first batch to the end of the last one, in nanoseconds.
    pub(crate) compute_ns: u64,
    /// When the last batch ended.
    pub(crate) ended: Instant,
}

impl Reply {
    /// The output called `name`.
    pub fn output(&self, name: &str) -> Option<&Tensor> {
        let output = self.outputs.iter().find(|output| output.name == name);
        output.map(|output| &output.tensor)
    }

    /// The reply to a request that asked for nothing.
    pub(crate) fn empty() -> Self {
        let (outputs, answered) = (Vec::new(), Instant::now());
        Self { outputs, queue_ns: 0, compute_ns: 0, answered, memory: None }
    }
}

impl Computed {
    /// The values of a request that has nothing to run, as its sequences have no steps: each output is
    /// an input or rows of zeros.
    pub(crate) fn without_runs(
        graph: &CellGraph,
        mut inputs: Vec<Tensor>,
        memory: Reservation,
    ) -> Self {
        let value = |&value: &ValueIndex| {
            let spec = &graph.values()[value.index()];
            let elements = spec.rows as usize * spec.row.elements();
            let zeros = || TensorData::zeros(spec.row.element, 0);
            let position = graph.inputs().iter().position(|&input| input == value);
            let brought = position.map(|position| {
                std::mem::replace(&mut inputs[position], Tensor::new(vec![0], zeros())).into_data()
            });
            let mut data = brought.unwrap_or_else(zeros);
            data.resize(elements);
            data
        };
        let values = graph.outputs().iter().map(value).collect();
        let sent = Instant::now();
        let times = RequestTimes { queue_ns: 0, compute_ns: 0, ended: sent };
        Self { values, ends: Vec::new(), times, sent, memory }
    }

    /// Puts the reply together as `plan` says.
    pub(crate) fn into_reply(self, plan: ReplyPlan) -> Result<Reply, EngineError> {
        let begun = Instant::now();
        let outputs = plan.reply(self.values, &self.ends)?;
        let answered = self.sent + begun.elapsed();
        let RequestTimes { queue_ns, compute_ns, ended } = self.times;
        let since_end_ns = (answered - ended).as_nanos() as u64;
        let (compute_ns, memory) = (compute_ns + since_end_ns, Some(self.memory));
        Ok(Reply { outputs, queue_ns, compute_ns, answered, memory })
    }
}
