//! A worker that checks each report of its queue, in every case.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use batchmaker_graph::{
    BatchedTask, CellTypeId, EndOfSequence, RequestId, RunIndex, TaskId, TensorData, Work, WorkerId,
};

use crate::bell::Bell;
use crate::conformance::case::{Check, ensure};
use crate::contract::{Completion, Device, Read, StatePlace, TaskDone, TaskQueue};

/// The longest time that a report may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// One worker with its queue.
pub(super) struct Worker {
    id: WorkerId,
    queue: Box<dyn TaskQueue>,
    bell: Arc<Bell>,
    poll_for: Duration,
    last_task: u64,
    /// Tasks in flight; of a roster's task, with its number of steps.
    tasks: VecDeque<(TaskId, Option<u32>)>,
    /// The number of steps reported of the oldest task.
    steps: u32,
    reads: Vec<Read>,
    /// Chains whose end was reported.
    ended: BTreeSet<(RequestId, RunIndex)>,
    is_lost: bool,
    /// Reports that were checked and not taken yet.
    reports: VecDeque<Completion>,
}

impl Worker {
    pub(super) fn new(device: &Arc<dyn Device>, id: WorkerId) -> Check<Self> {
        let bell = Arc::new(Bell::default());
        let queue = device.clone().queue(id, bell.clone()).map_err(|error| error.to_string())?;
        Ok(Self {
            id,
            queue,
            bell,
            poll_for: device.capabilities().poll_for,
            last_task: 0,
            tasks: VecDeque::new(),
            steps: 0,
            reads: Vec::new(),
            ended: BTreeSet::new(),
            is_lost: false,
            reports: VecDeque::new(),
        })
    }

    /// Submits a round.
    pub(super) fn submit(
        &mut self,
        works: impl IntoIterator<Item = (CellTypeId, Work)>,
    ) -> Check<Vec<TaskId>> {
        let mut round = Vec::new();
        for (cell_type, work) in works {
            self.last_task += 1;
            let id = TaskId(self.last_task);
            let steps = match &work {
                Work::Roster { steps, .. } => Some(*steps),
                Work::Rows(_) => None,
            };
            self.tasks.push_back((id, steps));
            round.push(BatchedTask { id, worker: self.id, cell_type, work });
        }
        let ids = round.iter().map(|task| task.id).collect();
        self.queue.submit(&mut round);
        ensure!(round.is_empty(), "a round is not empty after it was submitted");
        Ok(ids)
    }

    /// Asks for values or states.
    pub(super) fn ask(&mut self, read: Read) {
        self.reads.push(read.clone());
        self.queue.read(read);
    }

    pub(super) fn write_state(&mut self, place: StatePlace, states: Vec<TensorData>) {
        self.queue.write_state(place, states);
    }

    /// The next report; none where nothing is in flight.
    pub(super) fn next(&mut self) -> Check<Option<Completion>> {
        if self.reports.is_empty() {
            self.poll()?;
        }
        let is_idle = self.tasks.is_empty() && self.reads.is_empty();
        if self.reports.is_empty() && is_idle { Ok(None) } else { self.wait().map(Some) }
    }

    /// Waits for the loss of this worker, which is the last report.
    pub(super) fn wait_for_loss(&mut self) -> Check<Arc<str>> {
        let reason = loop {
            if let Completion::Lost { reason } = self.wait()? {
                break reason;
            }
        };
        // It may have been the last of several, but nothing comes later.
        self.poll()?;
        ensure!(self.reports.is_empty(), "{:?} after the loss", self.reports);
        Ok(reason)
    }

