//! Algorithm 1 of the BatchMaker paper: which cell type a worker runs next, and which
//! nodes form its batches.
//!
//! `Schedule` opens a round when at most `lookahead` of a worker's tasks are unfinished; the
//! round's batches are handed out one [`BatchedTask`] at a time, where a task of a roster stands
//! for as many batches as it has steps. "Ready nodes" are those that the asking
//! worker may run.
//!
//! # Rounds that overlap
//! A round is formed as if the worker's unfinished tasks were complete, since they will be when it
//! runs: nodes that depend on them are ready for this worker, and they do not count as running
//! tasks of their types. To all other workers they are in flight, and their subgraphs are pinned.

use batchmaker_graph::{BatchedTask, CellTypeId, Item, Join, SlotId, TaskId, Work, WorkerId};

use crate::cellular::queue::Queue;
use crate::cellular::roster::Roster;
use crate::cellular::subgraph::{Place, QueueKey, Stay, SubgraphIndex};
use crate::cellular::{Cellular, InFlight, InFlightWork, Round};
use crate::config::{StatePlacement, TaskForm};

impl Cellular {
    /// The next task of the worker's round; none while it has work and the round is over, or when
    /// nothing is ready for it.
    pub(super) fn next_of_round(&mut self, worker: WorkerId) -> Option<BatchedTask> {
        let (now, lookahead) = (self.now, self.config.lookahead as usize);
        let state = &mut self.workers[worker.index()];
        if state.is_down {
            return None;
        }
        if state.in_flight.is_empty() {
            state.since_ns = now;
        }
        let may_open = state.in_flight.len() <= lookahead;
        let Round { cell_type, tasks } = match state.round.take() {
            Some(round) if self.round_goes_on(&round, worker) => round,
            _ if may_open => Round { cell_type: self.schedule(worker)?, tasks: 0 },
            _ => return None,
        };
        self.batch(cell_type, worker, tasks)
    }

    /// Whether so few of the worker's tasks are unfinished that it may be given another round.
    pub(super) fn may_open_round(&self, worker: WorkerId) -> bool {
        self.workers[worker.index()].in_flight.len() <= self.config.lookahead as usize
    }

    /// Whether `Batch` forms another batch of a round that has one (lines 14 to 16).
    pub(super) fn round_goes_on(&self, round: &Round, worker: WorkerId) -> bool {
        let least = self.queues[round.cell_type.index()].config.batch_sizes.min;
        round.tasks < self.tasks_to_submit(round.cell_type)
            && self.ready_nodes(round.cell_type, worker) >= u64::from(least)
    }

    /// Whether any node is ready for `worker`.
    pub(super) fn has_ready_nodes(&self, worker: WorkerId) -> bool {
        let mut all = (0..self.queues.len() as u32).map(CellTypeId);
        all.any(|cell_type| self.ready_nodes(cell_type, worker) > 0)
    }

    /// `MaxTasksToSubmit`, or less where chains may stop meanwhile.
    fn tasks_to_submit(&self, cell_type: CellTypeId) -> u32 {
        self.config.max_tasks_to_submit.min(self.queues[cell_type.index()].steps_ahead())
    }

    /// `Schedule` (lines 4 to 10): the cell type to run.
    fn schedule(&self, worker: WorkerId) -> Option<CellTypeId> {
        let ready = |cell_type: CellTypeId| self.ready_nodes(cell_type, worker);
        let queue = |cell_type: CellTypeId| &self.queues[cell_type.index()];
        let all = || (0..self.queues.len() as u32).map(CellTypeId);
        let full = all().filter(|&ct| ready(ct) >= u64::from(queue(ct).config.batch_sizes.max));
        let resting = all().filter(|&ct| self.rests_elsewhere(ct, worker) && ready(ct) > 0);
        let any = all().filter(|&ct| ready(ct) > 0);
        self.with_max_priority(full, worker)
            .or_else(|| self.with_max_priority(resting, worker))
            .or_else(|| self.with_max_priority(any, worker))
    }

