//! A request in the books: how far each of its runs came, and where its nodes are in flight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, CellTypeId, DecisionIndex, Edge, EndOfSequence, ModelId, RequestId, RunIndex,
    RunKind, SessionId, SlotId, TaskId, WorkerId,
};
use batchmaker_manager::Outcome;

use crate::observation::Nodes;

/// Runs with nodes that are not submitted, in the order of a cell type's queue.
pub(crate) type OpenRuns = BTreeMap<Place, RequestId>;

/// A run's place in the order of its type's queue: explicit priorities first, then its tag, then the
/// order in which requests start: on arrival, or when the chunk before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    rank: u32,
    /// The virtual time of its next row, where large requests have places of their own.
    tag: u64,
    start: u64,
    pub(crate) run: RunIndex,
}

/// A request that arrived and is not answered.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) graph: Arc<CellGraph>,
    pub(crate) model: ModelId,
    /// The session that it is a chunk of.
    pub(crate) session: Option<SessionId>,
    /// When it must be answered.
    pub(crate) deadline_ns: Option<u64>,
    /// 0 once it is promoted, if it is not large.
    rank: u32,
    /// Of a large request: each run and slice that is promoted.
    promoted_slices: BTreeSet<(RunIndex, u64)>,
    /// The number of requests that started before it; none while it waits for an earlier chunk.
    start: Option<u64>,
    /// Since when it ages: when it started or, if it is large, was last promoted.
    ages_since_ns: u64,
    /// The virtual time at its start.
    tag: u64,
    /// If it is large: the number of rows before each run, and the bound from which on rows go back.
    large: Option<(Vec<u64>, u64)>,
    /// Whether, when it started, as many of its nodes could be ready at once as a batch had.
    fills_a_batch: bool,
    pub(crate) runs: Vec<Run>,
    /// The outcome that it must have, if no longer success.
    pub(crate) given_up: Option<Outcome>,
    /// Runs with nodes that are not complete.
    pub(crate) unfinished: usize,
    /// Runs with nodes in flight.
    pub(crate) in_flight: usize,
    /// By [`DecisionIndex`].
    decisions: Vec<Decided>,
    /// A bit for each worker that was given nodes, or holds the state that the chunk before left.
    pub(super) workers: u64,
}

/// The state of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    Open,
    Fell(bool),
    /// The run that was to decide is left out.
    Moot,
}

/// A run of a request.
#[derive(Debug)]
pub(crate) struct Run {
    /// The number of its nodes; of a chain that reached its end of sequence, of those submitted.
    pub(crate) length: u32,
    /// Whether it reached its end of sequence: the outcome of its tasks does not concern it any more.
    pub(super) reached_end_of_sequence: bool,
    /// Whether it is a chain of a type with bounded slots, and has none yet.
    pub(crate) lacks_slot: bool,
    /// Whether a decision leaves it out: it counts as complete.
    is_left_out: bool,
    pub(crate) submitted: u32,
    pub(crate) completed: u32,
    /// Nodes in flight, first ones first.
    pub(crate) flights: VecDeque<Flight>,
    pub(crate) slot: Option<SlotId>,
}

/// Nodes of a run in one task: those up to `end`, after those of the flight before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub(crate) worker: WorkerId,
    pub(super) task: TaskId,
    pub(super) end: u32,
}

impl Run {
    fn new(length: u32) -> Self {
        let flights = VecDeque::new();
        Self {
            length,
            reached_end_of_sequence: false,
            lacks_slot: false,
            is_left_out: false,
            submitted: 0,
            completed: 0,
            flights,
            slot: None,
        }
    }

    /// Whether `worker` can rely on `node`: it is complete, or in flight there.
    pub(crate) fn has_run_for(&self, node: u32, worker: WorkerId) -> bool {
        let flight = || self.flights.iter().find(|flight| node < flight.end);
        node < self.completed || flight().is_some_and(|flight| flight.worker == worker)
    }

    /// The number of nodes that `worker` can rely on.
    fn progress_for(&self, worker: WorkerId) -> u32 {
        let is_here = self.flights.front().is_some_and(|flight| flight.worker == worker);
        if is_here { self.submitted } else { self.completed }
    }
}

