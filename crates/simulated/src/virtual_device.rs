//! A device in virtual time, which detects misuse.
//!
//! It has no clock and no thread: whoever drives it asks for the next task to start
//! ([`VirtualDevice::start`]), waits as long in virtual time as the task costs, and reports when the
//! task is over ([`VirtualDevice::finish`]) or its first batches are ([`VirtualDevice::advance`]).
//!
//! An [`Arithmetic`] computes the rows. Whatever a manager or engine must not do is refused as a
//! [`Misuse`]: to read a row that nobody has written, or a row or a state of another worker's
//! unfinished task; to use a slot of another generation or step; to leave a state where
//! [`moved_from`](Join::moved_from) does not name it. A chain of a
//! [`Chunk::Next`](batchmaker_graph::Chunk) must begin with the state that the chunk before left in its
//! slot.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use batchmaker_device::{Chain, Origin, Roster, StatePlace};
use batchmaker_graph::{
    BatchedTask, CellGraph, CellTypeId, EndOfSequence, Item, Join, RequestId, SlotId,
    StatePlacement, TaskId, ValueIndex, Work, WorkerId,
};

use crate::arithmetic::Arithmetic;
use crate::batch::{Batch, Member, Node};
use crate::memory::{Contents, Datum, Memory};
use crate::misuse::Misuse;
use crate::progress::Progress;

/// The cost of a batch of one cell type: `fixed_ns + rows * row_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellCost {
    /// Nanoseconds of the batch.
    pub fixed_ns: u64,
    /// Nanoseconds of each row of it.
    pub row_ns: u64,
}

/// The configuration of a virtual device.
#[derive(Clone, Debug)]
pub struct VirtualConfig {
    /// The number of workers.
    pub workers: usize,
    /// The placement of states and values.
    pub memory: StatePlacement,
    /// A cost for each cell type; those beyond the list cost nothing.
    pub costs: Vec<CellCost>,
    /// Nanoseconds of each row or state that comes from another worker's memory.
    pub copy_ns: u64,
    /// The most slots of a cell type; none: any number.
    pub slots_max: Option<u32>,
    /// The most rows of a batch; none: any number.
    pub rows_max: Option<u32>,
}

/// The fate of a task that starts.
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
    /// The task.
    pub task: TaskId,
    /// The number of its batches.
    pub batches: u32,
    /// The time that it takes in nanoseconds.
    pub cost_ns: u64,
    /// The reason why its nodes cannot be computed, if they cannot: it fails, whatever its fate.
    pub failure: Option<String>,
}

/// A device in virtual time. A request is in flight from [`admit`](Self::admit) to
/// [`retire`](Self::retire).
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
    /// Whether the worker is lost: from [`VirtualDevice::lose`] to [`VirtualDevice::restore`].
    is_lost: bool,
    waiting: VecDeque<BatchedTask>,
    /// The chains that reached their end of sequence in the running task and were not reported, each
    /// with the number of its batch.
    ends: Vec<(u32, EndOfSequence)>,
    /// Per cell type: the chains on the standing list.
    rosters: BTreeMap<CellTypeId, Roster<Member>>,
}

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

    /// The arithmetic of its nodes.
    pub fn arithmetic_mut(&mut self) -> &mut A {
        &mut self.arithmetic
    }

    /// The arithmetic, to look at.
    pub fn arithmetic(&self) -> &A {
        &self.arithmetic
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

    /// Forgets a request of which no task is in flight, and returns the rows of its output values: none
    /// for rows that are lost or that nobody has written.
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

    /// Completes the first `batches` batches of the worker's running task, so that others may read what
    /// they wrote. Returns the chains that reached their end of sequence in them and were not reported
    /// before.
    pub fn advance(&mut self, worker: WorkerId, batches: u32) -> Vec<EndOfSequence> {
        self.progress.advance(worker, batches);
        let ends = &mut self.queues[worker.index()].ends;
        let ends = ends.extract_if(.., |(batch, _)| *batch < batches);
        ends.map(|(_, end)| end).collect()
    }

    /// Completes the running task of the worker, so that others may read what it wrote. Returns the
    /// chains that reached their end of sequence in it and were not reported before.
    ///
    /// # Panics
    /// If the worker runs none.
    pub fn finish(&mut self, worker: WorkerId) -> (TaskId, Vec<EndOfSequence>) {
        let task = self.progress.finish(worker).expect("a task is running");
        let ends = self.queues[worker.index()].ends.drain(..);
        (task, ends.map(|(_, end)| end).collect())
    }

    /// Abandons the worker's running task, which was a misuse.
    pub fn give_up(&mut self, worker: WorkerId) {
        self.progress.finish(worker);
        self.queues[worker.index()].ends.clear();
    }

    /// Makes the worker ready for tasks again.
    pub fn restore(&mut self, worker: WorkerId) {
        self.queues[worker.index()].is_lost = false;
    }

    /// Loses the worker's tasks, its rosters and, if it has its own, its memory. It takes no task until
    /// it is [restored](Self::restore).
    pub fn lose(&mut self, worker: WorkerId) {
        let queue = &mut self.queues[worker.index()];
        queue.is_lost = true;
        queue.waiting.clear();
        queue.rosters.clear();
        queue.ends.clear();
        self.progress.lose(worker);
        self.memory.lose(worker);
    }

    /// Forgets the rosters and states of a cell type that the device gave up.
    pub fn forget_cell_type(&mut self, cell_type: CellTypeId) {
        self.queues.iter_mut().for_each(|queue| drop(queue.rosters.remove(&cell_type)));
        self.memory.forget_cell_type(cell_type);
    }

    /// The number of rows and states copied between memories since the start.
    pub fn copies(&self) -> u64 {
        self.memory.copies
    }

    /// The number of states among them: those of chains that went on elsewhere than they ran before.
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

    /// Runs a batch of a task. Returns the reason why its nodes cannot be computed, if they cannot.
    fn run_batch(
        &mut self,
        task: &BatchedTask,
        number: u32,
        nodes: &[Node],
        fate: Fate,
    ) -> Result<Option<String>, Misuse> {
        if let Some(max) = self.config.rows_max.filter(|&max| nodes.len() > max as usize) {
            let text =
                format!("{} has a batch of {} rows; the most is {max}", task.id, nodes.len());
            return Err(Misuse(text));
        }
        let batch = Batch {
            memory: &mut self.memory,
            arithmetic: &mut self.arithmetic,
            progress: &self.progress,
            task,
            number,
            is_failed: matches!(fate, Fate::FailsFrom(first) if first <= number),
            ends: &mut self.queues[task.worker.index()].ends,
        };
        batch.run(nodes)
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
