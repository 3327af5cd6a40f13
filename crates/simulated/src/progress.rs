//! The batches that the workers of a virtual device have completed, from loss to loss.

use batchmaker_graph::{TaskId, WorkerId};

/// The batch that wrote a row or a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub(crate) worker: WorkerId,
    /// The number of times that the worker was lost before.
    life: usize,
    task: TaskId,
    /// The number of the batch in the task.
    pub(crate) batch: u32,
}

/// See the module's first line.
#[derive(Debug)]
pub(crate) struct Progress {
    workers: Vec<OfWorker>,
}

#[derive(Clone, Debug)]
struct OfWorker {
    running: Option<TaskId>,
    /// The number of batches of the running task that are complete.
    batches_done: u32,
    /// From loss to loss; the last is the current one.
    lives: Vec<Life>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    /// The last task.
    completed: TaskId,
    /// The task that the worker was lost in, and the number of its batches that were complete.
    cut_short: Option<(TaskId, u32)>,
}

impl OfWorker {
    fn life(&mut self) -> &mut Life {
        self.lives.last_mut().expect("a worker has a life")
    }
}

impl Progress {
    pub(crate) fn new(workers: usize) -> Self {
        let lives = vec![Life { completed: TaskId(0), cut_short: None }];
        Self { workers: vec![OfWorker { running: None, batches_done: 0, lives }; workers] }
    }

    pub(crate) fn is_running(&self, worker: WorkerId) -> bool {
        self.workers[worker.index()].running.is_some()
    }

    /// Notes that the worker begins a task.
    pub(crate) fn start(&mut self, worker: WorkerId, task: TaskId) {
        let of_worker = &mut self.workers[worker.index()];
        (of_worker.running, of_worker.batches_done) = (Some(task), 0);
    }

    /// Notes that the first `batches` batches of the worker's running task are complete.
    pub(crate) fn advance(&mut self, worker: WorkerId, batches: u32) {
        self.workers[worker.index()].batches_done = batches;
    }

    /// Notes that the worker's running task is over, and returns it; none if it runs none.
    pub(crate) fn finish(&mut self, worker: WorkerId) -> Option<TaskId> {
        let of_worker = &mut self.workers[worker.index()];
        let task = of_worker.running.take()?;
        of_worker.life().completed = task;
        Some(task)
    }

    /// Notes that the worker is lost, with the task that it runs.
    pub(crate) fn lose(&mut self, worker: WorkerId) {
        let of_worker = &mut self.workers[worker.index()];
        let cut_short = of_worker.running.take().map(|task| (task, of_worker.batches_done));
        of_worker.life().cut_short = cut_short;
        let completed = of_worker.life().completed;
        of_worker.lives.push(Life { completed, cut_short: None });
    }

    /// The stamp of everything that a batch of a task writes now.
    pub(crate) fn stamp(&self, worker: WorkerId, task: TaskId, batch: u32) -> Stamp {
        let life = self.workers[worker.index()].lives.len() - 1;
        Stamp { worker, life, task, batch }
    }

    /// Whether what was written is complete, so that anybody may read it.
    pub(crate) fn is_complete(&self, by: Stamp) -> bool {
        let OfWorker { running, batches_done, lives } = &self.workers[by.worker.index()];
        let life = lives[by.life];
        let is_current = by.life + 1 == lives.len();
        let running = running.filter(|_| is_current).map(|task| (task, *batches_done));
        let is_of_part = |(task, batches): (TaskId, u32)| by.task == task && by.batch < batches;
        by.task <= life.completed || life.cut_short.or(running).is_some_and(is_of_part)
    }

    /// Whether a task of `reader` may read what was written: a worker's own tasks run in order, unless
    /// it was lost between them.
    pub(crate) fn is_readable(&self, by: Stamp, reader: WorkerId) -> bool {
        let is_of_this_life = by.life + 1 == self.workers[by.worker.index()].lives.len();
        (by.worker == reader && is_of_this_life) || self.is_complete(by)
    }
}
