//! A test harness: one checker with a ledger, which watch events made by hand.

use std::sync::Arc;

use batchmaker_graph::{
    BatchedTask, CellGraph, CellGraphBuilder, CellTypeId, Chunk, ElementType, ModelId, RequestId,
    RowSpec, Rows, RunIndex, SessionId, Sink, SinkTime, SlotId, TaskId, Work, WorkerId,
};
use batchmaker_manager::{
    BatchInStages, BatchSizes, CellTypeConfig, CellTypeStatistics, Config, Finished, Outcome,
    Policy, Stages, StatePlacement, TaskForm,
};

use crate::checkers::checker::Checker;
use crate::ledger::Ledger;
use crate::observation::{Nodes, Observation, TaskEnd};

/// The layers of a graph over 3 steps, of successive cell types.
#[derive(Clone, Copy)]
pub(crate) struct Layers {
    first: u32,
    layers: u32,
}
pub(crate) const ONE_LAYER: Layers = Layers { first: 0, layers: 1 };
pub(crate) const TWO_LAYERS: Layers = Layers { first: 0, layers: 2 };

impl Layers {
    /// One layer, of that cell type.
    pub(crate) fn one_of(cell_type: u32) -> Self {
        Self { first: cell_type, layers: 1 }
    }
}

/// The reason with which tasks fail and workers are lost.
pub(crate) const REASON: &str = "a reason";

/// Two cell types in batches of 2 or 3, two workers, rounds of two batches.
pub(crate) fn config() -> Config {
    let batch_sizes = BatchSizes { min: 2, max: 3 };
    let cell = CellTypeConfig { batch_sizes, ..CellTypeConfig::up_to(3, Vec::new()) };
    Config {
        cell_types: vec![cell; 2],
        workers: 2,
        lookahead: 0,
        fairness: None,
        stages: Stages::default(),
        staged_models: Vec::new(),
        policy: Policy::Cellular,
        max_tasks_to_submit: 2,
        rounds_of_a_turn: 1,
        submission_window_ns: None,
        task_form: TaskForm::Roster,
        state_placement: StatePlacement::Shared,
    }
}

/// One step of a chain.
pub(crate) fn nodes(request: u32, run: u32, first: u32) -> Nodes {
    Nodes { request: id(request), run: RunIndex(run), first, count: 1, slot: None }
}

pub(crate) fn in_slot(nodes: Nodes, index: u32, generation: u32) -> Nodes {
    Nodes { slot: Some(SlotId { index, generation }), ..nodes }
}

fn id(index: u32) -> RequestId {
    RequestId { index, generation: 0 }
}

fn session_id(index: u32) -> SessionId {
    SessionId { index, generation: 0 }
}

/// A checker under test.
pub(crate) struct Harness {
    checker: Box<dyn Checker>,
    ledger: Ledger,
    /// The last task submitted, by worker.
    last_task: [u64; 2],
    /// The last task reported as over, by worker.
    reported: [u64; 2],
}

impl Harness {
    pub(crate) fn new(checker: impl Checker + 'static) -> Self {
        Self::with_states(StatePlacement::Shared, checker)
    }

    pub(crate) fn with_states(placement: StatePlacement, checker: impl Checker + 'static) -> Self {
        Self::of(&Config { state_placement: placement, ..config() }, checker)
    }

    pub(crate) fn of(config: &Config, checker: impl Checker + 'static) -> Self {
        let ledger = Ledger::new(config);
        Self { checker: Box::new(checker), ledger, last_task: [0; 2], reported: [0; 2] }
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        self.checker.check(&self.ledger, seen)?;
        self.ledger.enter(seen);
        self.ledger.give_slots();
        Ok(())
    }

    pub(crate) fn arrive(&mut self, request: u32, layers: Layers) {
        self.arrive_with(request, layers, 0);
    }

    pub(crate) fn arrive_with(&mut self, request: u32, layers: Layers, priority: u32) {
        self.see_arrival(request, 0, priority, None, &Arc::new(stack(layers, Chunk::Whole)), None);
    }

    pub(crate) fn arrive_of(&mut self, request: u32, model: u32, layers: Layers) {
        self.see_arrival(request, model, 0, None, &Arc::new(stack(layers, Chunk::Whole)), None);
    }

    pub(crate) fn arrive_until(&mut self, request: u32, layers: Layers, deadline_ns: u64) {
        let graph = Arc::new(stack(layers, Chunk::Whole));
        self.see_arrival(request, 0, 0, Some(deadline_ns), &graph, None);
    }

