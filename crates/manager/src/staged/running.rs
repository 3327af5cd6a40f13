//! The parts of batches that workers run, each at its stage of its pipeline.

use std::collections::VecDeque;

use batchmaker_graph::{Item, WorkerId};

use super::stage_tasks::StageTask;

/// A stage of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StageOf {
    pub(super) pipeline: usize,
    pub(super) stage: usize,
}

/// A part of a batch at its stage.
#[derive(Debug)]
pub(super) struct Running {
    /// The worker that runs it; none if it was lost.
    pub(super) worker: Option<WorkerId>,
    /// The tasks that are not submitted yet.
    pub(super) tasks: VecDeque<StageTask>,
}

/// The parts that have begun and not ended, at most one at each stage of each pipeline.
#[derive(Debug, Default)]
pub(super) struct RunningParts(Vec<Vec<Option<Running>>>);

impl RunningParts {
    /// Nothing runs yet; there are as many pipelines, of as many stages each.
    pub(super) fn new(pipelines: usize, stages: usize) -> Self {
        let none = |_| (0..stages).map(|_| None).collect();
        Self((0..pipelines).map(none).collect())
    }

    /// A worker begins a part, which has these tasks.
    pub(super) fn begin(&mut self, of: StageOf, worker: WorkerId, tasks: VecDeque<StageTask>) {
        let running = Running { worker: Some(worker), tasks };
        let before = self.0[of.pipeline][of.stage].replace(running);
        assert!(before.is_none(), "a part begins where another runs");
    }

    /// The part at a stage ends.
    pub(super) fn end(&mut self, of: StageOf) -> Running {
        self.0[of.pipeline][of.stage].take().expect("a part that runs ends")
    }

    /// The part at the stage that a worker runs, or that was found.
    pub(super) fn at(&self, of: StageOf) -> &Running {
        self.0[of.pipeline][of.stage].as_ref().expect("a part runs there")
    }

    /// See [`Self::at`].
    pub(super) fn at_mut(&mut self, of: StageOf) -> &mut Running {
        self.0[of.pipeline][of.stage].as_mut().expect("a part runs there")
    }

    /// The latest stage of the first pipeline where a part is as `is_one` says.
    pub(super) fn find(&self, is_one: impl Fn(&Running) -> bool) -> Option<StageOf> {
        let is_one = |running: &Option<Running>| running.as_ref().is_some_and(&is_one);
        let pipelines = self.0.iter().enumerate();
        let mut found = pipelines.filter_map(|(pipeline, stages)| {
            stages.iter().rposition(is_one).map(|stage| StageOf { pipeline, stage })
        });
        found.next()
    }

    /// Takes nodes out of the tasks that are not submitted yet.
    pub(super) fn leave_out(&mut self, is_left_out: impl Fn(&Item) -> bool) {
        for running in self.0.iter_mut().flatten().flatten() {
            for task in &mut running.tasks {
                task.items.retain(|item| !is_left_out(item));
            }
            running.tasks.retain(|task| !task.items.is_empty());
        }
    }
}