    /// `ct.NumRunningTasks() = 0` (line 7), of tasks on other workers: those of `worker` itself will
    /// be over when its round runs.
    fn rests_elsewhere(&self, cell_type: CellTypeId, worker: WorkerId) -> bool {
        let own = self.workers[worker.index()].in_flight.iter();
        let own = own.filter(|task| task.cell_type == cell_type).count();
        self.queues[cell_type.index()].running_tasks as usize == own
    }

    /// `GetCellTypeWithMaxPriority`: the model of the oldest ready node decides, then the
    /// priority within that model.
    fn with_max_priority(
        &self,
        cell_types: impl Iterator<Item = CellTypeId> + Clone,
        worker: WorkerId,
    ) -> Option<CellTypeId> {
        let mut others = cell_types.clone();
        let first = others.next()?;
        if others.next().is_none() {
            return Some(first);
        }
        let oldest = cell_types.clone().filter_map(|ct| self.oldest_ready(ct, worker)).min()?;
        let model = self.model_of(oldest.1);
        let priority = |ct: CellTypeId| {
            let ranks = &self.queues[ct.index()].config.priorities;
            ranks.iter().find(|rank| rank.model == model).map(|rank| rank.priority)
        };
        // Of equals the first wins, hence the reversed order.
        let ranked = cell_types.filter_map(|ct| Some((priority(ct)?, std::cmp::Reverse(ct))));
        ranked.max().map(|(_, std::cmp::Reverse(ct))| ct)
    }

    /// `ct.NumReadyNodes()`, of those that `worker` may run.
    #[inline]
    pub(crate) fn ready_nodes(&self, cell_type: CellTypeId, worker: WorkerId) -> u64 {
        let queue = &self.queues[cell_type.index()];
        let own = queue.waiting_nodes[worker.index()] + queue.roster(worker).members.len() as u64;
        if queue.rosters.len() == 1 {
            return own;
        }
        let elsewhere: usize = self
            .idle_rosters_elsewhere(cell_type, worker)
            .map(|roster| match roster.consumers {
                0 => roster.members.len(),
                _ => {
                    roster.members.values().filter(|&&sub| self.ready_for(sub, worker) > 0).count()
                }
            })
            .sum();
        own + elsewhere as u64
    }

    fn idle_rosters_elsewhere(
        &self,
        cell_type: CellTypeId,
        worker: WorkerId,
    ) -> impl Iterator<Item = &Roster> {
        let rosters = self.queues[cell_type.index()].rosters.iter().enumerate();
        rosters
            .filter(move |(owner, roster)| *owner != worker.index() && roster.is_idle())
            .map(|(_, roster)| roster)
    }

    /// The subgraph that `FormBatchedTask` would look at first.
    fn oldest_ready(
        &self,
        cell_type: CellTypeId,
        worker: WorkerId,
    ) -> Option<(QueueKey, SubgraphIndex)> {
        let own = self.queues[cell_type.index()].roster(worker).members.iter().next();
        let elsewhere = self.idle_rosters_elsewhere(cell_type, worker).filter_map(|roster| {
            roster.members.iter().find(|&(_, &sub)| self.ready_for(sub, worker) > 0)
        });
        let members = own.into_iter().chain(elsewhere).map(|(&key, &sub)| (key, sub));
        members.chain(self.next_waiting(cell_type, worker, None)).min()
    }

