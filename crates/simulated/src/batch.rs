//! One batch of a virtual device: the nodes of a task that run together.

use batchmaker_device::{Chain, Origin, StatePlace};
use batchmaker_graph::{
    BatchedTask, CellGraph, EndOfSequence, Guard, RequestId, Rows, RunIndex, SinkTime, ValueIndex,
};

use crate::arithmetic::Arithmetic;
use crate::memory::Memory;
use crate::misuse::Misuse;
use crate::progress::{Progress, Stamp};

/// A chain on a roster.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) chain: Chain,
    /// The place of its state before its next step.
    pub(crate) origin: Origin,
}

impl Member {
    pub(crate) fn new(chain: Chain) -> Self {
        Self { origin: chain.origin(), chain }
    }
}

impl AsRef<Chain> for Member {
    fn as_ref(&self) -> &Chain {
        &self.chain
    }
}

/// A node to run.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) request: RequestId,
    pub(crate) run: RunIndex,
    pub(crate) node: u32,
    /// The chain, and where its state is; none for a row.
    pub(crate) chain: Option<Member>,
}

/// Whether a run with a guard is needed, for a reader of its rows.
enum Guarded {
    Needed,
    LeftOut,
    /// The row that decides is lost.
    Unknown,
}

/// The rows of a node by output port; none where they are unknown.
type Outputs<R> = Option<Vec<Vec<R>>>;

/// A batch that is about to run.
pub(crate) struct Batch<'a, A: Arithmetic> {
    pub(crate) memory: &'a mut Memory<A::Row>,
    pub(crate) arithmetic: &'a mut A,
    pub(crate) progress: &'a Progress,
    pub(crate) task: &'a BatchedTask,
    /// The number of the batch in its task.
    pub(crate) number: u32,
    /// Whether its outputs and states are unknown, because its task fails.
    pub(crate) is_failed: bool,
    /// Gets the chains that reach their end of sequence, each with the number of the batch.
    pub(crate) ends: &'a mut Vec<(u32, EndOfSequence)>,
}

