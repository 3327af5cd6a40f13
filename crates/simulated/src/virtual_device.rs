//! A device in virtual time, which watches how it is used.
//!
//! It has no clock and no thread: whoever drives it asks for the next task to start
//! ([`VirtualDevice::start`]), waits as long in virtual time as the task costs, and tells when
//! that is over ([`VirtualDevice::finish`]), or its first batches are
//! ([`VirtualDevice::advance`]).
//!
//! What its nodes compute is up to an [`Arithmetic`]. What no manager or engine may do is refused as a
//! [`Misuse`]: reading a row that nobody has written, a row or a state of another worker's
//! unfinished task, a slot of another generation or step, a state elsewhere that
//! [`moved_from`](Join::moved_from) does not name. A chain of a
//! [`Chunk::Next`](batchmaker_graph::Chunk) begins with what the
//! chunk before left in its slot, and nothing else will do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use batchmaker_device::{Chain, Origin, Roster, StatePlace};
use batchmaker_graph::{
    BatchedTask, CellGraph, CellTypeId, EndOfSequence, Item, Join, RequestId, Rows, RunIndex,
    SinkTime, SlotId, StatePlacement, TaskId, ValueIndex, Work, WorkerId,
};

use crate::arithmetic::Arithmetic;
use crate::memory::{Contents, Datum, Memory};
use crate::misuse::Misuse;
use crate::progress::{Progress, Stamp};

/// What a batch of one cell type costs: `fixed_ns + rows * row_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellCost {
    /// For the batch.
    pub fixed_ns: u64,
    /// For each row of it.
    pub row_ns: u64,
}

/// What a virtual device is made from.
#[derive(Clone, Debug)]
pub struct VirtualConfig {
    /// How many workers have a queue.
    pub workers: usize,
    /// Where states and values live.
    pub memory: StatePlacement,
    /// A cost for each cell type; those beyond the list cost nothing.
    pub costs: Vec<CellCost>,
    /// For each row or state that comes from another worker's memory.
    pub copy_ns: u64,
    /// The most slots of a cell type; none: any number.
    pub slots_max: Option<u32>,
    /// The most rows of a batch; none: any number.
    pub rows_max: Option<u32>,
}

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Runs,
    /// It fails: rosters change as the task says; of the batch with this number and of those after
    /// it, outputs and states are unknown.
    FailsFrom(u32),
}

/// A task that runs from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Which.
    pub task: TaskId,
    /// How many batches it has.
    pub batches: u32,
    /// How long it takes.
    pub cost_ns: u64,
    /// Why its nodes cannot be computed, if they cannot: it fails, whatever its fate.
    pub failure: Option<String>,
}

/// See the module's first paragraph. The requests that it is told of are in flight from
/// [`admit`](Self::admit) to [`retire`](Self::retire).
#[derive(Debug)]
pub struct VirtualDevice<A: Arithmetic> {
    config: VirtualConfig,
    arithmetic: A,
    queues: Vec<Queue>,
    progress: Progress,
    memory: Memory<A::Row>,
}

#[derive(Debug, Default)]
struct Queue {
    /// From [`VirtualDevice::lose`] to [`VirtualDevice::restore`].
    is_lost: bool,
    waiting: VecDeque<BatchedTask>,
    /// What said stop in the running task and was not told of, each with the number of its batch.
    stops: Vec<(u32, EndOfSequence)>,
    /// Per cell type: the chains on the standing list.
    rosters: BTreeMap<CellTypeId, Roster<Member>>,
}

/// A chain on a roster.
#[derive(Clone, Debug)]
struct Member {
    chain: Chain,
    /// Where its state is before its next step.
    origin: Origin,
}