    /// The first waiting subgraph after `after` with a ready node for `worker`.
    fn next_waiting(
        &self,
        cell_type: CellTypeId,
        worker: WorkerId,
        after: Option<QueueKey>,
    ) -> Option<(QueueKey, SubgraphIndex)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let queue = &self.queues[cell_type.index()];
        if queue.waiting_nodes[worker.index()] == 0 {
            return None;
        }
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        let mut waiting = queue.waiting.range(range).map(|(&key, &sub)| (key, sub));
        waiting.find(|&(_, sub)| self.processor.ready(sub, worker) > 0)
    }

    /// One turn of the loop of `Batch` (lines 14 to 23), or as many as the same roster
    /// serves. `tasks` batches of the round were formed before.
    fn batch(
        &mut self,
        cell_type: CellTypeId,
        worker: WorkerId,
        tasks: u32,
    ) -> Option<BatchedTask> {
        for owner in (0..self.workers.len() as u32).map(WorkerId) {
            if owner != worker && self.queues[cell_type.index()].roster(owner).is_idle() {
                self.dissolve(cell_type, owner);
            }
        }
        let left = self.tasks_to_submit(cell_type) - tasks;
        let (work, in_flight) = match self.queues[cell_type.index()].is_chain? {
            true => self.form_roster_task(cell_type, worker, left)?,
            false => self.form_rows_task(cell_type, worker)?,
        };
        let batches = match in_flight {
            InFlightWork::Rows(_) => 1,
            InFlightWork::Steps { steps, .. } => steps,
        };
        let state = &mut self.workers[worker.index()];
        state.last_task += 1;
        let id = TaskId(state.last_task);
        state.in_flight.push_back(InFlight { id, cell_type, work: in_flight });
        state.round = Some(Round { cell_type, tasks: tasks + batches });
        self.queues[cell_type.index()].running_tasks += 1;
        // What is submitted may have made chains ready that need slots.
        self.give_slots();
        Some(BatchedTask { id, worker, cell_type, work })
    }

    /// `FormBatchedTask` for row-wise nodes: those of the waiting subgraphs that are ready, in order.
    /// Nodes that these make ready in their own subgraphs are for the next batch.
    fn form_rows_task(
        &mut self,
        cell_type: CellTypeId,
        worker: WorkerId,
    ) -> Option<(Work, InFlightWork)> {
        let sizes = self.queues[cell_type.index()].config.batch_sizes;
        if self.queues[cell_type.index()].waiting_nodes[worker.index()] == 0 {
            return None;
        }
        let task = TaskId(self.workers[worker.index()].last_task + 1);
        let (mut items, mut in_flight) = (Vec::new(), Vec::new());
        let (mut room, mut after) = (sizes.max, None);
        while room > 0 {
            let Some((key, index)) = self.next_waiting(cell_type, worker, after) else { break };
            after = Some(key);
            let count = self.processor.ready(index, worker).min(room);
            room -= count;
            self.note_first_task(index, worker);
            let subgraph = self.subgraph_mut(index);
            let first = subgraph.submitted;
            subgraph.submitted += count;
            subgraph.pin = Some(worker);
            subgraph.last_task = task;
            in_flight.push((index, subgraph.submitted));
            let (request, run) = (subgraph.request, subgraph.run);
            items.push(Item { request, run, first, count, slot: None, moved_from: None });
            self.refresh(index);
        }
        // Only now: a consumer of the same type may not run in one batch with its producer.
        for &(index, _) in &in_flight {
            self.wake_consumers(index);
        }
        let queue = &mut self.queues[cell_type.index()];
        queue.tally.count(1, (sizes.max - room) as usize, 0);
        Some((Work::Rows(items), InFlightWork::Rows(in_flight)))
    }

    /// `FormBatchedTask` for chains: brings the roster up to date, then runs it up to `left`
    /// times.
    fn form_roster_task(
        &mut self,
        cell_type: CellTypeId,
        worker: WorkerId,
        left: u32,
    ) -> Option<(Work, InFlightWork)> {
        let sizes = self.queues[cell_type.index()].config.batch_sizes;
        self.fill_roster(cell_type, worker, sizes.max as usize);
        let until_stop = self.steps_until_stop(cell_type, worker)?;
        let members = self.queues[cell_type.index()].roster(worker).members.len();
        let steps = match self.config.task_form {
            // Only the first batch of a round may be that small.
            _ if members < sizes.min as usize => 1,
            TaskForm::Roster => u64::from(left).min(until_stop) as u32,
            TaskForm::Rows => 1,
        };
        let work = self.work_of_roster(cell_type, worker, steps);
        let queue = &mut self.queues[cell_type.index()];
        let roster = &mut queue.rosters[worker.index()];
        roster.submitted_steps += u64::from(steps);
        roster.tasks_in_flight += 1;
        queue.tally.count(u64::from(steps), roster.members.len(), 0);
        // UpdateNodesDependency (line 18), then out with those who have nothing left to run.
        for position in 0..self.queues[cell_type.index()].roster(worker).producers.len() {
            self.wake_consumers(self.queues[cell_type.index()].roster(worker).producers[position]);
        }
        self.drop_stopped(cell_type, worker);
        Some((work, InFlightWork::Steps { steps, done: 0 }))
    }

    /// Lets waiting subgraphs join until the roster holds the first `limit` of the queue's order.
    fn fill_roster(&mut self, cell_type: CellTypeId, worker: WorkerId, limit: usize) {
        let last = |queue: &Queue| {
            let last = queue.roster(worker).members.last_key_value();
            let (&key, &index) = last.expect("limit > 0");
            (key, index)
        };
        // The limit may have come down.
        while self.queues[cell_type.index()].roster(worker).members.len() > limit {
            let (_, displaced) = last(&self.queues[cell_type.index()]);
            self.leave_roster(displaced, worker);
            self.refresh(displaced);
        }
        let mut after = None;
        while let Some((key, index)) = self.next_waiting(cell_type, worker, after) {
            let queue = &self.queues[cell_type.index()];
            if queue.roster(worker).members.len() == limit {
                let (youngest, displaced) = last(queue);
                if youngest < key {
                    break;
                }
                self.leave_roster(displaced, worker);
                self.refresh(displaced);
            }
            self.join_roster(index, worker);
            after = Some(key);
        }
    }

    /// How many steps the roster can run as it is; none if it is empty.
    fn steps_until_stop(&mut self, cell_type: CellTypeId, worker: WorkerId) -> Option<u64> {
        loop {
            let roster = self.queues[cell_type.index()].roster(worker);
            let &std::cmp::Reverse((step, index)) = roster.stops.peek()?;
            match self.true_stop(index, cell_type, worker) {
                Some(stop) if stop == step => {
                    // One by one where a step may make another node of the type ready.
                    let steps = step - roster.submitted_steps;
                    return Some(if roster.producers_of_own_type > 0 { 1 } else { steps });
                }
                later => self.correct_first_stop(cell_type, worker, later),
            }
        }
    }

    /// Takes those out of the roster whose nodes are used up or whose watermark is reached.
    fn drop_stopped(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        loop {
            let roster = self.queues[cell_type.index()].roster(worker);
            let now = roster.submitted_steps;
            let Some(&std::cmp::Reverse((step, index))) = roster.stops.peek() else { return };
            if step > now {
                return;
            }
            let stop = self.true_stop(index, cell_type, worker);
            if stop == Some(now) {
                self.leave_roster(index, worker);
                self.refresh(index);
            }
            self.correct_first_stop(cell_type, worker, stop.filter(|&stop| stop > now));
        }
    }

    /// The roster step before which a member must stop as things are; none for one who left.
    /// Its index may have gone to a member of another roster since.
    fn true_stop(
        &self,
        index: SubgraphIndex,
        cell_type: CellTypeId,
        worker: WorkerId,
    ) -> Option<u64> {
        let subgraph = self.subgraph(index);
        match (subgraph.place, subgraph.stays.back()) {
            (Place::Roster(owner), Some(stay))
                if owner == worker && subgraph.cell_type == cell_type =>
            {
                let available = self.available(index, worker);
                Some(stay.join_step + u64::from(available - stay.node))
            }
            _ => None,
        }
    }

    /// Replaces the soonest entry of `stops`.
    fn correct_first_stop(&mut self, cell_type: CellTypeId, worker: WorkerId, to: Option<u64>) {
        let stops = &mut self.queues[cell_type.index()].roster_mut(worker).stops;
        if let Some(std::cmp::Reverse((_, index))) = stops.pop()
            && let Some(step) = to
        {
            stops.push(std::cmp::Reverse((step, index)));
        }
    }

    /// The task as its form has it, with the changes that the device has not been told.
    fn work_of_roster(&mut self, cell_type: CellTypeId, worker: WorkerId, steps: u32) -> Work {
        let roster = self.queues[cell_type.index()].roster_mut(worker);
        let leaves = std::mem::take(&mut roster.untold_leaves);
        let joins = std::mem::take(&mut roster.untold_joins);
        if self.config.task_form == TaskForm::Roster {
            return Work::Roster { leaves, joins, steps };
        }
        let roster = self.queues[cell_type.index()].roster(worker);
        let item = |&index: &SubgraphIndex| {
            let subgraph = self.subgraph(index);
            let join = joins.iter().find(|join| Some(join.slot) == subgraph.slot);
            Item {
                request: subgraph.request,
                run: subgraph.run,
                first: self.submitted(index),
                count: 1,
                slot: subgraph.slot,
                moved_from: join.and_then(|join| join.moved_from),
            }
        };
        Work::Rows(roster.members.values().map(item).collect())
    }

    fn join_roster(&mut self, index: SubgraphIndex, worker: WorkerId) {
        self.take_from_queue(index);
        self.note_first_task(index, worker);
        let available = self.available(index, worker);
        let slot = self.slot_of(index);
        let is_shared = self.config.state_placement == StatePlacement::Shared;
        let subgraph = self.subgraph_mut(index);
        let home = subgraph.home.replace(worker);
        let (cell_type, key, node) = (subgraph.cell_type, subgraph.key, subgraph.submitted);
        subgraph.place = Place::Roster(worker);
        subgraph.pin = None;
        let join = Join {
            request: subgraph.request,
            run: subgraph.run,
            slot,
            step: node,
            moved_from: home.filter(|&home| home != worker && !is_shared),
        };
        let is_consumer = !subgraph.edges.is_empty();
        let (is_producer, feeds_own_type) = self.produces(index);
        let roster = self.queues[cell_type.index()].roster_mut(worker);
        let join_step = roster.submitted_steps;
        roster.members.insert(key, index);
        roster.stops.push(std::cmp::Reverse((join_step + u64::from(available - node), index)));
        roster.untold_joins.push(join);
        roster.consumers += usize::from(is_consumer);
        roster.producers_of_own_type += usize::from(feeds_own_type);
        if is_producer {
            roster.producers.push(index);
        }
        let stay = Stay { join_step, node, leave_step: u64::MAX };
        self.subgraph_mut(index).stays.push_back(stay);
        self.forget_stale_stops(cell_type, worker);
    }

    /// Members that left early leave an entry in `stops` behind; now and then those go.
    fn forget_stale_stops(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        let roster = self.queues[cell_type.index()].roster(worker);
        if roster.stops.len() <= 2 * roster.members.len() + 64 {
            return;
        }
        let members = roster.members.values();
        let stops = members.filter_map(|&member| {
            let stop = self.true_stop(member, cell_type, worker)?;
            Some(std::cmp::Reverse((stop, member)))
        });
        let stops = stops.collect();
        self.queues[cell_type.index()].roster_mut(worker).stops = stops;
    }

    /// Takes a member out; the caller decides what becomes of it.
    pub(crate) fn leave_roster(&mut self, index: SubgraphIndex, worker: WorkerId) {
        let submitted = self.submitted(index);
        let (is_producer, feeds_own_type) = self.produces(index);
        let subgraph = self.subgraph(index);
        let (cell_type, key, is_consumer) =
            (subgraph.cell_type, subgraph.key, !subgraph.edges.is_empty());
        let slot = subgraph.slot.expect("a member of a roster has a slot");
        let roster = self.queues[cell_type.index()].roster_mut(worker);
        roster.members.remove(&key);
        roster.note_leave(slot);
        roster.consumers -= usize::from(is_consumer);
        roster.producers_of_own_type -= usize::from(feeds_own_type);
        if is_producer {
            roster.producers.retain(|&producer| producer != index);
        }
        let (now, is_idle) = (roster.submitted_steps, roster.is_idle());
        let subgraph = self.subgraph_mut(index);
        subgraph.place = Place::Blocked;
        subgraph.submitted = submitted;
        if is_idle {
            subgraph.stays.clear();
            subgraph.completed = submitted;
            return;
        }
        let stay = subgraph.stays.back_mut().expect("a member of a roster stays in it");
        stay.leave_step = now;
        if stay.join_step == now {
            subgraph.stays.pop_back();
        } else {
            self.queues[cell_type.index()].roster_mut(worker).leaving.push_back((now, index));
        }
        let subgraph = self.subgraph_mut(index);
        subgraph.pin = (!subgraph.stays.is_empty()).then_some(worker);
    }

    /// Puts the members of a roster without work in flight back into the queue.
    fn dissolve(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        let members = &self.queues[cell_type.index()].roster(worker).members;
        for index in members.values().copied().collect::<Vec<_>>() {
            self.leave_roster(index, worker);
            self.refresh(index);
        }
        self.queues[cell_type.index()].roster_mut(worker).stops.clear();
    }

    /// Forgets what was in flight in the roster of a worker that is lost.
    pub(crate) fn lose_roster(&mut self, cell_type: CellTypeId, worker: WorkerId) {
        let roster = self.queues[cell_type.index()].roster_mut(worker);
        roster.tasks_in_flight = 0;
        roster.completed_steps = roster.submitted_steps;
        roster.leaving.clear();
        self.dissolve(cell_type, worker);
        let roster = self.queues[cell_type.index()].roster_mut(worker);
        roster.untold_leaves.clear();
        roster.untold_joins.clear();
    }

    /// The worker's roster ran `steps` more steps.
    pub(crate) fn steps_completed(&mut self, cell_type: CellTypeId, worker: WorkerId, steps: u32) {
        let roster = self.queues[cell_type.index()].roster_mut(worker);
        roster.completed_steps += u64::from(steps);
        let completed = roster.completed_steps;
        for position in 0..self.queues[cell_type.index()].roster(worker).producers.len() {
            self.wake_consumers(self.queues[cell_type.index()].roster(worker).producers[position]);
        }
        while let Some(&(leave_step, index)) =
            self.queues[cell_type.index()].roster(worker).leaving.front()
            && leave_step <= completed
        {
            self.queues[cell_type.index()].roster_mut(worker).leaving.pop_front();
            self.left_roster_completed(index, leave_step);
        }
        for position in 0..self.queues[cell_type.index()].roster(worker).leaving.len() {
            self.wake_consumers(self.queues[cell_type.index()].roster(worker).leaving[position].1);
        }
    }

    /// All steps of a member up to a leave are complete. It may have joined again since.
    fn left_roster_completed(&mut self, index: SubgraphIndex, leave_step: u64) {
        let subgraph = self.subgraph_mut(index);
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
            self.wake_consumers(index);
        }
    }

    /// Whether others depend on the subgraph, and whether any of its own type does.
    fn produces(&self, index: SubgraphIndex) -> (bool, bool) {
        let subgraph = self.subgraph(index);
        let own =
            |&consumer: &SubgraphIndex| self.subgraph(consumer).cell_type == subgraph.cell_type;
        (!subgraph.consumers.is_empty(), subgraph.consumers.iter().any(own))
    }

    /// The subgraph's slot; acquired when it first joins, or before where slots are bounded.
    fn slot_of(&mut self, index: SubgraphIndex) -> SlotId {
        let subgraph = self.subgraph(index);
        if let Some(slot) = subgraph.slot {
            return slot;
        }
        let cell_type = subgraph.cell_type;
        let slot = self.queues[cell_type.index()].slots.acquire();
        self.subgraph_mut(index).slot = Some(slot);
        slot
    }
}
