//! Batches in stages: *DVABatch: Diversity-aware Multi-Entry Multi-Exit Batching for Efficient Processing of DNN Services on GPUs*
//! (Cui et al., USENIX ATC 2022), for models without recurrence.
//!
//! A model is cut into stages ([`crate::Stages`]). A batch has an identity that lives across them, and three operations change it between
//! stages: *new* makes a batch of waiting requests; *stretch* adds late-comers to the newest one, which waits behind a stage until they have
//! caught up; *split* lets it go on as smaller batches, which end on their own. Nothing is padded: rows of all members share tasks.
//!
//! # How a request travels
//! [`Event::Arrive`] lets it wait. When the first stage is free and a worker asks for a task, waiting requests become a batch, or are added
//! to one (`pipeline`, on the paper's batch table in `batch_table` and its executors with buffer pairs in `stage_executors`). The worker
//! takes the part of a batch that can begin at the latest stage, and runs its tasks (`stage_tasks`). When the last of them is complete, the
//! part goes on, waits for others of its batch, or is over.
//!
//! A request is answered when its last node is complete, whatever its batch still has to do: with early exits, when its decision falls. A
//! decision of a request leaves nodes of it out, and a part skips the stages where none of its members has any. A member that has ended, or
//! was given up, keeps its number in the batch, but not its place among the active requests.
//!
//! A stage of a pipeline runs one part at a time, on one worker. There are as many pipelines as workers, or as many as are asked for.

mod batch_size;
mod batch_table;
mod pipeline;
mod request_in_stages;
mod running;
mod stage_executors;
mod stage_tasks;
mod waiting;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellTypeId, DecisionIndex, Item, ModelId, RequestId, RunIndex, RunKind,
    TaskId, Work, WorkerId,
};

use crate::batch_in_stages::BatchInStages;
use crate::batching::Batching;
use crate::config::{CellTypeConfig, Config, StatePlacement};
use crate::counters::BatchCounters;
use crate::decisions::{Decisions, Need, Settled};
use crate::discarded::Discarded;
use crate::event::{Event, Failure, Finished, Outcome, Undecided};
use crate::live_requests::{Arrival, LiveRequest, LiveRequests};
use crate::stages::Stages;
use crate::staging::Staging;

use batch_size::BatchSize;
use pipeline::Pipeline;
use request_in_stages::{Held, InStages};
use running::{RunningParts, StageOf};
use stage_tasks::{StageTask, stage_tasks};
use waiting::Waiting;

/// The policy of DVABatch.
#[derive(Debug)]
pub(crate) struct Staged {
    now: u64,
    staging: Staging,
    stages: Stages,
    state_placement: StatePlacement,
    cells: Vec<Cell>,
    workers: Vec<Worker>,
    requests: LiveRequests<InStages>,
    waiting: Waiting,
    batch_size: BatchSize,
    /// Batches of one do not meet those of another.
    pipelines: Vec<Pipeline>,
    running: RunningParts,
    /// Whether tasks may hold nodes that are not to run: of requests that were given up, or left out by a decision.
    has_void_nodes: bool,
    /// The decisions whose rows are written and that were not taken yet.
    undecided: Vec<Undecided>,
}

#[derive(Debug)]
struct Cell {
    config: CellTypeConfig,
    /// The most rows of a task.
    limit: u32,
    counters: BatchCounters,
    /// The number of runs of waiting requests.
    waiting: usize,
}

#[derive(Debug, Default)]
struct Worker {
    is_down: bool,
    last_task: u64,
    /// The stage whose part it runs.
    stage: Option<StageOf>,
    /// The tasks that are submitted and not complete, with the nodes that they hold.
    in_flight: VecDeque<(TaskId, Vec<Held>)>,
}

