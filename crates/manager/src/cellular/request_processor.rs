//! The request processor: partitions requests into subgraphs, notes which of their nodes are complete, and
//! ends them.
//!
//! Calls go down this file: events come in at the top, and what they complete or give up ends
//! subgraphs, then requests, at the bottom.

use std::sync::Arc;

use batchmaker_graph::{
    CellGraph, CellTypeId, DecisionIndex, EndOfSequence, RequestId, RunIndex, SessionId, TaskId,
    WorkerId,
};

use crate::cellular::partition::partition;
use crate::cellular::request_table::Arrival;
use crate::cellular::service_time::least_service_ns;
use crate::cellular::sessions::{Kept, SessionAction, Sessions};
use crate::cellular::slot_waiters::assert_chunk_fits;
use crate::cellular::subgraph::{Place, Subgraph, SubgraphIndex};
use crate::cellular::subgraph_pool::SubgraphPool;
use crate::cellular::workers::{InFlight, InFlightWork};
use crate::config::{Config, StatePlacement};
use crate::deadlines::Deadlines;
use crate::decisions::Settled;
use crate::event::{Failure, Finished, Outcome, Undecided};

/// The subgraphs in flight, the sessions, and the requests that ended.
#[derive(Debug)]
pub(super) struct RequestProcessor {
    pub(super) pool: SubgraphPool,
    sessions: Sessions,
    deadlines: Deadlines,
    /// The requests that ended and were not taken yet.
    pub(super) finished: Vec<Finished>,
    /// The decisions whose rows are written and that were not taken yet.
    pub(super) undecided: Vec<Undecided>,
}

/// Arrivals.
impl RequestProcessor {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            pool: SubgraphPool::new(config),
            sessions: Sessions::default(),
            deadlines: Deadlines::default(),
            finished: Vec::new(),
            undecided: Vec::new(),
        }
    }

    /// Notes that it is `now_ns`: gives up the requests whose deadlines are reached, and promotes those
    /// that have waited for long.
    #[inline]
    pub(super) fn advance(&mut self, now_ns: u64) {
        self.pool.now_ns = now_ns;
        if self.deadlines.next().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            self.time_out();
        }
        self.pool.promote_old_requests();
    }

    #[cold]
    fn time_out(&mut self) {
        while let Some(request) = self.deadlines.take_reached(self.pool.now_ns) {
            self.give_up(request, &Outcome::TimedOut);
        }
    }

    /// Starts a request, or lets it wait for the chunks before it. Refuses one that cannot meet its
    /// deadline.
    pub(super) fn admit(&mut self, arrival: Arrival) {
        let request = arrival.request;
        let refusal = arrival.deadline_ns.and_then(|ns| self.refusal(ns, &arrival.graph));
        if let (Some(deadline_ns), None) = (arrival.deadline_ns, &refusal) {
            self.deadlines.insert(deadline_ns, request);
        }
        let Some(session) = arrival.session else {
            match refusal {
                Some(outcome) => self.end_unstarted(arrival, outcome),
                None => self.start(arrival),
            }
            return;
        };
        if let Err(chunk) = self.sessions.admit(session, arrival) {
            self.end_unstarted(chunk, Outcome::Failed(Failure::SessionLost));
        } else if let Some(outcome) = refusal {
            self.give_up(request, &outcome);
        }
    }

    /// The outcome of a request of `graph` that cannot meet its deadline.
    fn refusal(&mut self, deadline_ns: u64, graph: &CellGraph) -> Option<Outcome> {
        // From now on times are of use.
        self.pool.is_timed = true;
        let now_ns = self.pool.now_ns;
        if deadline_ns <= now_ns {
            return Some(Outcome::TimedOut);
        }
        let step_ns = |cell_type| self.pool.queues[cell_type].times.least_ns(now_ns);
        let end_ns = now_ns.saturating_add(least_service_ns(graph, step_ns));
        (end_ns > deadline_ns).then_some(Outcome::Unmeetable)
    }

    /// Lets sessions go on: starts their next chunks, frees the slots that no chunk goes on from, and
    /// ends those that are to end.
    pub(super) fn settle_sessions(&mut self) {
        while let Some(action) = self.sessions.next_action() {
            match action {
                SessionAction::Start(chunk) => self.start(chunk),
                SessionAction::Fail(chunk) => {
                    self.end_unstarted(chunk, Outcome::Failed(Failure::SessionLost));
                }
                SessionAction::Release(kept) => {
                    for Kept { cell_type, slot, .. } in kept {
                        self.pool.release_slot(cell_type, slot, true);
                    }
                }
            }
        }
    }

    /// Partitions a request into subgraphs and puts those with ready nodes into their queues.
    fn start(&mut self, arrived: Arrival) {
        let sessions = &mut self.sessions;
        partition(&mut self.pool, &arrived, |run| sessions.take_kept(arrived.session?, run));
        let (pool, id) = (&mut self.pool, arrived.request);
        if arrived.session.is_some() {
            assert_chunk_fits(pool.readiness(), id);
        }
        pool.note_start(id);
        pool.requests.discarded.add_graph(arrived.graph);
        for index in 0..pool.requests[id].subgraphs.len() {
            pool.refresh(pool.requests[id].subgraphs[index]);
        }
    }
}

