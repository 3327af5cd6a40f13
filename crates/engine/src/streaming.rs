//! Step outputs as they come: the rows that a request's last chain has written so far. They are read
//! by workers, and sent in their order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, EndOfSequence, NamedTensor, OutputTensor, RowOrder, RunIndex, RunKind, SinkTime,
    Tensor, TensorData, ValueIndex,
};
use tokio::sync::mpsc::UnboundedSender;

/// Which steps of a request are sent before its end, and to whom.
#[derive(Debug)]
pub(crate) struct Streamed {
    sender: UnboundedSender<Vec<NamedTensor>>,
    /// A chain whose outputs the reply holds step by step.
    pub(crate) run: RunIndex,
    length: u32,
    /// Steps that workers were asked to read.
    asked: u32,
    /// Steps that were sent.
    sent: u32,
    /// Steps that were read before earlier ones, by the first: their end, and rows of each output.
    waiting: BTreeMap<u32, (u32, Vec<TensorData>)>,
    outputs: Vec<StepOutput>,
    /// Of each output.
    values: Arc<[ValueIndex]>,
}

/// A tensor of the reply with a row a step.
#[derive(Debug)]
struct StepOutput {
    name: String,
    /// Of the value among the graph's outputs.
    position: usize,
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
            let steps = outputs.iter().filter(|(_, output)| is_step(output));
            let (outputs, values): (Vec<_>, Vec<_>) = steps
                .map(|(position, output)| {
                    let (name, row) = (output.name.clone(), output.shape[1..].to_vec());
                    (StepOutput { name, position: *position, row }, output.value)
                })
                .unzip();
            let run_index = RunIndex(position as u32);
            (!outputs.is_empty()).then_some((run_index, run.length, outputs, values))
        };
        let (run, length, outputs, values) = chains.find_map(of_chain)?;
        let (values, waiting) = (values.into(), BTreeMap::new());
        Some(Self { sender, run, length, asked: 0, sent: 0, waiting, outputs, values })
    }

    /// The values whose rows are sent, and the steps that were not asked for yet of the first
    /// `completed`, where these chains `stopped`.
    pub(crate) fn ask(
        &mut self,
        completed: u32,
        stopped: &[EndOfSequence],
    ) -> Option<(Arc<[ValueIndex]>, Range<u32>)> {
        let end = completed.min(self.end(stopped));
        if end <= self.asked {
            return None;
        }
        let rows = self.asked..end;
        self.asked = end;
        Some((self.values.clone(), rows))
    }

    /// Sends steps that were asked for, after those before them: several workers may read them.
    pub(crate) fn arrived(&mut self, rows: Range<u32>, data: Vec<TensorData>) {
        self.waiting.insert(rows.start, (rows.end, data));
        while let Some((end, data)) = self.waiting.remove(&self.sent) {
            self.send(self.sent..end, data.into_iter());
        }
    }

    /// Sends the steps that are left, of a request whose outputs have been read. All that was asked
    /// for has arrived.
    pub(crate) fn finish(&mut self, outputs: &[TensorData], stopped: &[EndOfSequence]) {
        let rows = self.sent..self.end(stopped);
        if rows.is_empty() {
            return;
        }
        let data = self.outputs.iter().map(|output| {
            let row: usize = output.row.iter().product();
            let data = &outputs[output.position];
            data.slice(rows.start as usize * row..rows.end as usize * row)
        });
        let data: Vec<TensorData> = data.collect();
        self.send(rows, data.into_iter());
    }

    /// The steps that there are: all but the node that ended the chain.
    fn end(&self, stopped: &[EndOfSequence]) -> u32 {
        let stop = stopped.iter().find(|stop| stop.run == self.run);
        stop.map_or(self.length, |stop| stop.nodes - 1)
    }

    fn send(&mut self, rows: Range<u32>, data: impl Iterator<Item = TensorData>) {
        self.sent = rows.end;
        let tensor = |(output, data): (&StepOutput, TensorData)| {
            let shape = [rows.len()].into_iter().chain(output.row.iter().copied()).collect();
            NamedTensor { name: output.name.clone(), tensor: Tensor::new(shape, data) }
        };
        // Nobody may be there to take them.
        let _ = self.sender.send(self.outputs.iter().zip(data).map(tensor).collect());
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::{
        CellGraphBuilder, CellTypeId, ElementType, RequestId, RowSpec, Rows, Sink,
    };
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    /// Rows of a value, which hold the number of the value and the row in each element.
    fn read((values, rows): (Arc<[ValueIndex]>, Range<u32>)) -> (Range<u32>, Vec<TensorData>) {
        let row = |value: ValueIndex, row: u32| [(100 * value.0 + row) as f32; 2];
        let rows_of = |&value: &ValueIndex| {
            TensorData::F32(rows.clone().flat_map(|r| row(value, r)).collect())
        };
        (rows.clone(), values.iter().map(rows_of).collect())
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

    /// The steps that were sent since the last call.
    fn sent(told: &mut Told) -> Vec<f32> {
        let mut all = Vec::new();
        while let Ok(mut steps) = told.try_recv() {
            assert_eq!((steps.len(), &*steps[0].name), (1, "y1"));
            match steps.remove(0).tensor.into_data() {
                TensorData::F32(rows) => all.extend(rows.iter().step_by(2)),
                other => panic!("{other:?}"),
            }
        }
        all
    }

    #[test]
    fn the_last_chain_is_sent_row_by_row() {
        let (mut streamed, mut told) = streamed(2, 1).unwrap();
        assert_eq!(streamed.run, RunIndex(1));
        assert_eq!(streamed.ask(0, &[]), None);
        let first = read(streamed.ask(1, &[]).unwrap());
        assert_eq!(streamed.ask(1, &[]), None, "it was asked for");
        let later = read(streamed.ask(2, &[]).unwrap());
        streamed.arrived(later.0, later.1);
        assert_eq!(sent(&mut told), [], "a later step waits for the first");
        streamed.arrived(first.0, first.1);
        assert_eq!(sent(&mut told), [200.0, 201.0]);
        let (_, outputs) = read((vec![ValueIndex(1), ValueIndex(2)].into(), 0..STEPS));
        streamed.finish(&outputs, &[]);
        assert_eq!(sent(&mut told), [202.0]);
    }

    #[test]
    fn the_node_that_ends_a_chain_is_not_sent() {
        let (mut streamed, _told) = streamed(1, 1).unwrap();
        let request = RequestId { index: 0, generation: 0 };
        let stop = EndOfSequence { request, run: RunIndex(0), nodes: 2 };
        let (_, rows) = streamed.ask(u32::MAX, &[stop]).unwrap();
        assert_eq!(rows, 0..1);
    }

    /// As many sequences as steps: the first axis is not that of steps all the same.
    #[test]
    fn several_sequences_are_sent_at_the_end() {
        assert!(streamed(1, STEPS).is_none());
    }
}