impl Staged {
    pub(crate) fn new(config: &Config, staging: Staging, stages: &Stages) -> Self {
        assert!(staging.batch_max > 0 && staging.active_max > 0, "batches of nothing");
        assert!(staging.pairs > 0, "no buffer pair");
        let cells = config.cell_types.len();
        assert_eq!(stages.cell_types(), cells, "each cell type has a stage");
        let pipelines = staging.pipelines.unwrap_or(config.workers.into()).max(1) as usize;
        let cell = |config: &CellTypeConfig| Cell {
            limit: config.sizes_with_max(config.batch_sizes.max).max,
            config: config.clone(),
            counters: BatchCounters::default(),
            waiting: 0,
        };
        Self {
            now: 0,
            state_placement: config.state_placement,
            cells: config.cell_types.iter().map(cell).collect(),
            workers: (0..config.workers).map(|_| Worker::default()).collect(),
            requests: LiveRequests::default(),
            waiting: Waiting::default(),
            batch_size: BatchSize::default(),
            pipelines: (0..pipelines).map(|_| Pipeline::new(staging, stages.clone())).collect(),
            running: RunningParts::new(pipelines, stages.count()),
            stages: stages.clone(),
            has_void_nodes: false,
            undecided: Vec::new(),
            staging,
        }
    }

    fn arrive(&mut self, priority: u32, mut arrival: Arrival<InStages>) {
        let (id, mut runs) = (arrival.id, arrival.graph.runs().iter());
        assert!(runs.all(|run| run.kind == RunKind::Rows), "{id:?} has cells with states");
        let mut stages = arrival.graph.runs().iter().map(|run| self.stages.of(run.cell_type));
        assert!(stages.any(|stage| stage == 0), "{id:?} has no cell of the first stage");
        for run in arrival.graph.runs() {
            self.cells[run.cell_type.index()].waiting += 1;
        }
        arrival.of_policy.place = self.waiting.add(id, priority, self.now);
        self.batch_size.arrive(self.now);
        self.requests.insert(self.now, arrival);
        self.expire(self.now);
    }

    /// Gives up the requests whose deadlines are reached.
    fn expire(&mut self, now: u64) {
        self.now = now;
        while let Some(request) = self.requests.take_overdue(now) {
            self.give_up(request, Outcome::TimedOut);
        }
    }

    /// When the time for others to come is over: a batch may be made of those that wait.
    fn window_end_ns(&self) -> Option<u64> {
        Some(self.waiting.oldest_ns()?.saturating_add(self.staging.window_ns))
    }

    /// Whether those that wait may become a batch, or be added to one.
    fn may_admit(&self) -> bool {
        let full = self.staging.batch_max.min(self.staging.active_max);
        let is_full = self.waiting.len() >= full as usize;
        let is_time = || self.window_end_ns().is_some_and(|end_ns| end_ns <= self.now);
        self.open_pipelines().next().is_some() && (is_full || is_time())
    }

    /// The members of all batches in flight.
    fn members(&self) -> u32 {
        self.pipelines.iter().map(Pipeline::members).sum()
    }

    /// The pipelines whose first stage is free, with the most members of a new batch there.
    fn open_pipelines(&self) -> impl Iterator<Item = (usize, u32)> {
        let members = self.members();
        let all = self.pipelines.iter().enumerate().filter(|(_, pipeline)| pipeline.is_open());
        let with_room = all.map(move |(at, pipeline)| (at, pipeline.room(members)));
        with_room.filter(|&(_, room)| room > 0)
    }

    /// Lets waiting requests into a first stage that is free: into a new batch of an idle pipeline, else into the newest batch, or a new one.
    fn admit(&mut self) {
        if !self.may_admit() {
            return;
        }
        let (members, now) = (self.members(), self.now);
        let may_stretch = |&(at, _): &(usize, u32)| {
            let room = self.pipelines[at].stretchable(now, members);
            room.is_some_and(|room| self.fit(room))
        };
        let is_idle = |&(at, _): &(usize, u32)| self.pipelines[at].members() == 0;
        let created_ns = |&(at, _): &(usize, u32)| self.pipelines[at].newest_ns();
        let idle = self.open_pipelines().find(is_idle);
        let young = self.open_pipelines().filter(may_stretch).max_by_key(created_ns);
        match (idle, young) {
            (None, Some((at, _))) => self.stretch(at),
            (idle, _) => {
                let (at, room) =
                    idle.or_else(|| self.open_pipelines().next()).expect("one is open");
                let members = self.take_waiting(self.batch_size(room), at);
                self.pipelines[at].create(now, members);
            }
        }
    }