/// Queries.
impl RequestProcessor {
    /// The number of requests that have arrived and not ended.
    pub(super) fn requests(&self) -> usize {
        self.pool.requests.live_requests() + self.sessions.waiting_chunks()
    }

    /// The number of nodes of a run that are complete, from the first on; 0 of a request that is
    /// given up or not in flight.
    pub(super) fn completed_nodes(&self, request: RequestId, run: RunIndex) -> u32 {
        match self.pool.requests.subgraph_of(request, run) {
            Some(subgraph) => self.pool.readiness().completed(subgraph),
            None => 0,
        }
    }

    /// The earliest deadline of a request in flight.
    pub(super) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Takes the sessions that ended since the last call.
    pub(super) fn take_ended_sessions(&mut self) -> Vec<SessionId> {
        self.sessions.take_ended()
    }

    /// The requests with nodes in the worker's oldest task that are not complete.
    fn requests_in(&self, worker: WorkerId, task: &InFlight) -> Vec<RequestId> {
        let requests = &self.pool.requests;
        let subgraphs: Vec<SubgraphIndex> = match &task.work {
            InFlightWork::Rows(rows) => rows.iter().map(|&(subgraph, _)| subgraph).collect(),
            InFlightWork::Steps { steps, done } => {
                let roster = self.pool.queues[task.cell_type].roster(worker);
                let first = roster.completed_steps();
                let end = first + u64::from(steps - done);
                let left = roster.leaving().iter().map(|&(_, subgraph)| subgraph);
                let has_nodes = |&subgraph: &SubgraphIndex| {
                    let subgraph = &requests[subgraph];
                    let mut stays = subgraph.stays.iter();
                    !subgraph.reached_end_of_sequence
                        && stays.any(|stay| stay.join_step < end && stay.leave_step > first)
                };
                roster.members().values().copied().chain(left).filter(has_nodes).collect()
            }
        };
        let mut requests: Vec<RequestId> =
            subgraphs.into_iter().map(|subgraph| requests[subgraph].request).collect();
        requests.sort_unstable();
        requests.dedup();
        requests
    }
}

/// Completions.
impl RequestProcessor {
    /// Notes that a worker's task is complete.
    pub(super) fn task_completed(&mut self, worker: WorkerId, task: InFlight, took_ns: u64) {
        let queue = &mut self.pool.queues[task.cell_type];
        queue.running_tasks -= 1;
        match task.work {
            InFlightWork::Rows(rows) => {
                for (subgraph, completed) in rows {
                    self.rows_completed(subgraph, completed, task.id);
                }
            }
            InFlightWork::Steps { steps, done } => {
                queue.window.note_time(took_ns, steps);
                queue.roster_mut(worker).end_task();
                self.steps_completed(task.cell_type, worker, steps - done);
            }
        }
    }