impl Request {
    /// A request that waits for an earlier chunk of its session, or is about to start.
    pub(super) fn new(
        graph: Arc<CellGraph>,
        model: ModelId,
        priority: u32,
        deadline_ns: Option<u64>,
        session: Option<SessionId>,
    ) -> Self {
        Self {
            model,
            session,
            deadline_ns,
            ages_since_ns: 0,
            promoted_slices: BTreeSet::new(),
            tag: 0,
            large: None,
            fills_a_batch: false,
            rank: if priority == 0 { u32::MAX } else { priority },
            start: None,
            runs: graph.runs().iter().map(|run| Run::new(run.length)).collect(),
            given_up: None,
            unfinished: graph.runs().len(),
            in_flight: 0,
            workers: 0,
            decisions: vec![Decided::Open; graph.decisions().len()],
            graph,
        }
    }

    /// Whether the request has started, and is large.
    pub(crate) fn is_large(&self) -> bool {
        self.large.is_some()
    }

    /// Whether the request has started, is large, and can fill a batch by itself.
    pub(crate) fn fills_batches(&self) -> bool {
        self.is_large() && self.fills_a_batch
    }

    /// Takes the request's place in the queues; `start` requests started before it. Where requests of
    /// `large_rows` nodes are large, `tag` is the virtual time.
    pub(super) fn start(
        &mut self,
        id: RequestId,
        (start, start_ns): (u64, u64),
        (tag, large_rows): (u64, Option<u32>),
        batch_max: &[u32],
        open: &mut [OpenRuns],
    ) {
        (self.start, self.ages_since_ns, self.tag) = (Some(start), start_ns, tag);
        let mut nodes_at_once = vec![0; batch_max.len()];
        for run in self.graph.runs() {
            let of_run = if run.kind == RunKind::Chain { 1 } else { run.length };
            nodes_at_once[run.cell_type.index()] += of_run;
        }
        self.fills_a_batch = nodes_at_once.iter().zip(batch_max).any(|(nodes, max)| nodes >= max);
        let large_rows = large_rows.map(u64::from);
        self.large = large_rows.filter(|&rows| self.graph.nodes() >= rows).map(|large_rows| {
            // Before a run: all rows of other cell types, and those of earlier runs of its own.
            let (runs, mut before) = (self.graph.runs(), BTreeMap::new());
            for run in runs {
                let rows = before.entry(run.cell_type).or_insert(self.graph.nodes());
                *rows -= u64::from(run.length);
            }
            let rows_before = runs.iter().map(|run| {
                let rows = before.get_mut(&run.cell_type).expect("the type of a run");
                std::mem::replace(rows, *rows + u64::from(run.length))
            });
            (rows_before.collect(), large_rows)
        });
        for (run, place) in self.graph.runs().iter().zip(self.places()) {
            open[run.cell_type.index()].insert(place, id);
        }
    }

    /// Enters nodes of a run that are submitted in a task. Tells whether they are the run's first in
    /// that task.
    pub(super) fn submit(
        &mut self,
        worker: WorkerId,
        task: TaskId,
        nodes: &Nodes,
        open: &mut [OpenRuns],
    ) -> bool {
        let before = self.place(nodes.run);
        let Some(run) = self.runs.get_mut(nodes.run.index()) else { return false };
        self.workers |= 1 << worker.0;
        run.submitted += nodes.count;
        run.slot = run.slot.or(nodes.slot);
        let end = run.submitted;
        self.in_flight += usize::from(run.flights.is_empty());
        let is_first = match run.flights.back_mut() {
            Some(flight) if flight.task == task && flight.worker == worker => {
                flight.end = end;
                false
            }
            _ => {
                run.flights.push_back(Flight { worker, task, end });
                true
            }
        };
        let shape = &self.graph.runs()[nodes.run.index()];
        let of_type = &mut open[shape.cell_type.index()];
        let is_open = before.and_then(|before| of_type.remove(&before)).is_some();
        if let (true, Some(place)) = (is_open && end < shape.length, self.place(nodes.run)) {
            of_type.insert(place, nodes.request);
        }
        is_first
    }