impl Member {
    fn new(chain: Chain) -> Self {
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
struct Node {
    request: RequestId,
    run: RunIndex,
    node: u32,
    /// Of a chain, itself and where its state is.
    chain: Option<Member>,
}

/// By output port, the rows of a node; none where they are unknown.
type Outputs<R> = Option<Vec<Vec<R>>>;

impl<A: Arithmetic> VirtualDevice<A> {
    /// A device with empty memories.
    pub fn new(config: VirtualConfig, arithmetic: A) -> Self {
        Self {
            queues: std::iter::repeat_with(Queue::default).take(config.workers).collect(),
            progress: Progress::new(config.workers),
            memory: Memory::new(config.memory, config.workers),
            arithmetic,
            config,
        }
    }

    /// What its nodes compute with.
    pub fn arithmetic_mut(&mut self) -> &mut A {
        &mut self.arithmetic
    }

    /// Takes a request with the contents of each row of its input values, in their order.
    pub fn admit(
        &mut self,
        request: RequestId,
        graph: Arc<CellGraph>,
        inputs: impl IntoIterator<Item = Vec<A::Row>>,
    ) {
        self.memory.admit(request, graph, inputs);
    }

    /// Forgets a request of which no task is in flight, and gives the rows of its output values: none
    /// as well for a row that nobody has written.
    pub fn retire(&mut self, request: RequestId) -> Result<Vec<Vec<Datum<A::Row>>>, Misuse> {
        self.memory.retire(request)
    }

    /// One row of a value of a request in flight: of one that the request brought, or that a batch
    /// which is complete has written.
    pub fn peek(
        &self,
        request: RequestId,
        value: ValueIndex,
        row: usize,
    ) -> Result<Datum<A::Row>, Misuse> {
        self.memory.peek(&self.progress, request, value, row)
    }

    /// The rows of all output values of a request whose nodes are all complete.
    pub fn outputs(&self, request: RequestId) -> Result<Vec<Vec<Contents<A::Row>>>, Misuse> {
        self.memory.outputs(&self.progress, request)
    }

    /// The state in a slot of a worker's memory, for a step.
    pub fn read_state(
        &self,
        worker: WorkerId,
        place: StatePlace,
    ) -> Result<Vec<Datum<A::Row>>, Misuse> {
        self.memory.state(worker, place)
    }

    /// Sets the state in a slot of a worker's memory, for a step.
    pub fn write_state(&mut self, worker: WorkerId, place: StatePlace, states: Vec<A::Row>) {
        let by = self.progress.stamp(worker, TaskId(0), 0);
        self.memory.write_state(place, states.into_iter().map(Some).collect(), by);
    }

    /// Queues a task behind those that its worker has, unless the worker is lost.
    pub fn submit(&mut self, task: BatchedTask) -> Result<(), Misuse> {
        let queue = &mut self.queues[task.worker.index()];
        if queue.is_lost {
            return Err(Misuse(format!("{} is lost and is given {}", task.worker, task.id)));
        }
        queue.waiting.push_back(task);
        Ok(())
    }

    /// Starts the worker's next task, unless it has none or is running one.
    pub fn start(&mut self, worker: WorkerId, fate: Fate) -> Result<Option<Started>, Misuse> {
        if self.progress.is_running(worker) {
            return Ok(None);
        }
        let next = self.queues[worker.index()].waiting.pop_front();
        let Some(task) = next else { return Ok(None) };
        self.progress.start(worker, task.id);
        let copies_before = self.memory.copies;
        let (mut cost_ns, mut batches, mut failure) = (0, 1, None);
        let free = CellCost { fixed_ns: 0, row_ns: 0 };
        let cost = self.config.costs.get(task.cell_type.index()).copied().unwrap_or(free);
        match &task.work {
            Work::Rows(items) => {
                let mut nodes = Vec::new();
                for item in items {
                    self.nodes_of(item, &mut nodes)?;
                }
                failure = self.run_batch(&task, 0, &nodes, fate)?;
                cost_ns += cost.fixed_ns + cost.row_ns * nodes.len() as u64;
            }
            Work::Roster { leaves, joins, steps } => {
                self.change_roster(&task, leaves, joins)?;
                batches = *steps;
                for step in 0..*steps {
                    let nodes = self.step_roster(worker, task.cell_type);
                    let fate = failure.as_ref().map_or(fate, |_| Fate::FailsFrom(0));
                    failure = failure.or(self.run_batch(&task, step, &nodes, fate)?);
                    cost_ns += cost.fixed_ns + cost.row_ns * nodes.len() as u64;
                }
            }
        }
        cost_ns += self.config.copy_ns * (self.memory.copies - copies_before);
        Ok(Some(Started { task: task.id, batches, cost_ns, failure }))
    }

    /// The first `batches` batches of the worker's running task are complete. What they wrote may be
    /// read by others. Tells which chains said stop in them and were not told of before.
    pub fn advance(&mut self, worker: WorkerId, batches: u32) -> Vec<EndOfSequence> {
        self.progress.advance(worker, batches);
        let stops = &mut self.queues[worker.index()].stops;
        let stops = stops.extract_if(.., |(batch, _)| *batch < batches);
        stops.map(|(_, stopped)| stopped).collect()
    }

    /// The running task of the worker is over. What it wrote may be read by others. Tells which
    /// chains said stop in it and were not told of before.
    ///
    /// # Panics
    /// If the worker runs none.
    pub fn finish(&mut self, worker: WorkerId) -> (TaskId, Vec<EndOfSequence>) {
        let task = self.progress.finish(worker).expect("a task is running");
        let stops = self.queues[worker.index()].stops.drain(..);
        (task, stops.map(|(_, stopped)| stopped).collect())
    }

    /// The worker's running task, which was misused, is over without an end.
    pub fn give_up(&mut self, worker: WorkerId) {
        self.progress.finish(worker);
        self.queues[worker.index()].stops.clear();
    }

    /// The worker is ready for tasks again.
    pub fn restore(&mut self, worker: WorkerId) {
        self.queues[worker.index()].is_lost = false;
    }

    /// The worker loses its tasks, its rosters and, if it has its own, its memory. It takes no task
    /// until it is [restored](Self::restore).
    pub fn lose(&mut self, worker: WorkerId) {
        let queue = &mut self.queues[worker.index()];
        queue.is_lost = true;
        queue.waiting.clear();
        queue.rosters.clear();
        queue.stops.clear();
        self.progress.lose(worker);
        self.memory.lose(worker);
    }

    /// Forgets the rosters and states of a cell type that the device gave up.
    pub fn forget_cell_type(&mut self, cell_type: CellTypeId) {
        self.queues.iter_mut().for_each(|queue| drop(queue.rosters.remove(&cell_type)));
        self.memory.forget_cell_type(cell_type);
    }

    /// Rows and states copied between memories since the start.
    pub fn copies(&self) -> u64 {
        self.memory.copies
    }

    /// States among them: those of chains that went on elsewhere than they ran before.
    pub fn moved_states(&self) -> u64 {
        self.memory.moved_states
    }

    fn change_roster(
        &mut self,
        task: &BatchedTask,
        leaves: &[SlotId],
        joins: &[Join],
    ) -> Result<(), Misuse> {
        let roster = self.queues[task.worker.index()].rosters.entry(task.cell_type).or_default();
        roster.leave(leaves, |_| ())?;
        for join in joins {
            check_slot(&self.config, join.slot)?;
            let values = self.memory.values(join.request)?;
            let chain = Chain::joining(&values.graph, join, values.has_ended(join.run));
            roster.join_checked(Member::new(chain))?;
        }
        Ok(())
    }

    /// The nodes of a roster's next step.
    fn step_roster(&mut self, worker: WorkerId, cell_type: CellTypeId) -> Vec<Node> {
        let roster = self.queues[worker.index()].rosters.entry(cell_type).or_default();
        let step = |member: &mut Member| {
            let node = Node {
                request: member.chain.request,
                run: member.chain.run,
                node: member.chain.step(),
                chain: Some(member.clone()),
            };
            member.origin = Origin::Slot;
            member.chain.advance(1);
            node
        };
        roster.chains.iter_mut().map(step).collect()
    }

    /// The nodes of an item of an explicit batch.
    fn nodes_of(&self, item: &Item, nodes: &mut Vec<Node>) -> Result<(), Misuse> {
        let values = self.memory.values(item.request)?;
        let ended = values.has_ended(item.run);
        item.slot.map_or(Ok(()), |slot| check_slot(&self.config, slot))?;
        let chain = item.slot.map(|_| Member::new(Chain::of_item(&values.graph, item, ended)));
        let (request, run) = (item.request, item.run);
        let all = item.first..item.first + item.count;
        nodes.extend(all.map(|node| Node { request, run, node, chain: chain.clone() }));
        Ok(())
    }

    /// Reads for all nodes, then writes for all: no node of a batch sees another's output. Padding,
    /// and nodes after an end of sequence, cost time and are nothing else. Tells why the nodes cannot
    /// be computed, if they cannot.
    fn run_batch(
        &mut self,
        task: &BatchedTask,
        batch: u32,
        nodes: &[Node],
        fate: Fate,
    ) -> Result<Option<String>, Misuse> {
        if let Some(max) = self.config.rows_max.filter(|&max| nodes.len() > max as usize) {
            let text =
                format!("{} has a batch of {} rows; the most is {max}", task.id, nodes.len());
            return Err(Misuse(text));
        }
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
            let done = self.outputs_of(task, node).map_err(|misuse| {
                Misuse(format!("{:?} {:?} node {}: {misuse}", node.request, node.run, node.node))
            })?;
            let is_failed = matches!(fate, Fate::FailsFrom(first) if first <= batch);
            outputs.push(match done {
                Ok(done) => done.filter(|_| !is_failed),
                Err(reason) => {
                    failure.get_or_insert(reason);
                    None
                }
            });
        }
        if failure.is_some() {
            outputs.fill(None);
        }
        let by = self.progress.stamp(task.worker, task.id, batch);
        for (node, outputs) in nodes.iter().zip(outputs) {
            self.write(task, node, outputs, by)?;
        }
        Ok(failure)
    }

    /// What a node computes, or why it cannot.
    fn outputs_of(
        &mut self,
        task: &BatchedTask,
        node: &Node,
    ) -> Result<Result<Outputs<A::Row>, String>, Misuse> {
        let graph = self.memory.values(node.request)?.graph.clone();
        let run = &graph.runs()[node.run.index()];
        let mut inputs = Vec::with_capacity(run.inputs.len());
        for rows in &run.inputs {
            inputs.push(self.read(task.worker, node, rows, node.node)?);
        }
        let states = match &node.chain {
            None => Some(Vec::new()),
            Some(Member { origin: Origin::Initial, .. }) => {
                let mut states = Vec::with_capacity(run.initial.len());
                for (port, initial) in run.initial.iter().enumerate() {
                    states.push(match initial {
                        Some(rows) => {
                            let row = self.read(task.worker, node, rows, 0)?;
                            row.and_then(|mut rows| rows.pop())
                        }
                        None => Some(self.arithmetic.zero_state(task.cell_type, port)),
                    });
                }
                states.into_iter().collect()
            }
            Some(member) => self.state(task, node, member)?,
        };
        let inputs: Option<Vec<_>> = inputs.into_iter().collect();
        let Some((inputs, states)) = inputs.zip(states) else { return Ok(Ok(None)) };
        let ports = run.sinks.iter().map(|sink| sink.port + 1);
        let ports = ports.chain([run.initial.len(), run.stop.map_or(0, |stop| stop.port + 1)]);
        let mut spans = vec![1; ports.max().unwrap_or(0)];
        for sink in &run.sinks {
            spans[sink.port] = sink.rows.span;
        }
        let outputs = self.arithmetic.outputs(task.cell_type, &inputs, &states, &spans);
        Ok(outputs.map(Some))
    }

    /// The rows of a node's request that it reads at a port; none where one of them is lost.
    fn read(
        &mut self,
        worker: WorkerId,
        node: &Node,
        rows: &Rows,
        of_node: u32,
    ) -> Result<Option<Vec<A::Row>>, Misuse> {
        let first = rows.row(of_node);
        let mut all = Some(Vec::new());
        for row in first..first + rows.span as usize {
            let datum =
                self.memory.read(&self.progress, worker, node.request, (rows.value, row))?;
            all = all.zip(datum).map(|(mut all, datum)| {
                all.push(datum);
                all
            });
        }
        Ok(all)
    }

    /// The state before a chain's node, which is not its first; none where it is lost.
    fn state(
        &mut self,
        task: &BatchedTask,
        node: &Node,
        member: &Member,
    ) -> Result<Option<Vec<A::Row>>, Misuse> {
        let moved_from = match member.origin {
            Origin::Elsewhere(from) => Some(from),
            Origin::Slot | Origin::Initial => None,
        };
        let slot = member.chain.slot;
        let place = StatePlace { cell_type: task.cell_type, slot, step: node.node };
        self.memory.read_state(&self.progress, task.worker, place, moved_from)
    }

    fn write(
        &mut self,
        task: &BatchedTask,
        node: &Node,
        outputs: Outputs<A::Row>,
        by: Stamp,
    ) -> Result<(), Misuse> {
        let graph = self.memory.values(node.request)?.graph.clone();
        let run = &graph.runs()[node.run.index()];
        if let (Some(stop), Some(outputs)) = (run.stop, &outputs)
            && self.arithmetic.is_end(stop, &outputs[stop.port][0])
        {
            self.memory.note_end(node.request, node.run)?;
            let (request, run, nodes) = (node.request, node.run, node.node + 1);
            let stopped = EndOfSequence { request, run, nodes };
            self.queues[task.worker.index()].stops.push((by.batch, stopped));
            return Ok(());
        }
        for sink in &run.sinks {
            let to = match (&node.chain, sink.time) {
                (Some(member), time) => member.chain.sink_node(time, node.node),
                (None, SinkTime::Every) => Some(node.node),
                (None, SinkTime::Last) => (node.node + 1 == run.length).then_some(0),
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
            let place = StatePlace { cell_type: task.cell_type, slot, step };
            self.memory.write_state(place, state, by);
        }
        Ok(())
    }
}

fn check_slot(config: &VirtualConfig, slot: SlotId) -> Result<(), Misuse> {
    match config.slots_max.filter(|&max| slot.index >= max) {
        Some(max) => Err(Misuse(format!("{slot:?} of a type that has {max} slots"))),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "virtual_device_tests.rs"]
mod tests;