    /// Notes that the worker's roster ran `steps` more steps.
    pub(super) fn steps_completed(&mut self, cell_type: CellTypeId, worker: WorkerId, steps: u32) {
        self.pool.queues[cell_type].roster_mut(worker).complete_steps(steps);
        self.pool.wake_consumers_of_roster(cell_type, worker);
        while let Some((leave_step, index)) =
            self.pool.queues[cell_type].roster_mut(worker).next_complete_leave()
        {
            self.stay_completed(index, leave_step);
        }
        for position in 0..self.pool.queues[cell_type].roster(worker).leaving().len() {
            let (_, index) = self.pool.queues[cell_type].roster(worker).leaving()[position];
            self.pool.wake_consumers(index);
        }
    }

    /// Notes that all steps of a subgraph's oldest stay, which ended at `leave_step`, are complete. It
    /// may have joined again since.
    fn stay_completed(&mut self, index: SubgraphIndex, leave_step: u64) {
        let subgraph = &mut self.pool.requests[index];
        match subgraph.stays.front() {
            Some(stay) if stay.leave_step == leave_step => {
                subgraph.completed = stay.node + (leave_step - stay.join_step) as u32;
                subgraph.stays.pop_front();
            }
            _ => unreachable!("{index:?} left a roster at a step that it did not stay for"),
        }
        if subgraph.stays.is_empty() {
            self.settle(index);
        } else {
            self.pool.wake_consumers(index);
        }
    }

    /// Notes that rows of a row-wise subgraph ran: its first `completed` nodes are complete.
    fn rows_completed(&mut self, index: SubgraphIndex, completed: u32, task: TaskId) {
        let subgraph = &mut self.pool.requests[index];
        let (before, request, run) = (subgraph.completed, subgraph.request, subgraph.run);
        subgraph.completed = before.max(completed);
        let completed = subgraph.completed;
        if subgraph.last_task == task {
            self.unpin(index);
        }
        if self.pool.requests.is_live(request) {
            self.pool.wake_consumers_between(index, before, completed);
            if let Some(decisions) = &mut self.pool.requests[request].decisions {
                self.undecided.extend(decisions.written(request, run, completed));
            }
        }
    }

    /// Goes on by a decision of a request: the runs whose guards it meets may run, the others are left out.
    pub(super) fn decided(
        &mut self,
        id: RequestId,
        decision: DecisionIndex,
        outcome: Result<bool, Arc<str>>,
    ) {
        if !self.pool.requests.is_live(id) || self.pool.requests[id].is_given_up() {
            return;
        }
        let is_true = match outcome {
            Ok(is_true) => is_true,
            Err(reason) => {
                return self.abort(id, &Outcome::Failed(Failure::WorkerLost(reason)));
            }
        };
        let decisions = self.pool.requests[id].decisions.as_mut();
        let Settled { needed, left_out } =
            decisions.expect("a request with decisions").fell(decision, is_true);
        for run in needed {
            let index = self.pool.requests[id].subgraphs[run.index()];
            self.pool.requests[index].is_guarded = false;
            self.pool.refresh(index);
        }
        for run in left_out {
            let index = self.pool.requests[id].subgraphs[run.index()];
            let subgraph = &mut self.pool.requests[index];
            subgraph.is_guarded = false;
            subgraph.submitted = subgraph.length;
            self.settle(index);
        }
    }

