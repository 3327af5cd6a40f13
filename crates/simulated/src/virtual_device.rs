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
//! [`Piece::Next`](batchmaker_graph::Piece) begins with what the
//! piece before left in its slot, and nothing else will do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use batchmaker_device::{Chain, Origin, Roster, RosterError, StatePlace};
use batchmaker_graph::{
    BatchedTask, CellGraph, CellTypeId, Item, Join, RequestId, Rows, RunIndex, SinkTime, SlotId,
    StatePlacement, Stopped, TaskId, ValueIndex, Work, WorkerId,
};

use crate::arithmetic::Arithmetic;

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

/// The device was asked for what no device can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

impl From<RosterError> for Misuse {
    fn from(error: RosterError) -> Self {
        Self(error.to_string())
    }
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

/// A row's contents; none where they were lost or come from a task that failed.
pub type Datum<R> = Option<R>;

/// What a row of a request in flight holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents<R> {
    /// Nobody has written it.
    Unwritten,
    /// They were lost.
    Lost,
    /// These.
    Known(R),
}

impl<R> From<Datum<R>> for Contents<R> {
    fn from(datum: Datum<R>) -> Self {
        datum.map_or(Self::Lost, Self::Known)
    }
}

/// See the module's first paragraph. The requests that it is told of are in flight from
/// [`admit`](Self::admit) to [`retire`](Self::retire).
#[derive(Debug)]
pub struct VirtualDevice<A: Arithmetic> {
    config: VirtualConfig,
    arithmetic: A,
    requests: BTreeMap<RequestId, Values<A::Row>>,
    workers: Vec<Queue>,
    /// One, or one a worker.
    memories: Vec<Memory<A::Row>>,
    copies: u64,
    moved_states: u64,
}

#[derive(Debug)]
struct Values<R> {
    graph: Arc<CellGraph>,
    rows: Vec<Vec<Row<R>>>,
    /// The chains that reached their end of sequence.
    ended: BTreeSet<RunIndex>,
}

#[derive(Clone, Debug)]
enum Row<R> {
    Unwritten,
    Input(R),
    /// `held_by` has a bit for each worker with a copy.
    Written {
        datum: Datum<R>,
        by: Stamp,
        held_by: u64,
    },
}

/// Which task wrote something.
#[derive(Clone, Copy, Debug)]
struct Stamp {
    worker: WorkerId,
    /// How often the worker was lost before.
    life: usize,
    task: TaskId,
    /// The number of the batch in the task.
    batch: u32,
}

#[derive(Debug, Default)]
struct Queue {
    /// From [`VirtualDevice::lose`] to [`VirtualDevice::restore`].
    is_lost: bool,
    waiting: VecDeque<BatchedTask>,
    running: Option<TaskId>,
    /// Batches of the running task that are complete.
    batches_done: u32,
    /// What said stop in the running task and was not told of, each with the number of its batch.
    stops: Vec<(u32, Stopped)>,
    /// From loss to loss; the last is the current one.
    lives: Vec<Life>,
    /// Per cell type: the chains on the standing list.
    rosters: BTreeMap<CellTypeId, Roster<Member>>,
}

/// What a worker completed between two losses.
#[derive(Clone, Copy, Debug)]
struct Life {
    /// The last task.
    completed: TaskId,
    /// The task that it was lost in, and how many of its batches were complete.
    cut_short: Option<(TaskId, u32)>,
}

impl Queue {
    fn life(&mut self) -> &mut Life {
        self.lives.last_mut().expect("a worker has a life")
    }
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

/// Per cell type and index.
type Memory<R> = BTreeMap<CellTypeId, Vec<Option<Slot<R>>>>;

#[derive(Clone, Debug)]
struct Slot<R> {
    generation: u32,
    /// The step that the state is for: of the next piece, where a piece ended.
    step: u32,
    state: Vec<Datum<R>>,
    by: Stamp,
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
        let memories = match config.memory {
            StatePlacement::Shared => 1,
            StatePlacement::PerWorker => config.workers,
        };
        let life = Life { completed: TaskId(0), cut_short: None };
        let queue = || Queue { lives: vec![life], ..Queue::default() };
        Self {
            requests: BTreeMap::new(),
            workers: std::iter::repeat_with(queue).take(config.workers).collect(),
            memories: std::iter::repeat_with(Memory::new).take(memories).collect(),
            copies: 0,
            moved_states: 0,
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
        let unwritten = |rows: u32| vec![Row::Unwritten; rows as usize];
        let mut rows: Vec<_> = graph.values().iter().map(|value| unwritten(value.rows)).collect();
        for (&value, input) in graph.inputs().iter().zip(inputs) {
            rows[value.index()] = input.into_iter().map(Row::Input).collect();
        }
        let known = self.requests.insert(request, Values { graph, rows, ended: BTreeSet::new() });
        assert!(known.is_none(), "{request:?} is in flight");
    }

