//! The subgraphs in flight, and their moves between the places where they can stand: their type's
//! queue, a roster, the line for a slot, or none of these ([`Place`]).
//!
//! The request processor puts subgraphs in and notes which nodes are complete; the scheduler submits
//! nodes. Both call [`SubgraphPool::wake_consumers`], since a node may be ready for a worker when
//! another is submitted to it.

use std::sync::Arc;

use batchmaker_graph::{CellTypeId, Join, ModelId, RequestId, SlotId, WorkerId};

use crate::aging::Aging;
use crate::cellular::fair_places::FairPlaces;
use crate::cellular::queue::Queues;
use crate::cellular::readiness::Readiness;
use crate::cellular::request_table::{Request, RequestTable};
use crate::cellular::slot_waiters::SlotWaiters;
use crate::cellular::subgraph::{Consumer, Place, QueueKey, Subgraph, SubgraphIndex};
use crate::cellular::workers::{InFlight, TimedTask};
use crate::config::{Config, StatePlacement};
use crate::shares::{Charge, Shares};

/// The tables of requests, subgraphs and queues.
#[derive(Debug)]
pub(super) struct SubgraphPool {
    pub(super) requests: RequestTable,
    pub(super) queues: Queues,
    slot_waiters: SlotWaiters,
    state_placement: StatePlacement,
    /// Whether there is any rule of fairness.
    pub(super) has_fairness: bool,
    /// Whether the times of tasks are of use.
    pub(super) is_timed: bool,
    /// The shares of models, where they have any.
    pub(super) shares: Option<Shares>,
    /// The requests that may be promoted, where requests are.
    aging: Option<Aging>,
    /// The places of small and large requests, where these are told apart.
    pub(super) fair_places: Option<FairPlaces>,
    /// The models of the batch that was formed last, each with its rows, of a cell type that tells
    /// models apart.
    pub(super) models_of_batch: Vec<(ModelId, u32)>,
    /// The number of rows of the sequences in the batch of rows that was formed last.
    pub(super) sequence_rows_of_batch: u64,
    /// The time of the last event, in nanoseconds.
    pub(super) now_ns: u64,
}

impl SubgraphPool {
    pub(super) fn new(config: &Config) -> Self {
        let has_fairness = config.fairness.is_some();
        let fairness = config.fairness.clone().unwrap_or_default();
        Self {
            has_fairness,
            is_timed: has_fairness,
            requests: RequestTable::new(usize::from(config.workers)),
            queues: Queues::new(config),
            slot_waiters: SlotWaiters::new(config.cell_types.len()),
            state_placement: config.state_placement,
            shares: Shares::of(&fairness),
            aging: fairness.aging_ns.map(Aging::new),
            fair_places: FairPlaces::of(&fairness),
            models_of_batch: Vec::new(),
            sequence_rows_of_batch: 0,
            now_ns: 0,
        }
    }

    /// The placement of the states of chains.
    pub(super) fn state_placement(&self) -> StatePlacement {
        self.state_placement
    }