    /// Ends an open chain that reached its end of sequence, with the nodes that were submitted of it.
    pub(super) fn end_of_sequence(&mut self, chain: EndOfSequence) {
        if !self.pool.requests.is_live(chain.request) {
            return;
        }
        let index = self.pool.requests[chain.request].subgraphs[chain.run.index()];
        let Subgraph { place, cell_type, .. } = self.pool.requests[index];
        if place == Place::Ended {
            return;
        }
        let past_end = self.pool.readiness().submitted(index) - chain.nodes;
        self.pool.queues[cell_type].counters.past_end_of_sequence += u64::from(past_end);
        self.withdraw(index);
        let subgraph = &mut self.pool.requests[index];
        subgraph.length = subgraph.submitted;
        subgraph.reached_end_of_sequence = true;
        if subgraph.pin.is_none() {
            self.settle(index);
        }
    }
}

/// Requests that are given up.
impl RequestProcessor {
    /// Gives a request up that a client cancelled or that cannot meet its deadline. Of a session, the
    /// chunks that follow one that waits fail.
    pub(super) fn give_up(&mut self, request: RequestId, outcome: &Outcome) {
        let given_up = self.sessions.give_up_from(request);
        if given_up.is_empty() {
            return self.abort(request, outcome);
        }
        for chunk in given_up {
            let is_it = chunk.request == request;
            let later = Outcome::Failed(Failure::SessionLost);
            self.end_unstarted(chunk, if is_it { outcome.clone() } else { later });
        }
    }

    /// Ends the session after the last chunk that arrived.
    pub(super) fn end_session(&mut self, session: SessionId) {
        self.sessions.end(session);
    }

    /// Fails the requests with nodes in `task`, the worker's oldest, which failed.
    pub(super) fn fail_task(&mut self, worker: WorkerId, task: &InFlight, failure: Failure) {
        let outcome = Outcome::Failed(failure);
        for request in self.requests_in(worker, task) {
            self.abort(request, &outcome);
        }
    }

    /// Fails the requests and breaks the sessions that are lost with `worker`, whose tasks `in_flight`
    /// are lost too.
    pub(super) fn lose_worker(
        &mut self,
        worker: WorkerId,
        in_flight: impl Iterator<Item = InFlight>,
        failure: Failure,
    ) {
        let (pool, outcome) = (&mut self.pool, Outcome::Failed(failure));
        let placement = pool.state_placement();
        let is_pinned = |subgraph| pool.readiness().pinned_to(subgraph) == Some(worker);
        let victims = pool.requests.lost_with(worker, placement, is_pinned);
        for task in in_flight {
            pool.queues[task.cell_type].running_tasks -= 1;
        }
        for cell_type in pool.queues.cell_types() {
            pool.lose_roster(cell_type, worker);
        }
        for request in victims {
            self.unpin_all(request, worker);
            self.abort(request, &outcome);
        }
        if placement == StatePlacement::PerWorker {
            self.sessions.lose(worker);
        }
    }

    /// Unpins the subgraphs of a request that were in flight on `worker`, which is lost.
    fn unpin_all(&mut self, id: RequestId, worker: WorkerId) {
        let is_given_up = self.pool.requests[id].is_given_up();
        for position in (0..self.pool.requests[id].subgraphs.len()).rev() {
            let Some(&index) = self.pool.requests[id].subgraphs.get(position) else { return };
            let subgraph = &mut self.pool.requests[index];
            if subgraph.pin == Some(worker) {
                subgraph.pin = None;
                subgraph.stays.clear();
                if is_given_up {
                    self.end_subgraph(index);
                }
            }
        }
    }

