//! A device that computes hashes in virtual time, and watches how it is used.
//!
//! It has no clock and no thread: whoever drives it asks for the next task to start
//! ([`SimulatedDevice::start`]), waits as long in virtual time as the task costs, and tells when
//! that is over ([`SimulatedDevice::finish`]), or its first batches are
//! ([`SimulatedDevice::advance`]).
//!
//! Each node's outputs are a hash of its cell type, its input rows and its state, so a wrong or
//! missing dependency, a state of another request or a lost copy ends as a wrong value of the
//! reply. What can be seen earlier is refused as a [`Misuse`]: a row that nobody has written, a
//! row or a state of another worker's unfinished task, a slot of another generation or
//! step, a state elsewhere that [`moved_from`](Join::moved_from) does not name. A chain of a
//! [`Piece::Next`] begins with what the piece before left in its slot, and nothing else will do.
//!
//! It does not implement `Device`, whose queues run in real time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellTypeId, Join, Piece, RequestId, Rows, RunIndex, SinkTime, SlotId,
    StatePlacement, Stop, Stopped, TaskId, ValueIndex, Work, WorkerId,
};

/// What a batch of one cell type costs: `fixed_ns + rows * row_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellCost {
    /// For the batch.
    pub fixed_ns: u64,
    /// For each row of it.
    pub row_ns: u64,
}

/// What a simulated device is made from.
#[derive(Clone, Debug)]
pub struct SimulatedConfig {
    /// How many workers have a queue.
    pub workers: usize,
    /// Where states and values live.
    pub memory: StatePlacement,
    /// A cost for each cell type.
    pub costs: Vec<CellCost>,
    /// For each row or state that comes from another worker's memory.
    pub copy_ns: u64,
}

/// The device was asked for what no device can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// Which.
    pub task: TaskId,
    /// How many batches it has.
    pub batches: u32,
    /// How long it takes.
    pub cost_ns: u64,
}

/// A row's contents; none where they were lost or come from a task that failed.
pub type Datum = Option<u64>;

/// Output `port` of a cell: what the device computes for every node.
pub fn cell_output(
    cell_type: CellTypeId,
    inputs: impl IntoIterator<Item = Datum>,
    states: impl IntoIterator<Item = Datum>,
    port: usize,
) -> Datum {
    output_of(node_digest(cell_type, inputs, states), port)
}

/// Whether an open chain ends with a node of this output: one in eight do, which ones follows from
/// the stop's value.
pub fn says_stop(stop: Stop, output: Datum) -> bool {
    output.is_some_and(|datum| datum % 8 == (stop.value as u64) % 8)
}

/// See the module's first paragraph. The requests that it is told of are in flight from
/// [`admit`](Self::admit) to [`retire`](Self::retire).
#[derive(Debug)]
pub struct SimulatedDevice {
    config: SimulatedConfig,
    requests: BTreeMap<RequestId, Values>,
    workers: Vec<Queue>,
    /// One, or one a worker.
    memories: Vec<Memory>,
    copies: u64,
}

#[derive(Debug)]
struct Values {
    graph: Arc<CellGraph>,
    rows: Vec<Vec<Row>>,
    /// The chains that said stop.
    stopped: BTreeSet<RunIndex>,
}

#[derive(Clone, Copy, Debug)]
enum Row {
    Unwritten,
    Input(u64),
    /// `held_by` has a bit for each worker with a copy.
    Written {
        datum: Datum,
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
    /// From [`SimulatedDevice::lose`] to [`SimulatedDevice::restore`].
    is_lost: bool,
    waiting: VecDeque<BatchedTask>,
    running: Option<TaskId>,
    /// Batches of the running task that are complete.
    batches_done: u32,
    /// What said stop in the running task and was not told of, each with the number of its batch.
    stops: Vec<(u32, Stopped)>,
    /// The last task completed in each life; the last entry is the current one's.
    completed: Vec<TaskId>,
    /// Per cell type: the chains on the standing list.
    rosters: BTreeMap<CellTypeId, Vec<Join>>,
}

/// Per cell type and index.
type Memory = Vec<Vec<Option<Slot>>>;

#[derive(Clone, Debug)]
struct Slot {
    generation: u32,
    /// The step that the state is for: of the next piece, where a piece ended.
    step: u32,
    state: Vec<Datum>,
    by: Stamp,
}

/// A node to run.
#[derive(Clone, Copy, Debug)]
struct Node {
    request: RequestId,
    run: RunIndex,
    node: u32,
    slot: Option<SlotId>,
    moved_from: Option<WorkerId>,
}

impl SimulatedDevice {
    /// A device with empty memories.
    pub fn new(config: SimulatedConfig) -> Self {
        let memories = match config.memory {
            StatePlacement::Shared => 1,
            StatePlacement::PerWorker => config.workers,
        };
        let queue = || Queue { completed: vec![TaskId(0)], ..Queue::default() };
        Self {
            requests: BTreeMap::new(),
            workers: std::iter::repeat_with(queue).take(config.workers).collect(),
            memories: vec![vec![Vec::new(); config.costs.len()]; memories],
            copies: 0,
            config,
        }
    }