    /// Enters that a task with nodes of the run is over. Tells whether the run is complete.
    pub(super) fn task_over(&mut self, run: RunIndex) -> bool {
        let run = &mut self.runs[run.index()];
        if let Some(flight) = run.flights.pop_front() {
            run.completed = flight.end;
        }
        let is_complete = run.completed == run.length;
        self.in_flight -= usize::from(run.flights.is_empty());
        self.unfinished -= usize::from(is_complete);
        is_complete
    }

    /// Takes out the nodes in flight on `worker`, which is lost.
    pub(super) fn lose_flights(&mut self, worker: WorkerId) {
        for run in &mut self.runs {
            let had_flights = !run.flights.is_empty();
            run.flights.retain(|flight| flight.worker != worker);
            self.in_flight -= usize::from(had_flights && run.flights.is_empty());
        }
    }

    /// Whether nothing of it is left to wait for.
    pub(crate) fn is_over(&self) -> bool {
        self.in_flight == 0 && (self.unfinished == 0 || self.given_up.is_some())
    }

    /// Whether it waits for an earlier chunk of its session.
    pub(crate) fn is_waiting(&self) -> bool {
        self.start.is_none()
    }

    /// Whether its chain `run` still needs a slot.
    pub(crate) fn holds(&self, run: RunIndex) -> bool {
        let run = self.run(run);
        let is_complete = run.completed == run.length;
        !is_complete && (self.given_up.is_none() || !run.flights.is_empty())
    }

    pub(crate) fn run(&self, run: RunIndex) -> &Run {
        &self.runs[run.index()]
    }

    /// The number of nodes of `run` that `worker` may be given now.
    pub(crate) fn ready(&self, run: RunIndex, worker: WorkerId) -> u32 {
        if self.run(run).lacks_slot { 0 } else { self.ready_but_for_slot(run, worker) }
    }

    /// The number of nodes of `run` that `worker` might be given now if the run had a slot.
    pub(super) fn ready_but_for_slot(&self, run: RunIndex, worker: WorkerId) -> u32 {
        let (progress, shape) = (self.run(run), &self.graph.runs()[run.index()]);
        if !self.is_needed(run) {
            return 0;
        }
        if progress.flights.iter().any(|flight| flight.worker != worker) {
            return 0;
        }
        let watermark = |edge: &Edge| {
            let producer = self.run(edge.producer);
            let made = producer.progress_for(worker);
            edge.need.available(made, producer.length, shape.length)
        };
        let available = shape.edges.iter().map(watermark).min().unwrap_or(shape.length);
        let reach = shape.reach(progress.submitted);
        available.min(reach).min(progress.length).saturating_sub(progress.submitted)
    }

    /// Whether the run is known to be needed.
    pub(crate) fn is_needed(&self, run: RunIndex) -> bool {
        let guard = self.graph.runs()[run.index()].guard;
        guard
            .is_none_or(|guard| self.decisions[guard.decision.index()] == Decided::Fell(guard.when))
    }

    /// Enters a decision, with the runs that it leaves out, and the decisions that were theirs.
    pub(super) fn decided(
        &mut self,
        decision: DecisionIndex,
        is_true: bool,
        open: &mut [OpenRuns],
    ) {
        if self.given_up.is_some() || self.decisions[decision.index()] != Decided::Open {
            return;
        }
        self.decisions[decision.index()] = Decided::Fell(is_true);
        // Runs come after those that decide, so one pass finds all.
        for (index, run) in (0..).map(RunIndex).zip(self.graph.clone().runs()) {
            let Some(guard) = run.guard.filter(|_| !self.run(index).is_left_out) else { continue };
            match self.decisions[guard.decision.index()] {
                Decided::Open => continue,
                Decided::Fell(fell) if fell == guard.when => continue,
                Decided::Fell(_) | Decided::Moot => {}
            }
            self.close(index, open);
            let progress = &mut self.runs[index.index()];
            progress.is_left_out = true;
            (progress.submitted, progress.completed) = (run.length, run.length);
            self.unfinished -= 1;
            for (known, other) in self.decisions.iter_mut().zip(self.graph.decisions()) {
                if other.run == index {
                    *known = Decided::Moot;
                }
            }
        }
    }