    /// Gives a request up: at once the subgraphs without nodes in flight, the others when their nodes
    /// complete.
    fn abort(&mut self, id: RequestId, outcome: &Outcome) {
        if !self.pool.requests.is_live(id) || self.pool.requests[id].is_given_up() {
            return;
        }
        self.pool.requests[id].ending = Some(outcome.clone());
        if let Some(deadline_ns) = self.pool.requests[id].deadline_ns.take() {
            self.deadlines.remove(deadline_ns, id);
        }
        // Consumers before producers. The table is empty once the last one has ended.
        for position in (0..self.pool.requests[id].subgraphs.len()).rev() {
            let Some(&index) = self.pool.requests[id].subgraphs.get(position) else { return };
            self.withdraw(index);
            let subgraph = &self.pool.requests[index];
            if !subgraph.has_ended() && subgraph.pin.is_none() {
                self.end_subgraph(index);
            }
        }
    }

    /// Takes a subgraph out of its roster or queue, since no more of it is to be submitted.
    fn withdraw(&mut self, index: SubgraphIndex) {
        if let Place::Roster(worker) = self.pool.requests[index].place {
            self.pool.leave_roster(index, worker);
        }
        self.pool.take_from_queue(index);
    }
}

/// Ends.
impl RequestProcessor {
    /// Unpins a subgraph of which nothing is in flight any more, and ends it if all its nodes ran or
    /// its request is given up.
    fn settle(&mut self, index: SubgraphIndex) {
        let request = self.pool.requests[index].request;
        self.unpin(index);
        if self.pool.requests.is_live(request) {
            self.pool.wake_consumers(index);
        }
    }

    fn unpin(&mut self, index: SubgraphIndex) {
        let subgraph = &mut self.pool.requests[index];
        subgraph.pin = None;
        subgraph.stays.clear();
        subgraph.completed = subgraph.submitted;
        let (request, is_exhausted) = (subgraph.request, subgraph.is_exhausted());
        if is_exhausted || self.pool.requests[request].is_given_up() {
            self.end_subgraph(index);
        } else {
            self.pool.refresh(index);
        }
    }

    /// Frees a subgraph's slot, or leaves it to the session; ends the request with its last one.
    #[inline]
    fn end_subgraph(&mut self, index: SubgraphIndex) {
        let slot = self.pool.end(index);
        let Subgraph { request: id, run, cell_type, home, .. } = self.pool.requests[index];
        if let Some(slot) = slot {
            let request = &self.pool.requests[id];
            match request.session.filter(|_| !request.is_given_up()) {
                Some(session) => self.sessions.keep(session, run, Kept { cell_type, slot, home }),
                None => {
                    let is_of_session = request.session.is_some();
                    self.pool.release_slot(cell_type, slot, is_of_session);
                }
            }
        }
        let request = &mut self.pool.requests[id];
        request.unfinished -= 1;
        if request.unfinished == 0 {
            self.finish(id);
        }
    }

    fn finish(&mut self, id: RequestId) {
        let now_ns = self.pool.now_ns;
        let request = self.pool.requests.remove(id);
        if let Some(deadline_ns) = request.deadline_ns {
            self.deadlines.remove(deadline_ns, id);
        }
        let first_task_ns = request.first_task_ns.unwrap_or(now_ns);
        let outcome = request.ending.take().unwrap_or(Outcome::Succeeded);
        if let Some(session) = request.session {
            self.sessions.chunk_ended(session, outcome == Outcome::Succeeded);
        }
        self.finished.push(Finished {
            request: id,
            outcome,
            queue_ns: first_task_ns - request.arrived_ns,
            total_ns: now_ns - request.arrived_ns,
        });
        if let Some(model) = request.model {
            self.pool.note_end(model);
        }
    }

    /// Ends a chunk before it started.
    fn end_unstarted(&mut self, chunk: Arrival, outcome: Outcome) {
        if let Some(deadline_ns) = chunk.deadline_ns {
            self.deadlines.remove(deadline_ns, chunk.request);
        }
        let waited_ns = self.pool.now_ns - chunk.at_ns;
        let request = chunk.request;
        let finished = Finished { request, outcome, queue_ns: waited_ns, total_ns: waited_ns };
        self.finished.push(finished);
        self.pool.requests.discarded.add_graph(chunk.graph);
    }
}