    /// Takes a request with a number for each row of its input values, in their order.
    pub fn admit(&mut self, request: RequestId, graph: Arc<CellGraph>, inputs: &[Vec<u64>]) {
        let unwritten = |rows: u32| vec![Row::Unwritten; rows as usize];
        let mut rows: Vec<_> = graph.values().iter().map(|value| unwritten(value.rows)).collect();
        for (&value, input) in graph.inputs().iter().zip(inputs) {
            rows[value.index()] = input.iter().map(|&datum| Row::Input(datum)).collect();
        }
        let known = self.requests.insert(request, Values { graph, rows, stopped: BTreeSet::new() });
        assert!(known.is_none(), "{request:?} is in flight");
    }

    /// Forgets a request of which no task is in flight, and gives the rows of its output values.
    pub fn retire(&mut self, request: RequestId) -> Result<Vec<Vec<Datum>>, Misuse> {
        let values = self.requests.remove(&request);
        let Values { graph, rows, .. } = values.ok_or_else(|| unknown(request))?;
        let datum = |row: &Row| match *row {
            Row::Unwritten => None,
            Row::Input(datum) => Some(datum),
            Row::Written { datum, .. } => datum,
        };
        let value = |value: &batchmaker_graph::ValueIndex| rows[value.index()].iter().map(datum);
        Ok(graph.outputs().iter().map(|output| value(output).collect()).collect())
    }

    /// One row of a value of a request in flight: of one that the request brought, or that a batch
    /// which is complete has written.
    pub fn peek(&self, request: RequestId, value: ValueIndex, row: usize) -> Result<Datum, Misuse> {
        let values = self.requests.get(&request).ok_or_else(|| unknown(request))?;
        match values.rows[value.index()][row] {
            Row::Unwritten => Err(Misuse(format!("row {row} of {value} is not written"))),
            Row::Input(datum) => Ok(Some(datum)),
            Row::Written { by, .. } if !is_complete(&self.workers, by) => {
                Err(Misuse(format!("row {row} of {value} is unfinished: {by:?}")))
            }
            Row::Written { datum, .. } => Ok(datum),
        }
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
        let (mut cost_ns, mut batches) = (0, 1);
        let cost = self.config.costs[task.cell_type.index()];
        match &task.work {
            Work::Rows(items) => {
                let nodes = items.iter().flat_map(|item| {
                    (item.first..item.first + item.count).map(|node| Node {
                        request: item.request,
                        run: item.run,
                        node,
                        slot: item.slot,
                        moved_from: item.moved_from,
                    })
                });
                let nodes: Vec<Node> = nodes.collect();
                self.run_batch(&task, 0, &nodes, fate)?;
                cost_ns += cost.fixed_ns + cost.row_ns * nodes.len() as u64;
            }
            Work::Roster { leaves, joins, steps } => {
                self.change_roster(&task, leaves, joins)?;
                batches = *steps;
                for step in 0..*steps {
                    let nodes = self.step_roster(worker, task.cell_type);
                    self.run_batch(&task, step, &nodes, fate)?;
                    cost_ns += cost.fixed_ns + cost.row_ns * nodes.len() as u64;
                }
            }
        }
        cost_ns += self.config.copy_ns * (self.copies - copies_before);
        Ok(Some(Started { task: task.id, batches, cost_ns }))
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
        *queue.completed.last_mut().expect("a life") = task;
        let stops = queue.stops.drain(..);
        (task, stops.map(|(_, stopped)| stopped).collect())
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
        queue.running = None;
        queue.stops.clear();
        let last = *queue.completed.last().expect("a life");
        queue.completed.push(last);
        if self.config.memory == StatePlacement::Shared {
            return;
        }
        for slot in self.memories[worker.index()].iter_mut().flatten().flatten() {
            slot.state.fill(None);
        }
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

    /// Rows and states copied between memories since the start.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    fn change_roster(
        &mut self,
        task: &BatchedTask,
        leaves: &[SlotId],
        joins: &[Join],
    ) -> Result<(), Misuse> {
        let roster = self.workers[task.worker.index()].rosters.entry(task.cell_type).or_default();
        for &slot in leaves {
            let position = roster.iter().position(|member| member.slot == slot);
            let position = position
                .ok_or_else(|| Misuse(format!("{slot:?} leaves a roster that it is not on")))?;
            roster.swap_remove(position);
        }
        for &join in joins {
            if let Some(member) = roster.iter().find(|member| member.slot.index == join.slot.index)
            {
                return Err(Misuse(format!("{join:?} joins a roster that has {member:?}")));
            }
            roster.push(join);
        }
        Ok(())
    }