    /// The view of the tables that says which nodes workers may run.
    #[inline]
    pub(super) fn readiness(&self) -> Readiness<'_> {
        Readiness { requests: &self.requests, queues: &self.queues }
    }

    /// Counts the ready nodes of a subgraph outside rosters anew, and puts it into or takes it out of
    /// its queue accordingly. A chain that has none of the slots that its type has lines up for one
    /// instead.
    pub(super) fn refresh(&mut self, index: SubgraphIndex) {
        let subgraph = &self.requests[index];
        if matches!(subgraph.place, Place::Roster(_) | Place::Ended) {
            return;
        }
        let (key, was_waiting) = (subgraph.key, subgraph.place == Place::Waiting);
        let (cell_type, model_position) = (subgraph.cell_type, subgraph.model_position);
        let is_given_up = self.requests[subgraph.request].is_given_up();
        if self.readiness().lacks_slot(index) {
            let is_ready = |worker| self.readiness().ready_for(index, worker) > 0;
            if !is_given_up && self.requests.workers().any(is_ready) {
                let is_of_session = self.requests[self.requests[index].request].session.is_some();
                self.slot_waiters.line_up(key, cell_type, index, is_of_session);
            }
            return;
        }
        let mut is_ready = false;
        for worker in self.requests.workers() {
            let ready = if is_given_up { 0 } else { self.readiness().ready_for(index, worker) };
            is_ready |= ready > 0;
            let before = self.requests.replace_ready(index, worker, ready);
            self.queues[cell_type].count_ready(worker, model_position, before, ready);
        }
        if is_ready != was_waiting {
            if is_ready {
                self.queues[cell_type].push(key, model_position, index, self.now_ns);
            } else {
                self.queues[cell_type].remove(key, model_position);
            }
        }
        self.requests[index].place = if is_ready { Place::Waiting } else { Place::Blocked };
    }

    /// Counts the ready nodes of the subgraphs that depend on `index` anew. Those that wait for more than is
    /// submitted of it are left out: no worker can rely on more.
    pub(super) fn wake_consumers(&mut self, index: SubgraphIndex) {
        let submitted = self.readiness().submitted(index);
        let is_whole = submitted >= self.requests[index].length;
        let mut position = 0;
        while let Some(&consumer) = self.requests[index].consumers.get(position)
            && (is_whole || consumer.from <= submitted)
        {
            self.refresh(consumer.index);
            position += 1;
        }
    }

    /// Does the same with those for which it matters that the subgraph's progress went from `before`
    /// nodes to `progress`.
    pub(super) fn wake_consumers_between(
        &mut self,
        index: SubgraphIndex,
        before: u32,
        progress: u32,
    ) {
        let Subgraph { consumers, consumer_span_max, .. } = &self.requests[index];
        let mut position = consumers
            .partition_point(|consumer| consumer.from.saturating_add(*consumer_span_max) <= before);
        while let Some(&Consumer { index: consumer, from, until }) =
            self.requests[index].consumers.get(position)
            && from <= progress
        {
            if until > before {
                self.refresh(consumer);
            }
            position += 1;
        }
    }

    /// Counts the ready nodes of the subgraphs that depend on members of a roster anew.
    #[inline]
    pub(super) fn wake_consumers_of_roster(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        if !self.queues[cell_type].roster(worker).producers().is_empty() {
            self.wake_consumers_of_producers(cell_type, worker);
        }
    }

    fn wake_consumers_of_producers(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        for position in 0..self.queues[cell_type].roster(worker).producers().len() {
            self.wake_consumers(self.queues[cell_type].roster(worker).producers()[position]);
        }
    }

    /// Takes a subgraph out of its queue if it waits there, since it joins a roster or ends.
    pub(super) fn take_from_queue(&mut self, index: SubgraphIndex) {
        let subgraph = &mut self.requests[index];
        if subgraph.place != Place::Waiting {
            return;
        }
        subgraph.place = Place::Blocked;
        let (key, cell_type) = (subgraph.key, subgraph.cell_type);
        let model_position = subgraph.model_position;
        for worker in self.requests.workers() {
            let before = self.requests.replace_ready(index, worker, 0);
            self.queues[cell_type].count_ready(worker, model_position, before, 0);
        }
        self.queues[cell_type].remove(key, model_position);
    }

    /// Notes that a request has its place in the queues from now on.
    #[inline]
    pub(super) fn note_start(&mut self, id: RequestId) {
        if self.has_fairness {
            self.note_fair_start(id);
        }
    }

    #[cold]
    fn note_fair_start(&mut self, id: RequestId) {
        let Self { requests, shares, aging, now_ns, .. } = self;
        if let (Some(shares), Some(model)) = (shares, requests[id].model) {
            shares.note_model(model);
        }
        if let Some(aging) = aging {
            let live = requests.live_requests();
            aging.start(*now_ns, id, live, |request| requests.is_live(request));
        }
    }

    /// Notes that a request of `model` ended.
    #[inline]
    pub(super) fn note_end(&mut self, model: ModelId) {
        if let Some(places) = &mut self.fair_places {
            places.end(model);
        }
    }

    /// Promotes the requests that have waited for long.
    #[inline]
    pub(super) fn promote_old_requests(&mut self) {
        if self.has_fairness {
            self.promote_all();
        }
    }

    #[cold]
    fn promote_all(&mut self) {
        let now_ns = self.now_ns;
        while let Some(id) = self.aging.as_mut().and_then(|aging| aging.take_old(now_ns)) {
            if !self.requests.is_live(id) || self.requests[id].is_given_up() {
                continue;
            }
            if self.requests[id].large_tag.is_some() {
                self.promote_slices(id);
                self.aging.as_mut().expect("it aged").start_again(now_ns, id);
                continue;
            }
            for position in 0..self.requests[id].subgraphs.len() {
                let index = self.requests[id].subgraphs[position];
                let key = self.requests[index].key.promoted();
                self.change_key(index, key);
            }
        }
    }

    /// Promotes a slice of each cell type of a large request: the first with nodes that are not submitted.
    fn promote_slices(&mut self, id: RequestId) {
        let mut first_tags = vec![u64::MAX; self.queues.iter().len()];
        for &index in &self.requests[id].subgraphs {
            let subgraph = &self.requests[index];
            if self.has_nodes_left(index) {
                let first = &mut first_tags[subgraph.cell_type.index()];
                *first = subgraph.key.tag().min(*first);
            }
        }
        for position in 0..self.requests[id].subgraphs.len() {
            let index = self.requests[id].subgraphs[position];
            let Subgraph { key, cell_type, .. } = self.requests[index];
            if key.tag() == first_tags[cell_type.index()] && self.has_nodes_left(index) {
                self.change_key(index, key.promoted());
            }
        }
    }

    /// Whether nodes of a subgraph are left to submit.
    fn has_nodes_left(&self, index: SubgraphIndex) -> bool {
        let subgraph = &self.requests[index];
        !subgraph.has_ended() && self.readiness().submitted(index) < subgraph.length
    }

    /// Gives a subgraph outside rosters, of which nodes were submitted, the place of its next node.
    #[inline]
    pub(super) fn follow_served_rows(&mut self, index: SubgraphIndex) {
        let subgraph = &self.requests[index];
        if subgraph.submitted >= subgraph.place_until {
            self.begin_slice(index);
        }
    }

    #[cold]
    fn begin_slice(&mut self, index: SubgraphIndex) {
        let Some(places) = &self.fair_places else { return };
        let subgraph = &self.requests[index];
        let Request { large_tag, priority, .. } = self.requests[subgraph.request];
        let Some(start) = large_tag else { return };
        let (rows_before, node) = (subgraph.rows_before, subgraph.submitted);
        let (tag, place_until) = places.place_of_node(start, rows_before, node);
        // It is not promoted, even if the slice before was.
        let key = subgraph.key.with_tag(tag).with_priority(priority);
        self.requests[index].place_until = place_until;
        self.change_key(index, key);
    }

    /// Chooses the model of `worker`'s next round, where models have shares, of those with ready nodes.
    pub(super) fn choose_model(&mut self, worker: WorkerId) -> Option<ModelId> {
        let readiness = Readiness { requests: &self.requests, queues: &self.queues };
        self.shares.as_mut()?.choose(readiness.ready_models(worker))
    }

    /// Moves a subgraph to another place in the order of the queues.
    fn change_key(&mut self, index: SubgraphIndex, key: QueueKey) {
        let subgraph = &mut self.requests[index];
        let before = std::mem::replace(&mut subgraph.key, key);
        match subgraph.place {
            Place::Waiting => {
                let queue = &mut self.queues[subgraph.cell_type];
                queue.change_key(before, key, subgraph.model_position);
            }
            Place::Roster(worker) => {
                self.queues[subgraph.cell_type].roster_mut(worker).change_key(before, key);
            }
            Place::Blocked => {
                self.slot_waiters.change_key(before, key, subgraph.cell_type);
            }
            Place::Ended => {}
        }
    }

    /// The seats of a batch of up to `limit` nodes for `worker`, by model, where `cell_type` tells models
    /// apart and it is the turn of `model`; else none, since the order of the queue decides.
    #[inline]
    pub(super) fn seats(
        &self,
        cell_type: CellTypeId,
        worker: WorkerId,
        model: Option<ModelId>,
        limit: u32,
    ) -> Option<Vec<u32>> {
        let (queue, shares) = (&self.queues[cell_type], self.shares.as_ref()?);
        queue.tells_models_apart().then(|| {
            let members = queue.roster(worker).members_of_models().iter();
            let ready = queue.models().zip(members).enumerate().map(|(position, (model, &own))| {
                (model, u64::from(own) + queue.waiting_nodes_of(position, worker))
            });
            shares.deal(limit, model, &ready.collect::<Vec<_>>())
        })
    }

    /// Notes which models the members of a roster, which is about to run, are of.
    #[inline]
    pub(super) fn note_models_of_roster(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        let queue = &self.queues[cell_type];
        if queue.tells_models_apart() {
            let members = queue.roster(worker).members_of_models().iter().copied();
            let models = queue.models().zip(members).filter(|&(_, members)| members > 0);
            self.models_of_batch.clear();
            self.models_of_batch.extend(models);
        }
    }

    /// Notes that a row-wise batch has that number of `rows` of a request, those of sequences included.
    #[inline]
    pub(super) fn note_model_of_rows(
        &mut self,
        cell_type: CellTypeId,
        request: RequestId,
        rows: u32,
    ) {
        let Some(model) = self.requests[request].model else { return };
        if self.queues[cell_type].tells_models_apart() {
            let models = &mut self.models_of_batch;
            match models.iter_mut().find(|(known, _)| *known == model) {
                Some((_, known)) => *known += rows,
                None => models.push((model, rows)),
            }
        }
    }

    /// Notes that a task took `took_ns`.
    pub(super) fn note_time(&mut self, task: &InFlight, timed: TimedTask, took_ns: u64) {
        let times = &mut self.queues[task.cell_type].times;
        times.note(self.now_ns, took_ns, task.work.batches(), timed.rows);
        if timed.sequence_rows > 0 {
            let rows = &mut self.queues[task.cell_type].sequence_rows;
            rows.note_time(took_ns, timed.sequence_rows);
        }
        if let Some(shares) = &mut self.shares {
            shares.correct(timed.charge, took_ns);
        }
    }

    fn charge(&mut self, cell_type: CellTypeId, batches: u32, rows: u32) -> Charge {
        let Some(shares) = &mut self.shares else { return Charge::default() };
        let queue = &self.queues[cell_type];
        let estimate_ns = queue.times.estimate_ns(batches);
        match queue.models().next() {
            _ if queue.tells_models_apart() => shares.charge(estimate_ns, &self.models_of_batch),
            Some(model) => shares.charge(estimate_ns, &[(model, rows)]),
            None => Charge::default(),
        }
    }

    /// Notes that a task of `batches` batches of `cell_type` with `rows` rows each is formed. Returns
    /// what its models are charged.
    #[cold]
    pub(super) fn note_batches(
        &mut self,
        cell_type: CellTypeId,
        batches: u32,
        rows: u32,
    ) -> Charge {
        self.queues[cell_type].unserved_since_ns = self.now_ns;
        if let Some(places) = &mut self.fair_places {
            let queue = &self.queues[cell_type];
            if queue.tells_models_apart() {
                for &(model, rows) in &self.models_of_batch {
                    places.serve(model, batches, rows);
                }
            } else {
                let model = queue.models().next().unwrap_or(ModelId(0));
                places.serve(model, batches, rows);
            }
        }
        self.charge(cell_type, batches, rows)
    }

    /// Notes that nodes of the subgraph are about to be submitted to `worker`.
    pub(super) fn note_submission(&mut self, index: SubgraphIndex, worker: WorkerId) {
        let request = self.requests[index].request;
        let request = &mut self.requests[request];
        request.first_task_ns.get_or_insert(self.now_ns);
        request.workers |= 1 << worker.0;
    }

    /// Moves a waiting subgraph to the worker's roster.
    pub(super) fn join_roster(&mut self, index: SubgraphIndex, worker: WorkerId) {
        self.take_from_queue(index);
        self.note_submission(index, worker);
        let available = self.readiness().available_in_place(index, worker);
        let slot = self.slot_of(index);
        let is_shared = self.state_placement == StatePlacement::Shared;
        let subgraph = &mut self.requests[index];
        let home = subgraph.home.replace(worker);
        let join = Join {
            request: subgraph.request,
            run: subgraph.run,
            slot,
            step: subgraph.submitted,
            moved_from: home.filter(|&home| home != worker && !is_shared),
        };
        let cell_type = subgraph.cell_type;
        let ready = available - subgraph.submitted;
        self.queues[cell_type].roster_mut(worker).join(index, subgraph, join, ready);
        self.forget_stale_leave_steps(cell_type, worker);
    }

    /// Members that left early leave an entry in the leave steps behind; now and then those go.
    fn forget_stale_leave_steps(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        let roster = self.queues[cell_type].roster(worker);
        if !roster.has_many_stale_leave_steps() {
            return;
        }
        let leave_steps = roster.members().values().filter_map(|&member| {
            let step = self.readiness().leave_step(member, cell_type, worker)?;
            Some(std::cmp::Reverse((step, member)))
        });
        let leave_steps = leave_steps.collect();
        self.queues[cell_type].roster_mut(worker).set_leave_steps(leave_steps);
    }

    /// Takes a member out of the worker's roster. It is in no queue then.
    pub(super) fn leave_roster(&mut self, index: SubgraphIndex, worker: WorkerId) {
        let subgraph = &mut self.requests[index];
        self.queues[subgraph.cell_type].roster_mut(worker).leave(index, subgraph);
    }

    /// Takes a member out of the worker's roster, and puts it back into the queue if it has ready
    /// nodes.
    pub(super) fn return_to_queue(&mut self, index: SubgraphIndex, worker: WorkerId) {
        self.leave_roster(index, worker);
        self.follow_served_rows(index);
        self.refresh(index);
    }

    /// Puts the members of a roster without work in flight back into the queue.
    pub(super) fn dissolve_roster(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        let members = self.queues[cell_type].roster(worker).members();
        for index in members.values().copied().collect::<Vec<_>>() {
            self.return_to_queue(index, worker);
        }
        self.queues[cell_type].roster_mut(worker).clear_leave_steps();
    }

    /// Forgets what was in flight in the roster of a worker that is lost.
    pub(super) fn lose_roster(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        self.queues[cell_type].roster_mut(worker).lose_work_in_flight();
        self.dissolve_roster(cell_type, worker);
        self.queues[cell_type].roster_mut(worker).lose_pending();
    }

    /// Marks a subgraph as ended, which is in no roster and has nothing in flight. Returns its slot,
    /// which is the caller's to release.
    pub(super) fn end(&mut self, index: SubgraphIndex) -> Option<SlotId> {
        self.take_from_queue(index);
        let subgraph = &mut self.requests[index];
        assert!(subgraph.place == Place::Blocked && subgraph.pin.is_none());
        self.slot_waiters.remove(subgraph.key, subgraph.cell_type);
        subgraph.place = Place::Ended;
        // The graph may end before the subgraph's place in the table is used again.
        subgraph.precedence = Arc::default();
        subgraph.slot.take()
    }

    /// Frees a slot, which a session held or a request without one.
    #[inline]
    pub(super) fn release_slot(
        &mut self,
        cell_type: CellTypeId,
        slot: SlotId,
        was_of_session: bool,
    ) {
        let queue = &mut self.queues[cell_type];
        queue.slots.release(slot);
        if queue.has_bounded_slots() {
            self.slot_waiters.note_free_slot(cell_type, was_of_session);
        }
    }

    /// Gives free slots to the chains that may have them, in order.
    #[inline]
    pub(super) fn give_slots(&mut self) {
        if self.slot_waiters.is_changed() {
            self.give_all_slots();
        }
    }

    #[cold]
    fn give_all_slots(&mut self) {
        while self.slot_waiters.take_change() {
            while let Some(index) = self.first_served() {
                let request = self.requests[index].request;
                if self.requests[request].session.is_none() {
                    self.give_slot(index);
                    continue;
                }
                for position in 0..self.requests[request].subgraphs.len() {
                    let index = self.requests[request].subgraphs[position];
                    if self.readiness().lacks_slot(index) {
                        self.slot_waiters.note_session_slot(self.requests[index].cell_type);
                        self.give_slot(index);
                    }
                }
            }
        }
    }

    /// The first chain in line for a slot that may have one now.
    fn first_served(&mut self) -> Option<SubgraphIndex> {
        let readiness = Readiness { requests: &self.requests, queues: &self.queues };
        self.slot_waiters.first_served(readiness)
    }

    fn give_slot(&mut self, index: SubgraphIndex) {
        let subgraph = &self.requests[index];
        self.slot_waiters.remove(subgraph.key, subgraph.cell_type);
        self.slot_of(index);
        self.refresh(index);
    }

    /// The slot of a chain; acquired when it first joins a roster, or before where slots are bounded.
    fn slot_of(&mut self, index: SubgraphIndex) -> SlotId {
        let subgraph = &mut self.requests[index];
        let slots = &mut self.queues[subgraph.cell_type].slots;
        *subgraph.slot.get_or_insert_with(|| slots.acquire())
    }
}