    /// The members of a new batch, at most `room`, of those that wait. All, where they have waited to be a batch, or batches are split behind the
    /// first stage.
    fn batch_size(&self, room: u32) -> u32 {
        if self.staging.window_ns > 0 || self.staging.split_margin_percent.is_some() {
            return room;
        }
        let up = self.workers.iter().filter(|worker| !worker.is_down).count();
        let workers = self.pipelines.len().min(up).max(1);
        let sizes = [self.waiting.len(), room as usize, workers].map(|size| size as u32);
        self.batch_size.of(sizes, &self.stages, self.now)
    }

    /// Whether there are requests that wait, and all of them fit: a batch does not wait for a few of many.
    fn fit(&self, room: u32) -> bool {
        (1..=room as usize).contains(&self.waiting.len())
    }

    /// Adds all requests that wait to the newest batch of a pipeline.
    fn stretch(&mut self, pipeline: usize) {
        let members = self.take_waiting(u32::MAX, pipeline);
        self.pipelines[pipeline].stretch(members);
    }

    /// Takes the first that wait, for a batch of a pipeline.
    fn take_waiting(&mut self, count: u32, pipeline: usize) -> Vec<RequestId> {
        let ids = self.waiting.first(count);
        for &id in &ids {
            self.leave_waiting(id);
            let request = self.requests.get_mut(id).expect("a waiting request is in flight");
            request.batched_ns = Some(self.now);
            request.of_policy.pipeline = Some(pipeline);
        }
        ids
    }

    fn leave_waiting(&mut self, id: RequestId) {
        let request = self.requests.get(id).expect("a waiting request is in flight");
        self.waiting.remove(request.of_policy.place);
        for run in request.graph.runs() {
            self.cells[run.cell_type.index()].waiting -= 1;
        }
    }

    /// A request that is in flight and was not given up.
    fn live(&self, id: RequestId) -> Option<&LiveRequest<InStages>> {
        self.requests.get(id).filter(|request| request.ending.is_none())
    }

