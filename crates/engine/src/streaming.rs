//! Step outputs as they come: the rows that a request's last chain has written so far.

use batchmaker_device::Device;
use batchmaker_graph::{
    CellGraph, NamedTensor, OutputTensor, RequestId, RowOrder, RunIndex, RunKind, SinkTime,
    Stopped, Tensor, ValueIndex,
};
use tokio::sync::mpsc::UnboundedSender;

/// What is told of a request before its end, and to whom.
#[derive(Debug)]
pub(crate) struct Streamed {
    sender: UnboundedSender<Vec<NamedTensor>>,
    /// A chain whose outputs the reply holds step by step.
    pub(crate) run: RunIndex,
    length: u32,
    /// Steps told of.
    told: u32,
    outputs: Vec<StepOutput>,
}

/// A tensor of the reply with a row a step.
#[derive(Debug)]
struct StepOutput {
    name: String,
    value: ValueIndex,
    row: Vec<usize>,
}

impl Streamed {
    /// None where no chain writes a tensor of the reply row by row.
    pub(crate) fn new(
        graph: &CellGraph,
        outputs: &[(usize, OutputTensor)],
        sender: UnboundedSender<Vec<NamedTensor>>,
    ) -> Option<Self> {
        let runs = graph.runs().iter().enumerate().rev();
        let mut chains = runs.filter(|(_, run)| run.kind == RunKind::Chain);
        let elements = |value: ValueIndex| graph.values()[value.index()].row.elements();
        let of_chain = |(position, run): (usize, &batchmaker_graph::Run)| {
            // Row i of the value is of step i, and of the tensor.
            let is_step = |output: &OutputTensor| {
                let in_order = RowOrder::Strided { first: 0, stride: 1 };
                let mut sinks = run.sinks.iter();
                sinks.any(|sink| {
                    sink.time == SinkTime::Every
                        && sink.rows.value == output.value
                        && sink.rows.order == in_order
                }) && output.rows.is_none()
                    && output.permutation.is_none()
                    && output.shape.first() == Some(&(run.length as usize))
                    && output.shape[1..].iter().product::<usize>() == elements(output.value)
            };
            let outputs = outputs.iter().map(|(_, output)| output).filter(|output| is_step(output));
            let outputs = outputs.map(|output| StepOutput {
                name: output.name.clone(),
                value: output.value,
                row: output.shape[1..].to_vec(),
            });
            let outputs: Vec<_> = outputs.collect();
            let length = run.length;
            (!outputs.is_empty()).then_some((RunIndex(position as u32), length, outputs))
        };
        let (run, length, outputs) = chains.find_map(of_chain)?;
        Some(Self { sender, run, length, told: 0, outputs })
    }

    /// Tells of those of the first `completed` steps that were not told of, where these chains
    /// `stopped`. Always under the lock of the table of requests: so steps are told in their order.
    pub(crate) fn tell(
        &mut self,
        device: &dyn Device,
        request: RequestId,
        completed: u32,
        stopped: &[Stopped],
    ) {
        let stop = stopped.iter().find(|stop| stop.run == self.run);
        // All but the node that said so.
        let end = completed.min(stop.map_or(self.length, |stop| stop.nodes - 1));
        if end <= self.told {
            return;
        }
        let rows = self.told as usize..end as usize;
        self.told = end;
        let tensor = |output: &StepOutput| {
            let data = device.peek(request, output.value, rows.clone());
            let shape = [rows.len()].into_iter().chain(output.row.iter().copied()).collect();
            NamedTensor { name: output.name.clone(), tensor: Tensor::new(shape, data) }
        };
        // Nobody may be there to take them.
        let _ = self.sender.send(self.outputs.iter().map(tensor).collect());
    }
}
