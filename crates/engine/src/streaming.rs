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

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use batchmaker_device::{DeviceError, TaskQueue};
    use batchmaker_graph::{
        CellGraphBuilder, CellType, CellTypeId, ElementType, RowSpec, Rows, Sink, TensorData,
        WorkerId,
    };
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    /// A device whose values hold the number of the value and the row in each element.
    struct Numbers;

    impl Device for Numbers {
        fn materialize(&mut self, _: &[CellType]) -> Result<(), DeviceError> {
            Ok(())
        }

        fn queue(self: Arc<Self>, _: WorkerId) -> Result<Box<dyn TaskQueue>, DeviceError> {
            unreachable!("nothing runs")
        }

        fn admit(&self, _: RequestId, _: Arc<CellGraph>, _: Vec<Tensor>) {}

        fn peek(&self, _: RequestId, value: ValueIndex, rows: Range<usize>) -> TensorData {
            let row = |row: usize| [100.0 * value.0 as f32 + row as f32; 2];
            TensorData::F32(rows.flat_map(row).collect())
        }

        fn retire(&self, _: RequestId) -> Vec<Tensor> {
            Vec::new()
        }
    }

    const STEPS: u32 = 3;

    /// `layers` chains over `sequences` sequences; each layer's outputs, `[sequences, steps, 2]`, or
    /// `[steps, 2]` of one.
    fn stacked(layers: u32, sequences: u32) -> (CellGraph, Vec<(usize, OutputTensor)>) {
        let mut graph = CellGraphBuilder::new();
        let row = || RowSpec::flat(ElementType::F32, 2);
        let mut below = graph.input(row(), sequences * STEPS);
        let mut outputs = Vec::new();
        for layer in 0..layers {
            let value = graph.value(row(), sequences * STEPS);
            for first in (0..sequences).map(|sequence| sequence * STEPS) {
                let rows = Rows::strided(value, first, 1);
                let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows }];
                let inputs = vec![Rows::strided(below, first, 1)];
                graph.chain(CellTypeId(layer), STEPS, inputs, vec![None], sinks);
            }
            graph.output(value);
            let steps = [STEPS as usize, 2];
            let shape = match sequences {
                1 => steps.to_vec(),
                n => [&[n as usize][..], &steps].concat(),
            };
            let (rows, until, permutation) = (None, None, None);
            let name = format!("y{layer}");
            let output = OutputTensor { name, value, rows, shape, until, permutation };
            outputs.push((layer as usize, output));
            below = value;
        }
        (graph.finish(), outputs)
    }

    fn streamed(layers: u32, sequences: u32) -> Option<(Streamed, Told)> {
        let (graph, outputs) = stacked(layers, sequences);
        let (sender, told) = unbounded_channel();
        Some((Streamed::new(&graph, &outputs, sender)?, told))
    }

    type Told = UnboundedReceiver<Vec<NamedTensor>>;

    const REQUEST: RequestId = RequestId { index: 0, generation: 0 };

    #[test]
    fn the_last_chain_is_told_row_by_row() {
        let (mut streamed, mut told) = streamed(2, 1).unwrap();
        assert_eq!(streamed.run, RunIndex(1));
        for (completed, expected) in [
            (0, None),
            (1, Some(vec![200.0; 2])),
            (1, None),
            (3, Some(vec![201.0, 201.0, 202.0, 202.0])),
        ] {
            streamed.tell(&Numbers, REQUEST, completed, &[]);
            let rows = told.try_recv().ok().map(|mut steps| {
                assert_eq!((steps.len(), &*steps[0].name), (1, "y1"));
                match steps.remove(0).tensor.into_data() {
                    TensorData::F32(rows) => rows,
                    other => panic!("{other:?}"),
                }
            });
            assert_eq!(rows, expected, "{completed} complete");
        }
    }

    #[test]
    fn what_said_stop_is_not_told() {
        let (mut streamed, mut told) = streamed(1, 1).unwrap();
        let stop = Stopped { request: REQUEST, run: RunIndex(0), nodes: 2 };
        streamed.tell(&Numbers, REQUEST, u32::MAX, &[stop]);
        assert_eq!(told.try_recv().unwrap()[0].tensor.shape(), [1, 2]);
    }

    /// As many sequences as steps: the first axis is not that of steps all the same.
    #[test]
    fn several_sequences_are_told_at_the_end() {
        assert!(streamed(1, STEPS).is_none());
    }
}