    /// The members that have not ended, with their graphs and the runs that they need, as far as that is known.
    fn graphs<'a>(
        &'a self,
        members: &'a [RequestId],
    ) -> impl Iterator<Item = (RequestId, &'a CellGraph, Vec<RunIndex>)> {
        let live = members.iter().filter_map(|&id| self.live(id));
        live.map(|request| {
            let needed = request.of_policy.needed(&request.graph).collect();
            (request.id, &*request.graph, needed)
        })
    }

    /// Gives `worker` the stage of one that was lost. Returns whether there was one.
    fn take_over(&mut self, worker: WorkerId) -> bool {
        let Some(stage) = self.orphaned() else { return false };
        self.running.at_mut(stage).worker = Some(worker);
        self.workers[worker.index()].stage = Some(stage);
        true
    }

    /// Begins a part of a batch, the one that is furthest, which `worker` runs. Returns whether there was one.
    fn begin(&mut self, worker: WorkerId) -> bool {
        if self.furthest().is_none() {
            self.admit();
        }
        let Some((of, members)) = self.furthest() else { return false };
        let limit = |of: CellTypeId| self.cells[of.index()].limit;
        let tasks = stage_tasks(&self.stages, of.stage, self.graphs(members), limit);
        self.pipelines[of.pipeline].begin(of.stage);
        self.running.begin(of, worker, tasks);
        self.workers[worker.index()].stage = Some(of);
        true
    }

    /// The part that can begin at the latest stage, with its members.
    fn furthest(&self) -> Option<(StageOf, &[RequestId])> {
        self.parts().max_by_key(|(of, _)| (of.stage, Reverse(of.pipeline)))
    }

    /// The parts that can begin, of each pipeline those of later stages first.
    fn parts(&self) -> impl Iterator<Item = (StageOf, &[RequestId])> {
        let all = self.pipelines.iter().enumerate().flat_map(|(pipeline, of)| {
            of.parts().map(move |(stage, members)| (StageOf { pipeline, stage }, members))
        });
        all.filter(|(of, members)| self.is_decided(of.stage, members))
    }

    /// Whether it is known which of their runs at `stage` members need, as far as earlier stages decide that.
    fn is_decided(&self, stage: usize, members: &[RequestId]) -> bool {
        let mut live = members.iter().filter_map(|&id| self.live(id));
        live.all(|LiveRequest { graph, of_policy, .. }| {
            let stage_of = |run: RunIndex| self.stages.of(graph.runs()[run.index()].cell_type);
            let mut open = of_policy.decisions.iter().flat_map(|decisions| decisions.open());
            !open.any(|(run, decides)| stage_of(run) == stage && stage_of(decides) < stage)
        })
    }

    /// The next task of the stage that `worker` runs.
    fn next_of_stage(&mut self, worker: WorkerId, stage: StageOf) -> Option<BatchedTask> {
        if !self.is_next_decided(stage) {
            return None;
        }
        let StageTask { cell_type, items } = self.running.at_mut(stage).tasks.pop_front()?;
        let held = |item: &Item| {
            let &Item { request, run, first, count, .. } = item;
            Held { request, run, end: first + count, count }
        };
        let holders: Vec<Held> = items.iter().map(held).collect();
        for holder in &holders {
            let of_holder = self.requests.get_mut(holder.request).expect("a live request");
            of_holder.of_policy.tasks += 1;
            of_holder.of_policy.workers |= 1 << worker.0;
        }
        let rows: u32 = items.iter().map(|item| item.count).sum();
        self.cells[cell_type.index()].counters.count(1, rows as usize, 0);
        let state = &mut self.workers[worker.index()];
        state.last_task += 1;
        let id = TaskId(state.last_task);
        state.in_flight.push_back((id, holders));
        Some(BatchedTask { id, worker, cell_type, work: Work::Rows(items) })
    }

    /// Whether the next task of a stage has no node of which it is not known yet if it is left out.
    fn is_next_decided(&self, of: StageOf) -> bool {
        let next = self.running.at(of).tasks.front();
        next.is_none_or(|task| task.items.iter().all(|item| self.need(item) != Need::Unknown))
    }

    fn need(&self, item: &Item) -> Need {
        match self.requests.get(item.request).filter(|request| request.ending.is_none()) {
            Some(request) => request.of_policy.need(item.run),
            None => Need::LeftOut,
        }
    }

    /// Lets parts go on that have nothing more to run at their stage.
    fn settle(&mut self) {
        if std::mem::take(&mut self.has_void_nodes) {
            let mut running = std::mem::take(&mut self.running);
            running.leave_out(|item| self.need(item) == Need::LeftOut);
            self.running = running;
        }
        while self.end_a_stage() || self.skip_a_part() {}
    }

    /// Ends a part of which all tasks are complete. Returns whether there was one.
    fn end_a_stage(&mut self) -> bool {
        let has_none_in_flight =
            |worker: WorkerId| self.workers[worker.index()].in_flight.is_empty();
        let found = self.running.find(|running| {
            running.tasks.is_empty() && running.worker.is_none_or(has_none_in_flight)
        });
        let Some(stage) = found else { return false };
        let worker = self.running.end(stage).worker;
        if let Some(worker) = worker {
            self.workers[worker.index()].stage = None;
        }
        self.go_on(stage);
        true
    }

    /// Lets a part go on that has nothing to run at its stage. Returns whether there was one.
    fn skip_a_part(&mut self) -> bool {
        let has_none = |&(of, members): &(StageOf, &[RequestId])| {
            let mut live = members.iter().filter_map(|&id| self.live(id));
            !live.any(|request| {
                request.of_policy.needed(&request.graph).any(|run| {
                    self.stages.of(request.graph.runs()[run.index()].cell_type) == of.stage
                })
            })
        };
        let Some((of, _)) = self.parts().find(has_none) else { return false };
        self.pipelines[of.pipeline].begin(of.stage);
        self.go_on(of);
        true
    }

    /// The part at a stage goes on, is stretched, or ends.
    fn go_on(&mut self, of: StageOf) {
        let pipeline = &self.pipelines[of.pipeline];
        // Late-comers are let in before the batch goes on without them.
        let room = pipeline.room_behind(of.stage, self.now, self.members());
        if room.is_some_and(|room| self.fit(room)) {
            self.stretch(of.pipeline);
        }
        self.pipelines[of.pipeline].complete(of.stage);
    }

    fn task_over(&mut self, worker: WorkerId, task: TaskId, failure: Option<Failure>) {
        let done = self.workers[worker.index()].in_flight.pop_front();
        let (id, holders) =
            done.unwrap_or_else(|| panic!("{worker} completed {task} with none in flight"));
        assert_eq!(id, task, "{worker} completed a task out of order");
        self.let_go(holders, failure);
    }

    /// Takes note that a task is over which held nodes of these requests.
    fn let_go(&mut self, holders: Vec<Held>, failure: Option<Failure>) {
        for held in holders {
            let id = held.request;
            match &failure {
                Some(failure) => self.requests.give_up(id, Outcome::Failed(failure.clone())),
                None => self.complete_nodes(held),
            }
            self.has_void_nodes |= failure.is_some();
            let request = self.requests.get_mut(id).expect("a request ends after its tasks");
            request.of_policy.tasks -= 1;
            self.finish_if_over(id);
        }
    }

    fn complete_nodes(&mut self, Held { request: id, run, end, count }: Held) {
        let request = self.requests.get_mut(id).expect("a request ends after its tasks");
        request.of_policy.nodes -= u64::from(count);
        if let (Some(decisions), None) = (&mut request.of_policy.decisions, &request.ending) {
            self.undecided.extend(decisions.written(id, run, end));
        }
    }

    /// Goes on by a decision of a request.
    fn decided(&mut self, id: RequestId, decision: DecisionIndex, outcome: Result<bool, Arc<str>>) {
        let is_true = match outcome {
            Ok(is_true) => is_true,
            Err(reason) => {
                return self.give_up(id, Outcome::Failed(Failure::WorkerLost(reason)));
            }
        };
        let Some(request) = self.requests.get_mut(id) else { return };
        let decisions = request.of_policy.decisions.as_mut();
        let Settled { left_out, .. } =
            decisions.expect("a request with decisions").fell(decision, is_true);
        let length = |run: &RunIndex| u64::from(request.graph.runs()[run.index()].length);
        request.of_policy.nodes -= left_out.iter().map(length).sum::<u64>();
        self.has_void_nodes |= !left_out.is_empty();
        self.finish_if_over(id);
    }

    fn give_up(&mut self, id: RequestId, outcome: Outcome) {
        if self.requests.get(id).is_some_and(|request| request.batched_ns.is_none()) {
            self.leave_waiting(id);
        }
        self.requests.give_up(id, outcome);
        self.has_void_nodes = true;
        self.finish_if_over(id);
    }

    /// Ends a request that has no nodes left to run, or was given up, once no task holds nodes of it.
    fn finish_if_over(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(id) else { return };
        let is_over = request.ending.is_some() || request.of_policy.nodes == 0;
        if is_over && request.of_policy.tasks == 0 {
            if let Some(pipeline) = request.of_policy.pipeline {
                self.pipelines[pipeline].leave();
            }
            self.requests.finish(self.now, id);
        }
    }

    fn worker_down(&mut self, worker: WorkerId, reason: Arc<str>) {
        let lost = Failure::WorkerLost(reason);
        let state = &mut self.workers[worker.index()];
        state.is_down = true;
        let in_flight = std::mem::take(&mut state.in_flight);
        if let Some(stage) = state.stage.take() {
            self.running.at_mut(stage).worker = None;
        }
        if self.state_placement == StatePlacement::PerWorker {
            // Values of these are there.
            let was_there =
                |request: &LiveRequest<InStages>| request.of_policy.workers & (1 << worker.0) != 0;
            for id in self.requests.those(was_there) {
                self.give_up(id, Outcome::Failed(lost.clone()));
            }
        }
        for (_, holders) in in_flight {
            self.let_go(holders, Some(lost.clone()));
        }
    }

    /// A stage whose worker was lost before it had run all tasks.
    fn orphaned(&self) -> Option<StageOf> {
        let found = self.running.find(|running| running.worker.is_none());
        found.filter(|&of| self.is_next_decided(of))
    }
}