impl<A: Arithmetic> Batch<'_, A> {
    /// Reads for all nodes, then writes for all: no node of a batch sees another's output. Padding,
    /// and nodes after an end of sequence, cost time and are nothing else. Returns the reason why the
    /// nodes cannot be computed, if they cannot.
    pub(crate) fn run(mut self, nodes: &[Node]) -> Result<Option<String>, Misuse> {
        let is_node = |node: &&Node| {
            self.memory.known(node.request).is_none_or(|values| {
                let length = values.graph.runs()[node.run.index()].length;
                node.node < length && !values.has_ended(node.run)
            })
        };
        let nodes: Vec<&Node> = nodes.iter().filter(is_node).collect();
        let mut failure = None;
        let mut outputs = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let done = self.outputs_of(node).map_err(|misuse| {
                Misuse(format!("{:?} {:?} node {}: {misuse}", node.request, node.run, node.node))
            })?;
            outputs.push(match done {
                Ok(done) => done.filter(|_| !self.is_failed),
                Err(reason) => {
                    failure.get_or_insert(reason);
                    None
                }
            });
        }
        if failure.is_some() {
            outputs.fill(None);
        }
        let by = self.progress.stamp(self.task.worker, self.task.id, self.number);
        for (node, outputs) in nodes.iter().zip(outputs) {
            self.write(node, outputs, by)?;
        }
        Ok(failure)
    }

    /// The rows that a node computes, or the reason why it cannot.
    fn outputs_of(&mut self, node: &Node) -> Result<Result<Outputs<A::Row>, String>, Misuse> {
        let graph = self.memory.values(node.request)?.graph.clone();
        let run = &graph.runs()[node.run.index()];
        let mut inputs = Vec::with_capacity(run.inputs.len());
        for rows in &run.inputs {
            inputs.push(self.read(node, rows, node.node)?);
        }
        let states = match &node.chain {
            None => Some(Vec::new()),
            Some(Member { origin: Origin::Initial, .. }) => {
                let mut states = Vec::with_capacity(run.initial.len());
                for (port, initial) in run.initial.iter().enumerate() {
                    states.push(match initial {
                        Some(rows) => {
                            let row = self.read(node, rows, 0)?;
                            row.and_then(|mut rows| rows.pop())
                        }
                        None => Some(self.arithmetic.zero_state(self.task.cell_type, port)),
                    });
                }
                states.into_iter().collect()
            }
            Some(member) => self.state(node, member)?,
        };
        let inputs: Option<Vec<_>> = inputs.into_iter().collect();
        let Some((inputs, states)) = inputs.zip(states) else { return Ok(Ok(None)) };
        let ports = run.sinks.iter().map(|sink| sink.port + 1);
        let ports = ports.chain([run.initial.len(), run.stop.map_or(0, |stop| stop.port + 1)]);
        let mut spans = vec![1; ports.max().unwrap_or(0)];
        for sink in &run.sinks {
            spans[sink.port] = sink.rows.span;
        }
        let outputs = self.arithmetic.outputs(self.task.cell_type, &inputs, &states, &spans);
        Ok(outputs.map(Some))
    }

    /// The rows of a node's request that it reads at a port; none where one of them is lost.
    fn read(
        &mut self,
        node: &Node,
        rows: &Rows,
        of_node: u32,
    ) -> Result<Option<Vec<A::Row>>, Misuse> {
        let first = rows.row(of_node);
        let mut all = Some(Vec::new());
        for row in first..first + rows.span as usize {
            let datum = self.read_row(node.request, (rows.value, row))?;
            all = all.zip(datum).map(|(mut all, datum)| {
                all.push(datum);
                all
            });
        }
        Ok(all)
    }

    /// A row that a node of `request` reads: zeros, if a run was to write it that a decision leaves out. So it makes no difference
    /// whether that run ran.
    fn read_row(
        &mut self,
        request: RequestId,
        place: (ValueIndex, usize),
    ) -> Result<Option<A::Row>, Misuse> {
        let values = self.memory.values(request)?;
        if let Some(guard) = values.guard(place) {
            let graph = values.graph.clone();
            match self.outcome(request, &graph, guard)? {
                Guarded::Needed => {}
                Guarded::LeftOut => {
                    let row = &graph.values()[place.0.index()].row;
                    return Ok(Some(self.arithmetic.left_out(row)));
                }
                Guarded::Unknown => return Ok(None),
            }
        }
        self.memory.read(self.progress, self.task.worker, request, place)
    }

    fn outcome(
        &mut self,
        request: RequestId,
        graph: &CellGraph,
        guard: Guard,
    ) -> Result<Guarded, Misuse> {
        let decision = graph.decisions()[guard.decision.index()];
        if let Some(own) = graph.runs()[decision.run.index()].guard {
            match self.outcome(request, graph, own)? {
                Guarded::Needed => {}
                other => return Ok(other),
            }
        }
        let place = (decision.value, decision.row as usize);
        let row = self.memory.read(self.progress, self.task.worker, request, place)?;
        Ok(match row.map(|row| self.arithmetic.is_true(&row)) {
            None => Guarded::Unknown,
            Some(is_true) if is_true == guard.when => Guarded::Needed,
            Some(_) => Guarded::LeftOut,
        })
    }

    /// The state before a chain's node, which is not its first; none where it is lost.
    fn state(&mut self, node: &Node, member: &Member) -> Result<Option<Vec<A::Row>>, Misuse> {
        let moved_from = match member.origin {
            Origin::Elsewhere(from) => Some(from),
            Origin::Slot | Origin::Initial => None,
        };
        let slot = member.chain.slot;
        let place = StatePlace { cell_type: self.task.cell_type, slot, step: node.node };
        self.memory.read_state(self.progress, self.task.worker, place, moved_from)
    }

    /// Writes the rows of a node and the state after it, or ends its sequence.
    fn write(&mut self, node: &Node, outputs: Outputs<A::Row>, by: Stamp) -> Result<(), Misuse> {
        let graph = self.memory.values(node.request)?.graph.clone();
        let run = &graph.runs()[node.run.index()];
        if let (Some(stop), Some(outputs)) = (run.stop, &outputs)
            && self.arithmetic.is_end(stop, &outputs[stop.port][0])
        {
            self.memory.note_end(node.request, node.run)?;
            let (request, run, nodes) = (node.request, node.run, node.node + 1);
            self.ends.push((self.number, EndOfSequence { request, run, nodes }));
            return Ok(());
        }
        for sink in &run.sinks {
            let to = match &node.chain {
                Some(member) => member.chain.sink_node(sink.time, node.node),
                None => run.sink_node(sink.time, node.node),
            };
            let Some(to) = to else { continue };
            let first = sink.rows.row(to);
            let may_change = run.stop.is_some() && sink.time == SinkTime::Last;
            for (at, row) in (first..first + sink.rows.span as usize).enumerate() {
                let datum = outputs.as_ref().map(|outputs| outputs[sink.port][at].clone());
                let place = (sink.rows.value, row);
                self.memory.write(node.request, place, datum, by, may_change)?;
            }
        }
        if let Some(Member { chain, .. }) = &node.chain {
            let state = |port: usize| outputs.as_ref().map(|outputs| outputs[port][0].clone());
            let state = (0..run.initial.len()).map(state).collect();
            let (slot, step) = (chain.slot, chain.state_step_after(node.node));
            let place = StatePlace { cell_type: self.task.cell_type, slot, step };
            self.memory.write_state(place, state, by);
        }
        Ok(())
    }
}