    /// Forgets a request of which no task is in flight, and gives the rows of its output values: none
    /// as well for a row that nobody has written.
    pub fn retire(&mut self, request: RequestId) -> Result<Vec<Vec<Datum<A::Row>>>, Misuse> {
        let values = self.requests.remove(&request);
        let Values { graph, rows, .. } = values.ok_or_else(|| unknown(request))?;
        let datum = |row: &Row<A::Row>| match row {
            Row::Unwritten => None,
            Row::Input(datum) => Some(datum.clone()),
            Row::Written { datum, .. } => datum.clone(),
        };
        let value = |value: &ValueIndex| rows[value.index()].iter().map(datum);
        Ok(graph.outputs().iter().map(|output| value(output).collect()).collect())
    }

    /// One row of a value of a request in flight: of one that the request brought, or that a batch
    /// which is complete has written.
    pub fn peek(
        &self,
        request: RequestId,
        value: ValueIndex,
        row: usize,
    ) -> Result<Datum<A::Row>, Misuse> {
        let values = self.requests.get(&request).ok_or_else(|| unknown(request))?;
        match &values.rows[value.index()][row] {
            Row::Unwritten => Err(Misuse(format!("row {row} of {value} is not written"))),
            Row::Input(datum) => Ok(Some(datum.clone())),
            Row::Written { by, .. } if !is_complete(&self.workers, *by) => {
                Err(Misuse(format!("row {row} of {value} is unfinished: {by:?}")))
            }
            Row::Written { datum, .. } => Ok(datum.clone()),
        }
    }

    /// The rows of all output values of a request whose nodes are all complete.
    pub fn outputs(&self, request: RequestId) -> Result<Vec<Vec<Contents<A::Row>>>, Misuse> {
        let values = self.requests.get(&request).ok_or_else(|| unknown(request))?;
        let row = |value: ValueIndex, at: usize| match values.rows[value.index()][at] {
            Row::Unwritten => Ok(Contents::Unwritten),
            _ => self.peek(request, value, at).map(Contents::from),
        };
        let rows = |&value: &ValueIndex| {
            (0..values.rows[value.index()].len()).map(|at| row(value, at)).collect()
        };
        values.graph.outputs().iter().map(rows).collect()
    }

    /// The state in a slot of a worker's memory, for a step.
    pub fn read_state(
        &self,
        worker: WorkerId,
        place: StatePlace,
    ) -> Result<Vec<Datum<A::Row>>, Misuse> {
        let StatePlace { cell_type, slot, step } = place;
        Ok(self.held_state(worker, cell_type, slot, step)?.state.clone())
    }

    /// Sets the state in a slot of a worker's memory, for a step.
    pub fn write_state(&mut self, worker: WorkerId, place: StatePlace, states: Vec<A::Row>) {
        let StatePlace { cell_type, slot, step } = place;
        let life = self.workers[worker.index()].lives.len() - 1;
        let by = Stamp { worker, life, task: TaskId(0), batch: 0 };
        let state = states.into_iter().map(Some).collect();
        self.keep_state(
            worker,
            cell_type,
            slot,
            Slot { generation: slot.generation, step, state, by },
        );
    }

    /// Queues a task behind those that its worker has, unless the worker is lost.
    pub fn submit(&mut self, task: BatchedTask) -> Result<(), Misuse> {
        let queue = &mut self.workers[task.worker.index()];
        if queue.is_lost {
            return Err(Misuse(format!("{} is lost and is given {}", task.worker, task.id)));
        }
        queue.waiting.push_back(task);
        Ok(())
    }

