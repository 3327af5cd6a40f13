//! The workers as the scheduler sees them: their rounds, and their tasks in flight.

use std::collections::VecDeque;

use batchmaker_graph::{CellTypeId, ModelId, TaskId, WorkerId};

use crate::cellular::subgraph::SubgraphIndex;
use crate::shares::Charge;

/// One worker.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) is_down: bool,
    last_task: u64,
    in_flight: VecDeque<InFlight>,
    /// Those of `in_flight` whose times are of use.
    timed: VecDeque<(TaskId, TimedTask)>,
    /// The round of Algorithm 1's `Batch` that is being submitted.
    pub(super) round: Option<Round>,
    /// The cell type of the last round, and how many rounds it has had one after the other.
    turn: Option<(CellTypeId, u32)>,
    /// When the worker began its oldest task: when the one before it completed or, if the worker had
    /// none, when it was submitted.
    since_ns: u64,
}

/// The batches of one cell type that one call of `Batch` forms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) cell_type: CellTypeId,
    /// The model whose turn it is, where models have shares.
    pub(super) model: Option<ModelId>,
    /// The number of batches formed so far: `num_tasks`.
    pub(super) tasks: u32,
}

/// A task submitted and not complete.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) id: TaskId,
    pub(super) cell_type: CellTypeId,
    pub(super) work: InFlightWork,
}

/// What is kept of a task in flight while its time is of use.
#[derive(Debug)]
pub(super) struct TimedTask {
    /// The number of rows of each of its batches.
    pub(super) rows: u32,
    /// The number of rows of the sequences among these.
    pub(super) sequence_rows: u64,
    /// What its models are charged for it.
    pub(super) charge: Charge,
}

/// The nodes of a task in flight.
#[derive(Debug)]
pub(super) enum InFlightWork {
    /// Steps of the worker's roster, of which the first `done` are complete.
    Steps { steps: u32, done: u32 },
    /// Rows of subgraphs, with the number of nodes that are complete once these are.
    Rows(Vec<(SubgraphIndex, u32)>),
}

impl InFlightWork {
    /// The number of batches that the task stands for.
    pub(super) fn batches(&self) -> u32 {
        match self {
            Self::Rows(_) => 1,
            &Self::Steps { steps, .. } => steps,
        }
    }
}

impl Worker {
    /// The tasks submitted and not complete, oldest first.
    pub(super) fn in_flight(&self) -> &VecDeque<InFlight> {
        &self.in_flight
    }

    /// Notes that the worker is about to be given a task at `now_ns`.
    pub(super) fn note_request(&mut self, now_ns: u64) {
        if self.in_flight.is_empty() {
            self.since_ns = now_ns;
        }
    }

    /// Notes that a round of a cell type begins.
    pub(super) fn begin_round(&mut self, cell_type: CellTypeId) {
        let before = self.turn.filter(|&(of, _)| of == cell_type).map_or(0, |(_, rounds)| rounds);
        self.turn = Some((cell_type, before.saturating_add(1)));
    }

    /// The cell type of the last round, if fewer than `rounds` rounds of it have followed each other.
    pub(super) fn unfinished_turn(&self, rounds: u32) -> Option<CellTypeId> {
        self.turn.filter(|&(_, had)| had < rounds).map(|(cell_type, _)| cell_type)
    }

    /// The id of the next task.
    pub(super) fn next_task(&self) -> TaskId {
        TaskId(self.last_task + 1)
    }

    /// Notes that the next task is submitted. Returns its id.
    pub(super) fn submit(&mut self, cell_type: CellTypeId, work: InFlightWork) -> TaskId {
        let id = self.next_task();
        self.last_task = id.0;
        self.in_flight.push_back(InFlight { id, cell_type, work });
        id
    }

    /// Notes that the time of the task that was submitted last is of use.
    pub(super) fn time(&mut self, task: TimedTask) {
        self.timed.push_back((TaskId(self.last_task), task));
    }

    /// Takes what was noted of a task that is complete, if its time is of use.
    pub(super) fn take_timed(&mut self, id: TaskId) -> Option<TimedTask> {
        self.timed.pop_front_if(|&mut (timed, _)| timed == id).map(|(_, task)| task)
    }

    /// Notes that `steps_done` steps in all of the worker's oldest task are complete. Returns the
    /// task's cell type and how many of these steps were not known to be.
    ///
    /// # Panics
    /// If `task` is not the oldest, or has no such steps.
    pub(super) fn progress(
        &mut self,
        worker: WorkerId,
        id: TaskId,
        steps_done: u32,
    ) -> (CellTypeId, u32) {
        let task = self.in_flight.front_mut();
        let task = task
            .unwrap_or_else(|| panic!("{worker} reported progress of {id} with none in flight"));
        assert_eq!(task.id, id, "{worker} reported progress of a task out of order");
        let InFlightWork::Steps { steps, done } = &mut task.work else {
            panic!("{worker} reported progress of {id}, which has no steps");
        };
        let known = std::mem::replace(done, steps_done);
        assert!(
            known < steps_done && steps_done < *steps,
            "{worker} went from {known} to {steps_done} of {steps} steps of {id}"
        );
        (task.cell_type, steps_done - known)
    }

    /// Notes that the worker's oldest task is over at `now_ns`. Returns the task and how long it took,
    /// in nanoseconds.
    ///
    /// # Panics
    /// If `task` is not the oldest.
    pub(super) fn complete(
        &mut self,
        worker: WorkerId,
        task: TaskId,
        now_ns: u64,
    ) -> (InFlight, u64) {
        let done = self.in_flight.pop_front();
        let done = done.unwrap_or_else(|| panic!("{worker} completed {task} with none in flight"));
        assert_eq!(done.id, task, "{worker} completed a task out of order");
        let since_ns = std::mem::replace(&mut self.since_ns, now_ns);
        (done, now_ns.saturating_sub(since_ns))
    }

    /// Notes that the worker is lost. Returns what was in flight.
    pub(super) fn lose(&mut self) -> VecDeque<InFlight> {
        self.is_down = true;
        self.round = None;
        self.timed.clear();
        std::mem::take(&mut self.in_flight)
    }
}