    /// It is `now_ns`.
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.ledger.advance(now_ns);
    }

    /// A chunk arrives; the first of a session begins it.
    pub(crate) fn arrive_in(&mut self, session: u32, request: u32, layers: Layers) {
        let session = session_id(session);
        let is_begun = self.ledger.sessions.get(session).is_some();
        let chunk = if is_begun { Chunk::Next } else { Chunk::First };
        let graph = Arc::new(stack(layers, chunk));
        self.see_arrival(request, 0, 0, None, &graph, Some(session));
    }

    fn see_arrival(
        &mut self,
        request: u32,
        model: u32,
        priority: u32,
        deadline_ns: Option<u64>,
        graph: &Arc<CellGraph>,
        session: Option<SessionId>,
    ) {
        let (request, model) = (id(request), ModelId(model));
        let arrived =
            Observation::Arrived { request, model, priority, deadline_ns, graph, session };
        self.see(&arrived).expect("arrivals are in order");
    }

    pub(crate) fn limits(&mut self, batch_max: &[u32]) -> Result<(), String> {
        self.see(&Observation::Limits { batch_max })
    }

    pub(crate) fn end_session(&mut self, session: u32) -> Result<(), String> {
        self.see(&Observation::SessionEnding { session: session_id(session) })
    }

    pub(crate) fn session_ended(&mut self, session: u32) -> Result<(), String> {
        self.see(&Observation::SessionEnded { session: session_id(session) })
    }

    pub(crate) fn task(
        &mut self,
        worker: u32,
        cell_type: u32,
        batches: &[&[Nodes]],
    ) -> Result<(), String> {
        self.last_task[worker as usize] += 1;
        let id = TaskId(self.last_task[worker as usize]);
        let (worker, cell_type) = (WorkerId(worker), CellTypeId(cell_type));
        let work = Work::Rows(Vec::new());
        let task = BatchedTask { id, worker, cell_type, work };
        self.see(&Observation::Submitted { task: &task })?;
        batches.iter().try_for_each(|nodes| {
            self.see(&Observation::Batch { worker, task: id, cell_type, nodes })
        })
    }

    pub(crate) fn complete(&mut self, worker: u32) -> Result<(), String> {
        self.over(worker, TaskEnd::Complete)
    }

    pub(crate) fn fail(&mut self, worker: u32) -> Result<(), String> {
        self.over(worker, TaskEnd::Failed { reason: &REASON.into() })
    }

    /// Reports that `steps` steps in all of the worker's oldest task are complete.
    pub(crate) fn progress(&mut self, worker: u32, steps: u32) -> Result<(), String> {
        let task = TaskId(self.reported[worker as usize] + 1);
        self.see(&Observation::Progressed { worker: WorkerId(worker), task, steps })
    }

    fn over(&mut self, worker: u32, end: TaskEnd<'_>) -> Result<(), String> {
        self.reported[worker as usize] += 1;
        let task = TaskId(self.reported[worker as usize]);
        self.see(&Observation::Over { worker: WorkerId(worker), task, end })
    }

    pub(crate) fn cancel(&mut self, request: u32) -> Result<(), String> {
        self.see(&Observation::Cancelled { request: id(request) })
    }

    pub(crate) fn worker_down(&mut self, worker: u32) -> Result<(), String> {
        let reason = &REASON.into();
        self.see(&Observation::WorkerDown { worker: WorkerId(worker), reason })
    }

    pub(crate) fn refuse(&mut self, worker: u32) -> Result<(), String> {
        self.see(&Observation::Refused { worker: WorkerId(worker) })
    }

    pub(crate) fn finish(&mut self, request: u32, outcome: Outcome) -> Result<(), String> {
        let finished = &Finished { request: id(request), outcome, queue_ns: 0, total_ns: 0 };
        self.see(&Observation::Finished { finished })
    }

    pub(crate) fn settled(&mut self, requests: usize, slots: &[usize]) -> Result<(), String> {
        let counts = |&slots_in_use| CellTypeStatistics { slots_in_use, ..Default::default() };
        let statistics: Vec<_> = slots.iter().map(counts).collect();
        let deadline_ns = None;
        self.see(&Observation::Settled { requests, deadline_ns, statistics: &statistics })
    }

    /// Does the same where the manager names `deadline_ns` as the next one.
    pub(crate) fn settled_until(
        &mut self,
        requests: usize,
        deadline_ns: Option<u64>,
    ) -> Result<(), String> {
        self.see(&Observation::Settled { requests, deadline_ns, statistics: &[] })
    }

    /// The manager has these batches in stages.
    pub(crate) fn in_stages(&mut self, batches: &[BatchInStages]) -> Result<(), String> {
        self.see(&Observation::InStages { batches })
    }

    pub(crate) fn drained(&mut self) -> Result<(), String> {
        self.see(&Observation::Drained)
    }
}

fn stack(Layers { first, layers }: Layers, chunk: Chunk) -> CellGraph {
    let row = || RowSpec::new(ElementType::F32, [1]);
    let mut graph = CellGraphBuilder::of_chunk(chunk);
    let mut below = graph.input(row(), 3);
    for layer in first..first + layers {
        let above = graph.value(row(), 3);
        let sink = Sink { port: 0, time: SinkTime::Every, rows: Rows::all(above) };
        graph.chain(CellTypeId(layer), 3, vec![Rows::all(below)], vec![None], vec![sink]);
        below = above;
    }
    graph.finish().unwrap()
}