    /// Starts the worker's next task, unless it has none or is running one.
    pub fn start(&mut self, worker: WorkerId, fate: Fate) -> Result<Option<Started>, Misuse> {
        let queue = &mut self.workers[worker.index()];
        if queue.running.is_some() {
            return Ok(None);
        }
        let Some(task) = queue.waiting.pop_front() else { return Ok(None) };
        (queue.running, queue.batches_done) = (Some(task.id), 0);
        let copies_before = self.copies;
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
        cost_ns += self.config.copy_ns * (self.copies - copies_before);
        Ok(Some(Started { task: task.id, batches, cost_ns, failure }))
    }

    /// The first `batches` batches of the worker's running task are complete. What they wrote may be
    /// read by others. Tells which chains said stop in them and were not told of before.
    pub fn advance(&mut self, worker: WorkerId, batches: u32) -> Vec<Stopped> {
        let queue = &mut self.workers[worker.index()];
        queue.batches_done = batches;
        let stops = queue.stops.extract_if(.., |(batch, _)| *batch < batches);
        stops.map(|(_, stopped)| stopped).collect()
    }

    /// The running task of the worker is over. What it wrote may be read by others. Tells which
    /// chains said stop in it and were not told of before.
    ///
    /// # Panics
    /// If the worker runs none.
    pub fn finish(&mut self, worker: WorkerId) -> (TaskId, Vec<Stopped>) {
        let queue = &mut self.workers[worker.index()];
        let task = queue.running.take().expect("a task is running");
        queue.life().completed = task;
        let stops = queue.stops.drain(..);
        (task, stops.map(|(_, stopped)| stopped).collect())
    }

    /// The worker's running task, which was misused, is over without an end.
    pub fn give_up(&mut self, worker: WorkerId) {
        let queue = &mut self.workers[worker.index()];
        if let Some(task) = queue.running.take() {
            queue.life().completed = task;
        }
        queue.stops.clear();
    }

    /// The worker is ready for tasks again.
    pub fn restore(&mut self, worker: WorkerId) {
        self.workers[worker.index()].is_lost = false;
    }

    /// The worker loses its tasks, its rosters and, if it has its own, its memory. It takes no task
    /// until it is [restored](Self::restore).
    pub fn lose(&mut self, worker: WorkerId) {
        let queue = &mut self.workers[worker.index()];
        queue.is_lost = true;
        queue.waiting.clear();
        queue.rosters.clear();
        queue.life().cut_short = queue.running.take().map(|task| (task, queue.batches_done));
        queue.stops.clear();
        let completed = queue.life().completed;
        queue.lives.push(Life { completed, cut_short: None });
        if self.config.memory == StatePlacement::Shared {
            return;
        }
        let slots = self.memories[worker.index()].values_mut().flatten().flatten();
        slots.for_each(|slot| slot.state.fill(None));
        let rows = self.requests.values_mut().flat_map(|request| &mut request.rows).flatten();
        for row in rows {
            if let Row::Written { datum, held_by, .. } = row {
                *held_by &= !(1 << worker.0);
                if *held_by == 0 {
                    *datum = None;
                }
            }
        }
    }

    /// Forgets the rosters and states of a cell type that the device gave up.
    pub fn forget_cell_type(&mut self, cell_type: CellTypeId) {
        self.workers.iter_mut().for_each(|queue| drop(queue.rosters.remove(&cell_type)));
        self.memories.iter_mut().for_each(|memory| drop(memory.remove(&cell_type)));
    }

    /// Rows and states copied between memories since the start.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// States among them: those of chains that went on elsewhere than they ran before.
    pub fn moved_states(&self) -> u64 {
        self.moved_states
    }

    fn change_roster(
        &mut self,
        task: &BatchedTask,
        leaves: &[SlotId],
        joins: &[Join],
    ) -> Result<(), Misuse> {
        let roster = self.workers[task.worker.index()].rosters.entry(task.cell_type).or_default();
        roster.leave(leaves, |_| ())?;
        for join in joins {
            check_slot(&self.config, join.slot)?;
            let values = self.requests.get(&join.request).ok_or_else(|| unknown(join.request))?;
            let chain = Chain::joining(&values.graph, join, values.ended.contains(&join.run));
            roster.join_checked(Member::new(chain))?;
        }
        Ok(())
    }