    /// The nodes of a roster's next step.
    fn step_roster(&mut self, worker: WorkerId, cell_type: CellTypeId) -> Vec<Node> {
        let roster = self.workers[worker.index()].rosters.entry(cell_type).or_default();
        let step = |member: &mut Join| {
            let node = Node {
                request: member.request,
                run: member.run,
                node: member.step,
                slot: Some(member.slot),
                moved_from: member.moved_from.take(),
            };
            member.step += 1;
            node
        };
        roster.iter_mut().map(step).collect()
    }

    /// Reads for all nodes, then writes for all: no node of a batch sees another's output. Padding,
    /// and nodes after a stop, cost time and are nothing else.
    fn run_batch(
        &mut self,
        task: &BatchedTask,
        batch: u32,
        nodes: &[Node],
        fate: Fate,
    ) -> Result<(), Misuse> {
        let is_node = |node: &&Node| {
            let request = self.requests.get(&node.request);
            request.is_none_or(|values| {
                let length = values.graph.runs()[node.run.index()].length;
                node.node < length && !values.stopped.contains(&node.run)
            })
        };
        let nodes: Vec<Node> = nodes.iter().filter(is_node).copied().collect();
        let digests = nodes.iter().map(|node| {
            let digest = self.digest_of(task, node);
            let digest = digest.map_err(|misuse| {
                Misuse(format!("{:?} {:?} node {}: {misuse}", node.request, node.run, node.node))
            })?;
            let is_failed = matches!(fate, Fate::FailsFrom(first) if first <= batch);
            Ok(if is_failed { None } else { digest })
        });
        let digests: Vec<Datum> = digests.collect::<Result<_, Misuse>>()?;
        let by = Stamp {
            worker: task.worker,
            life: self.workers[task.worker.index()].completed.len() - 1,
            task: task.id,
            batch,
        };
        for (node, digest) in nodes.iter().zip(digests) {
            self.write(task, node, digest, by)?;
        }
        Ok(())
    }

    fn digest_of(&mut self, task: &BatchedTask, node: &Node) -> Result<Datum, Misuse> {
        let values = self.requests.get(&node.request).ok_or_else(|| unknown(node.request))?;
        let graph = values.graph.clone();
        let run = &graph.runs()[node.run.index()];
        let mut inputs = Vec::with_capacity(run.inputs.len());
        for rows in &run.inputs {
            inputs.push(self.read(task.worker, node.request, rows, node.node)?);
        }
        let states = match node.slot {
            None => Vec::new(),
            Some(_) if node.node == 0 && graph.piece() != Piece::Next => {
                if node.moved_from.is_some() {
                    return Err(Misuse("a state is moved before it is there".to_owned()));
                }
                let mut states = Vec::with_capacity(run.initial.len());
                for initial in &run.initial {
                    states.push(match initial {
                        Some(rows) => self.read(task.worker, node.request, rows, 0)?,
                        None => Some(0),
                    });
                }
                states
            }
            Some(slot) => self.state(task, node, slot)?,
        };
        Ok(node_digest(task.cell_type, inputs, states))
    }

    fn read(
        &mut self,
        worker: WorkerId,
        request: RequestId,
        rows: &Rows,
        node: u32,
    ) -> Result<Datum, Misuse> {
        let index = rows.row(node);
        let values = self.requests.get_mut(&request).ok_or_else(|| unknown(request))?;
        let row = &mut values.rows[rows.value.index()][index];
        let (datum, by, held_by) = match row {
            Row::Unwritten => {
                return Err(Misuse(format!("row {index} of {} is not written", rows.value)));
            }
            Row::Input(datum) => return Ok(Some(*datum)),
            Row::Written { datum, by, held_by } => (*datum, *by, held_by),
        };
        if by.worker != worker && !is_complete(&self.workers, by) {
            return Err(Misuse(format!("row {index} of {} is unfinished: {by:?}", rows.value)));
        }
        let bit = 1 << worker.0;
        if self.config.memory == StatePlacement::PerWorker && *held_by & bit == 0 {
            *held_by |= bit;
            self.copies += 1;
        }
        Ok(datum)
    }

