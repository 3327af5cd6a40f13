//! Puts replies together and sends them.

use std::time::Instant;

use batchmaker_graph::{
    CellGraph, EndOfSequence, NamedTensor, OutputTensor, Tensor, TensorData, ValueIndex,
};
use batchmaker_manager::{Failure, Outcome};

use crate::engine::ServedModel;
use crate::error::EngineError;
use crate::pending::Reply;
use crate::request_table::Responder;

/// A request that ended, taken out of all tables.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) responder: Responder,
    pub(crate) outcome: Outcome,
    /// Of each output value, flat.
    pub(crate) values: Vec<TensorData>,
    pub(crate) times: RequestTimes,
}

/// The times of a request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTimes {
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
                let flat = |data: TensorData| Tensor::new(vec![data.len()], data);
                let values = self.values.into_iter().map(flat).collect();
                let named = model.named_outputs(outputs, &stopped, values);
                let outputs = model.model.reply(&plan, named).map_err(EngineError::Reply);
                let answered = Instant::now();
                let RequestTimes { queue_ns, compute_ns, ended } = self.times;
                let since_end_ns = (answered - ended).as_nanos() as u64;
                outputs.map(|outputs| Reply {
                    outputs,
                    queue_ns,
                    compute_ns: compute_ns + since_end_ns,
                    answered,
                })
            }
        };
        // The permit is freed first, so that a client that has its reply finds it free.
        drop(permit);
        let _ = sender.send(reply);
    }
}

/// Answers a request of which there is nothing to run, sequences of no steps: its outputs are inputs
/// or rows of zeros.
pub(crate) fn answer_at_once(responder: Responder, graph: &CellGraph, mut inputs: Vec<Tensor>) {
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
    let times = RequestTimes { queue_ns: 0, compute_ns: 0, ended: Instant::now() };
    Ended { responder, outcome: Outcome::Succeeded, values, times }.answer();
}

impl ServedModel {
    /// Gives the values the shapes and names of the reply's tensors, where these chains
    /// `stopped`.
    fn named_outputs(
        &self,
        outputs: Vec<(usize, OutputTensor)>,
        stopped: &[EndOfSequence],
        mut values: Vec<Tensor>,
    ) -> Vec<NamedTensor> {
        let mut left: Vec<usize> = vec![0; values.len()];
        outputs.iter().for_each(|(position, _)| left[*position] += 1);
        let named = outputs.into_iter().map(|(position, mut output)| {
            left[position] -= 1;
            let stop = stopped.iter().find(|stop| Some(stop.run) == output.until);
            if let Some(stop) = stop {
                // The node that ended the chain is no step of the reply.
                output.shape[0] = stop.nodes as usize - 1;
                output.rows = Some(0..output.shape[0]);
            }
            let value = match (output.rows, left[position]) {
                (Some(rows), _) => {
                    let all = output.shape.iter().product::<usize>();
                    let row = all.checked_div(rows.len()).unwrap_or(0);
                    let elements = rows.start * row..rows.end * row;
                    Tensor::new(vec![all], values[position].data().slice(elements))
                }
                (None, 0) => {
                    let empty = Tensor::new(vec![0], TensorData::F32(Vec::new()));
                    std::mem::replace(&mut values[position], empty)
                }
                (None, _) => values[position].clone(),
            };
            let tensor = value.reshaped(output.shape);
            let tensor = match &output.permutation {
                Some(permutation) => tensor.permuted(permutation),
                None => tensor,
            };
            NamedTensor { name: output.name, tensor }
        });
        named.collect()
    }
}