    /// Waits for the next report, which must come.
    fn wait(&mut self) -> Check<Completion> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.bell.rung();
            self.poll()?;
            if let Some(report) = self.reports.pop_front() {
                return Ok(report);
            }
            self.bell.wait(seen, self.poll_for, Some(deadline));
            ensure!(self.bell.rung() > seen, "{:?}: the bell is not rung any more", self.id);
        }
    }

    /// Submits a round, waits until it is over, and checks that all its tasks succeed. Returns their
    /// reports.
    pub(super) fn run(
        &mut self,
        works: impl IntoIterator<Item = (CellTypeId, Work)>,
    ) -> Check<Vec<TaskDone>> {
        self.submit(works)?;
        let done = self.drain()?;
        for TaskDone { task, result, .. } in &done {
            result.as_ref().map_err(|reason| format!("{task:?} failed: {reason}"))?;
        }
        Ok(done)
    }

    /// Waits until nothing is in flight. Returns the reports of the tasks that were in flight, each with
    /// the ends that were reported with its steps.
    pub(super) fn drain(&mut self) -> Check<Vec<TaskDone>> {
        let (mut done, mut ends_before) = (Vec::new(), Vec::new());
        while let Some(report) = self.next()? {
            match report {
                Completion::Task(TaskDone { task, result, ends }) => {
                    ends_before.extend(ends);
                    let ends = std::mem::take(&mut ends_before);
                    done.push(TaskDone { task, result, ends });
                }
                Completion::Steps { ends, .. } => ends_before.extend(ends),
                Completion::Values { .. } | Completion::Part { .. } => {}
                Completion::Lost { reason } => {
                    return Err(format!("{:?} is lost: {reason}", self.id));
                }
            }
        }
        Ok(done)
    }

    /// Reads values or a state, with nothing in flight.
    pub(super) fn read(&mut self, read: Read) -> Check<Vec<TensorData>> {
        self.ask(read);
        let mut found = None;
        while let Some(report) = self.next()? {
            match report {
                Completion::Values { data, .. } => found = Some(data),
                other => return Err(format!("{other:?} where values go")),
            }
        }
        found.ok_or("nothing was read")?.map_err(|reason| format!("cannot be read: {reason}"))
    }

    /// Takes what the queue has to report, and checks it.
    fn poll(&mut self) -> Check {
        // A queue appends: the list keeps its elements.
        let mark = Completion::Lost { reason: "the suite's own mark".into() };
        let mut reports = vec![mark.clone()];
        self.queue.poll(&mut reports);
        ensure!(reports.first() == Some(&mark), "a queue takes reports out of the list");
        for report in reports.drain(..).skip(1) {
            self.check(&report)?;
            self.reports.push_back(report);
        }
        Ok(())
    }

    fn check(&mut self, report: &Completion) -> Check {
        ensure!(!self.is_lost, "{report:?} after the queue was lost");
        let oldest = self.tasks.front().copied();
        match report {
            Completion::Steps { task, steps, ends } => {
                let (oldest, of_task) = oldest.ok_or("steps of no task")?;
                ensure!(*task == oldest, "steps of {task:?}, but the oldest is {oldest:?}");
                let of_task = of_task.ok_or("steps of a task that has none")?;
                let is_between = self.steps < *steps && *steps < of_task;
                ensure!(is_between, "{steps} steps after {} of {of_task}", self.steps);
                self.steps = *steps;
                self.check_ends(ends)?;
            }
            Completion::Part { task } => {
                let (oldest, _) = oldest.ok_or("a part of no task")?;
                ensure!(*task == oldest, "a part of {task:?}, but the oldest is {oldest:?}");
            }
            Completion::Task(done) => {
                let (oldest, _) = oldest.ok_or("a task is over that was never submitted")?;
                let task = done.task;
                ensure!(task == oldest, "{task:?} is over before {oldest:?}");
                self.tasks.pop_front();
                self.steps = 0;
                self.check_ends(&done.ends)?;
            }
            Completion::Values { read, .. } => {
                let position = self.reads.iter().position(|asked| asked == read);
                let position = position.ok_or_else(|| format!("nobody asked for {read:?}"))?;
                self.reads.remove(position);
            }
            Completion::Lost { .. } => {
                self.is_lost = true;
                self.tasks.clear();
                self.reads.clear();
            }
        }
        Ok(())
    }

    fn check_ends(&mut self, ends: &[EndOfSequence]) -> Check {
        for end in ends {
            let is_first = self.ended.insert((end.request, end.run));
            ensure!(is_first, "{end:?} is reported a second time");
        }
        Ok(())
    }
}
