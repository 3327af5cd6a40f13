//! Reports on their way from the device to the manager, which may be late but stay in order.

use std::collections::BTreeMap;

use batchmaker_graph::{EndOfSequence, TaskId, WorkerId};

/// The workers, with the reports on their way.
#[derive(Debug)]
pub(super) struct Reports {
    workers: Vec<Worker>,
    /// The chains that reached their end of sequence in steps that the manager does not know of: by
    /// worker, life, task, and steps of the task; none for those up to its end.
    ends: BTreeMap<(WorkerId, u32, TaskId, Option<u32>), Vec<EndOfSequence>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Worker {
    is_down: bool,
    /// The number of times it was lost.
    life: u32,
    /// When the manager learns of its last completion.
    reported_ns: u64,
}

impl Reports {
    pub(super) fn new(workers: usize) -> Self {
        Self { workers: vec![Worker::default(); workers], ends: BTreeMap::new() }
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn is_down(&self, worker: WorkerId) -> bool {
        self.workers[worker.index()].is_down
    }

    /// The number of times the worker was lost: reports from an earlier life never arrive.
    pub(super) fn life(&self, worker: WorkerId) -> u32 {
        self.workers[worker.index()].life
    }

    /// Loses the worker. Returns the number of its new life.
    pub(super) fn lose(&mut self, worker: WorkerId) -> u32 {
        let state = &mut self.workers[worker.index()];
        state.is_down = true;
        state.life += 1;
        state.life
    }

    pub(super) fn restore(&mut self, worker: WorkerId) {
        self.workers[worker.index()].is_down = false;
    }

    /// Sends a report at `time_ns`, with the chains that reached their end of sequence: of the first
    /// `steps` steps of a task, or of all. Returns when it arrives: no earlier than those sent before.
    pub(super) fn send(
        &mut self,
        worker: WorkerId,
        task: TaskId,
        steps: Option<u32>,
        ends: Vec<EndOfSequence>,
        time_ns: u64,
    ) -> u64 {
        let state = &mut self.workers[worker.index()];
        self.ends.insert((worker, state.life, task, steps), ends);
        state.reported_ns = state.reported_ns.max(time_ns);
        state.reported_ns
    }

    /// Takes the chains that reached their end of sequence out of a report that arrives.
    pub(super) fn take_ends(
        &mut self,
        worker: WorkerId,
        task: TaskId,
        steps: Option<u32>,
    ) -> Vec<EndOfSequence> {
        let life = self.life(worker);
        self.ends.remove(&(worker, life, task, steps)).unwrap_or_default()
    }
}