    /// The nodes of a roster's next step.
    fn step_roster(&mut self, worker: WorkerId, cell_type: CellTypeId) -> Vec<Node> {
        let roster = self.workers[worker.index()].rosters.entry(cell_type).or_default();
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
        let values = self.requests.get(&item.request).ok_or_else(|| unknown(item.request))?;
        let ended = values.ended.contains(&item.run);
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
            let request = self.requests.get(&node.request);
            request.is_none_or(|values| {
                let length = values.graph.runs()[node.run.index()].length;
                node.node < length && !values.ended.contains(&node.run)
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
        let by = Stamp {
            worker: task.worker,
            life: self.workers[task.worker.index()].lives.len() - 1,
            task: task.id,
            batch,
        };
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
        let values = self.requests.get(&node.request).ok_or_else(|| unknown(node.request))?;
        let graph = values.graph.clone();
        let run = &graph.runs()[node.run.index()];
        let mut inputs = Vec::with_capacity(run.inputs.len());
        for rows in &run.inputs {
            inputs.push(self.read(task.worker, node.request, rows, node.node)?);
        }
        let states = match &node.chain {
            None => Some(Vec::new()),
            Some(Member { origin: Origin::Initial, .. }) => {
                let mut states = Vec::with_capacity(run.initial.len());
                for (port, initial) in run.initial.iter().enumerate() {
                    states.push(match initial {
                        Some(rows) => {
                            let row = self.read(task.worker, node.request, rows, 0)?;
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

    /// The rows that a node reads at a port; none where one of them is lost.
    fn read(
        &mut self,
        worker: WorkerId,
        request: RequestId,
        rows: &Rows,
        node: u32,
    ) -> Result<Option<Vec<A::Row>>, Misuse> {
        let first = rows.row(node);
        let mut all = Some(Vec::new());
        for index in first..first + rows.span as usize {
            let datum = self.read_row(worker, request, rows.value, index)?;
            all = all.zip(datum).map(|(mut all, datum)| {
                all.push(datum);
                all
            });
        }
        Ok(all)
    }

    fn read_row(
        &mut self,
        worker: WorkerId,
        request: RequestId,
        value: ValueIndex,
        index: usize,
    ) -> Result<Datum<A::Row>, Misuse> {
        let values = self.requests.get_mut(&request).ok_or_else(|| unknown(request))?;
        let row = &mut values.rows[value.index()][index];
        let (datum, by, held_by) = match row {
            Row::Unwritten => {
                return Err(Misuse(format!("row {index} of {value} is not written")));
            }
            Row::Input(datum) => return Ok(Some(datum.clone())),
            Row::Written { datum, by, held_by } => (datum.clone(), *by, held_by),
        };
        if !is_of_this_life(&self.workers, by, worker) && !is_complete(&self.workers, by) {
            return Err(Misuse(format!("row {index} of {value} is unfinished: {by:?}")));
        }
        let bit = 1 << worker.0;
        if self.config.memory == StatePlacement::PerWorker && *held_by & bit == 0 {
            *held_by |= bit;
            self.copies += 1;
        }
        Ok(datum)
    }

    /// The state before a chain's node, which is not its first; none where it is lost.
    fn state(
        &mut self,
        task: &BatchedTask,
        node: &Node,
        member: &Member,
    ) -> Result<Option<Vec<A::Row>>, Misuse> {
        let slot = member.chain.slot;
        let home = match member.origin {
            Origin::Elsewhere(from) if self.config.memory == StatePlacement::Shared => {
                return Err(Misuse(format!("{slot:?} is moved from {from} in a shared memory")));
            }
            Origin::Elsewhere(from) => from,
            Origin::Slot | Origin::Initial => task.worker,
        };
        let held = self.held_state(home, task.cell_type, slot, node.node)?;
        let is_own = is_of_this_life(&self.workers, held.by, task.worker);
        if !is_own && !is_complete(&self.workers, held.by) {
            return Err(Misuse(format!("the state in {slot:?} is unfinished: {:?}", held.by)));
        }
        let state = held.state.iter().cloned().collect();
        if matches!(member.origin, Origin::Elsewhere(_)) {
            self.copies += 1;
            self.moved_states += 1;
            // What it moved from is undefined.
            let memory = self.memory_of(home);
            let slots = self.memories[memory].get_mut(&task.cell_type).expect("it holds the state");
            slots[slot.index as usize] = None;
        }
        Ok(state)
    }

    /// What a slot of a worker's memory holds, which must be the state for a step.
    fn held_state(
        &self,
        worker: WorkerId,
        cell_type: CellTypeId,
        slot: SlotId,
        step: u32,
    ) -> Result<&Slot<A::Row>, Misuse> {
        let slots = self.memories[self.memory_of(worker)].get(&cell_type);
        let held = slots.and_then(|slots| slots.get(slot.index as usize)?.as_ref());
        let held = held.ok_or_else(|| Misuse(format!("{slot:?} has no state on {worker}")))?;
        if (held.generation, held.step) != (slot.generation, step) {
            let Slot { generation, step, .. } = held;
            return Err(Misuse(format!(
                "{slot:?} on {worker} holds the state of generation {generation}, step {step}"
            )));
        }
        Ok(held)
    }

    fn keep_state(
        &mut self,
        worker: WorkerId,
        cell_type: CellTypeId,
        slot: SlotId,
        state: Slot<A::Row>,
    ) {
        let memory = self.memory_of(worker);
        let slots = self.memories[memory].entry(cell_type).or_default();
        if slots.len() <= slot.index as usize {
            slots.resize_with(slot.index as usize + 1, || None);
        }
        slots[slot.index as usize] = Some(state);
    }

    fn write(
        &mut self,
        task: &BatchedTask,
        node: &Node,
        outputs: Outputs<A::Row>,
        by: Stamp,
    ) -> Result<(), Misuse> {
        let values = self.requests.get_mut(&node.request).ok_or_else(|| unknown(node.request))?;
        let run = &values.graph.runs()[node.run.index()];
        if let (Some(stop), Some(outputs)) = (run.stop, &outputs)
            && self.arithmetic.is_end(stop, &outputs[stop.port][0])
        {
            values.ended.insert(node.run);
            let (request, run, nodes) = (node.request, node.run, node.node + 1);
            let stopped = Stopped { request, run, nodes };
            self.workers[task.worker.index()].stops.push((by.batch, stopped));
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
            for (at, index) in (first..first + sink.rows.span as usize).enumerate() {
                let row = &mut values.rows[sink.rows.value.index()][index];
                let may_change = run.stop.is_some() && sink.time == SinkTime::Last;
                if !matches!(row, Row::Unwritten) && !may_change {
                    return Err(Misuse(format!("{node:?} writes a row of {:?} again", sink.rows)));
                }
                let datum = outputs.as_ref().map(|outputs| outputs[sink.port][at].clone());
                *row = Row::Written { datum, by, held_by: 1 << task.worker.0 };
            }
        }
        if let Some(Member { chain, .. }) = &node.chain {
            let state = |port: usize| outputs.as_ref().map(|outputs| outputs[port][0].clone());
            let state = (0..run.initial.len()).map(state).collect();
            let (slot, step) = (chain.slot, chain.state_step_after(node.node));
            let kept = Slot { generation: slot.generation, step, state, by };
            self.keep_state(task.worker, task.cell_type, slot, kept);
        }
        Ok(())
    }

    fn memory_of(&self, worker: WorkerId) -> usize {
        match self.config.memory {
            StatePlacement::Shared => 0,
            StatePlacement::PerWorker => worker.index(),
        }
    }
}

fn check_slot(config: &VirtualConfig, slot: SlotId) -> Result<(), Misuse> {
    match config.slots_max.filter(|&max| slot.index >= max) {
        Some(max) => Err(Misuse(format!("{slot:?} of a type that has {max} slots"))),
        None => Ok(()),
    }
}

/// Whether `worker` wrote something, and was not lost since: its own tasks run in order.
fn is_of_this_life(workers: &[Queue], by: Stamp, worker: WorkerId) -> bool {
    by.worker == worker && by.life + 1 == workers[worker.index()].lives.len()
}

fn is_complete(workers: &[Queue], by: Stamp) -> bool {
    let queue = &workers[by.worker.index()];
    let life = queue.lives[by.life];
    let is_current = by.life + 1 == queue.lives.len();
    let running = queue.running.filter(|_| is_current).map(|task| (task, queue.batches_done));
    let is_of_part = |(task, batches): (TaskId, u32)| by.task == task && by.batch < batches;
    by.task <= life.completed || life.cut_short.or(running).is_some_and(is_of_part)
}

fn unknown(request: RequestId) -> Misuse {
    Misuse(format!("{request:?} is not in flight"))
}

#[cfg(test)]
#[path = "virtual_device_tests.rs"]
mod tests;
