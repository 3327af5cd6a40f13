//! Streams: the rows that a request's last chain has written so far are read by workers and sent in
//! their order, while the request runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use batchmaker_graph::{EndOfSequence, RunIndex, TensorData, ValueIndex};
use batchmaker_model::StepPlan;
use tokio::sync::mpsc::UnboundedSender;

use crate::pending::StepRows;

/// The stream of one request.
#[derive(Debug)]
pub(crate) struct Streamed {
    sender: UnboundedSender<StepRows>,
    plan: Arc<StepPlan>,
    /// The number of steps that workers were asked to read.
    requested: u32,
    /// The number of steps that were sent.
    sent: u32,
    /// Rows that were read before earlier ones, by their first step: the end of their steps, and the
    /// rows of each value.
    waiting: BTreeMap<u32, (u32, Vec<TensorData>)>,
}

impl Streamed {
    /// A stream of the steps that `plan` names, none of which were read.
    pub(crate) fn new(plan: Arc<StepPlan>, sender: UnboundedSender<StepRows>) -> Self {
        Self { sender, plan, requested: 0, sent: 0, waiting: BTreeMap::new() }
    }

    /// The chain whose steps are sent.
    pub(crate) fn run(&self) -> RunIndex {
        self.plan.run()
    }

    /// The values to read, and which of the first `completed` steps were not requested yet, where the
    /// chains in `ends` reached their end of sequence.
    pub(crate) fn request(
        &mut self,
        completed: u32,
        ends: &[EndOfSequence],
    ) -> Option<(Arc<[ValueIndex]>, Range<u32>)> {
        let end = completed.min(self.plan.steps(ends));
        if end <= self.requested {
            return None;
        }
        let rows = self.requested..end;
        self.requested = end;
        Some((self.plan.values().clone(), rows))
    }

    /// Takes rows that were read, and sends them after those of earlier steps: several workers may
    /// read steps of one request.
    pub(crate) fn arrived(&mut self, rows: Range<u32>, data: Vec<TensorData>) {
        self.waiting.insert(rows.start, (rows.end, data));
        while let Some((end, data)) = self.waiting.remove(&self.sent) {
            self.send(self.sent..end, data);
        }
    }

    /// Sends the steps that are left of a request whose output values have been read; no read of steps
    /// is outstanding.
    pub(crate) fn finish(&mut self, outputs: &[TensorData], ends: &[EndOfSequence]) {
        let rows = self.sent..self.plan.steps(ends);
        if !rows.is_empty() {
            let data = self.plan.rows_of(outputs, rows.clone());
            self.send(rows, data);
        }
    }

    fn send(&mut self, rows: Range<u32>, data: Vec<TensorData>) {
        self.sent = rows.end;
        // Nobody may be there to take them.
        let _ = self.sender.send((rows, data));
    }
}

#[cfg(test)]
mod tests {
    use batchmaker_graph::RequestId;
    use batchmaker_graph::{
        CellGraphBuilder, CellTypeId, ElementType, NamedTensor, OutputTensor, Parameters, RowSpec,
        Rows, Sink, SinkTime, Tensor, Unfold, UnfoldError, Unfolded,
    };
    use batchmaker_model::{Model, ReplyTensor, Takes, TensorInfo, Unfolding};
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    const STEPS: u32 = 3;

    /// Unfolds every request into one chain of [`STEPS`] steps, whose outputs are `y`, `[steps, 2]`.
    struct OneChain;

    impl Unfold for OneChain {
        fn unfold(&self, _: Vec<NamedTensor>, _: &Parameters) -> Result<Unfolded, UnfoldError> {
            let mut graph = CellGraphBuilder::new();
            let row = || RowSpec::flat(ElementType::F32, 2);
            let (x, y) = (graph.input(row(), STEPS), graph.value(row(), STEPS));
            let sinks = vec![Sink { port: 0, time: SinkTime::Every, rows: Rows::all(y) }];
            graph.chain(CellTypeId(0), STEPS, vec![Rows::all(x)], vec![None], sinks);
            graph.output(y);
            let shape = vec![STEPS as usize, 2];
            let (rows, until, permutation) = (None, None, None);
            let name = "y".to_owned();
            let outputs = vec![OutputTensor { name, value: y, rows, shape, until, permutation }];
            let inputs = vec![Tensor::new(vec![2 * STEPS as usize], TensorData::F32(vec![0.0; 6]))];
            Ok(Unfolded { graph: graph.finish()?, inputs, outputs, checks: Vec::new() })
        }
    }

    fn streamed() -> (Streamed, UnboundedReceiver<StepRows>) {
        let info = TensorInfo { name: "y".into(), element: ElementType::F32, shape: vec![-1, 2] };
        let unfolding = Unfolding {
            unfolder: Arc::new(OneChain),
            inputs: Vec::new(),
            outputs: vec![ReplyTensor { info, batch_axis: None }],
            cells: Vec::new(),
            max_length: 1,
            takes: Takes::NONE,
        };
        let model = Model::new("one", "1", unfolding).unwrap();
        let (unfolded, plan) = model.unfold(Vec::new(), &Parameters::default(), &[]).unwrap();
        let plan = Arc::new(plan.steps(&unfolded.graph).unwrap());
        let (sender, receiver) = unbounded_channel();
        (Streamed::new(plan, sender), receiver)
    }

    /// Rows whose elements are the numbers of their steps.
    fn read((_, steps): (Arc<[ValueIndex]>, Range<u32>)) -> (Range<u32>, Vec<TensorData>) {
        let rows = steps.clone().flat_map(|step| [step as f32; 2]).collect();
        (steps, vec![TensorData::F32(rows)])
    }

    /// The steps that were sent since the last call.
    fn sent(receiver: &mut UnboundedReceiver<StepRows>) -> Vec<f32> {
        let mut all = Vec::new();
        while let Ok((steps, mut data)) = receiver.try_recv() {
            let TensorData::F32(rows) = data.remove(0) else { panic!("rows of numbers") };
            assert_eq!(rows.len(), 2 * steps.len());
            all.extend(rows.iter().step_by(2));
        }
        all
    }

    #[test]
    fn steps_are_sent_in_their_order() {
        let (mut streamed, mut receiver) = streamed();
        assert_eq!(streamed.request(0, &[]), None);
        let first = read(streamed.request(1, &[]).unwrap());
        assert_eq!(streamed.request(1, &[]), None, "it was requested");
        let later = read(streamed.request(2, &[]).unwrap());
        streamed.arrived(later.0, later.1);
        assert_eq!(sent(&mut receiver), [], "a later step waits for the first");
        streamed.arrived(first.0, first.1);
        assert_eq!(sent(&mut receiver), [0.0, 1.0]);
        let outputs = TensorData::F32(vec![0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
        streamed.finish(&[outputs], &[]);
        assert_eq!(sent(&mut receiver), [2.0]);
    }

    #[test]
    fn the_node_that_ends_a_chain_is_not_sent() {
        let (mut streamed, _receiver) = streamed();
        let request = RequestId { index: 0, generation: 0 };
        let end = EndOfSequence { request, run: RunIndex(0), nodes: 2 };
        let (_, rows) = streamed.request(u32::MAX, &[end]).unwrap();
        assert_eq!(rows, 0..1);
    }
}