    fn state(
        &mut self,
        task: &BatchedTask,
        node: &Node,
        slot: SlotId,
    ) -> Result<Vec<Datum>, Misuse> {
        let home = match node.moved_from {
            None => task.worker,
            Some(from) if self.config.memory == StatePlacement::Shared => {
                return Err(Misuse(format!("{slot:?} is moved from {from} in a shared memory")));
            }
            Some(from) => from,
        };
        let memory = self.memory_of(home);
        let held = self.memories[memory][task.cell_type.index()].get(slot.index as usize);
        let held = held.and_then(Option::as_ref);
        let held = held.ok_or_else(|| Misuse(format!("{slot:?} has no state on {home}")))?;
        if (held.generation, held.step) != (slot.generation, node.node) {
            let Slot { generation, step, .. } = held;
            return Err(Misuse(format!(
                "{slot:?} on {home} holds the state of generation {generation}, step {step}"
            )));
        }
        if held.by.worker != task.worker && !is_complete(&self.workers, held.by) {
            return Err(Misuse(format!("the state in {slot:?} is unfinished: {:?}", held.by)));
        }
        self.copies += u64::from(node.moved_from.is_some());
        Ok(held.state.clone())
    }

    fn write(
        &mut self,
        task: &BatchedTask,
        node: &Node,
        digest: Datum,
        by: Stamp,
    ) -> Result<(), Misuse> {
        let memory = self.memory_of(task.worker);
        let values = self.requests.get_mut(&node.request).ok_or_else(|| unknown(node.request))?;
        let run = &values.graph.runs()[node.run.index()];
        if let Some(stop) = run.stop
            && says_stop(stop, output_of(digest, stop.port))
        {
            values.stopped.insert(node.run);
            let (request, run, nodes) = (node.request, node.run, node.node + 1);
            let stopped = Stopped { request, run, nodes };
            self.workers[task.worker.index()].stops.push((by.batch, stopped));
            return Ok(());
        }
        for sink in &run.sinks {
            let row = match sink.time {
                SinkTime::Every => sink.rows.row(node.node),
                SinkTime::Last if node.node + 1 == run.length => sink.rows.row(0),
                SinkTime::Last => continue,
            };
            let row = &mut values.rows[sink.rows.value.index()][row];
            if !matches!(row, Row::Unwritten) {
                return Err(Misuse(format!("{node:?} writes a row of {:?} again", sink.rows)));
            }
            let datum = output_of(digest, sink.port);
            *row = Row::Written { datum, by, held_by: 1 << task.worker.0 };
        }
        if let Some(slot) = node.slot {
            let slots = &mut self.memories[memory][task.cell_type.index()];
            if slots.len() <= slot.index as usize {
                slots.resize(slot.index as usize + 1, None);
            }
            let state = (0..run.initial.len()).map(|port| output_of(digest, port)).collect();
            let is_left = node.node + 1 == run.length && values.graph.piece() != Piece::Whole;
            let step = if is_left { 0 } else { node.node + 1 };
            let generation = slot.generation;
            slots[slot.index as usize] = Some(Slot { generation, step, state, by });
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

fn is_complete(workers: &[Queue], by: Stamp) -> bool {
    let queue = &workers[by.worker.index()];
    let is_running = by.life + 1 == queue.completed.len() && queue.running == Some(by.task);
    by.task <= queue.completed[by.life] || (is_running && by.batch < queue.batches_done)
}

fn unknown(request: RequestId) -> Misuse {
    Misuse(format!("{request:?} is not in flight"))
}

/// What all outputs of a node follow from.
fn node_digest(
    cell_type: CellTypeId,
    inputs: impl IntoIterator<Item = Datum>,
    states: impl IntoIterator<Item = Datum>,
) -> Datum {
    let inputs = inputs.into_iter().try_fold(mix(u64::from(cell_type.0)), digest_with)?;
    states.into_iter().try_fold(mix(inputs), digest_with)
}

fn digest_with(digest: u64, datum: Datum) -> Option<u64> {
    datum.map(|datum| mix(digest ^ datum))
}

fn output_of(digest: Datum, port: usize) -> Datum {
    digest.map(|digest| mix(digest.wrapping_add(port as u64 + 1)))
}

/// The finaliser of SplitMix64 over the next number of its sequence: a permutation.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
