//! The manager under observation: every event that it handles and every task that it submits is
//! traced, checked and entered into the books.

use batchmaker_graph::{BatchedTask, CellGraph, CellTypeId, WorkerId};
use batchmaker_manager::{Config, Event, Manager, Padding, Policy};
use batchmaker_simulated::CellCost;

use crate::checkers::{self, Checker, Load};
use crate::ledger::{Ledger, Run};
use crate::observation::{Nodes, Observation, Rosters};
use crate::report::Summary;
use crate::sabotage::Sabotage;
use crate::simulation::broken::{Broken, broken};
use crate::trace::Trace;

/// The manager with those that watch it.
pub(super) struct ObservedManager<'a> {
    pub(super) manager: Manager,
    pub(super) ledger: Ledger,
    checkers: Vec<Box<dyn Checker>>,
    rosters: Rosters,
    policy: Policy,
    has_stages: bool,
    cell_types: u32,
    pub(super) trace: &'a mut Trace<'a>,
}

impl<'a> ObservedManager<'a> {
    pub(super) fn new(
        config: &Config,
        sabotage: Sabotage,
        costs: Option<&[CellCost]>,
        load: Load,
        trace: &'a mut Trace<'a>,
    ) -> Self {
        Self {
            manager: Manager::new(sabotage.config(config)),
            ledger: Ledger::new(&sabotage.config_of_books(config)),
            checkers: checkers::of(config, costs, load),
            rosters: Rosters::default(),
            policy: config.policy,
            has_stages: config.has_stages(),
            cell_types: config.cell_types.len() as u32,
            trace,
        }
    }

    /// Passes an event to the manager. The checkers see it as `seen`.
    pub(super) fn handle(
        &mut self,
        now_ns: u64,
        event: Event,
        seen: &Observation<'_>,
    ) -> Result<(), Broken> {
        match &event {
            // The graph is long, and follows from the seed.
            Event::Arrive { request, model, priority, deadline_ns, graph, session } => {
                let runs = graph.runs().len();
                self.trace.note("arrive", &(request, model, priority, runs, session));
                if let Some(deadline_ns) = deadline_ns {
                    self.trace.note("deadline", deadline_ns);
                }
            }
            event => self.trace.note("event", event),
        }
        self.ledger.advance(now_ns);
        self.manager.handle(now_ns, event);
        self.observe(seen)
    }

    /// Lets the manager know the time.
    pub(super) fn advance(&mut self, now_ns: u64) {
        self.trace.note("advance", &now_ns);
        self.ledger.advance(now_ns);
        self.manager.advance(now_ns);
    }

    /// Asks for the next task of `worker`, which must be as the manager promised.
    pub(super) fn next_task(&mut self, worker: WorkerId) -> Result<Option<BatchedTask>, Broken> {
        let is_promised = self.manager.has_work_for(worker);
        let task = self.manager.next_task(worker);
        if is_promised != task.is_some() {
            let what = format!("has_work_for({worker}) is {is_promised}, next_task disagrees");
            return Err(broken("promises", what));
        }
        Ok(task)
    }

    /// Observes a task that the manager submitted, batch by batch, and counts it.
    pub(super) fn submitted(
        &mut self,
        task: &BatchedTask,
        summary: &mut Summary,
    ) -> Result<(), Broken> {
        self.trace.note("task", task);
        self.observe(&Observation::Submitted { task })?;
        let mut batches = self.rosters.batches(task).map_err(|what| broken("rosters", what))?;
        if self.policy != Policy::Cellular {
            summary.padding += self.take_padding(&mut batches);
        }
        summary.tasks += 1;
        summary.batches += batches.len() as u64;
        for nodes in &batches {
            summary.nodes += nodes.iter().map(|part| u64::from(part.count)).sum::<u64>();
            let BatchedTask { worker, id: task, cell_type, .. } = *task;
            self.observe(&Observation::Batch { worker, task, cell_type, nodes })?;
        }
        self.ledger.give_slots();
        self.observe_stages()
    }

    /// Lets the checkers see the batches in stages.
    fn observe_stages(&mut self) -> Result<(), Broken> {
        if !self.policy.is_of_rows() {
            return Ok(());
        }
        let batches = self.manager.batches_in_stages();
        self.observe(&Observation::InStages { batches: &batches })
    }

    /// Takes the rows past the end of their runs out of `batches`. Returns the number of these rows.
    fn take_padding(&self, batches: &mut [Vec<Nodes>]) -> u64 {
        let mut padding = 0;
        for part in batches.iter_mut().flatten() {
            let request = self.ledger.requests.get(&part.request);
            let run = request.map(|request| &request.graph.runs()[part.run.index()]);
            let left = run.map_or(part.count, |run| run.length.saturating_sub(part.first));
            padding += u64::from(part.count - left.min(part.count));
            part.count = left.min(part.count);
        }
        batches.iter_mut().for_each(|batch| batch.retain(|part| part.count > 0));
        padding
    }

    /// The most steps of the event loop that the rest of the work can take: each batch runs a row at
    /// least, padding included, and each task, and each step of one, is run once and reported once.
    pub(super) fn steps_to_drain(&self) -> u64 {
        let padded = |graph: &CellGraph| match self.policy {
            Policy::Cellular | Policy::Merged(_) | Policy::Staged(_) | Policy::Delayed(_) => 0,
            Policy::Padded(Padding { width, .. }) => {
                let longest = graph.runs().iter().map(|run| run.length).max().unwrap_or(0);
                longest.next_multiple_of(width)
            }
        };
        let runs = self.ledger.requests.values().flat_map(|request| {
            let padded = padded(&request.graph);
            let left = move |run: &Run| run.length.max(padded).saturating_sub(run.completed);
            request.runs.iter().map(move |run| u64::from(left(run)))
        });
        let in_flight: usize = self.ledger.workers.iter().map(|worker| worker.tasks.len()).sum();
        // Each request that waits for others may wake the manager once.
        let waits = if self.has_stages { self.ledger.requests.len() as u64 } else { 0 };
        4 * runs.sum::<u64>() + 2 * in_flight as u64 + waits
    }

    /// Forgets the rosters of a worker that is lost.
    pub(super) fn lose_rosters(&mut self, worker: WorkerId) {
        self.rosters.lose(worker);
    }

    /// Lets the checkers compare the manager's own counts with the books, after every happening.
    pub(super) fn settled(&mut self) -> Result<(), Broken> {
        self.observe_stages()?;
        let cell_types = (0..self.cell_types).map(CellTypeId);
        let statistics: Vec<_> = cell_types.map(|ct| self.manager.statistics(ct)).collect();
        let requests = self.manager.requests();
        let deadline_ns = self.manager.next_deadline();
        self.observe(&Observation::Settled { requests, deadline_ns, statistics: &statistics })
    }

    /// Shows an observation to the checkers, then enters it into the books.
    pub(super) fn observe(&mut self, seen: &Observation<'_>) -> Result<(), Broken> {
        for checker in &mut self.checkers {
            let checked = checker.check(&self.ledger, seen);
            checked.map_err(|what| broken(checker.name(), what))?;
        }
        self.ledger.enter(seen);
        Ok(())
    }
}