impl Batching for Staged {
    fn handle(&mut self, now: u64, event: Event) {
        self.expire(now);
        match event {
            Event::Arrive { request, priority, deadline_ns, graph, session, .. } => {
                assert!(session.is_none(), "a batch in stages has no chunk of a session");
                let (nodes, decisions) = (graph.nodes(), Decisions::of(&graph));
                let of_policy = InStages { nodes, decisions, ..InStages::default() };
                let arrival = Arrival { id: request, graph, deadline_ns, of_policy };
                self.arrive(priority, arrival);
            }
            Event::EndSession { session } => unreachable!("{session:?} never began"),
            Event::Progress { .. } | Event::EndOfSequence { .. } => {}
            Event::Complete { worker, task } => self.task_over(worker, task, None),
            Event::TaskFailed { worker, task, reason } => {
                self.task_over(worker, task, Some(Failure::Task(reason)));
            }
            Event::Decided { request, decision, outcome } => {
                self.decided(request, decision, outcome);
            }
            Event::Cancel { request } => self.give_up(request, Outcome::Cancelled),
            Event::Limits { batch_max, .. } => {
                for (cell, max) in self.cells.iter_mut().zip(batch_max) {
                    cell.limit = cell.config.sizes_with_max(max).max;
                }
            }
            Event::WorkerUp { worker } => self.workers[worker.index()].is_down = false,
            Event::WorkerDown { worker, reason } => self.worker_down(worker, reason),
        }
        self.settle();
    }