    /// The places of its runs; none while it waits.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        let runs = (0..self.runs.len() as u32).map(RunIndex);
        let places: Vec<Place> = runs.filter_map(|run| self.place(run)).collect();
        places.into_iter()
    }

    /// The place of a run; none while the request waits.
    fn place(&self, run: RunIndex) -> Option<Place> {
        let (start, progress) = (self.start?, self.runs.get(run.index())?);
        let (rank, tag) = match &self.large {
            None => (self.rank, self.tag),
            Some((rows_before, large_rows)) => {
                let row = rows_before[run.index()] + u64::from(progress.submitted);
                let slice = row / large_rows;
                let is_promoted = self.promoted_slices.contains(&(run, slice));
                let rank = if is_promoted { 0 } else { self.rank };
                (rank, self.tag + 256 * (slice + 2) * large_rows)
            }
        };
        Some(Place { rank, tag, start, run })
    }

    /// Promotes the request, whose id is `id`, if it has aged since before `before_ns`: a large one, of
    /// which it is `now_ns`, a slice of each cell type, and then it ages again. Tells whether anything was
    /// promoted.
    pub(super) fn promote(
        &mut self,
        id: RequestId,
        (before_ns, now_ns): (u64, u64),
        open: &mut [OpenRuns],
    ) -> bool {
        if self.rank == 0 || self.given_up.is_some() || self.is_waiting() {
            return false;
        }
        if self.ages_since_ns >= before_ns {
            return false;
        }
        if let Some((rows_before, large_rows)) = &self.large {
            self.ages_since_ns = now_ns;
            let mut slices: Vec<(CellTypeId, u64, RunIndex)> = Vec::new();
            for (run, shape) in (0..).map(RunIndex).zip(self.graph.runs()) {
                let progress = self.run(run);
                if progress.submitted < progress.length {
                    let row = rows_before[run.index()] + u64::from(progress.submitted);
                    slices.push((shape.cell_type, row / large_rows, run));
                }
            }
            slices.sort_unstable();
            let slices = slices.chunk_by(|a, b| a.0 == b.0);
            let first = slices
                .flat_map(|of_type| of_type.iter().filter(|(_, slice, _)| *slice == of_type[0].1));
            let mut is_promoted = false;
            for (cell_type, slice, run) in first.copied().collect::<Vec<_>>() {
                let of_type = &mut open[cell_type.index()];
                let is_open = self.place(run).is_some_and(|place| of_type.remove(&place).is_some());
                is_promoted |= self.promoted_slices.insert((run, slice));
                if let (true, Some(place)) = (is_open, self.place(run)) {
                    of_type.insert(place, id);
                }
            }
            return is_promoted;
        }
        for (run, place) in self.graph.runs().iter().zip(self.places()) {
            let of_type = &mut open[run.cell_type.index()];
            if of_type.remove(&place).is_some() {
                of_type.insert(Place { rank: 0, ..place }, id);
            }
        }
        self.rank = 0;
        true
    }

    /// Takes a run, of which nothing more is submitted, out of `open`, which is by cell type.
    fn close(&self, run: RunIndex, open: &mut [OpenRuns]) {
        let cell_type = self.graph.runs()[run.index()].cell_type;
        if let Some(place) = self.place(run) {
            open[cell_type.index()].remove(&place);
        }
    }

    /// Ends the chain with the nodes that were submitted of it.
    pub(super) fn end_sequence(&mut self, chain: EndOfSequence, open: &mut [OpenRuns]) {
        let run = &mut self.runs[chain.run.index()];
        run.length = run.submitted;
        run.reached_end_of_sequence = true;
        self.close(chain.run, open);
    }

    /// Gives the request up, unless it is already: the first reason stands. Tells whether it was not.
    pub(super) fn give_up(&mut self, outcome: Outcome, open: &mut [OpenRuns]) -> bool {
        if self.given_up.is_some() {
            return false;
        }
        self.given_up = Some(outcome);
        for (run, place) in self.graph.runs().iter().zip(self.places()) {
            open[run.cell_type.index()].remove(&place);
        }
        true
    }
}