    fn advance(&mut self, now: u64) {
        self.expire(now);
        self.settle();
    }

    fn next_task(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        if self.workers[worker.index()].is_down {
            return None;
        }
        if self.workers[worker.index()].stage.is_none()
            && !self.take_over(worker)
            && !self.begin(worker)
        {
            return None;
        }
        self.next_of_round(worker)
    }

    fn next_of_round(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        let stage = self.workers[worker.index()].stage?;
        self.next_of_stage(worker, stage)
    }

    fn has_rest_of_round(&self, worker: WorkerId) -> bool {
        let state = &self.workers[worker.index()];
        let is_left =
            |of: StageOf| !self.running.at(of).tasks.is_empty() && self.is_next_decided(of);
        !state.is_down && state.stage.is_some_and(is_left)
    }

    fn take_undecided(&mut self) -> Vec<Undecided> {
        std::mem::take(&mut self.undecided)
    }

    fn finished(&mut self) -> &mut Vec<Finished> {
        &mut self.requests.finished
    }

    fn take_discarded(&mut self) -> Discarded {
        std::mem::take(&mut self.requests.discarded)
    }

    fn requests(&self) -> usize {
        self.requests.len()
    }

    fn is_busy(&self, worker: WorkerId) -> bool {
        !self.workers[worker.index()].in_flight.is_empty()
    }

    fn has_work_for(&self, worker: WorkerId) -> bool {
        let state = &self.workers[worker.index()];
        let may_begin =
            || self.orphaned().is_some() || self.parts().next().is_some() || self.may_admit();
        match state.stage {
            Some(_) => self.has_rest_of_round(worker),
            None => !state.is_down && may_begin(),
        }
    }

    fn next_deadline(&self) -> Option<u64> {
        let is_to_come = |&end_ns: &u64| end_ns > self.now && end_ns < u64::MAX;
        let window = self.window_end_ns().filter(is_to_come);
        self.requests.next_deadline().into_iter().chain(window).min()
    }

    fn counters(&self, cell_type: CellTypeId) -> BatchCounters {
        self.cells[cell_type.index()].counters.clone()
    }

    fn batches_in_stages(&self) -> Vec<BatchInStages> {
        let all = self.pipelines.iter().enumerate();
        all.flat_map(|(pipeline, of)| of.batches(pipeline)).collect()
    }

    fn worker_ns(&self, _model: ModelId) -> Option<u64> {
        None
    }

    fn slots_in_use(&self, _cell_type: CellTypeId) -> usize {
        0
    }

    fn waiting(&self, cell_type: CellTypeId) -> usize {
        self.cells[cell_type.index()].waiting
    }
}
